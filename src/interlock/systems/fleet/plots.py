"""What is drawn of a result: how much was done, how long it took, and how long the slowest took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from interlock.plurals import counted
from interlock.systems.fleet import histograms
from interlock.systems.fleet.figures import took
from interlock.systems.fleet.outcome import WorkloadResult
from interlock.systems.fleet.svg_plots import Curve, Mark, Plot
from interlock.wire.workloads import SecondView

_PAUSES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900)
_MOST_MARKS = 10
_MOST_NOTES = 300
"""Of a longer workload the seconds are in the files; here they would be wider than the page is."""


def plots_of(result: WorkloadResult) -> Iterator[Plot]:
    """Each plot of which there is something to draw."""
    seconds = result.seconds
    if seconds:
        yield _throughput(seconds)
    if measured := [each for each in seconds if each.latencies.count]:
        yield _latency(measured)
    if result.histogram and result.latencies.count > 1:
        yield _percentiles(result)


def _throughput(seconds: Sequence[SecondView]) -> Plot:
    curves = [
        Curve(name="done", colour="a", values=[float(each.operations) for each in seconds], filled=True)
    ]
    if any(each.errors for each in seconds):
        curves.append(Curve(name="failed", colour="d", values=[float(each.errors) for each in seconds]))
    return Plot(
        title="Throughput",
        unit="operations per second",
        xs=_times(seconds),
        marks=_time_marks(seconds),
        curves=curves,
        notes=_notes(seconds),
    )


def _latency(seconds: Sequence[SecondView]) -> Plot:
    measured = [each.latencies for each in seconds]
    return Plot(
        title="Latency",
        unit="ms, in each second",
        xs=_times(seconds),
        marks=_time_marks(seconds),
        curves=[
            Curve(name="p50", colour="b", values=[each.p50_ms or 0.0 for each in measured]),
            Curve(name="p99", colour="c", values=[each.p99_ms or 0.0 for each in measured]),
            Curve(name="max", colour="d", values=[each.max_ms or 0.0 for each in measured]),
        ],
        notes=_notes(seconds),
    )


def _percentiles(result: WorkloadResult) -> Plot:
    """Each nine has as much room as the one before, so that the slowest can be seen."""
    curve = histograms.by_nines(histograms.unwritten(result.histogram))
    widest = curve[-1][0]
    words = ((0.0, "0"), (1.0, "90 %"), (2.0, "99 %"), (3.0, "99.9 %"), (4.0, "99.99 %"), (5.0, "99.999 %"))
    return Plot(
        title="Latency by percentile",
        unit="ms, of all operations",
        xs=[nines / widest for nines, _ in curve],
        marks=[Mark(nines / widest, word) for nines, word in words if nines <= widest],
        curves=[Curve(name="latency", colour="c", values=[value for _, value in curve])],
        notes=[f"{100 * (1 - 10**-nines):.5g} % took at most {took(value)}" for nines, value in curve],
    )


def _times(seconds: Sequence[SecondView]) -> list[float]:
    last = max(each.second for each in seconds) or 1
    return [each.second / last for each in seconds]


def _time_marks(seconds: Sequence[SecondView]) -> list[Mark]:
    last = max(each.second for each in seconds) or 1
    pause = next((pause for pause in _PAUSES if last / pause <= _MOST_MARKS), _PAUSES[-1])
    return [Mark(second / last, f"{second} s") for second in range(0, last + 1, pause)]


def _notes(seconds: Sequence[SecondView]) -> list[str]:
    if len(seconds) > _MOST_NOTES:
        return []
    return [
        f"second {each.second}, {counted(each.agents, 'agent')}: "
        f"{each.operations:,} done, {each.errors:,} failed; "
        f"p50 {took(each.latencies.p50_ms)}, p99 {took(each.latencies.p99_ms)}, "
        f"max {took(each.latencies.max_ms)}"
        for each in seconds
    ]
