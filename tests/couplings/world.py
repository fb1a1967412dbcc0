"""Where the scenarios of couplings are played: the systems and workers of production, on virtual time.

A scenario brings one coupling about through what servers, workers and people call, and then looks at the
receiver. Time passes only when nothing else is left to do, so that a scenario which waits in vain ends
after some milliseconds.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

import msgspec
from tests.systems.runs.site import Site

from interlock.store.memory import MemoryStore
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.runtime import Host
from interlock.testing.clocks import JumpingClock
from interlock.wire.runner import ClaimRequest, Grant
from interlock.worker.environment import WorkerHost
from interlock.worker.host import Shutdown
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import Registry
from interlock.worker.telemetry import make_log
from interlock_verification.worlds.actors.workers import InLoop
from interlock_verification.worlds.scheduler import WorldLoop, WorldSchedule

WITHIN_S = 600.0
"""How much virtual time a scenario may take."""
PATIENCE_S = 200.0
"""How much of it the receiver of a coupling has; every lease and deadline of a worker ends before that."""
LOOK_EVERY_S = 0.5

Step: TypeAlias = tuple[str, str, str]
"""An event, the state in which it was taken, and the state that it led to."""


class NotDelivered(AssertionError):
    """The receiver of a coupling has not taken what it should have been sent."""


class VirtualClock(JumpingClock):
    """The store's clock: goes with the event loop, and jumps besides."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop

    def __call__(self) -> datetime:
        return self._now + timedelta(seconds=self._loop.time())


class LastingStore(MemoryStore):
    """A store that several connections share: it stays open when one of them is closed."""

    async def close(self) -> None:
        """Keep it for the others."""


class World(Site):
    """A site on virtual time, with the workers that a scenario starts."""

    def __init__(self) -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        super().__init__(clock=clock, store=lambda: LastingStore(CATALOGUE, clock=clock))
        self.crashing = False
        """Whether the next claim of a worker crashes."""
        self._workers: list[Worker] = []

    def worker(self, registry: Registry, **settings: Any) -> Worker:
        """Start a worker that knows these tasks; it goes with the world."""
        self._workers.append(Worker(self, registry, settings))
        return self._workers[-1]

    async def close(self) -> None:
        """Let the workers go, and then the store."""
        for worker in self._workers:
            await worker.stop()
        await super().close()

    # What has become of the receiver

    async def steps(self, kind: str, record_id: str, machine: str = "") -> list[Step]:
        """Return the journalled steps of one machine of a record, in order."""
        entries = (await self.store.feed(limit=100_000)).entries
        return [
            (line.event, str(line.source), str(line.target))
            for entry in entries
            if (entry.kind, entry.id) == (kind, record_id)
            for line in entry.note.steps
            if line.machine == (machine or kind)
        ]

    async def took(self, kind: str, record_id: str, machine: str, *step: str) -> None:
        """Raise unless this machine of this record has taken this step."""
        taken = await self.steps(kind, record_id, machine)
        must(step in taken, f"The {machine} of {kind} {record_id} has not taken {step}, but {taken}.")

    async def job_takes(self, job_id: str, machine: str, *step: str) -> None:
        """Wait for a step of a job, or of an attempt or lease of it; raise when it does not come."""
        taken = partial(self.steps, "job", job_id, machine)
        await comes(step, taken, f"The {machine} of job {job_id}", PATIENCE_S)

    async def job_took(self, job_id: str, machine: str, *step: str) -> None:
        """Raise unless a job, or an attempt or lease of it, has taken this step."""
        await self.took("job", job_id, machine, *step)

    async def attempts(self, job_id: str, *states: str) -> None:
        """Raise unless the attempts of a job are in these states."""
        found = [one.state for one in (await self.view(job_id)).attempts]
        must(found == list(states), f"The attempts of {job_id} are {found}, not {list(states)}.")


