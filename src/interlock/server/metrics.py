"""Metrics of the server for Prometheus; `interlock.wire.metrics` has their names.

Transitions are read from the journal, so they include those by workers and other servers since this server
was started. The number of records in each state is queried from the store; those of queues come from the list
of queues. Requests and their ids are counted for this server.

Counters of the client library take a lock for each step, and its histograms search their bounds linearly.
Counting here updates a dict; families are built on request.

Why: decision 0212.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from itertools import accumulate, islice
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from interlock.errors import (
    ConflictingCompletion,
    InterlockError,
    RunnerError,
    StoreError,
    TransitionRefused,
)
from interlock.lifecycles import MACHINES
from interlock.lifecycles.attempt import ATTEMPT
from interlock.lifecycles.lease import LEASE
from interlock.machine import Machine
from interlock.server.queue_metrics import QueueGauges
from interlock.server.queues import KnownQueues
from interlock.store.catalogue import Catalogue
from interlock.store.contract import Store
from interlock.store.records import (
    Batch,
    Committed,
    Entry,
    Outcome,
    Pruned,
    Query,
    Repeated,
    RequestReused,
    Work,
)
from interlock.systems.catalogue import CATALOGUE, JOURNALLED
from interlock.wire import metrics as table
from interlock.wire.figures import LoopHealth
from interlock.wire.metrics import Metric

Labels = tuple[str, ...]


class LabelledCounter(Collector):
    """A counter by labels; `tally.times[labels] += 1` counts."""

    def __init__(self, metric: Metric, registry: CollectorRegistry) -> None:
        self._metric = metric
        self.times: Counter[Labels] = Counter()
        registry.register(self)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the counter for Prometheus."""
        family = CounterMetricFamily(self._metric.name, self._metric.says, labels=self._metric.labels)
        for labels, number in self.times.items():
            family.add_metric(labels, number)
        yield family


