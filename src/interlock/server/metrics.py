"""What is counted, for Prometheus; under which names, `interlock.wire.metrics` says.

What happens to records is read from the journal, so it counts what anybody has done since this
server was started, also what workers and other servers did. How many records there are is asked of
the store. Requests, and the ids that came with them, are this server's own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from interlock.engine.committer import Committer
from interlock.engine.loops import Health
from interlock.errors import ConflictingCompletion, InterlockError, RunnerError, TransitionRefused
from interlock.lifecycles.attempt import ATTEMPT
from interlock.lifecycles.lease import LEASE
from interlock.machine import Machine
from interlock.server.tallies import Tally, Timing
from interlock.store.records import (
    Commit,
    Committed,
    Entry,
    Outcome,
    Pruned,
    Repeated,
    RequestReused,
    StepLine,
    Work,
)
from interlock.systems.catalogue import JOURNALLED
from interlock.wire import metrics as table

MAX_TRACKED = 100_000
"""How many machines are remembered to know how long they were in a state."""

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SPOKEN_OF = ((RunnerError, LEASE.name), (ConflictingCompletion, ATTEMPT.name))
"""Which machine an error is about that does not say so."""


class Metrics:
    """The counters of one server."""

    def __init__(self, machines: Iterable[Machine[Any, Any]] = JOURNALLED.values()) -> None:
        self._ends = frozenset((m.name, str(state)) for m in machines for state in m.terminal)
        """States that are not left, so nobody has to remember since when."""
        self.registry = registry = CollectorRegistry()
        self._transitions = Tally(table.TRANSITIONS, registry)
        self._refused = table.REFUSED.counter(registry)
        self._journalled = table.REFUSALS_JOURNALLED.counter(registry)
        self._seconds = Timing(table.STATE_SECONDS, registry)
        self._records = table.RECORDS.gauge(registry)
        self._ids = table.REQUEST_IDS.counter(registry)
        self._pruned = table.PRUNED.counter(registry)
        self._gaps = table.JOURNAL_GAPS.counter(registry)
        self._requests = Tally(table.HTTP_REQUESTS, registry)
        self._request_s = Timing(table.HTTP_SECONDS, registry)
        self._loop_failures = table.LOOP_FAILURES.gauge(registry)
        self._loop_rounds = table.LOOP_ROUNDS.gauge(registry)
        self._entered: OrderedDict[tuple[str, str, str], datetime] = OrderedDict()
        for outcome in ("done", "repeated", "reused"):  # a rate needs its zeros
            self._ids.labels(outcome)
        self.pruned(Pruned())

    def page(self, loops: Iterable[Health], records: Mapping[tuple[str, str], int]) -> bytes:
        """Everything, in the format of Prometheus."""
        for health in loops:
            self._loop_failures.labels(health.name).set(health.failures_in_a_row)
            self._loop_rounds.labels(health.name).set(health.rounds)
        self._records.clear()  # a number that nobody could ask for is better left out than old
        for (kind, state), number in records.items():
            self._records.labels(kind, state).set(number)
        return generate_latest(self.registry)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request has been answered; addresses and methods that are not known share one name."""
        known, where = method if method in _METHODS else "other", route or "unknown"
        self._requests.times[known, where, str(status)] += 1
        self._request_s.took((known, where), seconds)

    def refused(self, error: InterlockError) -> None:
        """Somebody was told no; where that was a transition, it is counted."""
        machine = next((name for kind, name in _SPOKEN_OF if isinstance(error, kind)), "")
        if machine or isinstance(error, TransitionRefused):
            told = error.facts
            self._refused.labels(
                str(told.get("machine", machine)), str(told.get("state", "")), error.code
            ).inc()

    def committed(self, commit: Commit, outcome: Outcome | InterlockError) -> None:
        """Count a commit under a request id as done, repeated or reused.

        Refusals and stored answers, which change no record, have ids of our own.
        """
        if commit.request is None or not commit.changes:
            return
        if isinstance(outcome, Committed | Repeated | RequestReused):
            self.asked(outcome)

    def asked(self, outcome: Committed | Repeated | RequestReused) -> None:
        """What came under a request id was done, had been done before, or was another request."""
        match outcome:
            case Committed():
                self._ids.labels("done").inc()
            case Repeated():
                self._ids.labels("repeated").inc()
            case RequestReused():
                self._ids.labels("reused").inc()

    def pruned(self, pruned: Pruned) -> None:
        """What was removed because its time was over."""
        for what in ("records", "entries", "requests"):
            self._pruned.labels(what).inc(getattr(pruned, what))

    def follow(self, entries: Sequence[Entry], gap: bool) -> None:
        """What the journal says."""
        if gap:
            self._gaps.inc()
            self._entered.clear()
        for entry in entries:
            if entry.note.refusal:
                self._journalled.labels(entry.kind).inc()
            elif entry.version == 1:
                self._enter((entry.kind, entry.id, ""), entry.at)
            for step in entry.note.steps:
                if step.moves:
                    self._moved((step.machine, entry.id, step.entity), step, entry.at)

    def _moved(self, who: tuple[str, str, str], step: StepLine, at: datetime) -> None:
        machine, source, target = step.machine, step.source, step.target
        self._transitions.times[machine, source, target] += 1
        since = self._entered.pop(who, None)
        if since is not None:
            self._seconds.took((machine, source), max(0.0, (at - since).total_seconds()))
        if (machine, target) not in self._ends:
            self._enter(who, at)

    def _enter(self, who: tuple[str, str, str], at: datetime) -> None:
        self._entered[who] = at
        if len(self._entered) > MAX_TRACKED:
            self._entered.popitem(last=False)


class CountedCommits:
    """A committer that is counted."""

    def __init__(self, committer: Committer, metrics: Metrics) -> None:
        self._committer = committer
        self._metrics = metrics

    async def commit(self, commit: Commit) -> Outcome:
        """The outcome, noted."""
        outcome = await self._committer.commit(commit)
        self._metrics.committed(commit, outcome)
        return outcome

    async def commit_all(self, work: Sequence[Work]) -> list[Outcome | InterlockError]:
        """The outcomes, noted; a batch carries no request."""
        outcomes = await self._committer.commit_all(work)
        told = iter(outcomes)
        for item in work:
            if isinstance(item, Commit):
                self._metrics.committed(item, next(told))
            else:
                next(islice(told, len(item.ids) - 1, None))
        return outcomes
