"""The time of a world: a heap of timed callbacks, and the event loops that it drives.

Nothing waits in real time. Ready callbacks run in the order in which they became ready; when there are none,
the clock jumps to the next time. Each process of a world has its own event loop on the one schedule, so that
it can be frozen, slowed down or killed alone; and its tasks, futures and timeouts are asyncio's, so that a
world runs the code of production.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any, TypeVarTuple

_Ts = TypeVarTuple("_Ts")

# The hooks that asyncio has for other event loops.
_enter, _running_loop = asyncio._set_running_loop, asyncio._get_running_loop  # noqa: SLF001

MOST_AT_ONCE = 50_000
"""Maximum number of callbacks at one instant, before the world counts as looping."""

_WAITS_AT_END = 20
"""Maximum number of waits of a coroutine while it is closed."""


class Livelock(Exception):
    """Callbacks loop without any time passing."""


class EnteredFromOutside(Exception):
    """Another thread has scheduled a callback in a world, which breaks determinism."""


class Turn(asyncio.TimerHandle):
    """A timed callback. Lighter than the handle that it replaces."""

    __slots__ = ("args", "call", "cancelled_", "home")

    def __init__(self, home: WorldLoop | None, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.home = home
        self.call = call
        self.args = args
        self.cancelled_ = False

    def __repr__(self) -> str:
        return f"{self.args[0] if self.home and self.args else self.call!r} of {self.home}"

    def cancel(self) -> None:
        """Cancel the callback."""
        self.cancelled_ = True

    def cancelled(self) -> bool:
        """Return whether it is cancelled."""
        return self.cancelled_


class WorldSchedule:
    """The callbacks of a world, and their times."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = 0
        self.halted = False
        self._ready: deque[Turn] = deque()
        self._later: list[tuple[float, int, Turn]] = []
        self._count = 0
        self._thread = threading.get_ident()
        self._intruder = ""

    def soon(self, turn: Turn) -> None:
        """Schedule a callback after all ready ones."""
        self._ready.append(turn)

    def at(self, when: float, turn: Turn) -> Turn:
        """Schedule a callback at this time, or now if it has passed.

        Callbacks of one time run in order.
        """
        if threading.get_ident() != self._thread:
            self._intruder, self.halted = threading.current_thread().name, True
        self._count += 1
        heappush(self._later, (when, self._count, turn))
        return turn

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Turn:
        """Schedule a callback of the world, outside of any process."""
        return self.at(when, Turn(None, callback, args))

    def call_in(self, seconds: float, callback: Callable[..., object], *args: Any) -> Turn:
        """Schedule a callback of the world, this many seconds from now."""
        return self.at(self.now + seconds, Turn(None, callback, args))

    def run(self, until: float) -> None:
        """Run the world until this time, or until halted."""
        before = _running_loop()
        try:
            while not self.halted and self._take_turns() and self._jump(until):
                pass
        finally:
            _enter(before)
        if self._intruder:
            raise EnteredFromOutside(f"A world has one thread, and {self._intruder} has entered it as well.")
        if not self.halted:
            self.now = max(self.now, until)

    def _take_turns(self) -> bool:
        """Run ready callbacks, and those that become ready."""
        ready = self._ready
        home: WorldLoop | None = None
        taken = 0
        while ready and not self.halted:
            turn = ready.popleft()
            if turn.cancelled_ or (turn.home is not None and not turn.home.runs(turn)):
                continue
            if turn.home is not None and turn.home is not home:
                home = turn.home
                _enter(home)
            turn.call(*turn.args)
            taken += 1
            if taken > MOST_AT_ONCE:
                raise Livelock(repr(turn))
        self.turns += taken
        return not self.halted

    def _jump(self, until: float) -> bool:
        """Jump to the next time; return False if it is later than `until`."""
        later = self._later
        while later and later[0][2].cancelled_:
            heappop(later)
        if not later or later[0][0] > until:
            return False
        when, _, turn = heappop(later)
        self.now = max(self.now, when)
        self._ready.append(turn)
        return True


def _close(coroutine: Coroutine[Any, Any, Any] | Generator[Any, None, Any]) -> None:
    """Close a coroutine now.

    One that waits again would be left to the garbage collector.
    """
    for _ in range(_WAITS_AT_END):
        with suppress(Exception):
            coroutine.close()
            return


class WorldLoop(asyncio.AbstractEventLoop):
    """The event loop of one process of a world. `rate` is the speed of its clock."""

    def __init__(self, schedule: WorldSchedule, name: str, rate: float = 1.0) -> None:
        self.schedule = schedule
        self.name = name
        self.rate = rate
        self.lag_s = 0.0
        """Delay of its timers."""
        self.dead = False
        self.owner: Any = None
        """The process of the loop."""
        self._held: list[Turn] | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        """Unfinished tasks, and some finished ones. Held, because the garbage collector would end an
        unreferenced one at a time that no seed decides.
        """
        self._tidy_at = 64

    def __repr__(self) -> str:
        return f"<loop of {self.name}>"

    def runs(self, turn: Turn) -> bool:
        """Return whether a callback runs now.

        In a dead process it never runs, and in a frozen one it runs later.
        """
        if self._held is not None:
            self._held.append(turn)
            return False
        return not self.dead

    # Faults

    def freeze(self) -> None:
        """Stop running callbacks, while time passes."""
        if self._held is None:
            self._held = []

    def thaw(self) -> None:
        """Run the callbacks that were held back."""
        held, self._held = self._held or [], None
        for turn in held:
            self.schedule.soon(turn)

    def kill(self) -> None:
        """End all tasks in the middle, without further effects."""
        self.dead, self._held = True, None
        before = _running_loop()
        _enter(self)  # tasks created while closing are created here, where they have no effect
        while tasks := [task for task in self._tasks if not task.done()]:
            self._tasks.clear()
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - it is no loss
                coroutine = task.get_coro()
                assert coroutine is not None
                _close(coroutine)
        _enter(before)

    # The interface of an asyncio event loop

    def time(self) -> float:
        """Return the monotonic clock of this process."""
        return self.schedule.now * self.rate

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> Turn:
        """Schedule a callback after all ready ones."""
        within = contextvars.copy_context() if context is None else context
        turn = Turn(self, within.run, (callback, *args))
        if not self.dead:
            self.schedule.soon(turn)
        return turn

    def call_soon_threadsafe(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> Turn:
        """Schedule a callback: a world has one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> Turn:
        """Schedule a callback after a delay, by the clock of this process."""
        within = contextvars.copy_context() if context is None else context
        turn = Turn(self, within.run, (callback, *args))
        if not self.dead:
            self.schedule.at(self.schedule.now + max(0.0, delay) / self.rate + self.lag_s, turn)
        return turn

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> Turn:
        """Schedule a callback at a time, by the clock of this process."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        """Return an asyncio future."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        """Return an asyncio task, registered so that it ends with its process."""
        task: asyncio.Task[Any] = asyncio.Task(
            coro, loop=self, name=None if name is None else str(name), context=context
        )
        self._tasks.append(task)
        if len(self._tasks) > self._tidy_at:
            self._tasks = [known for known in self._tasks if not known.done()]
            self._tidy_at = 2 * len(self._tasks) + 64
        return task

    def get_debug(self) -> bool:
        """Return False."""
        return False

    def is_running(self) -> bool:
        """Return whether the process is alive."""
        return not self.dead

    def is_closed(self) -> bool:
        """Return False: calls to a dead process are ignored."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore the exception; relevant tasks are awaited."""
