"""A worker: production's process with its async executor, and its connection to an orchestrator.

The orchestrator is a server over the network, or embedded in the worker's process.
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
from interlock.wire.simulations import AnySimulationMessage, SimulationOrders
from interlock.wire.waits import WaitAnswer, WaitRequest
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
from interlock_verification.worlds.actors.orchestrators import ObservedOrchestrator, ServerInterface
from interlock_verification.worlds.claims.episodes import REQUEST, WORKER_LOOP, UnexpectedError
from interlock_verification.worlds.judge import Judge
from interlock_verification.worlds.network import ActorProcess, ClaimWatcher, NetworkCall, ReceiveAnswer
from interlock_verification.worlds.scheduler import WorldLoop
from interlock_verification.worlds.storage import SharedStore, StoreLink

T = TypeVar("T")

TIMEOUT_S = 10.0
TRIES = 2


class ServedPort:
    """The port over a network that loses, delays and repeats messages; any server can answer."""

    def __init__(self, process: ActorProcess, servers: Sequence[str], judge: Judge) -> None:
        self._process = process
        self._network = process.network
        self._judge = judge
        self._server = process.random.choice(list(servers))
        self._store_time: tuple[datetime, float] | None = None

    async def connect(self) -> None:
        """Check that the server answers."""
        asked_at = self._process.loop.time()
        self._store_time = (await self._call(lambda served: served.now()), asked_at)

    async def disconnect(self) -> None:
        """Do nothing: there is no connection."""

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """Claim jobs for this runner.

        After a lost answer it retries with the same claim id, as over HTTP.
        """
        named = msgspec.structs.replace(request, claim_id=self._process.host.ids())
        for _ in range(TRIES - 1):
            with suppress(StoreUnavailable):
                return await self._call(lambda served: served.claim(named))
        return await self._call(lambda served: served.claim(named))

    async def report(self, messages: Sequence[Message]) -> list[Answer]:
        """Send messages; they may arrive twice."""
        for message in messages:
            self._judge.message_sent(message)
        sent = without_tracebacks(messages)
        return await self._call(lambda served: served.report(sent), repeats=True)

    async def submit_children(
        self, token: str, runner_id: str, name: str, specs: Sequence[JobSpec]
    ) -> tuple[str, ...]:
        """Submit children of the job of a handler."""
        return await self._call(
            lambda served: served.runtime.trees.submit(token, runner_id, name, specs), repeats=True
        )

    async def children(self, token: str, runner_id: str, cursor: str) -> ChildPage:
        """Return the children of a job."""
        return await self._call(lambda served: served.runtime.trees.children(token, runner_id, cursor))

    async def await_signal(self, request: WaitRequest) -> WaitAnswer:
        """Wait for a signal; the request may arrive twice."""
        return await self._call(lambda served: served.runtime.waits.wait(request), repeats=True)

    async def simulate(self, token: str, runner_id: str, message: AnySimulationMessage) -> SimulationOrders:
        """Send a message about a simulation; it may arrive twice."""
        self._judge.simulations.message_sent(token, runner_id, message)
        return await self._call(
            lambda served: served.runtime.simulations.receive(token, runner_id, message), repeats=True
        )

    async def report_workloads(self, token: str, runner_id: str, facts: Sequence[WorkloadFact]) -> None:
        """Report events of agents; they may arrive twice."""
        await self._call(
            lambda served: served.runtime.workloads.apply_under(token, runner_id, facts), repeats=True
        )

    async def register(self, spec: WorkerSpec) -> str:
        """Register the worker with the supervisor."""
        named = without_host_facts(self._process, spec)
        return (await self._call(lambda served: served.runtime.workers.register(named))).id

    async def beat(self, worker_id: str, beat: WorkerBeat) -> WorkerOrders:
        """Send a heartbeat and return the orders; it may arrive twice."""
        return await self._call(lambda served: served.runtime.workers.beat(worker_id, beat), repeats=True)

    async def orders(self, worker_id: str, after: int, wait_s: float) -> WorkerOrders:
        """Return the orders, as soon as there are newer ones."""
        return await self._call(
            lambda served: served.runtime.workers.orders(worker_id, after=after, wait_s=wait_s),
            within_s=TIMEOUT_S + wait_s,
        )

    async def leave(self, worker_id: str, reason: str) -> None:
        """Report that the worker leaves."""
        await self._call(lambda served: served.runtime.workers.leave(worker_id, reason=reason))

    async def recover(self) -> int:
        """Do nothing: the servers sweep the store."""
        return 0

    async def now(self) -> datetime:
        """Return the store's time, approximately."""
        if self._store_time is None:
            await self.connect()
        assert self._store_time is not None
        store_time, at = self._store_time
        return store_time + timedelta(seconds=self._process.loop.time() - at)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Subscribe to the server, while it lives and is reachable."""
        token, server = object(), self._network.nodes[self._server].process
        served: ServerInterface | None = server.role if server is not None else None
        if served is None:
            return lambda: None
        pending = False

        def woken() -> None:
            nonlocal pending
            if not pending:
                pending = True
                self._network.schedule.call_in(self._network.trip_s(), ring)

        def ring() -> None:
            nonlocal pending
            pending = False
            if self._process.alive and self._network.reachable(self._process.name, self._server):
                self._process.loop.call_soon(wake)

        def stop() -> None:
            served.wakes.pop(token, None)

        served.wakes[token] = woken
        self._process.at_end.append(stop)
        return stop

    async def _call(
        self,
        request: Callable[[ServerInterface], Coroutine[Any, Any, T]],
        *,
        repeats: bool = False,
        within_s: float = TIMEOUT_S,
    ) -> T:
        def arrive(done: ReceiveAnswer) -> None:
            server = self._network.nodes[self._server].process
            if server is not None and server.alive and server.role is not None:
                serve(server, request(server.role), done)

        call = NetworkCall(self._process, self._server, arrive, within_s, repeats=repeats)
        answer: T = await call.answer()
        return answer


def serve(server: ActorProcess, work: Coroutine[Any, Any, object], done: ReceiveAnswer) -> None:
    """Do the requested work, in the process of the server."""

    async def run() -> None:
        try:
            answer = await work
        except InterlockError as error:
            done(None, error)
        except Exception as crash:  # noqa: BLE001 - any exception is a finding
            server.network.watcher.check(UnexpectedError(REQUEST, f"{server.loop.name}: {crash!r}"))
        else:
            done(answer, None)

    server.loop.create_task(run(), name="request")


class EmbeddedPort(EmbeddedOrchestrator):
    """A worker's embedded orchestrator on the shared store, observed by the judge."""

    def __init__(self, process: ActorProcess, store: SharedStore, judge: Judge) -> None:
        super().__init__(
            "memory:",
            settings=process.network.world.settings,
            store=lambda: StoreLink(process, store),
            host=process.host,
        )
        self._process, self._judge = process, judge

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """Claim jobs for this runner."""
        return await ObservedOrchestrator(self.services, self._judge).claim(request)

    async def report(self, messages: Sequence[Message]) -> list[Answer]:
        """Process messages."""
        for message in messages:
            self._judge.message_sent(message)
        return await ObservedOrchestrator(self.services, self._judge).report(without_tracebacks(messages))

    async def simulate(self, token: str, runner_id: str, message: AnySimulationMessage) -> SimulationOrders:
        """Process a message about a simulation."""
        self._judge.simulations.message_sent(token, runner_id, message)
        return await super().simulate(token, runner_id, message)

    async def register(self, spec: WorkerSpec) -> str:
        """Register the worker with the supervisor."""
        return await super().register(without_host_facts(self._process, spec))

    async def namesakes(self, worker_id: str) -> tuple[WorkerView, ...]:
        """Return the other live workers of its name.

        Those of earlier processes are dead.
        """
        return tuple(_as_seen_by(self._process, other) for other in await super().namesakes(worker_id))


