"""The result of a workload on a fleet, as it is kept. It is read without the libraries that measure."""

from __future__ import annotations

from datetime import datetime

import msgspec

from interlock.systems.fleet.coverage import Coverage, Verdict
from interlock.systems.fleet.start import Spread
from interlock.systems.fleet.thresholds import Threshold
from interlock.wire.workloads import Latencies, SecondView

LOST = "LOST"
MOST_SECONDS_IN_A_RESULT = 600
"""Of a longer workload the result of the job has the sums, and the files have every second."""


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


def in_short(result: WorkloadResult) -> WorkloadResult:
    """As a job keeps it: of a long workload without the seconds, which are in the files."""
    if len(result.seconds) <= MOST_SECONDS_IN_A_RESULT:
        return result
    return msgspec.structs.replace(result, seconds=())
