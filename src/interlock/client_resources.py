"""The clients behind `Interlock.runs`, `Interlock.simulations` and `Interlock.records`.

run = await il.runs.submit(ci, pythons="3.13")            # a flow; its inputs by name
run = await il.runs.submit(Path(".interlock/ci.yml"))     # a workflow file
run = await il.runs.submit(Plan(jobs=...), workflow="ci") # a plan
view = await run.wait(timeout_s=600)
print(view.outcome, view.tally)

flu = await il.simulations.start(epidemic, people=500)
await flu.pause()
view = await flu.resume()
view = await flu.wait(timeout_s=600)
print(view.status, view.current_step, view.result)

orders = il.records(ORDERS)
order = await orders.create(Order(customer="ada", amount=40))
order = await orders.send(order.id, "pay", amount=40, expected=order.version)
async for order in orders.watch(order.id):
    print(order.state, order.data)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from interlock.errors import CannotLoad, InvalidArguments, ResultNotReady, StoreUnavailable
from interlock.lifecycles import simulation
from interlock.lifecycles.simulation import SimulationState
from interlock.machine import Event
from interlock.machine.events import payload_of
from interlock.remote.interfaces import RecordsApi, RunsApi, Services, SimulationsApi
from interlock.store.records import Entry
from interlock.systems.kinds import AT, DeclaredKind
from interlock.systems.orchestrator.waiters import waker
from interlock.systems.runs.search import found_runs
from interlock.systems.runs.workflows.flow import FlowFunction
from interlock.wire.filters import read_run_filter
from interlock.wire.records import RecordExplanation, StoredRecord
from interlock.wire.runs import Plan, RunExplanation, RunJobView, RunSpec, RunView, Source, Which
from interlock.wire.simulations import SimulationFilter, SimulationSpec, SimulationView
from interlock.worker.codec import encode
from interlock.worker.simulations import Simulation

PlanSource: TypeAlias = "FlowFunction | Plan | RunSpec | Path"
"""A flow and its inputs, a finished plan or spec, or a workflow file and its inputs."""

LOOK_EVERY_S = 1.0
"""Polling interval, for the case that a notification is lost."""
LEAST_PAUSE_S = 0.05


class RunHandle:
    """A submitted run."""

    __slots__ = ("_runs", "id")

    def __init__(self, runs: RunsClient, run_id: str) -> None:
        self._runs = runs
        self.id: str = run_id

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def wait(self, *, timeout_s: float | None = None) -> RunView:
        """Wait until the outcome of the run is decided and return the run."""
        return await self._runs.wait(self.id, timeout_s=timeout_s)

    async def view(self) -> RunView:
        """Return the run with its jobs."""
        return await self._runs.view(self.id)

    async def cancel(self, *, reason: str = "") -> RunView:
        """Request its cancellation."""
        return await self._runs.cancel(self.id, reason=reason)


class RunsClient:
    """The runs of a store or a server."""

    def __init__(self, services: Callable[[], Services], recover: Callable[[], Any], actor: str) -> None:
        self._services = services
        self._recover = recover
        self._actor = actor

    @property
    def _runs(self) -> RunsApi:
        return self._services().runs

    async def submit(
        self,
        work: PlanSource,
        /,
        *,
        source: Source | None = None,
        workflow: str = "",
        request_id: str | None = None,
        **inputs: Any,
    ) -> RunHandle:
        """Submit a run.

        Flows and files are evaluated here, so their errors are raised here.
        """
        spec = run_spec(work, source, workflow, inputs)
        made = await self._runs.submit(spec, request_id=request_id, actor=self._actor)
        return RunHandle(self, made.id)

    async def wait(self, run_id: str, *, timeout_s: float | None = None) -> RunView:
        """Wait until the outcome of a run is decided and return the run."""
        called, swept_at = asyncio.Event(), float("-inf")
        loop = asyncio.get_running_loop()
        stop = self._services().store.subscribe(waker(called))
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    called.clear()
                    with suppress(StoreUnavailable):  # the store may come back; the caller has a timeout
                        if (await self._runs.outline(run_id)).outcome is not None:
                            return await self._runs.view(run_id)
                        if loop.time() - swept_at >= LOOK_EVERY_S:
                            await self._recover()
                            swept_at = loop.time()
                    await _called_or_time(called)
        except TimeoutError:
            raise ResultNotReady(
                f"The run {run_id} has not ended within {timeout_s:g} s.",
                todo=f"See why it waits with `interlock run explain {run_id}`.",
                facts={"run_id": run_id, "timeout_s": timeout_s},
            ) from None
        finally:
            stop()

    async def view(self, run_id: str) -> RunView:
        """Return the run with its jobs."""
        return await self._runs.view(run_id)

    async def find(self, text: str = "", *, limit: int = 100, cursor: str = "") -> tuple[list[RunView], str]:
        """Return a page of matching runs, newest first, and a cursor.

        A filter is for example `outcome:failed workflow:ci`.
        """
        now = await self._services().jobs.now()
        found = await found_runs(self._runs, read_run_filter(text), now, limit=limit, cursor=cursor)
        return found.views, found.cursor

    async def jobs(self, run_id: str, *, first: int = 0, limit: int = 500) -> list[RunJobView]:
        """Return the jobs of a run in the order of its plan."""
        return await self._runs.jobs(run_id, first=first, limit=limit)

    async def cancel(self, run_id: str, *, reason: str = "", request_id: str | None = None) -> RunView:
        """Request the cancellation of a run and return the run."""
        return await self._runs.cancel(run_id, reason=reason, request_id=request_id, actor=self._actor)

    async def approve(self, run_id: str, *, comment: str = "", request_id: str | None = None) -> RunView:
        """Approve a waiting run, for its commit."""
        return await self._runs.approve(run_id, comment=comment, request_id=request_id, actor=self._actor)

    async def decline(self, run_id: str, *, reason: str = "", request_id: str | None = None) -> RunView:
        """Reject and cancel a run that waits for an approval."""
        return await self._runs.decline(run_id, reason=reason, request_id=request_id, actor=self._actor)

    async def rerun(
        self, run_id: str, which: Which = "all", *, job: str = "", request_id: str | None = None
    ) -> RunHandle:
        """Rerun a finished run.

        The new run repeats `all` jobs, the `failed` ones, or those `from` a job on.
        """
        made = await self._runs.rerun(run_id, which, job=job, request_id=request_id, actor=self._actor)
        return RunHandle(self, made.id)

    async def explain(self, run_id: str) -> RunExplanation:
        """Return why a run waits, or how it ended."""
        return await self._runs.explain(run_id)

    async def history(self, run_id: str) -> list[Entry]:
        """Return the history of a run, oldest first."""
        return await self._runs.history(run_id)


def run_spec(work: PlanSource, source: Source | None, workflow: str, inputs: dict[str, Any]) -> RunSpec:
    """Return the spec, evaluated as far as possible without a server."""
    about = source or Source()
    match work:
        case FlowFunction():
            spec = work.spec(about, **inputs)
        case Path():
            from interlock.systems.runs.workflows.workflow import spec_of_file  # noqa: PLC0415 - see `git`

            spec = spec_of_file(_text_of(work), work.name, about, {k: str(v) for k, v in inputs.items()})
        case Plan() if not inputs:
            spec = RunSpec(plan=work, source=about)
        case RunSpec() if not inputs and source is None:
            spec = work
        case _:
            raise InvalidArguments(
                "Inputs are for flows and workflow files; a plan has them already.",
                todo="Give a flow, a Path to a workflow file, a Plan, or a RunSpec alone.",
                facts={"inputs": sorted(inputs)},
            )
    return msgspec.structs.replace(spec, workflow=workflow) if workflow else spec


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CannotLoad(
            f"The workflow file {path} cannot be read: {error}.",
            todo="Give the path of a workflow file.",
            facts={"file": str(path)},
        ) from None


async def _called_or_time(called: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_EVERY_S):
            await called.wait()
            await asyncio.sleep(LEAST_PAUSE_S)


SimulationWork: TypeAlias = "Simulation[..., Any] | SimulationSpec | str"
"""A simulation and its arguments, a finished spec, or the name of a simulation defined elsewhere."""


class SimulationHandle:
    """A started simulation."""

    __slots__ = ("_simulations", "run_id")

    def __init__(self, simulations: SimulationsClient, run_id: str) -> None:
        self._simulations = simulations
        self.run_id: str = run_id

    def __repr__(self) -> str:
        return f"<simulation {self.run_id}>"

    async def view(self) -> SimulationView:
        """Return the simulation."""
        return await self._simulations.get(self.run_id)

    async def wait(self, *, timeout_s: float | None = None) -> SimulationView:
        """Return the simulation once it is paused, interrupted or ended."""
        return await self._simulations.wait(self.run_id, timeout_s=timeout_s)

    async def pause(self, *, reason: str = "") -> SimulationView:
        """Request a pause after the current step."""
        return await self._simulations.pause(self.run_id, reason=reason)

    async def resume(self, *, reason: str = "", queue: str = "") -> SimulationView:
        """Resume it, optionally in another queue."""
        return await self._simulations.resume(self.run_id, reason=reason, queue=queue)

    async def cancel(self, *, reason: str = "") -> SimulationView:
        """Cancel it permanently."""
        return await self._simulations.cancel(self.run_id, reason=reason)


class SimulationsClient:
    """The simulations of a store or a server."""

    def __init__(self, services: Callable[[], Services], recover: Callable[[], Any], actor: str) -> None:
        self._services = services
        self._recover = recover
        self._actor = actor

    @property
    def _simulations(self) -> SimulationsApi:
        return self._services().simulations

    async def start(
        self,
        work: SimulationWork,
        /,
        *,
        run_id: str = "",
        scenario_path: str = "",
        scenario_name: str = "",
        request_id: str | None = None,
        **arguments: Any,
    ) -> SimulationHandle:
        """Start a simulation.

        All other arguments are passed to it, and are checked here.
        """
        spec = spec_of(work, arguments)
        named = {"run_id": run_id, "scenario_path": scenario_path, "scenario_name": scenario_name}
        given = {name: text for name, text in named.items() if text}
        made = await self._simulations.create_run(
            msgspec.structs.replace(spec, **given), actor=self._actor, request_id=request_id
        )
        return SimulationHandle(self, made.run_id)

    async def get(self, run_id: str) -> SimulationView:
        """Return the simulation."""
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
        """Return a page of simulations, newest first, and the next cursor."""
        wanted = SimulationFilter(statuses=statuses, priority=priority, text=text)
        return await self._simulations.list_runs(wanted, cursor=cursor, limit=limit)

    async def pause(self, run_id: str, *, reason: str = "", request_id: str | None = None) -> SimulationView:
        """Request a pause after the current step."""
        return await self._simulations.pause(run_id, reason=reason, actor=self._actor, request_id=request_id)

    async def resume(
        self, run_id: str, *, reason: str = "", request_id: str | None = None, queue: str = ""
    ) -> SimulationView:
        """Resume it after the last saved step, optionally in another queue."""
        await self._recover()  # the loss of its worker may not have been noticed yet
        return await self._simulations.resume(
            run_id, reason=reason, actor=self._actor, request_id=request_id, queue=queue
        )

    async def cancel(self, run_id: str, *, reason: str = "", request_id: str | None = None) -> SimulationView:
        """Cancel it permanently."""
        return await self._simulations.cancel(run_id, reason=reason, actor=self._actor, request_id=request_id)

    # By hand: a program that executes simulations itself, without workers of Interlock

    async def create_run(self, spec: SimulationSpec, *, request_id: str | None = None) -> SimulationView:
        """Create a simulation.

        Without a task, your program executes it and reports transitions.
        """
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
        """Report a transition of a simulation, of the expected version if given."""
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
        """Report that its worker is alive and has completed this step.

        The version does not change.
        """
        return await self._simulations.heartbeat(run_id, worker_id, step)

    async def check_stale_runs(self, timeout_s: float | None = None) -> list[str]:
        """Return ids of running simulations without a heartbeat.

        The default silence is `simulation_silence_s`.
        """
        return await self._simulations.check_stale_runs(timeout_s)

    async def history(self, run_id: str) -> list[Entry]:
        """Return its history, oldest first."""
        return await self._simulations.history(run_id)

    async def wait(self, run_id: str, *, timeout_s: float | None = None) -> SimulationView:
        """Return the simulation once it is paused, interrupted or ended.

        With a store, the waiting client also handles deadlines, like every process with a store.
        """
        called, swept_at = asyncio.Event(), float("-inf")
        loop = asyncio.get_running_loop()
        stop = self._services().store.subscribe(waker(called))
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    called.clear()
                    with suppress(StoreUnavailable):  # the store may come back; the waiter has a timeout
                        view = await self._simulations.get(run_id)
                        if is_settled(view):
                            return view
                        if loop.time() - swept_at >= LOOK_EVERY_S:
                            await self._recover()
                            swept_at = loop.time()
                    await _called_or_time(called)
        except TimeoutError:
            raise ResultNotReady(
                f"The simulation {run_id} is still running after {timeout_s:g} s.",
                todo=f"Watch it with `interlock simulation watch {run_id}`.",
                facts={"run_id": run_id, "timeout_s": timeout_s},
            ) from None
        finally:
            stop()


def is_settled(view: SimulationView) -> bool:
    """Return whether the simulation changes only after a command."""
    status = SimulationState(view.status)
    if status is simulation.PENDING:
        return bool(view.trouble) or not view.job_id
    return status is not simulation.RUNNING and not view.resuming


def spec_of(work: SimulationWork, arguments: dict[str, Any]) -> SimulationSpec:
    """Return the spec, validated as far as possible without a worker."""
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


D = TypeVar("D")

Views: TypeAlias = list[StoredRecord]
Entries: TypeAlias = list[Entry]

"""Interval of polls, in case a wake-up is lost."""


class RecordsClient(Generic[D]):
    """The records of one kind, in a store or behind a server."""

    def __init__(
        self,
        kind: DeclaredKind[D] | str,
        services: Callable[[], Services],
        learn: Callable[[DeclaredKind[Any]], Awaitable[None]],
        recover: Callable[[], Awaitable[Any]],
        actor: str,
    ) -> None:
        self._declared = None if isinstance(kind, str) else kind
        self.kind: str = kind if isinstance(kind, str) else kind.name
        self._services = services
        self._learn = learn
        self._recover = recover
        self._actor = actor

    async def create(
        self, data: D | Mapping[str, Any], *, record_id: str = "", request_id: str | None = None
    ) -> StoredRecord:
        """Create a record in the initial state. Without an id, one is generated."""
        records = await self._records()
        if self._declared is not None:
            self._declared.made(data)  # validated here, to save a request to the server
        made = await records.create(
            self.kind, data, record_id=record_id, actor=self._actor, request_id=request_id
        )
        return self._read(made)

    async def send(
        self,
        record_id: str,
        event: str | Event,
        /,
        *,
        expected: int | None = None,
        reason: str = "",
        request_id: str | None = None,
        **data: Any,
    ) -> StoredRecord:
        """Send an event, with its payload by name.

        With `expected` it is refused unless the record is in that version (`VersionChanged`). A request id
        makes the call idempotent. Refusals of the table are raised unchanged.
        """
        name, carried = (event, data) if isinstance(event, str) else (event.name, {**_carried(event), **data})
        records = await self._records()
        sent = await records.send(
            self.kind,
            record_id,
            name,
            carried,
            expected=expected,
            reason=reason,
            actor=self._actor,
            request_id=request_id,
        )
        return self._read(sent)

    async def get(self, record_id: str) -> StoredRecord:
        """Return the record."""
        return self._read(await (await self._records()).get(self.kind, record_id))

    async def list(
        self,
        *,
        states: Sequence[str] = (),
        queue: str = "",
        parent: str = "",
        limit: int = 100,
        cursor: str = "",
        **where: Any,
    ) -> tuple[Views, str]:
        """Return a page of records, newest first, and the cursor of the next one.

        Fields that the kind declares as labels are filtered by name: `list(customer="ada")`.
        """
        found, after = await (await self._records()).find(
            self.kind, states=states, where=where, queue=queue, parent=parent, limit=limit, cursor=cursor
        )
        return [self._read(each) for each in found], after

    async def history(self, record_id: str) -> Entries:
        """Return the history of a record, oldest first."""
        return await (await self._records()).history(self.kind, record_id)

    async def explain(self, record_id: str) -> RecordExplanation:
        """Return why a record waits, the role that acts next, and its timer."""
        return await (await self._records()).explain(self.kind, record_id)

    async def watch(self, record_id: str) -> AsyncIterator[StoredRecord]:
        """Yield the record now and after every change, until it has ended.

        With a store, the watcher also fires timers that have run out.
        """
        seen, called = 0, asyncio.Event()
        view = await self.get(record_id)
        stop = self._services().records.subscribe(self.kind, waker(called))
        try:
            while True:
                if view.version != seen:
                    seen = view.version
                    yield view
                if view.ended:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await called.wait()
                called.clear()
                with suppress(StoreUnavailable):  # the store may come back; the waiter has a timeout
                    await self._recover()
                    view = await self.get(record_id)
        finally:
            stop()

    async def wait(self, record_id: str, *states: str, timeout_s: float | None = None) -> StoredRecord:
        """Return the record once it is in one of these states, or has ended."""
        try:
            async with asyncio.timeout(timeout_s):
                async for view in self.watch(record_id):
                    if view.state in states:
                        break
        except TimeoutError:
            view = await self.get(record_id)
            raise ResultNotReady(
                f"The {self.kind} {record_id} is still {view.state} after {timeout_s:g} s.",
                todo=f"Wait longer, or see why with `interlock record explain {self.kind} {record_id}`.",
                facts={"kind": self.kind, "id": record_id, "state": view.state, "timeout_s": timeout_s},
            ) from None
        return view

    async def _records(self) -> RecordsApi:
        if self._declared is not None:
            await self._learn(self._declared)
        return self._services().records

    def _read(self, view: StoredRecord) -> StoredRecord:
        """Return the record with data of the type of the kind."""
        data = msgspec.json.decode(view.data) if isinstance(view.data, msgspec.Raw) else view.data
        if self._declared is not None:
            data = self._declared.made(data)
        return msgspec.structs.replace(view, data=data)


def _carried(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in payload_of(type(event)) if name != AT}
