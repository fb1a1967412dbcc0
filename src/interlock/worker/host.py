"""What a worker takes from its host: clocks, threads, waits and signals. Simulated hosts replace them.

Clocks. A host that is suspended, overcommitted or out of memory lets a process stand still for seconds or
hours. Leases go on meanwhile, by the store's clock: whether one can still be trusted is judged by
`since_boot`. Deadlines that give a handler the chance to stop by itself do not: they are counted by
`AwakeTime`, so that a handler with five seconds to save its work has them also when the host stands still
for ten. `StoreTime` is the store's time, read at connect and counted on from there; it stamps information
only (log lines, when a task began).

Threads. The renewer, the supervisor client and the watchdog run in threads of their own, so that a handler
that blocks the event loop does not hold them up.

Signals. SIGTERM and SIGINT raise a flag once, and it is never lost. The signal handler only notes the moment
and wakes the waiters: it can interrupt anything, so it must not take a lock, write a log line or decide.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any, Protocol, TypeAlias, TypeVar

from interlock.lifecycles.durations import Durations
from interlock.processes import early_signals

STANDSTILL_S = 1.0
"""A pulse that is this late means that the process stood still meanwhile."""
FORGIVEN_S = 60.0
"""How much of one standstill is not counted, at most, so that every deadline comes."""
_SHORTEST_S = 0.01
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot() -> float:
    """Return seconds on a monotonic clock that, unlike `time.monotonic`, counts a suspended host's sleep."""
    return time.clock_gettime(_BOOTTIME)


class AwakeTime:
    """A monotonic clock that stands still with the process.

    The watchdog thread calls `pulse` several times a second. Without pulses it is an ordinary clock.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last: tuple[float, float] | None = None
        """The last pulse, and how much of the time before it is not counted; replaced in one step."""

    def __call__(self) -> float:
        """Return seconds; never goes back."""
        now, last = self._monotonic(), self._last
        return now if last is None else now - last[1] - _standstill_s(now - last[0])

    def pulse(self) -> None:
        """Note that the process is running."""
        now, last = self._monotonic(), self._last
        self._last = (now, 0.0 if last is None else last[1] + _standstill_s(now - last[0]))

    def call_later(self, delay_s: float, act: Callable[..., object], *arguments: Any) -> None:
        """Call `act` in the running event loop when this clock has counted `delay_s`."""
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
"""Two moments closer than this may be the same one: making a datetime costs more than it is worth."""


def local_time() -> datetime:
    """What the clock of this machine shows."""
    return datetime.now(UTC)


class StoreTime:
    """What the store's clock shows, nearly. Until it was told, the clock of this machine."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        local: Callable[[], datetime] = local_time,
    ) -> None:
        self._monotonic = monotonic
        self._at = self._shown_at = monotonic()
        self._told = self._shown = local()

    def __call__(self) -> datetime:
        now = self._monotonic()
        if now - self._shown_at >= FINE_S:
            self._shown = max(self._shown, self._told + timedelta(seconds=now - self._at))
            self._shown_at = now
        return self._shown

    def learn(self, told: datetime) -> None:
        """The store has just said so. The time that was shown does not go back by it."""
        self._told, self._at = told, self._monotonic()
        self._shown_at = float("-inf")


T = TypeVar("T")
_TURNS = 8


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, T], then_s: float = 0.0) -> T | None:
    """The result of some work; None if the event comes first and the work is not done `then_s` later."""
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
    """Return whether the task is done in time, waited for in turns: a standstill uses up one of them."""
    for _ in range(_TURNS):
        if not task.done():
            await asyncio.wait((task,), timeout=seconds / _TURNS)
    return task.done()


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event came in time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            return await event.wait()
    return False


def soon(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    """Do it in the event loop; from any thread, and from a signal handler."""
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be woken
        loop.call_soon_threadsafe(act)


def _forget(task: asyncio.Future[Any]) -> None:
    """Whatever became of work that nobody waits for any more."""
    if not task.cancelled():
        task.exception()


Begins: TypeAlias = Callable[[asyncio.AbstractEventLoop], None]
"""Told the event loop in which something will run; what is put on it before it runs is not lost."""
Join: TypeAlias = Callable[[float], None]
"""Wait for the end, at most so many seconds; what hangs is left behind."""


class Threads(Protocol):
    """Where the loops beside the event loop run."""

    def serve(
        self, name: str, main: Callable[[], Coroutine[Any, Any, None]], begins: Begins | None = None
    ) -> Join:
        """Run a coroutine in an event loop of its own, until it ends by itself.

        Whoever wants to put something on that loop is told which it is (`begins`), before this returns.
        """
        ...

    def repeat(self, name: str, every_s: float, body: Callable[[], None]) -> Join:
        """Call something again and again, until it is joined."""
        ...


class MachineThreads:
    """Threads of this machine. They are daemons, so that none of them keeps a process from ending."""

    def serve(
        self, name: str, main: Callable[[], Coroutine[Any, Any, None]], begins: Begins | None = None
    ) -> Join:
        """A thread with an event loop."""
        runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        if begins is not None:
            begins(runner.get_loop())

        def run() -> None:
            with runner:
                runner.run(main())

        return _begun(name, run).join

    def repeat(self, name: str, every_s: float, body: Callable[[], None]) -> Join:
        """A thread that pauses between two calls."""
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


HURRY_S = 5.0
"""How long everything may take that happens when there is no time."""


class Shutdown:
    """Whether somebody has asked this process to go, and since when."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.awake = AwakeTime(monotonic)
        """The clock of graceful shutdown."""
        self._wakes: list[Callable[[], None]] = []
        self.requested_at: float | None = None
        """By `awake`."""
        self.hurried = False
        """There is no time to let anything finish."""

    @property
    def requested(self) -> bool:
        """Whether somebody has asked."""
        return self.requested_at is not None

    def request(self) -> None:
        """Ask it to go; from a signal handler, from any thread, and as often as one likes."""
        if self.requested_at is None:
            self.requested_at = self.awake()
        for wake in self._wakes:
            wake()

    def hurry(self) -> None:
        """Ask it to go at once; from any thread, also when the event loop is blocked."""
        self.hurried = True
        self.request()

    def times(self, durations: Durations) -> tuple[float, float]:
        """How long what is active may go on, and how long everything may take."""
        if self.hurried:
            return 0.0, min(durations.shutdown_deadline_s, 0.8 * HURRY_S)
        return durations.shutdown_soft_s, durations.shutdown_deadline_s

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Be woken by the request; at once when it was made already. Returns how to stop that."""
        self._wakes = [*self._wakes, wake]  # a new list: a signal may come while it is built
        if self.requested:
            wake()

        def stop() -> None:
            self._wakes = [other for other in self._wakes if other is not wake]

        return stop


@contextmanager
def heeding_signals(shutdown: Shutdown) -> Iterator[None]:
    """Signals ask for a shutdown while this lasts.

    The handlers are installed whatever the process number: PID 1 has no default ones, and a SIGTERM
    that nobody handles would simply be lost there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals belong to the main thread; whoever runs a worker elsewhere asks it directly
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