class Timing(Collector):
    """A histogram of durations by labels."""

    def __init__(self, metric: Metric, registry: CollectorRegistry) -> None:
        self._metric = metric
        self._bounds = metric.buckets
        self._names = [*map(str, metric.buckets), "+Inf"]
        self._numbers: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        registry.register(self)

    def took(self, labels: Labels, seconds: float, times: int = 1) -> None:
        """Record a duration that was seen so many times."""
        numbers = self._numbers.get(labels)
        if numbers is None:
            numbers = self._numbers[labels] = [0] * len(self._names)
            self._sums[labels] = 0.0
        numbers[bisect_left(self._bounds, seconds)] += times
        self._sums[labels] += seconds * times

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield the histogram for Prometheus, with cumulative buckets."""
        family = HistogramMetricFamily(self._metric.name, self._metric.says, labels=self._metric.labels)
        for labels, numbers in self._numbers.items():
            within = list(zip(self._names, accumulate(numbers), strict=True))
            family.add_metric(labels, within, self._sums[labels])
        yield family


CAP = 10_000
"""Counting stops there, so that a long queue stays cheap to count."""
FRESH_S = 5.0
"""Time for which counts are cached."""
PATIENCE_S = 2.0

_OURS = {name: kind for name, kind in CATALOGUE.items() if name in MACHINES}
_NO_MORE: Catalogue = {}

Numbers = Mapping[tuple[str, str], int]


class RecordGauges:
    """Counts records by state, with a short cache."""

    def __init__(
        self, store: Store, own: Catalogue = _NO_MORE, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        kinds = {**_OURS, **own}.values()
        self._living = [
            (kind.name, state) for kind in kinds for state in kind.states if state not in kind.ended
        ]
        self._monotonic = monotonic
        self._numbers: Numbers = {}
        self._until = 0.0
        self._alone = asyncio.Lock()

    async def take(self) -> Numbers:
        """Return the numbers by kind and state.

        It is empty if the store does not answer in time.
        """
        async with self._alone:
            if self._monotonic() >= self._until:
                self._numbers = await self._count()
                self._until = self._monotonic() + FRESH_S
            return self._numbers

    async def _count(self) -> Numbers:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return {
                    (kind, state): (
                        await self._store.count(Query(kind=kind, states=(state,)), cap=CAP)
                    ).number
                    for kind, state in self._living
                }
        except (StoreError, TimeoutError):
            return {}


MAX_TRACKED = 100_000
"""Maximum number of machines whose time in a state is tracked."""

SinceByState = Mapping[tuple[str, str], datetime]
"""The machines of a record, by machine and entity, and when each entered its state. Records of one batch
share one, so it is never changed.
"""
_UNKNOWN: SinceByState = {}


class _Run:
    """Neighbouring entries of equal steps and equal records: they are counted once."""

    __slots__ = ("after", "at", "before", "kind", "left", "note", "number", "version")

    def __init__(self, before: SinceByState, entry: Entry, ends: AbstractSet[tuple[str, str]]) -> None:
        self.before = before
        self.note = entry.note
        self.kind = entry.kind
        self.at = entry.at
        self.version = entry.version
        self.number = 0
        self.left: list[tuple[Labels, float]] = []
        """The states that were left, and the seconds since each was entered."""
        after = dict(before)
        if entry.version == 1:
            after[entry.kind, ""] = entry.at
        for step in entry.note.steps:
            if not step.moves:
                continue
            machine, who = step.machine, (step.machine, step.entity)
            since = after.pop(who, None)
            if since is not None:
                self.left.append(((machine, step.source), max(0.0, (entry.at - since).total_seconds())))
            if (machine, step.target) not in ends:
                after[who] = entry.at
        self.after: SinceByState = after

    def has(self, before: SinceByState, entry: Entry) -> bool:
        """Return whether an entry belongs to this run."""
        return (
            before is self.before
            and entry.note is self.note
            and entry.kind == self.kind
            and entry.version == self.version
            and entry.at == self.at
        )


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SPOKEN_OF = ((RunnerError, LEASE.name), (ConflictingCompletion, ATTEMPT.name))
"""The machine of errors that do not name one."""


class ServerMetrics:
    """The counters of one server."""

    def __init__(self, machines: Iterable[Machine[Any, Any]] = JOURNALLED.values()) -> None:
        self._ends = frozenset((m.name, str(state)) for m in machines for state in m.terminal)
        """Terminal states, for which no time is tracked."""
        self.registry: CollectorRegistry = CollectorRegistry()
        registry = self.registry
        self._transitions = LabelledCounter(table.TRANSITIONS, registry)
        self._refused = table.REFUSED.counter(registry)
        self._journalled = table.REFUSALS_JOURNALLED.counter(registry)
        self._seconds = Timing(table.STATE_SECONDS, registry)
        self._records = table.RECORDS.gauge(registry)
        self._queues = QueueGauges(registry)
        self._ids = table.REQUEST_IDS.counter(registry)
        self._pruned = table.PRUNED.counter(registry)
        self._gaps = table.JOURNAL_GAPS.counter(registry)
        self._requests = LabelledCounter(table.HTTP_REQUESTS, registry)
        self._request_s = Timing(table.HTTP_SECONDS, registry)
        self._loop_failures = table.LOOP_FAILURES.gauge(registry)
        self._loop_rounds = table.LOOP_ROUNDS.gauge(registry)
        self._standing: OrderedDict[tuple[str, str], SinceByState] = OrderedDict()
        """The records with a machine whose time in its state is tracked, by kind and id."""
        self._tracked = 0
        for outcome in ("done", "repeated", "reused"):  # a rate needs initial zeros
            self._ids.labels(outcome)
        self.pruned(Pruned())

    def page(
        self,
        loops: Iterable[LoopHealth],
        records: Mapping[tuple[str, str], int],
        queues: KnownQueues | None = None,
    ) -> bytes:
        """Return all metrics in the format of Prometheus."""
        for health in loops:
            self._loop_failures.labels(health.name).set(health.failures_in_a_row)
            self._loop_rounds.labels(health.name).set(health.rounds)
        self._records.clear()  # a missing number is better than an outdated one
        for (kind, state), number in records.items():
            self._records.labels(kind, state).set(number)
        self._queues.show(queues)
        return generate_latest(self.registry)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a response; unknown paths and methods share one label."""
        known, where = method if method in _METHODS else "other", route or "unknown"
        self._requests.times[known, where, str(status)] += 1
        self._request_s.took((known, where), seconds)

    def refused(self, error: InterlockError) -> None:
        """Count a refused transition."""
        machine = next((name for kind, name in _SPOKEN_OF if isinstance(error, kind)), "")
        if machine or isinstance(error, TransitionRefused):
            facts = error.facts
            self._refused.labels(
                str(facts.get("machine", machine)), str(facts.get("state", "")), error.code
            ).inc()

    def committed(self, work: Sequence[Work], outcomes: Sequence[Outcome]) -> None:
        """Count commits under a request id as done, repeated or reused.

        Refusals and stored answers, which change no record, have internal ids.
        """
        each_outcome = iter(outcomes)
        for item in work:
            if isinstance(item, Batch):  # it carries no request id
                next(islice(each_outcome, len(item.ids) - 1, None))
                continue
            outcome = next(each_outcome)
            if item.request is None or not item.changes:
                continue
            if isinstance(outcome, Committed | Repeated | RequestReused):
                self.count_request(outcome)

    def count_request(self, outcome: Committed | Repeated | RequestReused) -> None:
        """Count the outcome of a commit with a request id."""
        match outcome:
            case Committed():
                self._ids.labels("done").inc()
            case Repeated():
                self._ids.labels("repeated").inc()
            case RequestReused():
                self._ids.labels("reused").inc()

    def pruned(self, pruned: Pruned) -> None:
        """Count pruned records, entries and requests."""
        for what in ("records", "entries", "requests"):
            self._pruned.labels(what).inc(getattr(pruned, what))

    def follow(self, entries: Sequence[Entry], gap: bool) -> None:
        """Count the transitions of journal entries. A refusal changes no record."""
        if gap:
            self._gaps.inc()
            self._standing.clear()
            self._tracked = 0
        run: _Run | None = None
        for entry in entries:
            if entry.note.refusal:
                self._journalled.labels(entry.kind).inc()
                continue
            name = entry.kind, entry.id
            before = self._standing.pop(name, _UNKNOWN)
            if run is None or not run.has(before, entry):
                self._count(run)
                run = _Run(before, entry, self._ends)
            run.number += 1
            if after := run.after:
                self._standing[name] = after
            self._tracked += len(after) - len(before)
        self._count(run)
        while self._tracked > MAX_TRACKED:
            self._tracked -= len(self._standing.popitem(last=False)[1])

    def _count(self, run: _Run | None) -> None:
        if run is None:
            return
        for step in run.note.steps:
            if step.moves:
                self._transitions.times[step.machine, step.source, step.target] += run.number
        for labels, seconds in run.left:
            self._seconds.took(labels, seconds, run.number)
