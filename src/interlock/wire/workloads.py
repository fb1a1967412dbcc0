"""Workloads of fleets: reports of a controller about its agents, views, and errors."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from interlock.wire.runner import Secretive
from interlock.wire.views import View

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]
Text = Annotated[str, Meta(max_length=2_000)]
Total = Annotated[int, Meta(ge=0, le=2**53)]


class Happened(StrEnum):
    """Event of an agent, as its controller observed it."""

    READY = "ready"
    """The agent has accepted the workload."""
    REFUSED = "refused"
    """The agent cannot execute the request."""
    RUNNING = "running"
    ABORTING = "aborting"
    """The agent was asked to stop."""
    COMPLETED = "completed"
    ERROR = "error"
    ABORTED = "aborted"
    LOST = "lost"
    """The agent no longer answers."""
    ALIVE = "alive"
    """Heartbeat of the controller, without news."""


FAILED_ENDINGS: tuple[Happened, ...] = (Happened.REFUSED, Happened.ERROR, Happened.LOST)
"""Endings that are shown in the tone of a failure. They are no states of the table, which ends in IDLE."""


class WorkloadFact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An event of the workload on one agent. A repeated one has no effect."""

    workload_id: Name
    job_id: Name
    """The job that drives it."""
    happened: Happened
    agent: Annotated[str, Meta(max_length=200)] = ""
    kind: Annotated[str, Meta(max_length=100)] = ""
    error: Text = ""
    operations: Total = 0
    errors: Total = 0
    rate: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    """Operations per second, in its latest report."""
    offset_ms: float | None = None
    """Offset of its clock from the controller's, and the uncertainty."""
    uncertainty_ms: float | None = None
    began_ms: float | None = None
    """Delay of its start after the common start, by true time."""


class WorkloadFacts(Secretive, frozen=True, kw_only=True):
    """Events of agents, reported by the runner that drives the fleet under the lease of its job."""

    token: str
    runner_id: Annotated[str, Meta(max_length=200)]
    facts: Annotated[tuple[WorkloadFact, ...], Meta(min_length=1, max_length=200)]


