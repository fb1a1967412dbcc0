"""The load on one host: concurrent operations at a rate, counted.

Operation number n is due at start + n / rate, in whichever lane, so a slow one delays no other and the
rate does not drift. Latency is measured from when a user would start to wait: from the start of the operation
when a lane was free in time, from its due time when all were busy (no coordinated omission).

A lane executes operations one after another, each when it is due. The two loops of a lane, for awaited and
for blocking operations, are the same lines: they are the hot path of every measurement, so they call no
shared code, and read the clock twice for each operation.

An operation appends a number to a queue, without a lock; its bucket in the histogram is computed when a
sample is taken. Every operation is counted exactly once.

Why: decisions 0230 and 0231.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from itertools import count
from typing import Any, Protocol, TypeVar

from interlock.agent.port import BlockingOperation, Operation
from interlock.agent.protocol import ERROR_LENGTH, ERROR_SAMPLES, LoadSample, Order, short_error

T = TypeVar("T")

DIGITS = 11
"""Binary digits that a histogram of three decimal digits keeps of a value."""
LONGEST_NS = 3_600_000_000_000
"""Longest duration that is counted; longer ones count as this."""


class AgentCounts:
    """Measurements since the last sample."""

    def __init__(self) -> None:
        self._took: deque[int] = deque()
        self._failed: deque[str] = deque()
        self._moved: deque[int] = deque()
        self._sample = LoadSample(samples=0)

    def note(self, took_ns: int, size: int | None = None, error: str | None = None) -> None:
        """Record the duration, bytes and error of one operation.

        Any thread may call it. An operation may be any function and return any value: only a number is a
        size.
        """
        if type(size) is int and size:
            self._moved.append(size)
        if error is not None:
            self._failed.append(error)
        self._took.append(took_ns)

    def gather(self) -> None:
        """Aggregate the queued measurements, so that the queues stay short."""
        sample, took, failed = self._sample, _emptied(self._took), _emptied(self._failed)
        sample.operations += len(took)
        sample.errors += len(failed)
        sample.size += sum(_emptied(self._moved))
        for value, times in Counter(map(_bucket, took)).items():
            sample.counts[value] = sample.counts.get(value, 0) + times
        for text in dict.fromkeys(failed):
            if len(sample.error_samples) < ERROR_SAMPLES and text not in sample.error_samples:
                sample.error_samples.append(text[:ERROR_LENGTH])

    def take(self, elapsed_ns: int) -> LoadSample:
        """Return the sample since the last call."""
        self.gather()
        sample, self._sample = self._sample, LoadSample(samples=0)
        sample.elapsed_ns, sample.samples = elapsed_ns, 1
        return sample


def _emptied(queue: deque[T]) -> list[T]:
    """Remove and return the present items, without those added meanwhile."""
    return [queue.popleft() for _ in range(len(queue))]


def _bucket(took_ns: int) -> int:
    """Return the lowest value in the same bucket of the histogram."""
    if took_ns >= LONGEST_NS:
        return LONGEST_NS
    spare = took_ns.bit_length() - DIGITS
    return took_ns >> spare << spare if spare > 0 else max(took_ns, 0)


CUT_OFF = "it was still running when the duration was over"
BREATH_NS = 5_000_000
"""Time without a pause after which a lane yields to samples and stop requests."""


class OperationSource(Protocol):
    """A source of operations."""

    counting: AgentCounts
    numbers: Iterator[int]
    """Numbers of operations; each is taken by one lane only."""
    paced: bool
    """Whether operations have a due time; otherwise they are due at once."""
    end_ns: int
    """Time after which no operation starts; it may move closer concurrently."""

    def now_ns(self) -> int:
        """Return the monotonic clock."""
        ...

    def due_ns(self, number: int) -> int:
        """Return the due time of an operation."""
        ...


class LoadLane:
    """A lane: executes one operation at a time, and counts it unless the lane was closed meanwhile."""

    def __init__(self, load: OperationSource) -> None:
        self._load = load
        self.begun: int = 0
        """Number of operations started."""
        self._since_ns = 0
        self._closed = False
        self._counting = threading.Lock()

    def close(self, *, cut_off: bool) -> None:
        """Stop counting; an operation in progress fails with `cut_off`."""
        with self._counting:
            if cut_off and self._since_ns and not self._closed:
                self._load.counting.note(self._load.now_ns() - self._since_ns, None, CUT_OFF)
            self._closed = True

    async def follow(self, operation: Operation) -> None:
        """Execute awaited operations."""
        load, now_ns, note, counting = self._load, self._load.now_ns, self._load.counting.note, self._counting
        ended_ns = rested_ns = now_ns()
        while ended_ns < load.end_ns and (number := next(load.numbers, None)) is not None:
            began_ns = now_ns()
            if load.paced:
                wait_ns = self._wait_ns(number, began_ns)
                if wait_ns is None:
                    return
                began_ns += wait_ns
                if wait_ns > 0:
                    await asyncio.sleep(wait_ns / 1e9)
                    began_ns = rested_ns = now_ns()
            self._since_ns = began_ns
            self.begun += 1
            size, error = None, None
            try:
                size = await operation()
            except Exception as caught:  # noqa: BLE001 - an operation that fails is counted as failed
                error = short_error(caught)
            ended_ns = now_ns()
            with counting:
                if not self._closed:
                    note(ended_ns - began_ns, size, error)
                self._since_ns = 0
            if ended_ns - rested_ns > BREATH_NS:
                await asyncio.sleep(0)
                ended_ns = rested_ns = now_ns()

    def follow_in_thread(self, operation: BlockingOperation) -> asyncio.Future[None]:
        """Execute blocking operations in a thread; return its end.

        The future is resolved when the thread has ended.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def follow() -> None:
            try:
                self._block(operation)
            finally:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(_resolve, ended)

        threading.Thread(target=follow, daemon=True).start()
        return ended

    def _block(self, operation: BlockingOperation) -> None:
        load, now_ns, note, counting = self._load, self._load.now_ns, self._load.counting.note, self._counting
        ended_ns = now_ns()
        while ended_ns < load.end_ns and (number := next(load.numbers, None)) is not None:
            began_ns = now_ns()
            if load.paced:
                wait_ns = self._wait_ns(number, began_ns)
                if wait_ns is None:
                    return
                began_ns += wait_ns
                if wait_ns > 0:
                    time.sleep(wait_ns / 1e9)
                    began_ns = now_ns()
            self._since_ns = began_ns
            self.begun += 1
            size, error = None, None
            try:
                size = operation()
            except Exception as caught:  # noqa: BLE001 - an operation that fails is counted as failed
                error = short_error(caught)
            ended_ns = now_ns()
            with counting:
                if not self._closed:
                    note(ended_ns - began_ns, size, error)
                self._since_ns = 0

    def _wait_ns(self, number: int, now_ns: int) -> int | None:
        """Return the time until an operation is due, or None if it never is.

        It is negative when the operation is late.
        """
        due_ns = self._load.due_ns(number)
        return due_ns - now_ns if due_ns < self._load.end_ns else None


