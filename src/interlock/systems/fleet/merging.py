"""What all agents say, as one: counts, and true percentiles of the merged histograms.

Agents report every second, each with its own histogram of that second. Reports are put into the second
of the workload in which they ended, by the agent's own monotonic clock since the common start. A second
is *settled* when every agent that is still there has reported beyond it; until then its numbers grow.
A report whose histogram is damaged flags its agent, and its counts are kept apart from the percentiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from interlock.lifecycles.workload import Status
from interlock.systems.fleet import histograms
from interlock.systems.fleet.histograms import CorruptHistogram, Histogram, Latencies

NS = 1_000_000_000
MOST_SAMPLES = 5
"""So many different errors of operations are kept of each agent."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says about one interval, as it was heard."""

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
    """By the agent's clock; 0 while it has not begun."""
    late_ns: int = 0
    coalesced: int = 1
    error: str = ""
    error_samples: tuple[str, ...] = ()
    size: int = 0
    """How many bytes it took on the wire."""


_NOTHING = Latencies()


@dataclass(slots=True)
class Part:
    """One agent's share."""

    agent: str
    histogram: Histogram = field(default_factory=histograms.empty)
    last: Report | None = None
    reports: int = 0
    coalesced: int = 0
    missing: int = 0
    """Numbers of reports that never came."""
    rate: float = 0.0
    """Operations per second in its latest report."""
    started_at_ns: int = 0
    late_ns: int = 0
    received: int = 0
    """Bytes on the wire."""
    fault: str = ""
    """What was wrong with its numbers, the first time that something was."""
    gone: bool = False
    samples: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class Second:
    """What was done in one second of the workload, by all of them."""

    operations: int = 0
    errors: int = 0
    agents: set[str] = field(default_factory=set)
    histogram: Histogram | None = None
    packed: str = ""
    """The histogram again when the second is settled: a few hundred bytes, not 270,000."""
    latencies: Latencies = _NOTHING


class SecondView(msgspec.Struct, frozen=True, kw_only=True):
    """One second as it is shown and saved."""

    second: int
    """From this one on, since the common start."""
    agents: int
    operations: int
    errors: int
    latencies: Latencies


class Merged:
    """All reports so far, as one. Nothing is heard twice: a number that came before does nothing."""

    def __init__(self, agents: Iterable[str]) -> None:
        self.parts = {agent: Part(agent) for agent in agents}
        self.histogram = histograms.empty()
        self._seconds: dict[int, Second] = {}
        self._packed = 0

    def hear(self, report: Report) -> str:
        """Take a report in; answers what is wrong with it, if anything."""
        part = self.parts[report.agent]
        before = part.last.sequence if part.last else 0
        if report.sequence <= before:
            return ""
        part.missing += report.sequence - before - 1
        _count(part, report)
        fault = self._measure(part, report)
        part.fault = part.fault or fault
        part.last = report
        self._pack()
        return fault

    def lose(self, agent: str) -> None:
        """It will not report any more; the seconds of the others are not held up by it."""
        self.parts[agent].gone = True

    @property
    def operations(self) -> int:
        """Done by all of them."""
        return sum(part.last.operations for part in self.parts.values() if part.last)

    @property
    def errors(self) -> int:
        """Of the operations, those that failed."""
        return sum(part.last.errors for part in self.parts.values() if part.last)

    @property
    def transferred(self) -> int:
        """The bytes that the operations moved."""
        return sum(part.last.transferred for part in self.parts.values() if part.last)

    @property
    def settled(self) -> int:
        """How many seconds are over for everybody who is still there."""
        there = [part for part in self.parts.values() if not part.gone]
        if not there:
            return max(self._seconds, default=-1) + 1
        return min((part.last.elapsed_ns // NS if part.last else 0) for part in there)

    def seconds(self, first: int = 0, last: int | None = None) -> list[SecondView]:
        """The seconds from one to another, without those in which nothing was reported."""
        end = max(self._seconds, default=-1) + 1 if last is None else last
        return [
            _view(number, self._seconds[number]) for number in range(first, end) if number in self._seconds
        ]

    def latest(self) -> SecondView | None:
        """The newest second that is settled; the newest one at all when none is."""
        settled = self.settled - 1
        known = [number for number in self._seconds if number <= settled] or list(self._seconds)
        return _view(max(known), self._seconds[max(known)]) if known else None

    def histograms_by_second(self) -> Iterator[tuple[int, Histogram]]:
        """One after the other, for the log that HdrHistogram's own tools read."""
        for number in sorted(self._seconds):
            histogram = _opened(self._seconds[number])
            if histogram.get_total_count():
                yield number, histogram

    def _measure(self, part: Part, report: Report) -> str:
        second = self._second(report)
        second.operations += report.interval_operations
        second.errors += report.interval_errors
        if report.interval_operations:
            second.agents.add(report.agent)
        try:
            measured = histograms.read(report.histogram, expected=report.interval_operations)
            if measured is not None:
                second.histogram = _opened(second)
                for whole in (part.histogram, self.histogram, second.histogram):
                    histograms.added(whole, measured)
        except CorruptHistogram as error:
            return f"report {report.sequence}: {error}"
        return ""

    def _pack(self) -> None:
        settled = self.settled
        while self._packed < settled:
            if second := self._seconds.get(self._packed):
                _close(second)
            self._packed += 1

    def _second(self, report: Report) -> Second:
        # A report at 1.003 s is about the second that has just ended, as is the last one at exactly 2 s.
        number = max(0, (report.elapsed_ns - NS // 2) // NS)
        return self._seconds.setdefault(number, Second())


def _count(part: Part, report: Report) -> None:
    since_ns = report.elapsed_ns - (part.last.elapsed_ns if part.last else 0)
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
    """The histogram of a second, also of one that was settled and to which something came late."""
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
