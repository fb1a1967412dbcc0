"""The load on one host: operations at a rate, side by side, until it is over.

Operation number n is due at start + n / rate, whoever does it, so a slow one delays no other and the
rate does not drift. What is measured begins where a user would begin to wait: when a lane was free in
time, with the operation; when all were busy, at the moment it was due (no coordinated omission).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import count
from typing import Any

from interlock.agent.counters import Counting
from interlock.agent.lanes import Lane
from interlock.agent.port import BlockingOperation, Operation
from interlock.agent.words import Order

LET_GO_S = 1.0
"""How long threads are waited for when somebody wants to stop: nobody can interrupt them."""


class PacedLoad:
    """How much is asked of a workload, and what has been done; see `port.Load`."""

    def __init__(self, order: Order, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.duration_s = order.duration_s
        self.rate = order.rate
        self.concurrency = order.concurrency
        self.counting = Counting()
        self.now_ns = now_ns
        self.start_ns = order.start_at_ns
        self._duration_ns = round(order.duration_s * 1e9)
        self._drain_s = order.drain_s
        self._period_ns = 1e9 / order.rate if order.rate else 0.0
        self.paced = bool(order.rate)
        # Whoever takes the next number has it alone: an iterator written in C is not interrupted.
        self.numbers = iter(range(order.max_operations)) if order.max_operations else count()
        self._lanes: list[Lane] = []
        self._max_operations = order.max_operations
        self._stopped_ns: int | None = None
        self._stopped = asyncio.Event()
        self.end_ns = self.start_ns + self._duration_ns
        """From then on no operation is begun: its time is over, or somebody wants it to stop."""

    def begin(self) -> None:
        """The start is now."""
        self.start_ns = self.now_ns()
        self.end_ns = 0 if self.stopped else self.start_ns + self._duration_ns

    def stop(self) -> None:
        """It is over: somebody wants it to stop."""
        self._stopped_ns = self.now_ns() if self._stopped_ns is None else self._stopped_ns
        self._stopped.set()
        self.end_ns = 0

    @property
    def stopped(self) -> bool:
        """Whether somebody wants it to stop."""
        return self._stopped.is_set()

    @property
    def elapsed_ns(self) -> int:
        """Since the start."""
        return self.now_ns() - self.start_ns

    @property
    def backlog(self) -> int:
        """Operations that were due by now and have not begun; when it is over, those that never did."""
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
        """Wait until no operation should be begun any more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._left_s()):
                await self._stopped.wait()

    async def drive(self, operation: Operation) -> None:
        """Do it at the rate, side by side, until the load is over; count and measure each."""
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
        """The same for operations that block, in as many threads."""
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
        """Until it is done, or the time for that is over, or somebody wants it to stop."""
        done = asyncio.create_task(ending)
        stopped = asyncio.create_task(self._stopped.wait())
        patience_s = self._left_s() + self._drain_s
        await asyncio.wait((done, stopped), timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        done.cancel()
        stopped.cancel()
        await asyncio.gather(done, stopped, return_exceptions=True)

    def due_ns(self, number: int) -> int:
        """When an operation is due."""
        return self.start_ns + round(number * self._period_ns)

    def _new_lanes(self) -> list[Lane]:
        lanes = [Lane(self) for _ in range(self.concurrency)]
        self._lanes += lanes
        return lanes

    def _due_by(self, end_ns: int) -> int:
        """How many operations are due before an instant; exactly, as `due_ns` rounds."""
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