def _resolve(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


LET_GO_S = 1.0
"""Time to wait for threads after a stop; they cannot be interrupted."""


class PacedLoad:
    """A load at a rate, and its measurements; see `port.Load`."""

    def __init__(self, order: Order, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.duration_s: float = order.duration_s
        self.rate: float = order.rate
        self.concurrency: int = order.concurrency
        self.counting: AgentCounts = AgentCounts()
        self.now_ns = now_ns
        self.start_ns: int = order.start_at_ns
        self._duration_ns = round(order.duration_s * 1e9)
        self._drain_s = order.drain_s
        self._period_ns = 1e9 / order.rate if order.rate else 0.0
        self.paced: bool = bool(order.rate)
        # Each number is taken once: an iterator written in C is not interrupted.
        self.numbers: Iterator[int] | count[int] = (
            iter(range(order.max_operations)) if order.max_operations else count()
        )
        self._lanes: list[LoadLane] = []
        self._max_operations = order.max_operations
        self._stopped_ns: int | None = None
        self._stopped = asyncio.Event()
        self.end_ns: int = self.start_ns + self._duration_ns
        """Time after which no operation starts: the end of the duration, or a stop."""

    def begin(self) -> None:
        """Set the start to now."""
        self.start_ns = self.now_ns()
        self.end_ns = 0 if self.stopped else self.start_ns + self._duration_ns

    def stop(self) -> None:
        """Stop the load."""
        self._stopped_ns = self.now_ns() if self._stopped_ns is None else self._stopped_ns
        self._stopped.set()
        self.end_ns = 0

    @property
    def stopped(self) -> bool:
        """Whether a stop was requested."""
        return self._stopped.is_set()

    @property
    def elapsed_ns(self) -> int:
        """The time since the start."""
        return self.now_ns() - self.start_ns

    @property
    def backlog(self) -> int:
        """Number of due operations that have not started; after the end, those that never did."""
        if not self.paced or not self._lanes:
            return 0
        until_ns = self.now_ns() if self._stopped_ns is None else self._stopped_ns
        due = self._due_by(min(until_ns + 1, self.start_ns + self._duration_ns))
        if self._max_operations:
            due = min(due, self._max_operations)
        return max(0, due - sum(lane.begun for lane in self._lanes))

    def record(self, took_ns: int, *, size: int = 0, error: str | None = None) -> None:
        """Count one operation; from any thread."""
        self.counting.note(took_ns, size, error)

    async def until_over(self) -> None:
        """Wait until no more operations should start."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._left_s()):
                await self._stopped.wait()

    async def drive(self, operation: Operation) -> None:
        """Execute the operation at the rate until the load ends; measure each.

        Operations run concurrently.
        """
        lanes = self._new_lanes()
        tasks = [asyncio.create_task(lane.follow(operation)) for lane in lanes]
        try:
            await self._until_done(_all(tasks))
        finally:
            for task, lane in zip(tasks, lanes, strict=True):
                lane.close(cut_off=not self.stopped)
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def drive_in_threads(self, operation: BlockingOperation) -> None:
        """Execute a blocking operation at the rate, in as many threads."""
        lanes = self._new_lanes()
        ends = [lane.follow_in_thread(operation) for lane in lanes]
        try:
            await self._until_done(_all(ends))
            if self.stopped:
                await asyncio.wait(ends, timeout=LET_GO_S)
        finally:
            for lane in lanes:
                lane.close(cut_off=not self.stopped)

    async def _until_done(self, ending: Coroutine[Any, Any, None]) -> None:
        """Wait for the end, for the end of the drain time, or for a stop."""
        done = asyncio.create_task(ending)
        stopped = asyncio.create_task(self._stopped.wait())
        patience_s = self._left_s() + self._drain_s
        await asyncio.wait((done, stopped), timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        done.cancel()
        stopped.cancel()
        await asyncio.gather(done, stopped, return_exceptions=True)

    def due_ns(self, number: int) -> int:
        """Return the due time of an operation."""
        return self.start_ns + round(number * self._period_ns)

    def _new_lanes(self) -> list[LoadLane]:
        lanes = [LoadLane(self) for _ in range(self.concurrency)]
        self._lanes += lanes
        return lanes

    def _due_by(self, end_ns: int) -> int:
        """Return the number of operations due before an instant.

        It rounds as `due_ns` does.
        """
        number = max(0, int((end_ns - self.start_ns) / self._period_ns))
        while self.due_ns(number) < end_ns:
            number += 1
        while number and self.due_ns(number - 1) >= end_ns:
            number -= 1
        return number

    def _left_s(self) -> float:
        return max(0.0, (self._duration_ns - self.elapsed_ns) / 1e9)


async def _all(endings: list[asyncio.Task[None]] | list[asyncio.Future[None]]) -> None:
    await asyncio.wait(endings)
