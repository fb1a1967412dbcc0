"""One lane per executor: what runs in it, what waits for it, and how soon that will begin.

A worker asks for work when it has room. With handlers of microseconds it would then wait for the store
more than it works, so it asks *ahead*: for as much again as it may run at once, before what it has has
begun. Only where that begins soon, because what waits here could have begun elsewhere: every handler of
late has to have taken less than `SOON_S`, and none that runs may have taken longer already. Who was wrong
about that gives back what has waited for `AHEAD_FOR_S`, which costs nobody a try.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from interlock.worker.executors.asynchronous import AsyncExecutor
from interlock.worker.executors.executor import Executor
from interlock.worker.executors.subprocesses import ProcessExecutor
from interlock.worker.executors.threads import ThreadExecutor
from interlock.worker.running_task import RunningTask
from interlock.worker.settings import WorkerSettings

SOON_S = 0.05
"""How long a handler may take for work to be asked for ahead of it."""
AHEAD_FOR_S = 1.0
"""How long what was asked for ahead waits here at most."""
_FORGETTING = 0.9
"""What is left of the longest with each one that is shorter: it is learnt at once, and forgotten slowly."""


class Lane:
    """One executor with a limit. What it has is counted, never noted beside it."""

    __slots__ = ("executor", "limit", "longest_s", "name", "running", "waiting")

    def __init__(self, name: str, executor: Executor, limit: int) -> None:
        self.name = name
        self.executor = executor
        self.limit = limit
        self.running: dict[RunningTask, float] = {}
        """Since when, in the order in which they have begun."""
        self.waiting: deque[RunningTask] = deque()
        self.longest_s = 2 * SOON_S
        """How long a handler takes at most, by what was seen of late; as long as nothing was, too long."""

    @property
    def has_room(self) -> bool:
        """Whether something that waits could begin."""
        return bool(self.waiting) and len(self.running) < self.limit

    def left(self, running: RunningTask, now: float) -> None:
        """A handler has ended, or is not waited for any more."""
        began = self.running.pop(running, None)
        if began is not None:
            self.longest_s = max(now - began, self.longest_s * _FORGETTING)

    def is_quick(self, now: float) -> bool:
        """Whether what waits in it will soon have begun."""
        if self.longest_s > SOON_S:
            return False
        oldest = next(iter(self.running.values()), now)
        return now - oldest <= SOON_S

    def on_the_loop(self) -> str:
        """What runs in it, for whoever finds the event loop blocked."""
        now = self.executor.current if isinstance(self.executor, AsyncExecutor) else None
        suspects = [now] if now is not None else list(self.running)
        return ", ".join(f"{one.grant.task} ({one.grant.job_id})" for one in suspects[:10]) or "unknown"


class Lanes:
    """The lanes of a worker, by the name of the executor, as tasks say it."""

    def __init__(self, settings: WorkerSettings, monotonic: Callable[[], float]) -> None:
        size, concurrency = settings.max_result_bytes, settings.concurrency
        self._concurrency = concurrency
        self._monotonic = monotonic
        self._lanes = {
            "async": Lane("async", AsyncExecutor(max_result_bytes=size), concurrency),
            "thread": Lane("thread", ThreadExecutor(max_result_bytes=size), settings.threads or concurrency),
            "process": Lane("process", ProcessExecutor(settings), settings.processes or concurrency),
        }

    def __getitem__(self, name: str) -> Lane:
        return self._lanes[name]

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    def free(self) -> int:
        """How many more handlers may run at once; less than none where more waits than may."""
        return self._concurrency - sum([len(lane.running) + len(lane.waiting) for lane in self])

    def room(self, coming: int) -> int:
        """How many more can begin at once, when so many are on their way; none while others wait."""
        return 0 if any(lane.waiting for lane in self) else self.free() - coming

    def room_ahead(self, coming: int) -> int:
        """How much to ask for: what can begin at once, or else as much as may wait a moment for that.

        All of that or nothing: a store does a large claim for little more than a small one.
        """
        if 0 <= self.free() - coming < self._concurrency and self._in_use_are_quick():
            return self._concurrency
        return self.room(coming)

    def elsewhere(self) -> int:
        """How many handlers run outside of the event loop, in threads or processes."""
        return sum(len(lane.running) for lane in self if lane.name != "async")

    def _in_use_are_quick(self) -> bool:
        now = self._monotonic()
        return all(lane.is_quick(now) for lane in self if lane.running or lane.waiting)
