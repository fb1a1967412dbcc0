"""The host of a worker: clocks, loops, threads, waits and signals. Simulated hosts replace them.

Clocks. A host that is suspended, overcommitted or out of memory can stall a process for seconds or hours.
Leases expire meanwhile, by the store's clock: whether one can still be trusted is judged by `since_boot`.
Deadlines that let a handler stop gracefully do not: they are counted by `AwakeTime`, so that a handler with
five seconds to save its work has them even if the host stalls for ten. `StoreTime` is the store's time, read
at connect and extrapolated; it is used only for information (log lines, start times).

Loops. Each beats in every iteration, so that the watchdog notices when one stalls, and is restarted after a
crash.

Threads. The renewer, the supervisor client and the watchdog run in separate threads, so that a handler that
blocks the event loop does not delay them.

Signals. SIGTERM and SIGINT set a flag once, and it is never lost. The signal handler only records the time
and wakes the waiters: it can interrupt anything, so it must not take a lock, write a log line or decide.

Why: decision 0287.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from interlock.backoff import Backoff
from interlock.lifecycles.durations import Durations, ShutdownTimes
from interlock.processes import early_signals

if TYPE_CHECKING:  # a client that submits needs no log
    from structlog.typing import FilteringBoundLogger

STANDSTILL_S = 1.0
"""A pulse that is this late means that the process stalled."""
FORGIVEN_S = 60.0
"""Maximum uncounted time of one stall, so that every deadline is reached."""
_SHORTEST_S = 0.01
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


since_boot: Callable[[], float] = partial(time.clock_gettime, _BOOTTIME)
"""Returns seconds on a monotonic clock that, unlike `time.monotonic`, counts a suspended host's sleep."""


class AwakeTime:
    """A monotonic clock that stops while the process stalls.

    The watchdog thread calls `pulse` several times a second. Without pulses it is an ordinary clock.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last: tuple[float, float] | None = None
        """The last pulse, and the uncounted time before it; replaced in one step."""

    def __call__(self) -> float:
        """Return seconds; never decreases."""
        now, last = self._monotonic(), self._last
        return now if last is None else now - last[1] - _standstill_s(now - last[0])

    def pulse(self) -> None:
        """Record that the process is running."""
        now, last = self._monotonic(), self._last
        self._last = (now, 0.0 if last is None else last[1] + _standstill_s(now - last[0]))

    def call_later(self, delay_s: float, act: Callable[..., object], *arguments: Any) -> None:
        """Call `act` in the event loop when this clock has counted `delay_s`."""
        loop, until = asyncio.get_running_loop(), self() + delay_s

        def due() -> None:
            left_s = until - self()
            if left_s > 0:
                loop.call_later(max(left_s, _SHORTEST_S), due)
            else:
                act(*arguments)

        loop.call_later(delay_s, due)


def _standstill_s(since_pulse_s: float) -> float:
    return min(max(0.0, since_pulse_s - STANDSTILL_S), FORGIVEN_S)


FINE_S = 0.001
"""Times closer than this may share a datetime, since creating one is expensive."""


def local_time() -> datetime:
    """Return the wall clock of this machine."""
    return datetime.now(UTC)


class StoreTime:
    """The store's time, approximately; before it is known, that of this machine."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        local: Callable[[], datetime] = local_time,
    ) -> None:
        self._monotonic = monotonic
        self._at = self._shown_at = monotonic()
        self._store_time = self._shown = local()

    def __call__(self) -> datetime:
        now = self._monotonic()
        if now - self._shown_at >= FINE_S:
            self._shown = max(self._shown, self._store_time + timedelta(seconds=now - self._at))
            self._shown_at = now
        return self._shown

    def learn(self, store_time: datetime) -> None:
        """Set the store's time."""
        self._store_time, self._at = store_time, self._monotonic()
        self._shown_at = float("-inf")


class LoopTick:
    """The heartbeat of one loop."""

    def __init__(
        self,
        name: str,
        monotonic: Callable[[], float] = time.monotonic,
        awaited: Callable[[], bool] = lambda: True,
    ) -> None:
        """Begin now. `awaited` returns whether the loop has work to do.

        A loop without work may be silent.
        """
        self.name = name
        self._monotonic = monotonic
        self._awaited = awaited
        self.at: float = monotonic()
        """Time of the last iteration, which the loop sets."""
        self.stalled = False

    def silent_s(self) -> float:
        """Return how long it has been silent although it has work to do."""
        now = self._monotonic()
        if not self._awaited():
            self.at = now
        return now - self.at


