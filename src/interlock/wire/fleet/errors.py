"""What somebody who drives a fleet can be told, beside a workload that is invalid."""

from __future__ import annotations

from interlock.errors import InterlockError


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
