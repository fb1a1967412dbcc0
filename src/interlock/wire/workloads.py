"""Workloads of fleets: what a controller reports about each agent, how that is shown, and the errors."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from interlock.errors import InterlockError
from interlock.wire.runner import Secretive
from interlock.wire.views import View


class UnknownWorkload(InterlockError, code="unknown_workload", status=404):
    """No workload has that id."""


class AgentUnavailable(InterlockError, code="agent_unavailable", status=503):
    """An agent does not answer, or has stopped answering."""


class AgentRefused(InterlockError, code="agent_refused", status=409):
    """An agent does not take the workload, and these are its words."""


class SkewTooLarge(InterlockError, code="skew_too_large", status=409):
    """It is not known well enough what the agents' clocks say, so nothing was started."""


class WorkloadFailed(InterlockError, code="workload_failed", status=409):
    """Fewer agents have completed than the policy needs; what there is was saved."""


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
