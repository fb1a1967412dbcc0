"""A worker: production's process with its async executor, and its connection to an orchestrator.

The orchestrator is a server over the network, or one embedded in the worker's own process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TextIO, TypeVar, cast

import msgspec

from interlock.errors import InterlockError, StoreUnavailable
from interlock.processes import groups
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.wire.jobs import ChildPage, JobSpec
from interlock.wire.runner import Answer, ClaimRequest, Complete, Failed, Grant, Message
from interlock.wire.simulations import AnySimulationWord, SimulationOrders
from interlock.wire.workers import WorkerBeat, WorkerOrders, WorkerSpec, WorkerView
from interlock.wire.workloads import WorkloadFact
from interlock.worker.environment import WorkerHost
from interlock.worker.host import Begins, Join, Shutdown
from interlock.worker.port import OrchestratorPort
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings
from interlock.worker.supervisor_client import BEGAN, SYSTEM
from interlock.worker.tasks import Registry
from interlock.worker.telemetry import make_log
from interlock_verification.worlds.actors.orchestrators import Served, Watched
from interlock_verification.worlds.judge import Judge
from interlock_verification.worlds.network import Call, Done, Process, Watcher
from interlock_verification.worlds.scheduler import Loop
from interlock_verification.worlds.storage import SharedStore, StoreLink

T = TypeVar("T")

TIMEOUT_S = 10.0
TRIES = 2


class ServedPort:
    """The port over a network in which messages are lost, late and doubled; any of the servers will do."""

    def __init__(self, process: Process, servers: Sequence[str], judge: Judge) -> None:
        self._process = process
        self._stage = process.stage
        self._judge = judge
        self._server = process.random.choice(list(servers))
        self._told: tuple[datetime, float] | None = None

    async def connect(self) -> None:
        """Make sure that the server answers."""
        asked_at = self._process.loop.time()
        self._told = (await self._ask(lambda served: served.now()), asked_at)

    async def disconnect(self) -> None:
        """There is nothing to let go of."""

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """Work for this runner; asked again under its name when the answer is lost, as over HTTP."""
        named = msgspec.structs.replace(request, claim_id=self._process.host.ids())
        for _ in range(TRIES - 1):
            with suppress(StoreUnavailable):
                return await self._ask(lambda served: served.claim(named))
        return await self._ask(lambda served: served.claim(named))

    async def hear(self, messages: Sequence[Message]) -> list[Answer]:
        """Say these things; they may arrive twice."""
        for message in messages:
            self._judge.says(message)
        said = placeless(messages)
        return await self._ask(lambda served: served.hear(said), repeats=True)

    async def submit_children(
        self, token: str, runner_id: str, name: str, specs: Sequence[JobSpec]
    ) -> tuple[str, ...]:
        """Children of the job that a handler is at."""
        return await self._ask(
            lambda served: served.runtime.trees.submit(token, runner_id, name, specs), repeats=True
        )

    async def children(self, token: str, runner_id: str, cursor: str) -> ChildPage:
        """What has become of them."""
        return await self._ask(lambda served: served.runtime.trees.children(token, runner_id, cursor))

    async def simulate(self, token: str, runner_id: str, word: AnySimulationWord) -> SimulationOrders:
        """Say something about a simulation; it may arrive twice."""
        self._judge.simulations.says(token, runner_id, word)
        return await self._ask(
            lambda served: served.runtime.simulations.hear(token, runner_id, word), repeats=True
        )

    async def tell_workloads(self, token: str, runner_id: str, facts: Sequence[WorkloadFact]) -> None:
        """Have it known what was heard of agents; it may arrive twice."""
        await self._ask(
            lambda served: served.runtime.workloads.tell_under(token, runner_id, facts), repeats=True
        )

    async def register(self, spec: WorkerSpec) -> str:
        """A new life in the books of the supervisor."""
        named = as_in_this_world(self._process, spec)
        return (await self._ask(lambda served: served.runtime.workers.register(named))).id

    async def beat(self, worker_id: str, beat: WorkerBeat) -> WorkerOrders:
        """A sign of life, answered with orders; it may arrive twice."""
        return await self._ask(lambda served: served.runtime.workers.beat(worker_id, beat), repeats=True)

    async def orders(self, worker_id: str, after: int, wait_s: float) -> WorkerOrders:
        """The orders, as soon as there are newer ones."""
        return await self._ask(
            lambda served: served.runtime.workers.orders(worker_id, after=after, wait_s=wait_s),
            within_s=TIMEOUT_S + wait_s,
        )

    async def leave(self, worker_id: str, reason: str) -> None:
        """It goes."""
        await self._ask(lambda served: served.runtime.workers.leave(worker_id, reason=reason))

    async def recover(self) -> int:
        """The servers look after the store themselves."""
        return 0

    async def now(self) -> datetime:
        """The store's time, or close to it."""
        if self._told is None:
            await self.connect()
        assert self._told is not None
        told, at = self._told
        return told + timedelta(seconds=self._process.loop.time() - at)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Be woken by the server, as long as it lives and can be reached."""
        token, server = object(), self._stage.places[self._server].process
        served: Served | None = server.role if server is not None else None
        if served is None:
            return lambda: None
        pending = False

        def woken() -> None:
            nonlocal pending
            if not pending:
                pending = True
                self._stage.schedule.call_in(self._stage.trip_s(), ring)

        def ring() -> None:
            nonlocal pending
            pending = False
            if self._process.alive and self._stage.reachable(self._process.name, self._server):
                self._process.loop.call_soon(wake)

        def stop() -> None:
            served.wakes.pop(token, None)

        served.wakes[token] = woken
        self._process.at_end.append(stop)
        return stop

    async def _ask(
        self,
        ask: Callable[[Served], Coroutine[Any, Any, T]],
        *,
        repeats: bool = False,
        within_s: float = TIMEOUT_S,
    ) -> T:
        def arrive(done: Done) -> None:
            server = self._stage.places[self._server].process
            if server is not None and server.alive and server.role is not None:
                serve(server, ask(server.role), done)

        call = Call(self._process, self._server, arrive, within_s, repeats=repeats)
        answer: T = await call.answer()
        return answer


def serve(server: Process, work: Coroutine[Any, Any, object], done: Done) -> None:
    """Do what was asked for, in the process that was asked."""

    async def run() -> None:
        try:
            answer = await work
        except InterlockError as error:
            done(None, error)
        except Exception as crash:  # noqa: BLE001 - whatever it is, it is what is looked for
            server.stage.watcher.broke("no request crashes", f"{server.loop.name}: {crash!r}")
        else:
            done(answer, None)

    server.loop.create_task(run(), name="request")


class EmbeddedPort(EmbeddedOrchestrator):
    """A worker's own orchestrator on the shared store, with the judge reading along."""

    def __init__(self, process: Process, store: SharedStore, judge: Judge) -> None:
        super().__init__(
            "memory:",
            settings=process.stage.world.settings,
            store=lambda: StoreLink(process, store),
            host=process.host,
        )
        self._process, self._judge = process, judge

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """Work for this runner."""
        return await Watched(self.here, self._judge).claim(request)

    async def hear(self, messages: Sequence[Message]) -> list[Answer]:
        """Say these things."""
        for message in messages:
            self._judge.says(message)
        return await Watched(self.here, self._judge).hear(placeless(messages))

    async def simulate(self, token: str, runner_id: str, word: AnySimulationWord) -> SimulationOrders:
        """Say something about a simulation."""
        self._judge.simulations.says(token, runner_id, word)
        return await super().simulate(token, runner_id, word)

    async def register(self, spec: WorkerSpec) -> str:
        """A new life in the books of the supervisor."""
        return await super().register(as_in_this_world(self._process, spec))

    async def namesakes(self, worker_id: str) -> tuple[WorkerView, ...]:
        """Return the other living workers under its name, those of earlier processes as dead ones."""
        return tuple(_as_seen_by(self._process, other) for other in await super().namesakes(worker_id))


