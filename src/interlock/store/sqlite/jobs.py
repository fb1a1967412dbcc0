"""How coroutines hand work to a thread of their own and get its outcome in time.

SQLite blocks, so each connection lives in one thread. A caller waits no longer than its deadline:
work that has not begun by then never begins, and the caller is told so; what has begun may yet be
done, and the caller is told that. Nothing of this needs the thread to answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any, TypeVar

from interlock.errors import StoreUnavailable
from interlock.store.sqlite.failures import NOTHING, UNKNOWN

T = TypeVar("T")


class Job:
    """One piece of work that a caller waits for."""

    __slots__ = (
        "_lock",
        "begun",
        "dropped",
        "error",
        "future",
        "loop",
        "result",
        "settled",
        "weight",
        "work",
    )

    def __init__(self, work: Callable[[Any], Any], *, settled: bool = False, weight: int = 1) -> None:
        self.work = work
        self.settled = settled
        """It looks for itself, so what was judged before it must be in the tables."""
        self.weight = weight
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None
        self.begun = False
        self.dropped = False
        self._lock = threading.Lock()

    def begin(self) -> bool:
        """Asked by the thread before it touches anything: whether somebody still waits."""
        with self._lock:
            self.begun = not self.dropped
            return self.begun

    def drop(self) -> bool:
        """Nobody waits any longer; whether that came before it began."""
        with self._lock:
            self.dropped = True
            return not self.begun

    def run(self, subject: object) -> None:
        """Do it; what it raises is for its caller."""
        self.result = self.error = None
        try:
            self.result = self.work(subject)
        except BaseException as error:  # noqa: BLE001 - it is raised again where somebody waits for it
            self.error = error


def deliver(jobs: Iterable[Job]) -> None:
    """Tell the callers; one wake-up for all that share a loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, done in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there
            loop.call_soon_threadsafe(_settle, done)


def _settle(jobs: list[Job]) -> None:
    for job in jobs:
        if not job.future.done():
            job.future.set_result(None)


class JobThread(ABC):
    """A thread with a queue. It opens its connection first, and closes it last."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        """None is a nudge: no work, but a reason to look around."""
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._gate = threading.Lock()
        self._accepting = False
        self._closing: Job | None = None

    @abstractmethod
    def late(self, outcome: str) -> StoreUnavailable:
        """What a caller is told whose deadline has passed."""

    @abstractmethod
    def not_open(self) -> StoreUnavailable:
        """What a caller is told who comes too early or after the end."""

    @abstractmethod
    def _open(self) -> None:
        """Connect; in the thread."""

    @abstractmethod
    def _serve(self, job: Job) -> None:
        """Do a job, with others that wait if that is cheaper, and deliver; in the thread."""

    @abstractmethod
    def _close(self) -> None:
        """Disconnect; in the thread."""

    @property
    def takes_longer(self) -> bool:
        """Whether what is being done may take longer than a deadline, and is known to go on."""
        return False

    def stuck(self) -> None:  # noqa: B027 - a thread that writes can only be waited for
        """A job was given up while it was being done; called in the caller's thread."""

    async def start(self) -> None:
        """Run until closed; returns once the connection is open, or raises why it is not."""
        opening = Job(lambda _: self._open())
        self._queue.put(opening)
        self._thread.start()
        try:
            await self._outcome(opening)
        except BaseException:
            self._put_end()  # should it open later, when nobody waits any longer
            raise
        self._accepting = True

    async def do(self, work: Callable[[Any], T], *, settled: bool = False, weight: int = 1) -> T:
        """Have it done in the thread."""
        job = Job(work, settled=settled, weight=weight)
        with self._gate:
            self.check_open()
            self._queue.put(job)
        await self._outcome(job)
        result: T = job.result
        return result

    @property
    def is_open(self) -> bool:
        """Whether work is taken."""
        return self._accepting

    def check_open(self) -> None:
        """Raise before the start and after the end."""
        if not self._accepting:
            raise self.not_open()

    async def close(self) -> None:
        """Finish what was handed in, then let go of everything."""
        with self._gate:
            if not self._accepting:
                return
            self._accepting = False
            closing = self._put_end()
        with contextlib.suppress(StoreUnavailable):  # it hangs; the thread ends with the process
            await self._outcome(closing)
            self._thread.join(self.timeout_s)

    def _put_end(self) -> Job:
        self._closing = Job(lambda _: self._close())
        self._queue.put(self._closing)
        return self._closing

    async def _outcome(self, job: Job) -> None:
        timer = job.loop.call_later(self.timeout_s, self._give_up, job)
        try:
            await job.future
        finally:
            timer.cancel()
            job.drop()
        if job.error is not None:
            raise job.error

    def _give_up(self, job: Job) -> None:
        if job.future.done():
            return
        if self.takes_longer:
            job.loop.call_later(self.timeout_s, self._give_up, job)
        else:
            never = job.drop()
            job.future.set_exception(self.late(NOTHING if never else UNKNOWN))
            if not never:
                self.stuck()

    def _main(self) -> None:
        opening = self._next()
        opening.begin()
        opening.run(None)
        deliver([opening])
        if opening.error is not None:
            return
        while (job := self._next()) is not self._closing:
            self._serve(job)
        job.run(None)
        deliver([job])

    def _next(self) -> Job:
        while (job := self._queue.get()) is None:
            pass
        return job
