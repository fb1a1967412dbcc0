"""`Interlock.simulations`: the door to simulations for programs.

flu = await il.simulations.start(epidemic, people=500)
await flu.pause()
view = await flu.resume()
view = await flu.wait(timeout_s=600)
print(view.status, view.current_step, view.result)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec

from interlock.errors import InvalidArguments, ResultNotReady, StoreUnavailable
from interlock.lifecycles import simulation
from interlock.lifecycles.simulation import SimulationState
from interlock.remote.interfaces import Services, SimulationsApi
from interlock.store.records import Entry
from interlock.systems.orchestrator.waiters import waker
from interlock.wire.simulations import SimulationFilter, SimulationSpec, SimulationView
from interlock.worker.codec import encode
from interlock.worker.simulations import Simulation

Work: TypeAlias = "Simulation[..., Any] | SimulationSpec | str"
"""A simulation and its arguments, a finished spec, or the name of one that is defined elsewhere."""

LOOK_EVERY_S = 1.0
"""A call may be lost; then this is the price."""
LEAST_PAUSE_S = 0.05


class SimulationHandle:
    """One simulation that was started."""

    __slots__ = ("_door", "run_id")

    def __init__(self, door: SimulationsClient, run_id: str) -> None:
        self._door = door
        self.run_id = run_id

    def __repr__(self) -> str:
        return f"<simulation {self.run_id}>"

    async def view(self) -> SimulationView:
        """The simulation as it stands."""
        return await self._door.get(self.run_id)

    async def wait(self, *, timeout_s: float | None = None) -> SimulationView:
        """The simulation once nobody executes it and nobody is awaited to."""
        return await self._door.wait(self.run_id, timeout_s=timeout_s)

    async def pause(self, *, reason: str = "") -> SimulationView:
        """Ask it to stop after the present step."""
        return await self._door.pause(self.run_id, reason=reason)

    async def resume(self, *, reason: str = "", queue: str = "") -> SimulationView:
        """Give it to a worker again, perhaps of another queue."""
        return await self._door.resume(self.run_id, reason=reason, queue=queue)

    async def cancel(self, *, reason: str = "") -> SimulationView:
        """Stop it for good."""
        return await self._door.cancel(self.run_id, reason=reason)


class SimulationsClient:
    """The simulations of a store, or of a server before one."""

    def __init__(self, here: Callable[[], Services], recover: Callable[[], Any], actor: str) -> None:
        self._here = here
        self._recover = recover
        self._actor = actor

    @property
    def _simulations(self) -> SimulationsApi:
        return self._here().simulations

    async def start(
        self,
        work: Work,
        /,
        *,
        run_id: str = "",
        scenario_path: str = "",
        scenario_name: str = "",
        request_id: str | None = None,
        **arguments: Any,
    ) -> SimulationHandle:
        """Start a simulation. All arguments but these are its own, and are checked here."""
        spec = spec_of(work, arguments)
        named = {"run_id": run_id, "scenario_path": scenario_path, "scenario_name": scenario_name}
        told = {name: text for name, text in named.items() if text}
        made = await self._simulations.create_run(
            msgspec.structs.replace(spec, **told), actor=self._actor, request_id=request_id
        )
        return SimulationHandle(self, made.run_id)

    async def get(self, run_id: str) -> SimulationView:
        """The simulation as it stands."""
        return await self._simulations.get(run_id)

    async def find(
        self,
        *,
        statuses: tuple[str, ...] = (),
        priority: str = "",
        text: str = "",
        limit: int = 100,
        cursor: str = "",
    ) -> tuple[list[SimulationView], str]:
        """Simulations of these statuses, newest first, and where more begin."""
        wanted = SimulationFilter(statuses=statuses, priority=priority, text=text)
        return await self._simulations.list_runs(wanted, cursor=cursor, limit=limit)

    async def pause(self, run_id: str, *, reason: str = "", request_id: str | None = None) -> SimulationView:
        """Ask it to stop after the present step."""
        return await self._simulations.pause(run_id, reason=reason, actor=self._actor, request_id=request_id)

    async def resume(
        self, run_id: str, *, reason: str = "", request_id: str | None = None, queue: str = ""
    ) -> SimulationView:
        """Give it to a worker of its queue, or of another one, after the last step that was saved."""
        await self._recover()  # word that its worker is gone may not have been delivered
        return await self._simulations.resume(
            run_id, reason=reason, actor=self._actor, request_id=request_id, queue=queue
        )

    async def cancel(self, run_id: str, *, reason: str = "", request_id: str | None = None) -> SimulationView:
        """Stop it for good."""
        return await self._simulations.cancel(run_id, reason=reason, actor=self._actor, request_id=request_id)

    # By hand: a program that executes simulations itself, without workers of Interlock

    async def create_run(self, spec: SimulationSpec, *, request_id: str | None = None) -> SimulationView:
        """Create a simulation; without a task no worker is given it, and it is moved by hand."""
        return await self._simulations.create_run(spec, actor=self._actor, request_id=request_id)

    async def transition(
        self,
        run_id: str,
        new_status: str,
        *,
        expected_version: int | None = None,
        worker_id: str | None = None,
        step: int | None = None,
        error: str = "",
        reason: str = "",
        request_id: str | None = None,
    ) -> SimulationView:
        """Move a simulation to a status, by its table; refuse another version than the expected one."""
        return await self._simulations.transition(
            run_id,
            new_status,
            expected_version=expected_version,
            worker_id=worker_id,
            step=step,
            error=error,
            actor=self._actor,
            reason=reason,
            request_id=request_id,
        )

    async def heartbeat(self, run_id: str, worker_id: str, step: int) -> SimulationView:
        """Say that its worker is alive and has completed this step; its version stays as it is."""
        return await self._simulations.heartbeat(run_id, worker_id, step)

    async def check_stale_runs(self, timeout_s: float | None = None) -> list[str]:
        """Return the ids of those that run and were not heard of, by default for `simulation_silence_s`."""
        return await self._simulations.check_stale_runs(timeout_s)

    async def history(self, run_id: str) -> list[Entry]:
        """Everything that has happened to it, oldest first."""
        return await self._simulations.history(run_id)

    async def wait(self, run_id: str, *, timeout_s: float | None = None) -> SimulationView:
        """The simulation once nobody executes it and nobody is awaited to: paused, interrupted or ended.

        Whoever waits also looks after deadlines, as everybody does who has the store.
        """
        called, swept_at = asyncio.Event(), float("-inf")
        loop = asyncio.get_running_loop()
        stop = self._here().store.subscribe(waker(called))
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    called.clear()
                    with suppress(StoreUnavailable):  # it may come back; who waits has a timeout
                        view = await self._simulations.get(run_id)
                        if stands(view):
                            return view
                        if loop.time() - swept_at >= LOOK_EVERY_S:
                            await self._recover()
                            swept_at = loop.time()
                    await _called_or_time(called)
        except TimeoutError:
            raise ResultNotReady(
                f"The simulation {run_id} goes on after {timeout_s:g} s.",
                todo=f"Watch it with `interlock simulation watch {run_id}`.",
                facts={"run_id": run_id, "timeout_s": timeout_s},
            ) from None
        finally:
            stop()


def stands(view: SimulationView) -> bool:
    """Whether nothing will happen to it by itself."""
    status = SimulationState(view.status)
    if status is simulation.PENDING:
        return bool(view.trouble) or not view.job_id
    return status is not simulation.RUNNING and not view.resuming


def spec_of(work: Work, arguments: dict[str, Any]) -> SimulationSpec:
    """What is started, checked as far as it can be without a worker."""
    match work:
        case Simulation():
            return work.run(**arguments)
        case SimulationSpec() if not arguments:
            return work
        case str():
            return SimulationSpec(task=work, input=encode(arguments, "arguments"))
    raise InvalidArguments(
        "A spec has its arguments already.",
        todo="Pass the simulation itself or its name, and its arguments by name.",
        facts={"by_name": sorted(arguments)},
    )


async def _called_or_time(called: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_EVERY_S):
            await called.wait()
            await asyncio.sleep(LEAST_PAUSE_S)
