"""What the controller has not read yet of one workload: never more than one message of each kind.

A reader that is slow, or stands still, slows nothing down and costs no memory: what comes meanwhile is
merged into the message that waits. READY comes first and the final message last, whatever happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec

from interlock.agent.words import Sample, Started
from interlock.lifecycles.workload import SendStatus, Status


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller is told: a status, and what was done since the message before."""

    sequence: int
    said: SendStatus
    started: Started | None
    totals: Sample
    since: Sample
    interval_ns: int


class Outbox:
    """Merges what is said, and gives it out in order."""

    def __init__(self, quiet_s: float, on_last: Callable[[], None] = lambda: None) -> None:
        self._quiet_s = quiet_s
        """After so long without a sample a message goes out that says only that it runs."""
        self._on_last = on_last
        """Is called when the last message was taken."""
        self._statuses: list[SendStatus] = []
        self._running = False
        self._started: Started | None = None
        self._since = Sample(samples=0)
        self._totals = Sample(samples=0)
        self._told_ns = 0
        self._sequence = 0
        self._news = asyncio.Event()
        self._ended = False

    def run(self) -> None:
        """It runs from now on, and that is news."""
        self._running = True
        self._news.set()

    def say(self, status: SendStatus) -> None:
        """READY, or how it ended: neither is ever merged with another."""
        self._statuses.append(status)
        self._running = self._running and not status.completed
        self._news.set()

    def hear(self, word: Started | Sample) -> None:
        """What the workload says while it runs."""
        if isinstance(word, Started):
            self._started = word
        else:
            self._since.absorb(word)
        self._news.set()

    async def next(self) -> Message | None:
        """The next message as soon as there is one; None after the last."""
        if self._ended:
            return None
        if not self._statuses and not self._news.is_set():
            await self._until_news()
        self._news.clear()
        said = self._statuses.pop(0) if self._statuses else SendStatus(Status.RUNNING)
        if self._statuses:
            self._news.set()
        message = self._message(said)
        if said.completed:
            self._ended = True
            self._on_last()
        return message

    async def _until_news(self) -> None:
        if not self._running:
            await self._news.wait()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._quiet_s):
                await self._news.wait()

    def _message(self, said: SendStatus) -> Message:
        since = Sample(samples=0)
        if said.status is not Status.READY:  # which may be read late, and is about nothing that came later
            since, self._since = self._since, since
        since.elapsed_ns = max(since.elapsed_ns, self._told_ns)
        interval_ns, self._told_ns = since.elapsed_ns - self._told_ns, since.elapsed_ns
        totals = self._totals
        totals.elapsed_ns = since.elapsed_ns
        totals.backlog = since.backlog if since.samples else totals.backlog
        totals.operations += since.operations
        totals.errors += since.errors
        totals.size += since.size
        self._sequence += 1
        return Message(
            sequence=self._sequence,
            said=said,
            started=self._started,
            totals=msgspec.structs.replace(totals),
            since=since,
            interval_ns=interval_ns,
        )
