"""Merge the reports of all agents into one result: counts, true percentiles, and a verdict.

Why: decisions 0236 and 0341.
"""

from __future__ import annotations

import struct
import tempfile
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from interlock.lifecycles.workload import Status
from interlock.systems.fleet import histograms
from interlock.systems.fleet.clocks import CommonStart, Offset, began_ms, some, spread_of, took
from interlock.systems.fleet.histograms import CorruptHistogram, Histogram
from interlock.systems.fleet.spec import covered, judged, verdict_of
from interlock.text import counted
from interlock.wire.workloads import (
    AgentResult,
    Coverage,
    Latencies,
    SecondView,
    Verdict,
    WorkloadResult,
    WorkloadSpec,
)

LOST = "LOST"
"""Status of an agent that did not report its end."""

NS = 1_000_000_000
MOST_SAMPLES = 5
"""Number of different operation errors kept for each agent."""
LONGEST_NS = 3 * 3_600 * NS
"""Maximum plausible duration or delay of an agent."""
KEPT_IN_MEMORY = 16 * 1_048_576
"""Bytes of reports kept in memory; more are kept in a temporary file, until exclusions are known."""


class AgentReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report of an agent about one interval."""

    agent: str
    sequence: int
    status: Status
    completed: bool = False
    elapsed_ns: int = 0
    operations: int = 0
    errors: int = 0
    transferred: int = 0
    interval_operations: int = 0
    interval_errors: int = 0
    histogram: bytes = b""
    started_at_ns: int = 0
    """By the agent's clock; 0 before it has begun."""
    late_ns: int = 0
    """Delay of its begin after the common start."""
    backlog: int = 0
    """Operations that were due and had not begun."""
    coalesced: int = 1
    error: str = ""
    error_samples: tuple[str, ...] = ()
    size: int = 0
    """Bytes on the wire."""

    @property
    def at_ns(self) -> int:
        """Time of the report since the common start."""
        return self.elapsed_ns + max(0, self.late_ns) if self.elapsed_ns else 0


_NOTHING = Latencies()


@dataclass(slots=True)
class AgentShare:
    """The share of one agent."""

    agent: str
    histogram: Histogram = field(default_factory=histograms.empty)
    last: AgentReport | None = None
    reports: int = 0
    coalesced: int = 0
    missing: int = 0
    """Number of reports that never arrived."""
    rate: float = 0.0
    """Operations per second in its latest report."""
    started_at_ns: int = 0
    late_ns: int = 0
    received: int = 0
    """Bytes on the wire."""
    fault: str = ""
    """The first fault in its numbers."""
    gone: bool = False
    left_out: bool = False
    """Whether its share is excluded from the totals, the seconds and the common histograms."""
    samples: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class Second:
    """The operations of all agents in one second."""

    operations: int = 0
    errors: int = 0
    agents: set[str] = field(default_factory=set)
    histogram: Histogram | None = None
    packed: str = ""
    """The encoded histogram of a settled second: a few hundred bytes, not 270,000."""
    latencies: Latencies = _NOTHING