def as_in_this_world(process: Process, spec: WorkerSpec) -> WorkerSpec:
    """Replace what a worker tells of the machine it runs on, which no seed decides."""
    return msgspec.structs.replace(spec, host=process.name, pid=process.incarnation, metadata={})


def _as_seen_by(process: Process, other: WorkerView) -> WorkerView:
    """Return a worker as its host sees it: only one process of a name lives at a time."""
    gone = {SYSTEM: groups.running_system(), BEGAN: "before"} if other.pid != process.incarnation else {}
    return msgspec.structs.replace(other, metadata=gone)


def placeless(messages: Sequence[Message]) -> list[Message]:
    """The same without tracebacks: they name files, and these lie elsewhere on another machine."""
    return [
        msgspec.structs.replace(message, outcome=msgspec.structs.replace(message.outcome, details=""))
        if isinstance(message, Complete) and isinstance(message.outcome, Failed)
        else message
        for message in messages
    ]


LAST_WORD_S = 0.7
"""How long a thread that is asked to end is waited for, elsewhere."""


class InLoop:
    """What needs a thread elsewhere runs in the event loop of its process."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._serving: list[asyncio.Task[Any]] = []

    async def joined(self) -> None:
        """Whoever has a last word has said it, or there was no time for that."""
        if self._serving:
            await asyncio.wait(self._serving, timeout=LAST_WORD_S)

    def serve(
        self, name: str, main: Callable[[], Coroutine[Any, Any, None]], begins: Begins | None = None
    ) -> Join:
        """A task; it ends by itself."""
        self._serving.append(self._loop.create_task(main(), name=name))
        if begins is not None:
            begins(self._loop)
        return lambda _timeout_s: None

    def repeat(self, name: str, every_s: float, body: Callable[[], None]) -> Join:  # noqa: ARG002
        """Nobody supervises: there are no threads that could hang."""
        return lambda _timeout_s: None


class WorkerCast:
    """A worker, from its start to its end."""

    def __init__(
        self, store: SharedStore, judge: Judge, watcher: Watcher, registry: Registry, servers: Sequence[str]
    ) -> None:
        self._store = store
        self._judge = judge
        self._registry = registry
        self._servers = servers
        self._log = make_log("error", "json", cast(TextIO, Alarm(watcher)))

    async def live(self, process: Process) -> None:
        """Work until somebody asks it to go."""
        world = process.stage.world
        settings = WorkerSettings(
            name=process.name,
            labels=("gpu",) if process.name.endswith("1") else (),
            concurrency=world.slots,
            prefetch=world.prefetch,
            durations=world.durations,
            first_backoff_s=world.first_backoff_s,
            supervised=world.supervised,
        )
        shutdown, threads = Shutdown(process.loop.time), InLoop(process.loop)
        worker = WorkerProcess(
            settings,
            self._registry,
            lambda: self._port(process),
            incarnation=str(process.incarnation),
            log=self._log,
            shutdown=shutdown,
            host=WorkerHost(monotonic=process.loop.time, local=process.local, threads=threads),
        )
        process.role = worker
        await worker.run()
        await threads.joined()

    def _port(self, process: Process) -> OrchestratorPort:
        if self._servers:
            return ServedPort(process, self._servers, self._judge)
        return EmbeddedPort(process, self._store, self._judge)


class Alarm:
    """A worker that writes an error about itself has met something that should not be."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def write(self, line: str) -> None:
        self._watcher.broke("no loop of a worker crashes", line.strip())

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        """No."""
        return False
