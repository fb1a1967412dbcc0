"""Workloads of fleets: what a controller reports about each agent, how that is shown, and the errors."""

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
    """What a controller has heard of an agent, or has made of its silence."""

    READY = "ready"
    """It has taken the workload."""
    REFUSED = "refused"
    """It has looked at the request and cannot do it."""
    RUNNING = "running"
    ABORTING = "aborting"
    """It was told to stop."""
    COMPLETED = "completed"
    ERROR = "error"
    ABORTED = "aborted"
    LOST = "lost"
    """It does not answer any more."""
    ALIVE = "alive"
    """Nothing new; the controller is still there."""


class WorkloadFact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One thing that is known about the workload on one agent. It may be told again; it is true once."""

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
    """How far its clock is ahead of the controller's, and how well that is known."""
    uncertainty_ms: float | None = None
    began_ms: float | None = None
    """How much after the common start it began, by true time."""


class WorkloadFacts(Secretive, frozen=True, kw_only=True):
    """What the runner that drives a fleet has heard of its agents, under the lease of its job."""

    token: str
    runner_id: Annotated[str, Meta(max_length=200)]
    facts: Annotated[tuple[WorkloadFact, ...], Meta(min_length=1, max_length=200)]


class WorkloadsHeard(msgspec.Struct, frozen=True, kw_only=True):
    """It is known now."""

    facts: int


class WorkloadView(View, frozen=True, kw_only=True, omit_defaults=True):
    """The workload on one agent as it is known."""

    id: str
    state: str
    version: int
    job_id: str
    agent: str
    created_at: datetime
    updated_at: datetime
    kind: str = ""
    final: str = ""
    """COMPLETED, ERROR or ABORTED, once it is over."""
    error: str = ""
    lost: bool = False
    """The agent, or its controller, was not heard of any more."""
    operations: int = 0
    errors: int = 0
    rate: float = 0.0
    """Operations per second, as it reported last."""
    offset_ms: float | None = None
    """How far its clock is ahead of the controller's, and how well that is known."""
    uncertainty_ms: float | None = None
    began_ms: float | None = None
    """How much after the common start it began, by true time."""
    deadline_at: datetime | None = None
    """When it is written off unless something is heard."""


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """What a histogram says, in milliseconds; nothing (null) where nothing was measured."""

    count: int = 0
    mean_ms: float | None = None
    p50_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    max_ms: float | None = None


class SecondView(msgspec.Struct, frozen=True, kw_only=True):
    """One second as it is shown and saved."""

    second: int
    """From this one on, since the common start."""
    agents: int
    operations: int
    errors: int
    latencies: Latencies