def without_host_facts(process: ActorProcess, spec: WorkerSpec) -> WorkerSpec:
    """Return the spec without facts about the real machine.

    No seed decides these.
    """
    return msgspec.structs.replace(spec, host=process.name, pid=process.incarnation, metadata={})


def _as_seen_by(process: ActorProcess, other: WorkerView) -> WorkerView:
    """Return a worker as its host sees it.

    Only one process of a name lives at a time.
    """
    gone = {SYSTEM: groups.running_system(), BEGAN: "before"} if other.pid != process.incarnation else {}
    return msgspec.structs.replace(other, metadata=gone)


def without_tracebacks(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without tracebacks, which contain local paths."""
    return [
        msgspec.structs.replace(message, outcome=msgspec.structs.replace(message.outcome, details=""))
        if isinstance(message, Complete) and isinstance(message.outcome, Failed)
        else message
        for message in messages
    ]


LAST_WORD_S = 0.7
"""Time to wait for a thread that was asked to end."""


class InLoop:
    """Runs threads of production as tasks in the event loop of their process."""

    def __init__(self, loop: WorldLoop) -> None:
        self._loop = loop
        self._serving: list[asyncio.Task[Any]] = []

    async def joined(self) -> None:
        """Wait for the last messages, within a limit."""
        if self._serving:
            await asyncio.wait(self._serving, timeout=LAST_WORD_S)

    def serve(
        self, name: str, main: Callable[[], Coroutine[Any, Any, None]], begins: Begins | None = None
    ) -> Join:
        """Start a task; it ends by itself."""
        self._serving.append(self._loop.create_task(main(), name=name))
        if begins is not None:
            begins(self._loop)
        return lambda _timeout_s: None

    def repeat(self, name: str, every_s: float, body: Callable[[], None]) -> Join:  # noqa: ARG002
        """Do nothing: there are no threads that could hang."""
        return lambda _timeout_s: None


class WorkerActor:
    """A worker, from its start to its end."""

    def __init__(
        self,
        store: SharedStore,
        judge: Judge,
        watcher: ClaimWatcher,
        registry: Registry,
        servers: Sequence[str],
    ) -> None:
        self._store = store
        self._judge = judge
        self._registry = registry
        self._servers = servers
        self._log = make_log("error", "json", cast(TextIO, Alarm(watcher)))

    async def live(self, process: ActorProcess) -> None:
        """Work until told to shut down."""
        world = process.network.world
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

    def _port(self, process: ActorProcess) -> OrchestratorPort:
        if self._servers:
            return ServedPort(process, self._servers, self._judge)
        return EmbeddedPort(process, self._store, self._judge)


class Alarm:
    """A log that reports errors of a worker as broken claims."""

    def __init__(self, watcher: ClaimWatcher) -> None:
        self._watcher = watcher

    def write(self, line: str) -> None:
        self._watcher.check(UnexpectedError(WORKER_LOOP, line.strip()))

    def flush(self) -> None:
        """Do nothing."""

    def isatty(self) -> bool:
        """Return False."""
        return False
