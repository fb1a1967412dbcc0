"""What is counted, for Prometheus.

What happens to records is read from the journal, so it counts what anybody has done since this
server was started, also what workers and other servers did. Requests are this server's own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from interlock.engine.committing import Committer
from interlock.engine.loops import Health
from interlock.errors import InterlockError
from interlock.store.records import Commit, Entry, Outcome, Repeated, RequestReused

MAX_TRACKED = 100_000
"""How many machines are remembered to know how long they were in a state."""

_REQUEST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)
_STATE_S = (0.01, 0.1, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0, 86_400.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._transitions = Counter(
            "interlock_transitions_total",
            "Transitions, by the states that they lead from and to.",
            ("machine", "from_state", "to_state"),
            registry=registry,
        )
        self._refused = Counter(
            "interlock_transitions_refused_total",
            "Transitions that were refused, by the code that was answered; journal is what was journalled.",
            ("code",),
            registry=registry,
        )
        self._seconds = Histogram(
            "interlock_state_seconds",
            "How long machines were in a state that they have left.",
            ("machine", "state"),
            buckets=_STATE_S,
            registry=registry,
        )
        self._gaps = Counter(
            "interlock_journal_gaps_total", "Stretches of the journal that were missed.", registry=registry
        )
        self._ids = Counter(
            "interlock_request_ids_total",
            "Commits that carried a request id: done, repeated (a hit) or reused (refused).",
            ("outcome",),
            registry=registry,
        )
        self._requests = Counter(
            "interlock_http_requests_total",
            "Requests that were answered.",
            ("method", "route", "status"),
            registry=registry,
        )
        self._request_s = Histogram(
            "interlock_http_request_seconds",
            "How long answers took.",
            ("method", "route"),
            buckets=_REQUEST_S,
            registry=registry,
        )
        self._loop_failures = Gauge(
            "interlock_loop_failures_in_a_row", "Zero for a loop that works.", ("loop",), registry=registry
        )
        self._loop_rounds = Gauge(
            "interlock_loop_rounds", "Rounds since the start.", ("loop",), registry=registry
        )
        self._entered: OrderedDict[tuple[str, str, str], datetime] = OrderedDict()
        # What is counted under the same labels again and again: looking them up costs more than counting.
        self._answers: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._steps: dict[tuple[str, str, str], Counter] = {}

    def page(self, loops: Iterable[Health]) -> bytes:
        """Everything, in the format of Prometheus."""
        for health in loops:
            self._loop_failures.labels(health.name).set(health.failures_in_a_row)
            self._loop_rounds.labels(health.name).set(health.rounds)
        return generate_latest(self.registry)

    def answered(self, method: str, route: str, status: int, code: str, seconds: float) -> None:
        """A request has been answered; addresses and methods that are not known share one name."""
        found = self._answers.get((method, route, status))
        if found is None:
            known, where = method if method in _METHODS else "other", route or "unknown"
            found = self._requests.labels(known, where, str(status)), self._request_s.labels(known, where)
            if known == method:  # of what somebody may invent nothing is kept
                self._answers[method, route, status] = found
        number, time = found
        number.inc()
        time.observe(seconds)
        if status == 409:
            self._refused.labels(code).inc()

    def committed(self, commit: Commit, outcome: Outcome | InterlockError) -> None:
        """A commit has come back; those with a request id tell how many are repeats."""
        if commit.request is None or isinstance(outcome, InterlockError):
            return
        match outcome:
            case Repeated():
                self._ids.labels("repeated").inc()
            case RequestReused():
                self._ids.labels("reused").inc()
            case _:
                self._ids.labels("done").inc()

    def follow(self, entries: Sequence[Entry], gap: bool) -> None:
        """What the journal says."""
        if gap:
            self._gaps.inc()
            self._entered.clear()
        for entry in entries:
            if entry.note.refusal:
                self._refused.labels("journal").inc()
            for step in entry.note.steps:
                if step.moves:
                    self._step(step.machine, step.source, step.target).inc()
                    self._moved((step.machine, entry.id, step.entity), step.source, entry.at)

    def _step(self, machine: str, source: str, target: str) -> Counter:
        found = self._steps.get((machine, source, target))
        if found is None:
            found = self._steps[machine, source, target] = self._transitions.labels(machine, source, target)
        return found

    def _moved(self, who: tuple[str, str, str], source: str, at: datetime) -> None:
        since = self._entered.pop(who, None)
        if since is not None:
            self._seconds.labels(who[0], source).observe(max(0.0, (at - since).total_seconds()))
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

    async def commit_all(self, commits: Sequence[Commit]) -> list[Outcome | InterlockError]:
        """The outcomes, noted."""
        outcomes = await self._committer.commit_all(commits)
        for commit, outcome in zip(commits, outcomes, strict=True):
            self._metrics.committed(commit, outcome)
        return outcomes
