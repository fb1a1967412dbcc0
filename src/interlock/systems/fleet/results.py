"""What is left of a workload on a fleet: one result, which says what it is worth and what it speaks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from interlock.lifecycles.workload import Status
from interlock.plurals import counted
from interlock.systems.fleet import histograms
from interlock.systems.fleet.clocks import Offset
from interlock.systems.fleet.coverage import Coverage, Verdict, covered, verdict_of
from interlock.systems.fleet.figures import some, took
from interlock.systems.fleet.merged import Merged, Part
from interlock.systems.fleet.outcome import LOST, AgentResult, WorkloadResult
from interlock.systems.fleet.spec import WorkloadSpec
from interlock.systems.fleet.start import Start, began_ms, spread_of
from interlock.systems.fleet.thresholds import judged


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
    versions: Mapping[str, str] = {}
    warnings: Sequence[str] = ()
    """What was to be said of the agents before anything was started."""

    @property
    def coverage(self) -> Coverage:
        """How much of the fleet the result speaks for."""
        return covered(self.spec.policy, (ending.final for ending in self.endings.values()))

    @property
    def left_out(self) -> list[str]:
        """Agents that a PARTIAL result does not speak for; others speak for all, as far as they came."""
        if verdict_of(self.coverage, stopped=bool(self.stopped)) is not Verdict.PARTIAL:
            return []
        return [name for name, ending in self.endings.items() if ending.final is not Status.COMPLETED]


def result_of(known: Known, merged: Merged) -> WorkloadResult:
    """One result of what all have said."""
    for _ in merged.leave_out(known.left_out):
        pass  # a driver has done it before, with pauses
    coverage, flaws = known.coverage, list(_flaws(known, merged))
    verdict = verdict_of(coverage, stopped=bool(known.stopped), flawed=bool(flaws))
    parts = [part for part in merged.parts.values() if not part.left_out]
    began = {part.agent: part.started_at_ns for part in parts if part.started_at_ns}
    began_ns, ended_ns = merged.span_ns
    lasted_s = (ended_ns - began_ns) / 1e9
    rate = merged.operations / lasted_s if lasted_s > 0 else 0.0
    latencies = histograms.latencies(merged.histogram)
    thresholds = judged(
        known.spec.thresholds, latencies, rate=rate, operations=merged.operations, errors=merged.errors
    )
    return WorkloadResult(
        verdict=verdict,
        sentence=_sentence(verdict, coverage, known, flaws),
        name=known.spec.name,
        kind=known.spec.kind,
        policy=str(known.spec.policy),
        coverage=coverage,
        duration_s=ended_ns / 1e9,
        operations=merged.operations,
        errors=merged.errors,
        bytes=merged.transferred,
        rate=rate,
        latencies=latencies,
        dropped=merged.backlog,
        warnings=tuple(_warnings(known, merged, flaws)),
        started_at=known.started_at,
        start_bound_ms=known.start.bound_ns / 1e6 if known.start else None,
        spread=spread_of(known.start, began, known.offsets) if known.start else None,
        agents=tuple(_agent(known, part) for part in merged.parts.values()),
        seconds=tuple(merged.seconds()),
        histogram=histograms.written(merged.histogram),
        received_bytes=sum(part.received for part in merged.parts.values()),
        thresholds=tuple(thresholds),
    )


def _agent(known: Known, part: Part) -> AgentResult:
    ending, offset, last = known.endings[part.agent], known.offsets.get(part.agent), part.last
    return AgentResult(
        agent=part.agent,
        workload_id=ending.workload_id,
        status=ending.final.name if ending.final else LOST,
        version=known.versions.get(part.agent, ""),
        error=ending.error,
        operations=last.operations if last else 0,
        errors=last.errors if last else 0,
        dropped=last.backlog if last else 0,
        bytes=last.transferred if last else 0,
        left_out=part.left_out,
        latencies=histograms.latencies(part.histogram),
        offset_ms=offset.offset_ns / 1e6 if offset else None,
        uncertainty_ms=offset.uncertainty_ns / 1e6 if offset else None,
        began_ms=began_ms(known.start, offset, part.started_at_ns),
        late_ms=part.late_ns / 1e6,
        reports=part.reports,
        coalesced=part.coalesced,
        missing=part.missing,
        corrupt=part.fault,
        error_samples=tuple(part.samples),
    )


def _flaws(known: Known, merged: Merged) -> Iterator[str]:
    """Why the numbers are not what was asked for although agents completed."""
    parts = [part for part in merged.parts.values() if not part.left_out]
    late = [part.late_ns for part in parts if part.started_at_ns]
    apart_ns, limit_ms = (max(late) - min(late) if late else 0), known.spec.skew_limit_s * 1e3
    if apart_ns / 1e6 > limit_ms:
        apart, limit = took(apart_ns / 1e6), took(limit_ms)
        yield f"they began {apart} apart, and skew-limit is {limit} (give them a longer lead)"
    wrong = tuple(part.agent for part in parts if part.fault)
    if wrong:
        yield f"numbers of {some(wrong)} cannot be true, and their latencies are not in the result"


def _warnings(known: Known, merged: Merged, flaws: Sequence[str]) -> Iterator[str]:
    yield from known.warnings
    if known.coverage.completed < known.coverage.needed:  # otherwise they are in the sentence
        yield from (f"{flaw[0].upper()}{flaw[1:]}." for flaw in flaws)
    if dropped := merged.backlog:
        yield (
            f"{dropped:,} of {merged.operations + dropped:,} operations that were due never began: "
            "raise concurrency, or lower the rate."
        )


def _sentence(verdict: Verdict, coverage: Coverage, known: Known, flaws: Sequence[str]) -> str:
    done = f"{coverage.completed} of {counted(coverage.agents, 'agent')} completed"
    match verdict:
        case Verdict.COMPLETE:
            return "All agents completed." if coverage.agents > 1 else "The agent completed."
        case Verdict.DEGRADED:
            whole = "All agents completed" if coverage.agents > 1 else "The agent completed"
            return f"{whole}, but {'; '.join(flaws)}."
        case Verdict.PARTIAL:
            needs = f"{done}, and {known.spec.policy} needs {coverage.needed}: it speaks for those alone."
            return f"{needs} But {'; '.join(flaws)}." if flaws else needs
        case Verdict.ABORTED:
            return f"It was stopped ({known.stopped}); {done}."
        case Verdict.FAILED:
            return f"{done}, and {known.spec.policy} needs {coverage.needed}.{_first_error(known)}"


def _first_error(known: Known) -> str:
    for agent, ending in known.endings.items():
        if ending.error:
            return f" {agent}: {ending.error}"
    return ""
