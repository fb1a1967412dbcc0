"""The time of a world: a heap of what comes when, and the event loops that are driven by it.

Nothing waits here. Whatever is ready runs, in the order in which it became ready; when nothing is,
the clock jumps to what comes next. Each process of a world has an event loop of its own on the one
schedule, so that it can be frozen, slowed down or killed alone; and the tasks, futures and timeouts in
it are asyncio's own, so that what runs in a world is the code that runs in production.
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

# The hooks that asyncio has for loops which are not its own.
_enter, _running_loop = asyncio._set_running_loop, asyncio._get_running_loop  # noqa: SLF001

MOST_AT_ONCE = 50_000
"""How many turns may be taken at one instant before somebody is said to run in circles."""

_WAITS_AT_END = 20
"""How often something may wait on its way out, before it is left as it is."""


class RunsInCircles(Exception):
    """Something goes on and on without any time passing."""


class EnteredFromOutside(Exception):
    """Another thread has put something on the schedule of a world: nothing in it is the same again."""


class Turn(asyncio.TimerHandle):
    """Something to be called, at its time. Lighter than the handle it stands for."""

    __slots__ = ("args", "call", "cancelled_", "home")

    def __init__(self, home: Loop | None, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.home = home
        self.call = call
        self.args = args
        self.cancelled_ = False

    def __repr__(self) -> str:
        return f"{self.args[0] if self.home and self.args else self.call!r} of {self.home}"

    def cancel(self) -> None:
        """Do not call it."""
        self.cancelled_ = True

    def cancelled(self) -> bool:
        """Whether it will not be called."""
        return self.cancelled_


class Schedule:
    """What is to be done in a world, and when."""

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
        """After everything that is ready already."""
        self._ready.append(turn)

    def at(self, when: float, turn: Turn) -> Turn:
        """At this time, or now if that is over; of several at one time the first comes first."""
        if threading.get_ident() != self._thread:
            self._intruder, self.halted = threading.current_thread().name, True
        self._count += 1
        heappush(self._later, (when, self._count, turn))
        return turn

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Turn:
        """Something that the world does itself, in no process."""
        return self.at(when, Turn(None, callback, args))

    def call_in(self, seconds: float, callback: Callable[..., object], *args: Any) -> Turn:
        """The same, so many seconds from now."""
        return self.at(self.now + seconds, Turn(None, callback, args))

    def run(self, until: float) -> None:
        """Let the world go on until this time, or until somebody halts it."""
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
        """Whatever is ready, and what becomes ready by it."""
        ready = self._ready
        home: Loop | None = None
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
                raise RunsInCircles(repr(turn))
        self.turns += taken
        return not self.halted

    def _jump(self, until: float) -> bool:
        """To what comes next; False when that is later than this."""
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
    """End it here and now: what waits once more while it ends would be left to the garbage collector."""
    for _ in range(_WAITS_AT_END):
        with suppress(Exception):
            coroutine.close()
            return


class Loop(asyncio.AbstractEventLoop):
    """The event loop of one process of a world. `rate` is how fast its clock runs."""

    def __init__(self, schedule: Schedule, name: str, rate: float = 1.0) -> None:
        self.schedule = schedule
        self.name = name
        self.rate = rate
        self.lag_s = 0.0
        """How much later than they should its timers go off."""
        self.dead = False
        self.owner: Any = None
        """Whose loop it is."""
        self._held: list[Turn] | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        """Those that have not ended, and some that have. Held, because the garbage collector comes when it
        likes: one that nobody else holds would end at a moment that no seed decides."""
        self._tidy_at = 64

    def __repr__(self) -> str:
        return f"<loop of {self.name}>"

    def runs(self, turn: Turn) -> bool:
        """Whether a turn is taken now: not by the dead, and by the frozen only later."""
        if self._held is not None:
            self._held.append(turn)
            return False
        return not self.dead

    # Faults

    def freeze(self) -> None:
        """Nothing goes on in it, although time does."""
        if self._held is None:
            self._held = []

    def thaw(self) -> None:
        """Everything that would have happened meanwhile happens now."""
        held, self._held = self._held or [], None
        for turn in held:
            self.schedule.soon(turn)

    def kill(self) -> None:
        """Whatever goes on in it ends in the middle, and says nothing to anybody any more."""
        self.dead, self._held = True, None
        before = _running_loop()
        _enter(self)  # whatever is still begun on the way out is begun here, where nothing comes of it
        while tasks := [task for task in self._tasks if not task.done()]:
            self._tasks.clear()
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - it is no loss
                coroutine = task.get_coro()
                assert coroutine is not None
                _close(coroutine)
        _enter(before)

    # What asyncio asks of a loop

    def time(self) -> float:
        """The monotonic clock of this process."""
        return self.schedule.now * self.rate

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> Turn:
        """After everything that is ready already."""
        within = contextvars.copy_context() if context is None else context
        turn = Turn(self, within.run, (callback, *args))
        if not self.dead:
            self.schedule.soon(turn)
        return turn

    def call_soon_threadsafe(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> Turn:
        """The same: a world has one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> Turn:
        """So many seconds from now, by the clock of this process."""
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
        """At this time, by the clock of this process."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        """One of asyncio's."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        """One of asyncio's; it is known here, so that it can be ended with its process."""
        task: asyncio.Task[Any] = asyncio.Task(
            coro, loop=self, name=None if name is None else str(name), context=context
        )
        self._tasks.append(task)
        if len(self._tasks) > self._tidy_at:
            self._tasks = [known for known in self._tasks if not known.done()]
            self._tidy_at = 2 * len(self._tasks) + 64
        return task

    def get_debug(self) -> bool:
        """No."""
        return False

    def is_running(self) -> bool:
        """As long as it lives."""
        return not self.dead

    def is_closed(self) -> bool:
        """Never: what is said to a dead process is not heard."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody retrieved; whoever has to know of a crash awaits the task."""