class MergedReports:
    """The merged reports of all agents. Repeated sequence numbers are ignored."""

    def __init__(self, agents: Iterable[str]) -> None:
        self.parts: dict[str, AgentShare] = {agent: AgentShare(agent) for agent in agents}
        self.histogram: histograms.Histogram = histograms.empty()
        self._seconds: dict[int, Second] = {}
        self._packed = 0
        self._kept = _Kept(self.parts)

    def add(self, report: AgentReport) -> str:
        """Add a report; return its fault, if there is one."""
        part = self.parts[report.agent]
        before = part.last.sequence if part.last else 0
        if report.sequence <= before:
            return ""
        part.missing += report.sequence - before - 1
        report, impossible = _possible(report)
        _count(part, report)
        fault = self._measure(part, report) or impossible
        part.fault = part.fault or fault
        part.last = report
        part.gone = part.gone or report.completed
        self._pack()
        return fault

    def lose(self, agent: str) -> None:
        """Mark an agent as gone.

        Like an ended one, it does not delay seconds of the others.
        """
        self.parts[agent].gone = True

    def leave_out(self, agents: Iterable[str]) -> Iterator[int]:
        """Exclude the shares of agents from the totals; yield after each second.

        It has to be iterated to its end. An hour takes a minute, so it can be interrupted.
        """
        fresh = [agent for agent in agents if not self.parts[agent].left_out]
        for agent in fresh:
            self.parts[agent].left_out = True
        if not any(self.parts[agent].reports for agent in fresh):
            return
        self.histogram = histograms.empty()
        for part in self._counted:
            histograms.added(self.histogram, part.histogram)
        for number, shares in self._kept.by_second(fresh):
            second = self._seconds[number]
            whole = _opened(second)
            for share in shares:
                second.operations -= share.operations
                second.errors -= share.errors
                second.agents.discard(share.agent)
                if share.histogram:
                    measured = histograms.read(share.histogram, expected=share.operations)
                    assert measured is not None
                    whole = histograms.taken_out(whole, measured)
            second.histogram = whole
            _close(second)
            if not second.agents and not second.operations:
                del self._seconds[number]
            yield number

    @property
    def _counted(self) -> list[AgentShare]:
        return [part for part in self.parts.values() if not part.left_out]

    @property
    def operations(self) -> int:
        """Number of operations of all agents."""
        return sum(part.last.operations for part in self._counted if part.last)

    @property
    def errors(self) -> int:
        """Number of failed operations."""
        return sum(part.last.errors for part in self._counted if part.last)

    @property
    def transferred(self) -> int:
        """Bytes transferred by the operations."""
        return sum(part.last.transferred for part in self._counted if part.last)

    @property
    def backlog(self) -> int:
        """Operations that are due and have not begun.

        At the end those that never did.
        """
        return sum(part.last.backlog for part in self._counted if part.last)

    @property
    def span_ns(self) -> tuple[int, int]:
        """The first begin and the last report, since the common start."""
        reporting = [part for part in self._counted if part.last and part.last.at_ns]
        began = min((part.late_ns for part in reporting), default=0)
        return began, max((part.last.at_ns for part in reporting if part.last), default=0)

    @property
    def settled(self) -> int:
        """Number of seconds that all remaining agents have completed."""
        return self._settled_without(())

    def _settled_without(self, silent: Collection[str]) -> int:
        there = [part for part in self.parts.values() if not part.gone and part.agent not in silent]
        if not there:
            return max(self._seconds, default=-1) + 1
        return min((part.last.at_ns // NS if part.last else 0) for part in there)

    def seconds(self, first: int = 0, last: int | None = None) -> list[SecondView]:
        """Return a range of seconds, without those that have no report."""
        end = max(self._seconds, default=-1) + 1 if last is None else last
        return [
            _view(number, self._seconds[number]) for number in range(first, end) if number in self._seconds
        ]

    def latest(self, silent: Collection[str] = ()) -> SecondView | None:
        """Return the newest second that is settled for agents not silent.

        If none is settled, it is the newest second. None if all are silent: an old second would look current.
        """
        if silent and all(part.gone or part.agent in silent for part in self.parts.values()):
            return None
        settled = self._settled_without(silent) - 1
        known = [number for number in self._seconds if number <= settled] or list(self._seconds)
        return _view(max(known), self._seconds[max(known)]) if known else None

    def histograms_by_second(self) -> Iterator[tuple[int, Histogram]]:
        """Yield the histogram of each second, for the log of HdrHistogram."""
        for number in sorted(self._seconds):
            histogram = _opened(self._seconds[number])
            if histogram.get_total_count():
                yield number, histogram

    def _measure(self, part: AgentShare, report: AgentReport) -> str:
        number, second = self._second(report)
        second.operations += report.interval_operations
        second.errors += report.interval_errors
        if report.interval_operations:
            second.agents.add(report.agent)
        fault, sound = "", b""
        try:
            measured = histograms.read(report.histogram, expected=report.interval_operations)
            if measured is not None:
                second.histogram = _opened(second)
                for whole in (part.histogram, self.histogram, second.histogram):
                    histograms.added(whole, measured)
                sound = report.histogram
        except CorruptHistogram as error:
            fault = f"report {report.sequence}: {error}"
        if report.interval_operations or report.interval_errors:
            share = _Share(report.agent, report.interval_operations, report.interval_errors, sound)
            self._kept.keep(number, share)
        return fault

    def _pack(self) -> None:
        settled = self.settled
        while self._packed < settled:
            if second := self._seconds.get(self._packed):
                _close(second)
            self._packed += 1

    def _second(self, report: AgentReport) -> tuple[int, Second]:
        # A report at 1.003 s is about the second that has just ended, as is the last one at exactly 2 s.
        number = max(0, (report.at_ns - NS // 2) // NS)
        return number, self._seconds.setdefault(number, Second())


class _Share(msgspec.Struct, frozen=True):
    """The addition of one report to one second."""

    agent: str
    operations: int
    errors: int
    histogram: bytes


class _Kept:
    """All shares, until exclusions are known; in a temporary file if there are many."""

    _HEAD = struct.Struct("<HIQQI")
    """Agent, second, operations, errors, and the length of the following histogram."""

    def __init__(self, agents: Iterable[str]) -> None:
        self._names = list(agents)
        self._numbers = {agent: number for number, agent in enumerate(self._names)}
        self._file = tempfile.SpooledTemporaryFile(KEPT_IN_MEMORY, prefix="interlock-reports-")  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def keep(self, second: int, share: _Share) -> None:
        """Store a share."""
        head = (self._numbers[share.agent], second, share.operations, share.errors, len(share.histogram))
        self._file.write(self._HEAD.pack(*head) + share.histogram)

    def by_second(self, agents: Iterable[str]) -> Iterator[tuple[int, list[_Share]]]:
        """Yield the shares of these agents, second by second."""
        wanted = {self._numbers[agent] for agent in agents}
        places: dict[int, list[int]] = {}
        place, end = 0, self._file.tell()
        while place < end:
            agent, second, _, _, length = self._head(place)
            if agent in wanted:
                places.setdefault(second, []).append(place)
            place += self._HEAD.size + length
        for second, found in sorted(places.items()):
            yield second, [self._share(place) for place in found]
        self._file.seek(end)

    def _head(self, place: int) -> tuple[int, int, int, int, int]:
        self._file.seek(place)
        agent, second, operations, errors, length = self._HEAD.unpack(self._file.read(self._HEAD.size))
        return agent, second, operations, errors, length

    def _share(self, place: int) -> _Share:
        agent, _, operations, errors, length = self._head(place)
        return _Share(self._names[agent], operations, errors, self._file.read(length))


def _possible(report: AgentReport) -> tuple[AgentReport, str]:
    """Return the report with plausible times, and the fault if they were not."""
    # Clocks are read one after the other, so that a punctual agent may seem early.
    least = {"elapsed_ns": 0, "late_ns": -NS}
    wrong = [name for name in least if not least[name] <= getattr(report, name) <= LONGEST_NS]
    if not wrong:
        return report, ""
    listed = " and ".join(f"{name} {getattr(report, name):,}" for name in wrong)
    return msgspec.structs.replace(report, **dict.fromkeys(wrong, 0)), f"{listed} cannot be"


def _count(part: AgentShare, report: AgentReport) -> None:
    since_ns = report.elapsed_ns - (part.last.elapsed_ns if part.last else 0)  # by its own clock
    if since_ns > 0:
        part.rate = report.interval_operations * NS / since_ns
    part.reports += 1
    part.coalesced += max(0, report.coalesced - 1)
    part.started_at_ns = part.started_at_ns or report.started_at_ns
    part.late_ns = report.late_ns or part.late_ns
    part.received += report.size
    for sample in report.error_samples:
        if len(part.samples) < MOST_SAMPLES:
            part.samples[sample] = None


def _opened(second: Second) -> Histogram:
    """Return the histogram of a second, also of a settled one."""
    if second.histogram is None and second.packed:
        return histograms.unwritten(second.packed)
    return second.histogram or histograms.empty()


def _close(second: Second) -> None:
    if second.histogram is not None:
        second.latencies = histograms.latencies(second.histogram)
        second.packed, second.histogram = histograms.written(second.histogram), None


def _view(number: int, second: Second) -> SecondView:
    late = second.histogram
    return SecondView(
        second=number,
        agents=len(second.agents),
        operations=second.operations,
        errors=second.errors,
        latencies=second.latencies if late is None else histograms.latencies(late),
    )


class AgentEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one agent."""

    workload_id: str
    final: Status | None = None
    error: str = ""


class ResultInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a result, besides the figures."""

    spec: WorkloadSpec
    endings: Mapping[str, AgentEnd]
    offsets: Mapping[str, Offset]
    start: CommonStart | None = None
    started_at: datetime | None = None
    stopped: str = ""
    """Reason of the stop."""
    versions: Mapping[str, str] = {}
    warnings: Sequence[str] = ()
    """Warnings about agents before the start."""

    @property
    def coverage(self) -> Coverage:
        """The share of the fleet that the result covers."""
        return covered(self.spec.policy, (ending.final for ending in self.endings.values()))

    @property
    def left_out(self) -> list[str]:
        """Agents excluded from a PARTIAL result; other results include all agents."""
        if verdict_of(self.coverage, stopped=bool(self.stopped)) is not Verdict.PARTIAL:
            return []
        return [name for name, ending in self.endings.items() if ending.final is not Status.COMPLETED]


def result_of(known: ResultInputs, merged: MergedReports) -> WorkloadResult:
    """Return the result."""
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


def _agent(known: ResultInputs, part: AgentShare) -> AgentResult:
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


def _flaws(known: ResultInputs, merged: MergedReports) -> Iterator[str]:
    """Yield why the figures are not as requested although agents completed."""
    parts = [part for part in merged.parts.values() if not part.left_out]
    late = [part.late_ns for part in parts if part.started_at_ns]
    apart_ns, limit_ms = (max(late) - min(late) if late else 0), known.spec.skew_limit_s * 1e3
    if apart_ns / 1e6 > limit_ms:
        apart, limit = took(apart_ns / 1e6), took(limit_ms)
        yield f"they began {apart} apart, and skew-limit is {limit} (give them a longer lead)"
    wrong = tuple(part.agent for part in parts if part.fault)
    if wrong:
        yield f"numbers of {some(wrong)} cannot be true, and their latencies are not in the result"


def _warnings(known: ResultInputs, merged: MergedReports, flaws: Sequence[str]) -> Iterator[str]:
    yield from known.warnings
    if known.coverage.completed < known.coverage.needed:  # otherwise they are in the sentence
        yield from (f"{flaw[0].upper()}{flaw[1:]}." for flaw in flaws)
    if dropped := merged.backlog:
        yield (
            f"{dropped:,} of {merged.operations + dropped:,} operations that were due never began: "
            "raise concurrency, or lower the rate."
        )


def _sentence(verdict: Verdict, coverage: Coverage, known: ResultInputs, flaws: Sequence[str]) -> str:
    done = f"{coverage.completed} of {counted(coverage.agents, 'agent')} completed"
    match verdict:
        case Verdict.COMPLETE:
            return "All agents completed." if coverage.agents > 1 else "The agent completed."
        case Verdict.DEGRADED:
            whole = "All agents completed" if coverage.agents > 1 else "The agent completed"
            return f"{whole}, but {'; '.join(flaws)}."
        case Verdict.PARTIAL:
            needs = f"{done}, and {known.spec.policy} needs {coverage.needed}: it covers only those."
            return f"{needs} But {'; '.join(flaws)}." if flaws else needs
        case Verdict.ABORTED:
            return f"It was stopped ({known.stopped}); {done}."
        case Verdict.FAILED:
            return f"{done}, and {known.spec.policy} needs {coverage.needed}.{_first_error(known)}"


def _first_error(known: ResultInputs) -> str:
    for agent, ending in known.endings.items():
        if ending.error:
            return f" {agent}: {ending.error}"
    return ""
