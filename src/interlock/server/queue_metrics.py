"""Metrics by queue, from the list of queues: no table is counted for them.

At most `QUEUES` queues have series of their own, those with the most unfinished jobs. The others are summed
up under an empty label, as in the figures.

Why: decision 0434.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, Gauge

from interlock.errors import StoreError
from interlock.lifecycles import job
from interlock.wire import metrics as table
from interlock.wire.jobs import QueueView

if TYPE_CHECKING:
    from interlock.server.queues import KnownQueues, QueueBoard

QUEUES = 100
OTHERS = ""
"""The label of all further queues, which no queue has."""
PATIENCE_S = 2.0


class QueueNumbers(NamedTuple):
    """The numbers of one label; None where a number is not known."""

    pending: int
    running: int
    oldest_s: float | None
    slots: int | None
    waits: tuple[tuple[str, float], ...] = ()
    """Waiting times by quantile."""


class QueueGauges:
    """The gauges of queues."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._jobs = table.QUEUE_JOBS.gauge(registry)
        self._oldest = table.QUEUE_OLDEST.gauge(registry)
        self._wait = table.QUEUE_WAIT.gauge(registry)
        self._slots = table.QUEUE_SLOTS.gauge(registry)

    def show(self, found: KnownQueues | None) -> None:
        """Show these queues and no others.

        A missing number is better than an outdated one.
        """
        gauges: tuple[Gauge, ...] = (self._jobs, self._oldest, self._wait, self._slots)
        for gauge in gauges:
            gauge.clear()
        for label, numbers in numbers_of(found).items() if found else ():
            self._jobs.labels(label, str(job.PENDING)).set(numbers.pending)
            self._jobs.labels(label, str(job.RUNNING)).set(numbers.running)
            if numbers.oldest_s is not None:
                self._oldest.labels(label).set(numbers.oldest_s)
            if numbers.slots is not None:
                self._slots.labels(label).set(numbers.slots)
            for quantile, seconds in numbers.waits:
                self._wait.labels(label, quantile).set(seconds)


async def look(board: QueueBoard) -> KnownQueues | None:
    """Return the queues; None if the store does not answer in time."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await board.look()
    except (StoreError, TimeoutError):
        return None


def numbers_of(found: KnownQueues, most: int = QUEUES) -> dict[str, QueueNumbers]:
    """Return the numbers of the largest queues by label. Pure.

    At most `most` queues have a label of their own; the label `OTHERS` has the sum of the rest.
    """
    ranked = sorted(found.queues, key=lambda each: (-each.pending - each.running, each.name))
    numbers = {each.name: _numbers(each, found.now, known=found.all) for each in ranked[:most]}
    if rest := ranked[most:]:
        numbers[OTHERS] = _sum_of([_numbers(each, found.now, known=found.all) for each in rest])
    return numbers


def _numbers(queue: QueueView, now: datetime, *, known: bool) -> QueueNumbers:
    oldest_s: float | None = None
    if queue.oldest_ready_at is not None:
        oldest_s = max(0.0, (now - queue.oldest_ready_at).total_seconds())
    elif known or not queue.pending or queue.paused_at is not None:
        oldest_s = 0.0
    return QueueNumbers(queue.pending, queue.running, oldest_s, queue.slots, tuple(_waits(queue)))


def _waits(queue: QueueView) -> Iterator[tuple[str, float]]:
    if queue.lately is not None:
        for quantile, seconds in (("0.5", queue.lately.wait_p50_s), ("0.95", queue.lately.wait_p95_s)):
            if seconds is not None:
                yield quantile, seconds


def _sum_of(many: Sequence[QueueNumbers]) -> QueueNumbers:
    """Return the numbers of several queues: sums, and the oldest job of all.

    Quantiles cannot be added up.
    """
    ages = [each.oldest_s for each in many if each.oldest_s is not None]
    slots = [each.slots for each in many if each.slots is not None]
    return QueueNumbers(
        sum(each.pending for each in many),
        sum(each.running for each in many),
        max(ages, default=None),
        sum(slots) if slots else None,
    )