class Spread(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How nearly they began at the same time."""

    spread_ns: int
    """From the first to the last."""
    uncertainty_ns: int
    latest_ns: int = 0
    """How much after the chosen instant the last one began."""
    agents: int = 0


class Policy(StrEnum):
    """How many of the agents have to be there to the end."""

    ALL = "all"
    MAJORITY = "majority"
    BEST_EFFORT = "best-effort"


class Verdict(StrEnum):
    """What a result is worth."""

    COMPLETE = "COMPLETE"
    """Every agent has completed."""
    DEGRADED = "DEGRADED"
    """Every agent has completed, but not as was asked: too far apart, or with wrong numbers."""
    PARTIAL = "PARTIAL"
    """As many as the policy wants, but not all."""
    FAILED = "FAILED"
    """Fewer than the policy wants."""
    ABORTED = "ABORTED"
    """Somebody stopped it."""


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the fleet a result speaks for."""

    agents: int
    completed: int
    lost: int
    needed: int

    @property
    def share(self) -> float:
        """The part that completed."""
        return self.completed / self.agents if self.agents else 0.0


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """One limit, and whether it was kept."""

    name: str
    limit: float
    passed: bool
    value: float | None = None
    """What was measured; nothing (null) where nothing was, which passes no threshold."""
    at_least: bool = False
    """The value has to be the limit or more; otherwise the limit or less."""

    @property
    def sentence(self) -> str:
        """The limit and the value, for people."""
        wanted = "at least" if self.at_least else "at most"
        found = "was not measured" if self.value is None else f"is {self.value:,.4g}"
        return f"{self.name} {found}, and has to be {wanted} {self.limit:,.4g}"


QUEUE = "workloads"


class WorkloadSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One workload on many agents."""

    kind: str
    """Which plugin of the agents: command, python, http, sleep, or one of their own."""
    name: str = ""
    spec: dict[str, Any] = {}
    """What the plugin is given."""
    agents: tuple[str, ...] = ()
    """HOST:PORT of each."""
    duration_s: float = 10.0
    """How long operations are begun; 0: until it ends by itself, at most an hour."""
    rate: float = 0.0
    """Operations per second on each agent; 0: as many as it can."""
    concurrency: int = 1
    """Operations side by side on each agent."""
    operations: int = 0
    """Each agent ends after so many; 0: no such limit."""
    policy: Policy = Policy.ALL
    lead_s: float = 2.0
    """How long after the last READY all begin."""
    skew_limit_s: float = 0.1
    """How far apart two of them may begin at worst, for all that is known of their clocks."""
    ready_within_s: float = 10.0
    """How long an agent may take to answer and to be READY."""
    lost_after_s: float = 20.0
    """How long an agent may leave a ping unanswered before it is lost."""
    thresholds: dict[str, float] = {}
    """What the result has to reach: p99_ms, error_share, rate and others, each with its limit."""


class AgentResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of one agent."""

    agent: str
    workload_id: str = ""
    status: str = ""
    """COMPLETED, ERROR, ABORTED or LOST."""
    version: str = ""
    """Of Interlock, as the agent says; empty when it was not asked or does not say."""
    error: str = ""
    operations: int = 0
    errors: int = 0
    dropped: int = 0
    """Operations that were due and never began, because all before them took too long."""
    bytes: int = 0
    left_out: bool = False
    """Its numbers are not in those of the whole result, which speaks for the others."""
    latencies: Latencies = Latencies()
    offset_ms: float | None = None
    """How far its clock is ahead of the controller's, and how well that is known."""
    uncertainty_ms: float | None = None
    began_ms: float | None = None
    """How much after the chosen instant it began, by true time."""
    late_ms: float = 0.0
    """What it says itself about that, by a clock that nobody can set."""
    reports: int = 0
    coalesced: int = 0
    missing: int = 0
    corrupt: str = ""
    """What was wrong with its numbers; they are not part of the percentiles."""
    error_samples: tuple[str, ...] = ()


class WorkloadResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of all of them."""

    verdict: Verdict
    sentence: str
    """The verdict and why, for people."""
    name: str
    kind: str
    policy: str
    coverage: Coverage
    duration_s: float
    """How long it took from the common start on."""
    operations: int
    """Like all numbers below it of those agents alone that the result speaks for."""
    errors: int
    bytes: int
    rate: float
    """Operations per second, from when the first agent began until the last one ended."""
    latencies: Latencies
    dropped: int = 0
    """Operations that were due and never began."""
    warnings: tuple[str, ...] = ()
    """What to know before the numbers are believed, each in a sentence."""
    started_at: datetime | None = None
    start_bound_ms: float | None = None
    """Two of them begin at most so far apart, for all that was known before."""
    spread: Spread | None = None
    agents: tuple[AgentResult, ...] = ()
    seconds: tuple[SecondView, ...] = ()
    histogram: str = ""
    """The merged one, in HdrHistogram's own encoding."""
    received_bytes: int = 0
    """What the reports took on the wire."""
    thresholds: tuple[Threshold, ...] = ()
    """Every limit that was asked for, and whether it was kept."""

    @property
    def missed(self) -> tuple[Threshold, ...]:
        """The limits that were not kept."""
        return tuple(each for each in self.thresholds if not each.passed)
