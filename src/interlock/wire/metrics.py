"""The metrics and their names: one table for the server, the workers, the docs and the dashboard.

The names of the worker's first four were given (S1-18); everything else begins with `interlock_` or
`worker_`. The module of Prometheus is imported only when a metric is created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

MetricKind: TypeAlias = Literal["counter", "gauge", "histogram"]

_ANSWER_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)
_STATE_S = (0.01, 0.1, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0, 86_400.0)
_TASK_S = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3_600.0)


class Metric(msgspec.Struct, frozen=True):
    """A metric."""

    name: str
    kind: MetricKind
    says: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of the buckets of a histogram, in seconds."""

    def counter(self, registry: CollectorRegistry) -> Counter:
        """Return the metric as a counter of Prometheus."""
        from prometheus_client import Counter  # noqa: PLC0415 - half of a worker's start-up, if it is wanted

        return Counter(self.name, self.says, self.labels, registry=registry)

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        """Return the metric as a gauge of Prometheus."""
        from prometheus_client import Gauge  # noqa: PLC0415

        return Gauge(self.name, self.says, self.labels, registry=registry)

    def histogram(self, registry: CollectorRegistry) -> Histogram:
        """Return the metric as a histogram of Prometheus."""
        from prometheus_client import Histogram  # noqa: PLC0415

        return Histogram(self.name, self.says, self.labels, buckets=self.buckets, registry=registry)


# fmt: off
TRANSITIONS = Metric(
    "interlock_transitions_total", "counter",
    "Transitions, by the states that they lead from and to.", ("machine", "from_state", "to_state"))
REFUSED = Metric(
    "interlock_transitions_refused_total", "counter",
    "Refused transitions, by state and error code.",
    ("machine", "state", "code"))
REFUSALS_JOURNALLED = Metric(
    "interlock_refusals_journalled_total", "counter",
    "Refused messages of runners, as in the journal.", ("machine",))
STATE_SECONDS = Metric(
    "interlock_state_seconds", "histogram",
    "Time that machines spent in a state before they left it.", ("machine", "state"), _STATE_S)
RECORDS = Metric(
    "interlock_records", "gauge",
    "Records that have not ended, by state; 10000 means that many or more.", ("machine", "state"))
QUEUE_JOBS = Metric(
    "interlock_queue_jobs", "gauge",
    "Pending and running jobs of a queue, a few seconds old.", ("queue", "state"))
QUEUE_OLDEST = Metric(
    "interlock_queue_oldest_ready_seconds", "gauge",
    "Age of the oldest job of a queue that could be started; 0 without one, and while the queue is paused.",
    ("queue",))
QUEUE_WAIT = Metric(
    "interlock_queue_wait_seconds", "gauge",
    "Time that jobs of the last hour waited for their first start, by quantile.", ("queue", "quantile"))
QUEUE_SLOTS = Metric(
    "interlock_queue_slots", "gauge",
    "Slots of the live workers that take jobs of a queue; a worker counts for each of its queues.",
    ("queue",))
REQUEST_IDS = Metric(
    "interlock_request_ids_total", "counter",
    "Requests with an id: executed, repeated (a hit), or reused for another request (refused).",
    ("outcome",))
PRUNED = Metric(
    "interlock_pruned_total", "counter",
    "Expired data that this server has removed: records, journal entries, requests.",
    ("what",))
JOURNAL_GAPS = Metric(
    "interlock_journal_gaps_total", "counter", "Gaps in the journal that this server has missed.")
HTTP_REQUESTS = Metric(
    "interlock_http_requests_total", "counter",
    "Requests that were answered.", ("method", "route", "status"))
HTTP_SECONDS = Metric(
    "interlock_http_request_seconds", "histogram",
    "Response times.", ("method", "route"), _ANSWER_S)
LOOP_FAILURES = Metric(
    "interlock_loop_failures_in_a_row", "gauge", "Consecutive failures of a loop.", ("loop",))
LOOP_ROUNDS = Metric("interlock_loop_rounds", "gauge", "Rounds since the start.", ("loop",))

SERVER = (
    TRANSITIONS, REFUSED, REFUSALS_JOURNALLED, STATE_SECONDS, RECORDS, QUEUE_JOBS, QUEUE_OLDEST, QUEUE_WAIT,
    QUEUE_SLOTS, REQUEST_IDS, PRUNED, JOURNAL_GAPS, HTTP_REQUESTS, HTTP_SECONDS, LOOP_FAILURES, LOOP_ROUNDS,
)
"""Metrics that a server exports under /metrics: every machine whose journal is in the store."""

WORKER_STATE = Metric(
    "worker_state", "gauge", "1 for the current state of the process, else 0.", ("worker_id", "state"))
WORKER_TRANSITIONS = Metric(
    "worker_state_transitions_total", "counter",
    "Transitions of the process.", ("worker_id", "from_state", "to_state", "event"))
WORKER_SECONDS = Metric(
    "worker_state_duration_seconds", "histogram",
    "Time that the process spent in a state before it left it.", ("worker_id", "state"), _STATE_S)
TASK_TRANSITIONS = Metric(
    "task_state_transitions_total", "counter",
    "Transitions of its tasks.", ("task_type", "from_state", "to_state", "event"))
TASK_SECONDS = Metric(
    "task_state_duration_seconds", "histogram",
    "Time that its tasks spent in a state before they left it.", ("task_type", "state"), _TASK_S)
WORKER_REFUSED = Metric(
    "refused_transitions_total", "counter",
    "Events that the process or a task has refused.", ("machine", "state", "event"))
WORKER_LOOP_STALLED = Metric(
    "worker_loop_stalled", "gauge", "1 while a loop is silent.", ("worker_id", "loop"))
WORKER_LEFT_BEHIND = Metric(
    "worker_handlers_left_behind_total", "counter", "Handlers that could not be stopped.", ("worker_id",))
WORKER_FORCED = Metric(
    "worker_shutdown_forced", "gauge", "1 if its shutdown had to be forced.", ("worker_id",))

WORKER = (
    WORKER_STATE, WORKER_TRANSITIONS, WORKER_SECONDS, TASK_TRANSITIONS, TASK_SECONDS, WORKER_REFUSED,
    WORKER_LOOP_STALLED, WORKER_LEFT_BEHIND, WORKER_FORCED,
)
"""Metrics that a worker exports with --metrics-port: the machines inside its process."""
# fmt: on