async def keep_running(
    name: str,
    body: Callable[[], Awaitable[None]],
    log: FilteringBoundLogger,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Run a loop until cancelled; restart it with backoff after a crash."""
    backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
    while True:
        try:
            await body()
        except Exception as error:
            log.error("loop_crashed", loop=name, error=f"{type(error).__name__}: {error}", exc_info=True)
            await sleep(backoff.next_s())
        else:
            return


T = TypeVar("T")
_TURNS = 8


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, T], then_s: float = 0.0) -> T | None:
    """Return the result of some work, or None if the event comes first.

    The work has `then_s` more after the event.
    """
    task, other = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((task, other), return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and then_s:
            await done_within(task, then_s)
        return task.result() if task.done() else None
    finally:
        other.cancel()
        if not task.done():
            task.cancel()
            task.add_done_callback(_forget)


async def done_within(task: asyncio.Future[Any], seconds: float) -> bool:
    """Return whether the task is done in time.

    It is waited for in turns: a stall of the host uses up only one of them.
    """
    for _ in range(_TURNS):
        if not task.done():
            await asyncio.wait((task,), timeout=seconds / _TURNS)
    return task.done()


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Return whether the event was set in time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            return await event.wait()
    return False


def call_in_loop(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    """Call a function in the event loop.

    Any thread and a signal handler may call this.
    """
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(act)


def _forget(task: asyncio.Future[Any]) -> None:
    """Retrieve the exception of abandoned work."""
    if not task.cancelled():
        task.exception()


Begins: TypeAlias = Callable[[asyncio.AbstractEventLoop], None]
"""Called with the event loop before it runs; callbacks scheduled then are not lost."""
Join: TypeAlias = Callable[[float], None]
"""Waits for the end, at most this many seconds; a hanging thread is abandoned."""


class Threads(Protocol):
    """Runs loops outside of the event loop."""

    def serve(
        self, name: str, main: Callable[[], Coroutine[Any, Any, None]], begins: Begins | None = None
    ) -> Join:
        """Run a coroutine in a new event loop, until it ends.

        `begins` is called with that loop before this returns, to schedule callbacks on it.
        """
        ...

    def repeat(self, name: str, every_s: float, body: Callable[[], None]) -> Join:
        """Call a function repeatedly, until it is joined."""
        ...


class MachineThreads:
    """Threads of this machine. They are daemons, so that none of them keeps a process from ending."""

    def serve(
        self, name: str, main: Callable[[], Coroutine[Any, Any, None]], begins: Begins | None = None
    ) -> Join:
        """Start a thread with an event loop."""
        runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        if begins is not None:
            begins(runner.get_loop())

        def run() -> None:
            with runner:
                runner.run(main())

        return _begun(name, run).join

    def repeat(self, name: str, every_s: float, body: Callable[[], None]) -> Join:
        """Start a thread that pauses between two calls."""
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(every_s):
                body()

        thread = _begun(name, run)

        def join(timeout_s: float) -> None:
            stop.set()
            thread.join(timeout_s)

        return join


MACHINE = MachineThreads()


def _begun(name: str, run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


class Shutdown:
    """The request to shut down, if there was one, and its time."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.awake: AwakeTime = AwakeTime(monotonic)
        """The clock of graceful shutdown."""
        self._wakes: list[Callable[[], None]] = []
        self.requested: bool = False
        self.requested_at: float | None = None
        """Time of the request, by `awake`."""
        self.hurried: bool = False
        """Whether to shut down immediately."""

    def request(self) -> None:
        """Request shutdown; idempotent, from a signal handler or any thread."""
        if self.requested_at is None:
            self.requested_at = self.awake()
        self.requested = True
        for wake in self._wakes:
            wake()

    def hurry(self) -> None:
        """Request immediate shutdown, even if the event loop is blocked.

        Any thread may call this.
        """
        self.hurried = True
        self.request()

    def times(self, durations: Durations) -> ShutdownTimes:
        """Return the course of the shutdown."""
        return durations.shutdown(hurried=self.hurried)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` on the request; return a function that unsubscribes.

        It is called at once if the request was made already.
        """
        self._wakes = [*self._wakes, wake]  # a new list, since a signal may arrive meanwhile
        if self.requested:
            wake()

        def stop() -> None:
            self._wakes = [other for other in self._wakes if other is not wake]

        return stop


@contextmanager
def handling_signals(shutdown: Shutdown) -> Iterator[None]:
    """Request a shutdown on signals, for the duration of the context.

    The handlers are installed even as PID 1, which has no default ones, so that an unhandled SIGTERM would be
    ignored there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are for the main thread; elsewhere the caller requests the shutdown
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        shutdown.request()

    early_signals.has_begun()
    before = {number: signal.signal(number, handle) for number in early_signals.STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