class Worker:
    """A worker process of production without threads; its log says which steps its machines take."""

    def __init__(self, world: World, registry: Registry, settings: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WorldLoop)
        self._log = io.StringIO()
        self._threads = InLoop(loop)
        self.process = WorkerProcess(
            WorkerSettings(**{"name": "worker", "concurrency": 1, "supervised": False, **settings}),
            registry,
            lambda: WorkerPort(world, Host(monotonic=loop.time, wall=loop.time)),
            incarnation="1",
            log=make_log("info", "json", self._log),
            shutdown=Shutdown(loop.time),
            host=WorkerHost(monotonic=loop.time, local=world.clock, threads=self._threads),
        )
        self._running = loop.create_task(self.process.run(), name="worker")

    async def stop(self) -> None:
        """Ask it to go at once, and wait until it has gone."""
        self.process.shutdown.hurry()
        await self._running
        await self._threads.joined()

    def steps(self, machine: str, job_id: str = "") -> list[Step]:
        """Return the moves of its process, or of the task of a job."""
        name = "worker" if machine == "process" else machine
        lines = [msgspec.json.decode(line) for line in self._log.getvalue().splitlines()]
        return [
            (line["event"], line["from_state"], line["to_state"])
            for line in lines
            if line["message"] == f"{name}_state_transition" and job_id in ("", line.get("task_id"))
        ]

    async def is_at(self, job_id: str, state: str) -> None:
        """Wait until the task of a job is in this state: a scenario cannot begin before."""
        async with asyncio.timeout(PATIENCE_S):
            while not any(target == state for _, _, target in self.steps("task", job_id)):
                await asyncio.sleep(LOOK_EVERY_S)

    async def takes(self, machine: str, job_id: str, *step: str, within_s: float = PATIENCE_S) -> None:
        """Wait for a step of its process, or of the task of a job; raise when it does not come."""

        async def taken() -> list[Step]:
            return self.steps(machine, job_id)

        await comes(step, taken, f"The {machine} {job_id} of the worker", within_s)


class WorkerPort(EmbeddedOrchestrator):
    """A worker's own orchestrator on the store of its world."""

    def __init__(self, world: World, host: Host) -> None:
        super().__init__("memory:", settings=world.settings, store=lambda: world.store, host=host)
        self._world = world

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """Work for the worker, unless the world wants its port to crash."""
        if self._world.crashing:
            self._world.crashing = False
            raise ZeroDivisionError("a fault of the port")
        return await super().claim(request)


Scenario: TypeAlias = Callable[[World], Awaitable[None]]

SCENARIOS: dict[tuple[str, str], Scenario] = {}
"""One for each cause of each coupling, by its sentence and the cause."""


def delivers(sentence: str, cause: str = "") -> Callable[[Scenario], Scenario]:
    """Note that a scenario is the one of this coupling, and of this one of its causes if it has several."""

    def note(scenario: Scenario) -> Scenario:
        assert (sentence, cause) not in SCENARIOS, f"There are two scenarios of “{sentence}” {cause}."
        SCENARIOS[sentence, cause] = scenario
        return scenario

    return note


def must(true: object, what: str) -> None:
    """Raise unless the receiver is as the coupling wants it."""
    if not true:
        raise NotDelivered(what)


async def comes(
    step: tuple[str, ...], taken: Callable[[], Awaitable[list[Step]]], whose: str, within_s: float
) -> None:
    """Wait for a step; raise when it is not among those taken after so much virtual time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while step not in (found := await taken()):
        must(loop.time() < deadline, f"{whose} has not taken {step}, but {found}.")
        await asyncio.sleep(LOOK_EVERY_S)


def played(scenario: Scenario) -> None:
    """Play a scenario in a world of its own, to its end."""
    schedule = WorldSchedule()
    loop = WorldLoop(schedule, "world")  # type: ignore[abstract]

    async def play() -> None:
        world = World()
        await world.open()
        try:
            await scenario(world)
        finally:
            await world.close()

    playing = loop.create_task(play(), name="scenario")
    playing.add_done_callback(lambda _: setattr(schedule, "halted", True))
    try:
        schedule.run(WITHIN_S)
        assert playing.done(), f"The scenario has not ended within {WITHIN_S:g} s of virtual time."
        playing.result()
    finally:
        loop.kill()
