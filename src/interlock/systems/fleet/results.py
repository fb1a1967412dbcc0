"""What is left of a workload on a fleet: one result, which says what it is worth and what it speaks for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from interlock.lifecycles.workload import Status
from interlock.plurals import counted
from interlock.systems.fleet import histograms
from interlock.systems.fleet.clocks import Offset
from interlock.systems.fleet.coverage import Coverage, Verdict, covered, verdict_of
from interlock.systems.fleet.histograms import Latencies
from interlock.systems.fleet.merging import Merged, Part, SecondView
from interlock.systems.fleet.spec import WorkloadSpec
from interlock.systems.fleet.starting import Spread, Start, spread_of

MOST_SECONDS_IN_A_RESULT = 600
"""Of a longer workload the result of the job has the sums, and the files have every second."""


class AgentResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of one agent."""

    agent: str
    workload_id: str = ""
    status: str = ""
    """COMPLETED, ERROR or ABORTED; empty when it was lost."""
    error: str = ""
    operations: int = 0
    errors: int = 0
    bytes: int = 0
    latencies: Latencies = Latencies()
    offset_ms: float | None = None
    """How far its clock is ahead of the controller's, and how well that is known."""
    uncertainty_ms: float | None = None
    began_ms: float | None = None
    """How much after the chosen instant it began, by true time."""
    late_ms: float = 0.0
    """What it says itself about that."""
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
    errors: int
    bytes: int
    rate: float
    """Operations per second."""
    latencies: Latencies
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


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How one agent ended."""

    workload_id: str
    final: Status | None = None
    error: str = ""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a result is made of, besides the numbers."""

    spec: WorkloadSpec
    endings: Mapping[str, Ending]
    offsets: Mapping[str, Offset]
    start: Start | None = None
    started_at: datetime | None = None
    stopped: str = ""
    """Why somebody stopped it."""


def result_of(known: Known, merged: Merged) -> WorkloadResult:
    """One result of what all have said."""
    coverage = covered(known.spec.policy, (ending.final for ending in known.endings.values()))
    verdict = verdict_of(coverage, stopped=bool(known.stopped))
    began = {agent: part.started_at_ns for agent, part in merged.parts.items() if part.started_at_ns}
    elapsed_s = max((part.last.elapsed_ns for part in merged.parts.values() if part.last), default=0) / 1e9
    return WorkloadResult(
        verdict=verdict,
        sentence=_sentence(verdict, coverage, known),
        name=known.spec.name,
        kind=known.spec.kind,
        policy=str(known.spec.policy),
        coverage=coverage,
        duration_s=elapsed_s,
        operations=merged.operations,
        errors=merged.errors,
        bytes=merged.transferred,
        rate=merged.operations / elapsed_s if elapsed_s else 0.0,
        latencies=histograms.latencies(merged.histogram),
        started_at=known.started_at,
        start_bound_ms=known.start.bound_ns / 1e6 if known.start else None,
        spread=spread_of(known.start, began, known.offsets) if known.start else None,
        agents=tuple(_agent(known, part) for part in merged.parts.values()),
        seconds=tuple(merged.seconds()),
        histogram=histograms.written(merged.histogram),
        received_bytes=sum(part.received for part in merged.parts.values()),
    )


def in_short(result: WorkloadResult) -> WorkloadResult:
    """As a job keeps it: of a long workload without the seconds, which are in the files."""
    if len(result.seconds) <= MOST_SECONDS_IN_A_RESULT:
        return result
    return msgspec.structs.replace(result, seconds=())


def _agent(known: Known, part: Part) -> AgentResult:
    ending, offset, last = known.endings[part.agent], known.offsets.get(part.agent), part.last
    began_ms = None
    if known.start and offset and part.started_at_ns:
        began_ms = (part.started_at_ns - offset.offset_ns - known.start.at_ns) / 1e6
    return AgentResult(
        agent=part.agent,
        workload_id=ending.workload_id,
        status=ending.final.name if ending.final else "",
        error=ending.error,
        operations=last.operations if last else 0,
        errors=last.errors if last else 0,
        bytes=last.transferred if last else 0,
        latencies=histograms.latencies(part.histogram),
        offset_ms=offset.offset_ns / 1e6 if offset else None,
        uncertainty_ms=offset.uncertainty_ns / 1e6 if offset else None,
        began_ms=began_ms,
        late_ms=part.late_ns / 1e6,
        reports=part.reports,
        coalesced=part.coalesced,
        missing=part.missing,
        corrupt=part.fault,
        error_samples=tuple(part.samples),
    )


def _sentence(verdict: Verdict, coverage: Coverage, known: Known) -> str:
    done = f"{coverage.completed} of {counted(coverage.agents, 'agent')} completed"
    match verdict:
        case Verdict.COMPLETE:
            return "All agents completed." if coverage.agents > 1 else "The agent completed."
        case Verdict.PARTIAL:
            return f"{done}, and {known.spec.policy} needs {coverage.needed}: it speaks for those alone."
        case Verdict.ABORTED:
            return f"It was stopped ({known.stopped}); {done}."
        case Verdict.FAILED:
            return f"{done}, and {known.spec.policy} needs {coverage.needed}.{_first_error(known)}"


def _first_error(known: Known) -> str:
    for agent, ending in known.endings.items():
        if ending.error:
            return f" {agent}: {ending.error}"
    return ""