class WorkloadsHeard(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a report of events."""

    facts: int


class WorkloadView(View, frozen=True, kw_only=True, omit_defaults=True):
    """State of the workload on one agent."""

    id: str
    state: str
    version: int
    job_id: str
    agent: str
    created_at: datetime
    updated_at: datetime
    kind: str = ""
    final: str = ""
    """Final status: COMPLETED, ERROR or ABORTED."""
    error: str = ""
    lost: bool = False
    """The agent or its controller no longer answers."""
    operations: int = 0
    errors: int = 0
    rate: float = 0.0
    """Operations per second, in its latest report."""
    offset_ms: float | None = None
    """Offset of its clock from the controller's, and the uncertainty."""
    uncertainty_ms: float | None = None
    began_ms: float | None = None
    """Delay of its start after the common start, by true time."""
    deadline_at: datetime | None = None
    """Time at which it is declared lost, unless a report arrives."""


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of a histogram, in milliseconds; null where nothing was measured."""

    count: int = 0
    mean_ms: float | None = None
    p50_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    max_ms: float | None = None


class SecondView(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one second."""

    second: int
    """Start of the second, counted from the common start."""
    agents: int
    operations: int
    errors: int
    latencies: Latencies


class Spread(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Spread of the agents' start times."""

    spread_ns: int
    """Time between the first and the last start."""
    uncertainty_ns: int
    latest_ns: int = 0
    """Delay of the last start after the chosen instant."""
    agents: int = 0


class Policy(StrEnum):
    """Number of agents that have to complete."""

    ALL = "all"
    MAJORITY = "majority"
    BEST_EFFORT = "best-effort"


class Verdict(StrEnum):
    """Quality of a result."""

    COMPLETE = "COMPLETE"
    """Every agent has completed."""
    DEGRADED = "DEGRADED"
    """Every agent has completed, but started too far apart or reported corrupt numbers."""
    PARTIAL = "PARTIAL"
    """As many agents as the policy needs have completed, but not all."""
    FAILED = "FAILED"
    """Fewer agents than the policy needs have completed."""
    ABORTED = "ABORTED"
    """The workload was aborted on request."""


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """Share of the fleet that a result covers."""

    agents: int
    completed: int
    lost: int
    needed: int

    @property
    def share(self) -> float:
        """The share of agents that completed."""
        return self.completed / self.agents if self.agents else 0.0


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """A limit, and whether the result meets it."""

    name: str
    limit: float
    passed: bool
    value: float | None = None
    """Measured value; null where nothing was measured, which fails every threshold."""
    at_least: bool = False
    """The value must be at least the limit; otherwise at most the limit."""

    @property
    def sentence(self) -> str:
        """The limit and the value as a sentence."""
        wanted = "at least" if self.at_least else "at most"
        found = "was not measured" if self.value is None else f"is {self.value:,.4g}"
        return f"{self.name} {found}, and has to be {wanted} {self.limit:,.4g}"


QUEUE = "workloads"


class WorkloadSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A workload to execute on many agents."""

    kind: str
    """Plugin of the agents: command, python, http, sleep, or one of their own."""
    name: str = ""
    spec: dict[str, Any] = {}
    """Configuration of the plugin."""
    agents: tuple[str, ...] = ()
    """Addresses (HOST:PORT) of the agents."""
    duration_s: float = 10.0
    """Time during which operations start; 0: until it ends by itself, at most an hour."""
    rate: float = 0.0
    """Operations per second on each agent; 0: as many as it can."""
    concurrency: int = 1
    """Number of concurrent operations on each agent."""
    operations: int = 0
    """Maximum number of operations on each agent; 0: no limit."""
    policy: Policy = Policy.ALL
    lead_s: float = 2.0
    """Delay of the common start after the last READY."""
    skew_limit_s: float = 0.1
    """Maximum difference between two start times, including the uncertainty of the clocks."""
    ready_within_s: float = 10.0
    """Maximum time for an agent to answer and become READY."""
    lost_after_s: float = 20.0
    """Time without an answer to a ping after which an agent is lost."""
    thresholds: dict[str, float] = {}
    """Limits for the result: p99_ms, error_share, rate and others."""


class AgentResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of one agent."""

    agent: str
    workload_id: str = ""
    status: str = ""
    """COMPLETED, ERROR, ABORTED or LOST."""
    version: str = ""
    """Version of Interlock that the agent reports; empty where unknown."""
    error: str = ""
    operations: int = 0
    errors: int = 0
    dropped: int = 0
    """Operations that were due but never started, because earlier ones took too long."""
    bytes: int = 0
    left_out: bool = False
    """The numbers of this agent are not part of the total result."""
    latencies: Latencies = Latencies()
    offset_ms: float | None = None
    """Offset of its clock from the controller's, and the uncertainty."""
    uncertainty_ms: float | None = None
    began_ms: float | None = None
    """Delay of its start after the chosen instant, by true time."""
    late_ms: float = 0.0
    """Delay of its start by the agent's own monotonic clock."""
    reports: int = 0
    coalesced: int = 0
    missing: int = 0
    corrupt: str = ""
    """Fault in its numbers, which are not part of the percentiles."""
    error_samples: tuple[str, ...] = ()


class WorkloadResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of all agents."""

    verdict: Verdict
    sentence: str
    """The verdict and its reason as a sentence."""
    name: str
    kind: str
    policy: str
    coverage: Coverage
    duration_s: float
    """Duration from the common start on."""
    operations: int
    """Number of operations; like all numbers below, only of the agents that the result covers."""
    errors: int
    bytes: int
    rate: float
    """Operations per second, from the first start of an agent to the last end."""
    latencies: Latencies
    dropped: int = 0
    """Operations that were due but never started."""
    warnings: tuple[str, ...] = ()
    """Caveats about the numbers, one sentence each."""
    started_at: datetime | None = None
    start_bound_ms: float | None = None
    """Maximum difference between two start times, as known before the start."""
    spread: Spread | None = None
    agents: tuple[AgentResult, ...] = ()
    seconds: tuple[SecondView, ...] = ()
    histogram: str = ""
    """The merged histogram in the encoding of HdrHistogram."""
    received_bytes: int = 0
    """Size of the reports on the wire."""
    thresholds: tuple[Threshold, ...] = ()
    """The thresholds, and whether each was met."""

    @property
    def missed(self) -> tuple[Threshold, ...]:
        """The thresholds that were not met."""
        return tuple(each for each in self.thresholds if not each.passed)
