"""An Interlock in memory with a worker, on virtual time; `in_memory_sync` is the same without asyncio.

Time passes only while a test waits, and then at once. The worker is the real one, in the test's own event
loop, and a test can kill it.

Why: decision 0165.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from interlock import sync
from interlock.backoff import Backoff
from interlock.client import Interlock
from interlock.errors import StoreUnavailable
from interlock.lifecycles.durations import Durations
from interlock.store.contract import Store
from interlock.store.memory import MemoryStore
from interlock.store.records import Record
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.runtime import Host
from interlock.systems.settings import DEFAULT_SETTINGS, Settings
from interlock.testing.clocks import VirtualTime, seconds_of
from interlock.testing.faults import FaultyStore, Plan
from interlock.wire.jobs import ChildPage, JobSpec, PredecessorPage
from interlock.wire.runner import Answer, ClaimRequest, Grant, Message
from interlock.wire.waits import WaitAnswer, WaitRequest
from interlock.worker.environment import WorkerHost
from interlock.worker.host import Begins, Join, Shutdown
from interlock.worker.middleware import Chain
from interlock.worker.port import ChildJobPort, OrchestratorPort, PredecessorPort, SignalPort
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import DEFAULT, Registry
from interlock.worker.telemetry import make_log


class InMemoryWorker:
    """The worker of a test. It can be stopped, killed and started again."""

    def __init__(
        self, settings: WorkerSettings, registry: Registry, port: Callable[[], OrchestratorPort]
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._port = port
        self._lives = 0
        self._process: WorkerProcess | None = None
        self._running: asyncio.Task[int] | None = None
        self._beside: list[asyncio.Task[None]] = []
        self._wire = _Wire(port)

    @property
    def name(self) -> str:
        """The name in the journal; each start has a number."""
        return f"{self._settings.name}#{self._lives}"

    @property
    def running(self) -> bool:
        """Whether it has been started, and neither stopped nor killed."""
        return self._running is not None

    @property
    def busy(self) -> bool:
        """Whether it has tasks that have not ended, or reports that have not been sent."""
        return self._process is not None and bool(self._process.leftovers())

    def takes(self, queue: str | None) -> bool:
        """Return whether it takes jobs from a queue."""
        return self.running and queue in self._settings.queues

    @property
    def elsewhere(self) -> int:
        """The number of its handlers that run in threads or processes."""
        return self._process.leftovers().get("elsewhere", 0) if self._process is not None else 0

    async def start(self) -> None:
        """Start the worker, unless it is running."""
        if self._running is not None:
            return
        loop = asyncio.get_running_loop()
        self._lives += 1
        self._wire = wire = _Wire(self._port)
        self._process = WorkerProcess(
            self._settings,
            self._registry,
            wire.connected,
            incarnation=str(self._lives),
            log=make_log(self._settings.log_level, "text"),
            shutdown=Shutdown(loop.time),
            host=WorkerHost(
                monotonic=loop.time,
                local=lambda: datetime.min.replace(tzinfo=UTC),  # replaced when the store reports its time
                threads=_InLoop(self._beside),
            ),
        )
        self._running = asyncio.create_task(self._process.run(), name="worker of a test")

    async def stop(self) -> int:
        """Stop it as SIGTERM does; return its exit code."""
        if self._process is None or self._running is None:
            return 0
        self._process.shutdown.request()
        await asyncio.wait([self._running])
        running, self._running, self._process = self._running, None, None
        return running.result()

    async def kill(self) -> None:
        """Kill it as `kill -9` does: it sends nothing more, and its handlers end."""
        if self._running is None:
            return
        self._wire.cut = True
        ending = [self._running, *self._beside]
        for task in ending:
            task.cancel()
        await asyncio.wait(ending)
        self._running, self._process = None, None
        self._beside.clear()


class _InLoop:
    """Runs the threads of a worker as tasks in the event loop of the test."""

    def __init__(self, tasks: list[asyncio.Task[None]]) -> None:
        self._tasks = tasks

    def serve(
        self, name: str, main: Callable[[], Coroutine[Any, Any, None]], begins: Begins | None = None
    ) -> Join:
        """Start a task, which ends by itself."""
        self._tasks.append(asyncio.create_task(main(), name=name))
        if begins is not None:
            begins(asyncio.get_running_loop())
        return lambda _timeout_s: None

    def repeat(self, name: str, every_s: float, body: Callable[[], None]) -> Join:  # noqa: ARG002
        """Do nothing: a loop that hangs shows as a test that hangs."""
        return lambda _timeout_s: None


class _Wire:
    """The connection of one start of the worker; after a cut, the store receives nothing more from it."""

    def __init__(self, port: Callable[[], OrchestratorPort]) -> None:
        self._port = port
        self.cut = False

    def connected(self) -> OrchestratorPort:
        """Return a new connection."""
        return _Connection(self._port(), self)

    def check(self) -> None:
        """Raise `StoreUnavailable` after a cut."""
        if self.cut:
            raise StoreUnavailable("The worker is dead.")


class _Connection:
    """A port over this connection."""

    def __init__(self, port: OrchestratorPort, wire: _Wire) -> None:
        self._port = port
        self._wire = wire

    async def connect(self) -> None:
        self._wire.check()
        await self._port.connect()

    async def disconnect(self) -> None:
        await self._port.disconnect()

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        self._wire.check()
        return await self._port.claim(request)

    async def report(self, messages: Sequence[Message]) -> list[Answer]:
        self._wire.check()
        return await self._port.report(messages)

    async def submit_children(
        self, token: str, runner_id: str, name: str, specs: Sequence[JobSpec]
    ) -> tuple[str, ...]:
        return await self._child_job_port().submit_children(token, runner_id, name, specs)

    async def predecessors(self, token: str, runner_id: str, cursor: str) -> PredecessorPage:
        self._wire.check()
        assert isinstance(self._port, PredecessorPort)
        return await self._port.predecessors(token, runner_id, cursor)

    async def children(self, token: str, runner_id: str, cursor: str) -> ChildPage:
        return await self._child_job_port().children(token, runner_id, cursor)

    async def await_signal(self, request: WaitRequest) -> WaitAnswer:
        self._wire.check()
        assert isinstance(self._port, SignalPort)
        return await self._port.await_signal(request)

    def _child_job_port(self) -> ChildJobPort:
        self._wire.check()
        assert isinstance(self._port, ChildJobPort)
        return self._port

    async def recover(self) -> int:
        self._wire.check()
        return await self._port.recover()

    async def now(self) -> datetime:
        self._wire.check()
        return await self._port.now()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._port.subscribe(wake)


BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
A_MOMENT_S = 0.001
"""Extra time of a jump, for the consequences of timers that fire at its end."""
_SOON_S = 0.000_002
_AGAIN_S = 1.0
_SETTLED_S = 0.01
"""Time without a commit after which a worker has begun all claimed jobs."""
_QUIET_S = 10.0
"""Time without a commit after which a job that is due will not be claimed: a limit holds it back, say."""
_NEVER_S = 30 * 86_400.0
"""Interval of polls that are not needed: subscribers are woken instead."""


class Memory(MemoryStore):
    """A store in memory that knows its next timer, and outlives its connections."""

    async def close(self) -> None:
        """Do nothing: the store stays open."""

    def next_at(self) -> datetime | None:
        """Return the time of the next deadline or ready job, if there is one."""
        now = self._now()
        moments = [record.deadline_at for record in self._timed.values() if record.deadline_at]
        moments += [r.ready_at for r in self._ready.values() if r.ready_at and r.ready_at > now]
        return min(moments, default=None)

    def claimable(self) -> Iterator[Record]:
        """Yield the records that a worker could claim now."""
        now = self._now()
        yield from (record for record in self._ready.values() if record.ready_at and record.ready_at <= now)

    def call_everybody(self) -> None:
        """Wake all subscribers, because time has passed."""
        for wake in list(self._wakes.values()):
            wake()


class VirtualClock:
    """The clock of the store and of all components in the test."""

    def __init__(self, time: VirtualTime, start: datetime) -> None:
        self._time = time
        self._start = start
        self._began = time.time()

    def __call__(self) -> datetime:
        return self.now

    @property
    def now(self) -> datetime:
        """The present time."""
        return self._start + timedelta(seconds=self._time.time() - self._began)

    async def jump(self, by: str | float | timedelta) -> datetime:
        """Advance the time by a timedelta, seconds, or words.

        Words are for example "2h", "90s" or "1.5d". Timers that are due meanwhile fire in order, each at its
        own time.
        """
        seconds = seconds_of(by)
        if seconds < 0:
            raise ValueError("Time does not go back here; there is `JumpingClock` for clocks that do.")
        await asyncio.sleep(seconds + A_MOMENT_S)
        return self.now


class InMemory(Interlock):
    """The client of a test, with the clock and the worker."""

    def __init__(
        self,
        port: EmbeddedOrchestrator,
        clock: VirtualClock,
        worker: InMemoryWorker,
        store: Memory,
        registry: Registry = DEFAULT,
    ) -> None:
        super().__init__("memory:", actor="test")
        self.middleware: Callable[[], Chain] = lambda: registry.chain
        self._port = port
        self.clock = clock
        self.worker = worker
        self.store = store
        self.faulty: FaultyStore | None = None
        """The store as the worker sees it, with `faults`; `counts` counts the injected faults."""

    async def drain(self) -> None:
        """Run every job that is due, until nothing more can run now.

        Jobs that these submit are run, too. Time passes as far as handlers sleep. Jobs that wait for a later
        time, a signal, an approval, a limit, a queue that the worker does not take, or a worker that was
        stopped, are left waiting.
        """
        stirred, backoff, quiet_s = asyncio.Event(), Backoff(A_MOMENT_S, _AGAIN_S), 0.0
        leave = self.store.subscribe(stirred.set)
        try:
            while self._is_at_work(quiet_s):
                stirred.clear()
                pause_s = backoff.next_s()
                await _set_within(stirred, pause_s)
                # A worker is done a little after its last commit, and no notification says so.
                quiet_s += pause_s
                if stirred.is_set():
                    backoff.reset()
                    quiet_s = 0.0
        finally:
            leave()

    def _is_at_work(self, quiet_s: float) -> bool:
        """Return whether anything may still happen now.

        `quiet_s` is the time since the last commit.
        """
        if self.worker.busy or quiet_s < _SETTLED_S:
            return True
        next_at = self.store.next_at()
        overdue = next_at is not None and next_at <= self.clock.now
        due = any(self.worker.takes(record.queue) for record in self.store.claimable())
        return quiet_s < _QUIET_S and (overdue or due)


def memory_store() -> MemoryStore:
    """Return an empty store in memory, for code that uses a store directly."""
    return MemoryStore(CATALOGUE)


@asynccontextmanager
async def in_memory(
    registry: Registry = DEFAULT,
    *,
    settings: Settings = DEFAULT_SETTINGS,
    queues: tuple[str, ...] = ("default",),
    labels: tuple[str, ...] = (),
    concurrency: int = 10,
    faults: Plan | None = None,
    start: datetime = BEGINNING,
    seed: int = 1,
) -> AsyncIterator[InMemory]:
    """Yield an Interlock whose worker has the tasks of `registry`.

    By default these are all declared tasks. `faults` affect the worker's side of the store. `seed` seeds the
    ids and secrets.
    """
    time = VirtualTime(asyncio.get_running_loop())
    clock = VirtualClock(time, start)
    store = Memory(CATALOGUE, clock=clock)
    settings = msgspec.structs.replace(settings, durations=_called(settings.durations))
    faulty = FaultyStore(store, faults) if faults is not None else None
    host = _host(time, seed)

    def port(seen: Store) -> EmbeddedOrchestrator:
        return EmbeddedOrchestrator("memory:", settings=settings, store=lambda: seen, host=host)

    worker = InMemoryWorker(
        WorkerSettings(
            name="test",
            queues=queues,
            labels=labels,
            concurrency=concurrency,
            durations=settings.durations,
            supervised=False,
            log_level="error" if faults is not None else "warning",
        ),
        registry,
        lambda: port(faulty or store),
    )
    time.elsewhere = lambda: worker.elsewhere
    il = InMemory(port(store), clock, worker, store, registry)
    il.faulty = faulty
    with time.in_place():
        async with il:
            keeping = asyncio.create_task(_keep(store, il), name="deadlines of a test")
            await worker.start()
            try:
                yield il
            finally:
                await worker.stop()
                keeping.cancel()
                await asyncio.wait([keeping])
        if not keeping.cancelled():
            keeping.result()  # raise the error of a failed timer loop


async def _keep(store: Memory, il: InMemory) -> None:
    """Fire timers and wake claimers at their times."""
    stirred = asyncio.Event()
    leave = store.subscribe(stirred.set)
    port = il._port  # noqa: SLF001 - this is its other half
    assert isinstance(port, EmbeddedOrchestrator)
    try:
        while True:
            stirred.clear()
            next_at = store.next_at()
            if next_at is not None and next_at <= il.clock.now:
                await port.recover()
                store.call_everybody()
                # Timers that cannot be handled yet, such as an order to a busy worker, are retried.
                still = store.next_at()
                if still is not None and still <= il.clock.now:
                    await _set_within(stirred, _AGAIN_S)
                continue
            wait_s = None if next_at is None else (next_at - il.clock.now).total_seconds() + _SOON_S
            await _set_within(stirred, wait_s)
            store.call_everybody()
    finally:
        leave()


async def _set_within(event: asyncio.Event, seconds: float | None) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _called(durations: Durations) -> Durations:
    """Return the durations without polling, which subscriptions replace."""
    return msgspec.structs.replace(durations, sweep_every_s=_NEVER_S, backoff_cap_s=_NEVER_S)


def _host(time: VirtualTime, seed: int) -> Host:
    dice = random.Random(seed)
    return Host(
        monotonic=time.time,
        wall=time.time,
        ids=lambda: dice.randbytes(8).hex(),
        seeds=lambda: dice.randbytes(32),
        below=dice.randrange,
    )


T = TypeVar("T")


class SyncClock:
    """The time of the test."""

    def __init__(self, il: SyncInMemory) -> None:
        self._il = il

    @property
    def now(self) -> datetime:
        """The present time."""
        return self._il.inner.clock.now

    def jump(self, by: str | float | timedelta) -> datetime:
        """Advance the time: "2h", "90s", seconds or a timedelta.

        Timers that are due meanwhile fire.
        """
        return self._il.run(self._il.inner.clock.jump(by))


class SyncWorker:
    """The worker of the test."""

    def __init__(self, il: SyncInMemory) -> None:
        self._il = il

    def start(self) -> None:
        """Start the worker."""
        self._il.run(self._il.inner.worker.start())

    def stop(self) -> int:
        """Stop it as SIGTERM does; return its exit code."""
        return self._il.run(self._il.inner.worker.stop())

    def kill(self) -> None:
        """Kill it as `kill -9` does."""
        self._il.run(self._il.inner.worker.kill())


class SyncInMemory(sync.Interlock):
    """The client of a test, with the clock and the worker. For one thread only."""

    def __init__(self, inner: InMemory, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__("memory:")
        self.inner: InMemory = inner
        self._client = inner
        self._own = loop
        self.clock: SyncClock = SyncClock(self)
        self.worker: SyncWorker = SyncWorker(self)

    @property
    def store(self) -> MemoryStore:
        """The store."""
        return self.inner.store

    @property
    def faulty(self) -> FaultyStore | None:
        """The store as the worker sees it, where there are faults."""
        return self.inner.faulty

    def drain(self) -> None:
        """Run every due job, and those that they submit, until none can run."""
        self.run(self.inner.drain())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine beside the worker."""
        return self._own.run_until_complete(coroutine)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.run(coroutine)


@contextmanager
def in_memory_sync(registry: Registry = DEFAULT, **options: Any) -> Iterator[SyncInMemory]:
    """Yield a synchronous client; the options are those of `in_memory`."""
    loop = asyncio.SelectorEventLoop()
    try:
        around = in_memory(registry, **options)
        inner = loop.run_until_complete(around.__aenter__())
        try:
            yield SyncInMemory(inner, loop)
        finally:
            loop.run_until_complete(around.__aexit__(None, None, None))
    finally:
        loop.close()
