"""Reports go out in batches, whenever the port is free.

There is no timer: while one batch is under way the next one gathers, so that a busy worker sends
large batches and an idle one sends at once. A report that cannot be delivered is sent again until its
lease has ended; after that nobody would believe it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from interlock.errors import StoreUnavailable
from interlock.wire.runner import Answer, Complete, Message, Succeeded
from interlock.worker.logs import Log
from interlock.worker.outcomes import MAX_DETAILS_BYTES, NOTHING
from interlock.worker.running_task import RunningTask
from interlock.worker.watchdog import LoopTick

Hear: TypeAlias = Callable[[Sequence[Message]], Awaitable[list[Answer]]]
Answered: TypeAlias = Callable[[RunningTask, Message, Answer | None], None]
"""What was said, and the answer; None when it could not be delivered before the lease ended."""

MAX_BATCH = 500
MAX_BATCH_BYTES = 2 * 1024 * 1024
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0


class Reporter:
    """The queue of what is to be said, and the loop that says it."""

    def __init__(
        self,
        hear: Hear,
        answered: Answered,
        *,
        failing: Callable[[float], None],
        log: Log,
        beat: LoopTick,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._hear = hear
        self._answered = answered
        self._failing = failing
        self._log = log
        self._beat = beat
        self._monotonic = monotonic
        self._sleep = sleep
        self._waiting: deque[tuple[RunningTask, Message]] = deque()
        self._under_way: list[tuple[RunningTask, Message]] = []
        self._something = asyncio.Event()
        self._nothing = asyncio.Event()
        self._nothing.set()
        beat.awaited = self.busy

    def put(self, running: RunningTask, message: Message) -> None:
        """Say this as soon as possible."""
        self._waiting.append((running, message))
        if not self._something.is_set():
            self._something.set()
            self._nothing.clear()

    def busy(self) -> bool:
        """Whether something is waiting or under way."""
        return bool(self._waiting or self._under_way)

    async def flushed(self) -> None:
        """Wait until everything was said, or nobody is left who would hear it."""
        await self._nothing.wait()

    async def run(self) -> None:
        """Send what there is, again and again."""
        while True:
            if not self.busy():
                self._something.clear()
                self._nothing.set()
                await self._something.wait()
            await self._flush(self._take())

    async def _flush(self, batch: list[tuple[RunningTask, Message]]) -> None:
        """Send one batch, until it is answered or too late."""
        failing_since: float | None = None
        pause_s = _FIRST_PAUSE_S
        while batch:
            self._beat()
            try:
                answers = await self._hear([message for _, message in batch])
            except StoreUnavailable as error:
                now = self._monotonic()
                failing_since = failing_since or now
                self._log.warning("report_delayed", messages=len(batch), error=error.sentence)
                self._failing(now - failing_since)
                await self._sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                batch = self._under_way = self._still_believed(batch)
            else:
                self._deliver(batch, answers)
                batch = []

    def _take(self) -> list[tuple[RunningTask, Message]]:
        """The next batch, bounded in number and in size; what was under way when we crashed comes first."""
        batch = self._under_way
        size = 0
        waiting = self._waiting
        while waiting and len(batch) < MAX_BATCH and size < MAX_BATCH_BYTES:
            entry = waiting.popleft()
            batch.append(entry)
            size += _size(entry[1])
        return batch

    def _deliver(self, batch: list[tuple[RunningTask, Message]], answers: list[Answer]) -> None:
        self._under_way = []
        for (running, message), answer in zip(batch, answers, strict=True):
            self._answered(running, message, answer)

    def _still_believed(self, batch: list[tuple[RunningTask, Message]]) -> list[tuple[RunningTask, Message]]:
        now = self._monotonic()
        kept = []
        for running, message in batch:
            if now < running.lease_ends_at():
                kept.append((running, message))
            else:
                self._answered(running, message, None)
        return kept


def _size(message: Message) -> int:
    if type(message) is not Complete or message.outcome is NOTHING:
        return 256
    outcome = message.outcome
    return memoryview(outcome.result).nbytes if isinstance(outcome, Succeeded) else MAX_DETAILS_BYTES
