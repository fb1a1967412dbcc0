"""The files of a result: JSON, CSV, an HdrHistogram log, and a self-contained HTML page with plots.

Why: decision 0339.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise

import msgspec
from hdrh.log import HistogramLogWriter

from interlock.lifecycles.workload import Status
from interlock.systems.fleet import histograms
from interlock.systems.fleet.clocks import in_ms, took
from interlock.systems.fleet.histograms import Histogram
from interlock.text import counted
from interlock.wire.workloads import AgentResult, SecondView, Verdict, WorkloadResult

STYLE = """
:root { color-scheme: light dark; --ink: #182230; --soft: #5c6a80; --paper: #f5f7fa; --card: #fff;
  --line: #e3e8ef; --good: #12794a; --warn: #9a5b00; --bad: #c3272f;
  --a: #2b6be4; --b: #12935f; --c: #d47a10; --d: #c2347a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ecf3; --soft: #98a5ba; --paper: #0f131a;
  --card: #171d27; --line: #29323f; --good: #4cc88d; --warn: #f2b04e; --bad: #ff7479;
  --a: #78a6ff; --b: #4cc88d; --c: #f2a33c; --d: #f27ab2; } }
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; color: var(--ink);
  background: var(--paper); font-variant-numeric: tabular-nums; }
main { max-width: 64rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; letter-spacing: -.02em; margin: 0; display: flex; gap: .8rem;
  align-items: center; flex-wrap: wrap; overflow-wrap: anywhere; }
h2 { font-size: .95rem; margin: 0 0 .5rem; }
p { margin: .3rem 0; } .lead { font-size: 1.05rem; margin-top: .6rem; }
.soft { color: var(--soft); font-size: .87rem; } .note { color: var(--sign); font-size: .92rem; }
.good { --sign: var(--good); } .warn { --sign: var(--warn); } .bad { --sign: var(--bad); }
.pill { color: var(--sign); background: color-mix(in srgb, var(--sign) 14%, transparent); border-radius: 99px;
  font-size: .74rem; font-weight: 650; letter-spacing: .04em; padding: .18rem .65rem; white-space: nowrap; }
h1 .pill { font-size: .85rem; padding: .25rem .85rem; }
.coverage { display: flex; gap: 3px; margin-top: 1.3rem; height: 10px; }
.coverage i { flex: 1; min-width: 1px; background: var(--sign); border-radius: 3px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1.1rem 1.25rem;
  margin-top: 1rem; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: .75rem;
  margin: 1.3rem 0 0; }
dl .card { margin: 0; padding: .7rem 1rem .75rem; }
dt { color: var(--soft); font-size: .82rem; } dd { margin: 0; font-size: 1.45rem; font-weight: 600;
  letter-spacing: -.01em; line-height: 1.25; color: var(--sign, var(--ink)); white-space: nowrap; }
dd small { font-size: .85rem; font-weight: 400; letter-spacing: 0; color: var(--soft); margin-left: .3rem; }
svg { display: block; width: 100%; height: auto; } svg text { font-size: 12px; fill: var(--soft); }
svg .title { font-size: 15px; font-weight: 650; fill: var(--ink); }
svg .unit { font-size: 12.5px; font-weight: 400; fill: var(--soft); }
svg .y { text-anchor: end; } svg .x { text-anchor: middle; } svg .grid { stroke: var(--line); }
svg .curve { fill: none; stroke-width: 2; stroke-linejoin: round; } svg .area { opacity: .13; }
svg .place { fill: var(--ink); opacity: 0; } svg .place:hover { opacity: .07; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th { text-align: left; color: var(--soft); font-weight: 500; } td, th { padding: .45rem .9rem .45rem 0;
  white-space: nowrap; vertical-align: top; } td.n, th.n { text-align: right;
  padding: .45rem 0 .45rem 1.1rem; }
td small { color: var(--soft); } tbody { border-top: 1px solid var(--line); }
.why td { color: var(--bad); white-space: normal; padding-top: 0; }
.bar { display: block; height: 3px; border-radius: 2px; background: var(--line); margin-top: 3px; }
.bar b { display: block; height: 3px; border-radius: 2px; background: var(--a); margin-left: auto; }
@media print { body { background: none; } .card { break-inside: avoid; } main { padding: 0; } }
"""


WIDTH, HEIGHT = 920, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 40, 30
_TICKS = 4
_STEPS = (1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0)
"""End values of an axis with round quarters."""
_FAR_APART = 20.0
"""Ratio of values above which the scale is logarithmic."""


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """One curve of a plot."""

    name: str
    colour: str
    """The name of a CSS variable."""
    values: Sequence[float]
    filled: bool = False


class Mark(msgspec.Struct, frozen=True):
    """A label below the plot."""

    at: float
    text: str


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """A plot; `xs` are the positions of the values of each curve, from 0 to 1."""

    title: str
    unit: str
    xs: Sequence[float]
    marks: Sequence[Mark]
    curves: Sequence[Curve]
    notes: Sequence[str] = ()
    """Tooltips for each position."""


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """Maps values to heights."""

    bottom: float
    top: float
    ticks: Sequence[float]
    logarithmic: bool = False

    def height(self, value: float) -> float:
        """Return the height from 0 at the bottom to 1 at the top."""
        if not self.logarithmic:
            return value / self.top
        low, high = math.log10(self.bottom), math.log10(self.top)
        return (math.log10(max(value, self.bottom)) - low) / (high - low)


def plot(drawn: Plot) -> str:
    """Return the SVG of a plot."""
    scale = scale_for([value for curve in drawn.curves for value in curve.values])
    return "\n".join(
        (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(drawn.title)}">',
            _title(drawn, scale),
            *_grid(scale),
            *_mark_labels(drawn.marks),
            *(part for curve in drawn.curves for part in _line(curve, drawn.xs, scale)),
            *_legend(drawn.curves),
            *_places(drawn),
            "</svg>",
        )
    )


def _title(drawn: Plot, scale: Scale) -> str:
    unit = f"{drawn.unit}, logarithmic" if scale.logarithmic else drawn.unit
    words = f'{escape(drawn.title)}<tspan class="unit" dx="8">{escape(unit)}</tspan>'
    return f'<text class="title" x="0" y="16">{words}</text>'


def scale_for(values: Sequence[float]) -> Scale:
    """Return a scale for these values: linear, unless they are too far apart."""
    highest, positive = max(values, default=0.0), [value for value in values if value > 0]
    if positive and len(positive) == len(values) and highest > _FAR_APART * min(positive):
        ticks = _decades(min(positive), highest)
        return Scale(bottom=ticks[0], top=ticks[-1], ticks=ticks, logarithmic=True)
    top = nice(highest)
    return Scale(bottom=0.0, top=top, ticks=[top * tick / _TICKS for tick in range(_TICKS + 1)])


def nice(highest: float) -> float:
    """Return a round number at least that large, as the end of an axis."""
    if highest <= 0:
        return 1.0
    magnitude = 10.0 ** math.floor(math.log10(highest))
    return next(step * magnitude for step in _STEPS if step * magnitude >= highest * (1 - 1e-12))


def _decades(lowest: float, highest: float) -> list[float]:
    """Return 1, 2, 5, 10 … around these values.

    Only powers of ten for a large range.
    """
    first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
    steps = (1.0, 2.0, 5.0) if last - first <= 2 else (1.0,)
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    below = [tick for tick in ticks if tick <= lowest]
    above = [tick for tick in ticks if tick >= highest]
    return [tick for tick in ticks if below[-1] <= tick <= above[0]]


def _x(place: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * place


def _y(height: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * height


def _grid(scale: Scale) -> Iterator[str]:
    for tick in scale.ticks:
        y = _y(scale.height(tick))
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="y" x="{_LEFT - 10}" y="{y + 4:.1f}">{tick:,.4g}</text>'


def _mark_labels(marks: Sequence[Mark]) -> Iterator[str]:
    for mark in marks:
        yield f'<text class="x" x="{_x(mark.at):.1f}" y="{HEIGHT - 8}">{escape(mark.text)}</text>'


def _line(curve: Curve, xs: Sequence[float], scale: Scale) -> Iterator[str]:
    colour = f"var(--{curve.colour})"
    places = [(_x(x), _y(scale.height(value))) for x, value in zip(xs, curve.values, strict=True)]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    if len(places) == 1:
        yield f'<circle cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="3" style="fill:{colour}"/>'
    elif places:
        if curve.filled:
            floor, first, last = _y(0.0), places[0][0], places[-1][0]
            around = f"{first:.1f},{floor:.1f} {points} {last:.1f},{floor:.1f}"
            yield f'<polygon class="area" points="{around}" style="fill:{colour}"/>'
        yield f'<polyline class="curve" points="{points}" style="stroke:{colour}"/>'


def _legend(curves: Sequence[Curve]) -> Iterator[str]:
    """Yield the legend, from the right."""
    if len(curves) < 2:
        return
    x = WIDTH - _RIGHT
    for curve in reversed(curves):
        x -= 8 * len(curve.name)
        yield f'<text class="legend" x="{x}" y="16">{escape(curve.name)}</text>'
        x -= 16
        yield f'<rect x="{x}" y="6" width="10" height="10" rx="3" style="fill:var(--{curve.colour})"/>'
        x -= 14


def _places(drawn: Plot) -> Iterator[str]:
    """Yield a strip with a tooltip for each position."""
    if not drawn.notes:
        return
    middles = [_x(x) for x in drawn.xs]
    edges = [middles[0], *((a + b) / 2 for a, b in pairwise(middles)), middles[-1]]
    for (left, right), note in zip(pairwise(edges), drawn.notes, strict=True):
        yield (
            f'<rect class="place" x="{left:.1f}" y="{_TOP}" width="{max(1.0, right - left):.1f}" '
            f'height="{HEIGHT - _TOP - _BOTTOM}"><title>{escape(note)}</title></rect>'
        )


_PAUSES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900)
_MOST_MARKS = 10
_MOST_NOTES = 300
"""Maximum seconds with tooltips; longer workloads have them in the files."""


def plots_of(result: WorkloadResult) -> Iterator[Plot]:
    """Yield each plot with data."""
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
    """Return the plot of percentiles, with equal width for each nine.

    So the slowest operations are visible.
    """
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


_SIGNS = {
    Verdict.COMPLETE: "good",
    Verdict.DEGRADED: "warn",
    Verdict.PARTIAL: "warn",
    Verdict.ABORTED: "warn",
    Verdict.FAILED: "bad",
}
_ENDINGS = {Status.COMPLETED.name: "good", Status.ABORTED.name: "warn"}


def page(result: WorkloadResult) -> str:
    """Return the HTML page."""
    title = escape(result.name or result.kind)
    return "\n".join(
        (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{title}: {result.verdict}</title><style>{STYLE}</style></head><body><main>",
            *_head(result, title),
            *_coverage(result),
            *_figures(result),
            *(f'<section class="card">{plot(each)}</section>' for each in plots_of(result)),
            *_agents(result.agents),
            "</main></body></html>\n",
        )
    )


def _head(result: WorkloadResult, title: str) -> Iterator[str]:
    began = f"{result.started_at:%Y-%m-%d %H:%M:%S} UTC" if result.started_at else "never started"
    parts = (result.kind, began, f"{result.duration_s:,.1f} s", f"policy {result.policy}")
    yield f'<header><h1>{title}<span class="pill {_SIGNS[result.verdict]}">{result.verdict}</span></h1>'
    yield f'<p class="lead">{escape(result.sentence)}</p>'
    yield from (f'<p class="warn note">{escape(warning)}</p>' for warning in result.warnings)
    for each in result.thresholds:
        sign, word = ("good", "passed") if each.passed else ("bad", "missed")
        yield f'<p class="soft"><span class="pill {sign}">{word}</span> {escape(each.sentence)}</p>'
    yield f'<p class="soft">{" · ".join(map(escape, parts))}</p></header>'


def _coverage(result: WorkloadResult) -> Iterator[str]:
    """Yield one segment for each agent, also for missing ones."""
    found = result.coverage
    text = f"{found.completed} of {counted(found.agents, 'agent')} completed ({found.share:.0%})"
    yield f'<div class="coverage" role="img" aria-label="{text}">'
    for agent in result.agents:
        yield f'<i class="{_sign(agent)}" title="{escape(agent.agent)}: {_ending(agent)}"></i>'
    yield f'</div><p class="soft">{text}</p>'


def _figures(result: WorkloadResult) -> Iterator[str]:
    found = result.latencies
    share = f"{100 * result.errors / max(1, result.operations):.3g} %" if result.errors else ""
    figures = [
        ("throughput", f"{result.rate:,.1f}", "/s", ""),
        ("operations", f"{result.operations:,}", "", ""),
        ("failed", f"{result.errors:,}", share, "bad" if result.errors else ""),
        *([("never began", f"{result.dropped:,}", "", "warn")] if result.dropped else ()),
        ("p50", *_value_and_unit(found.p50_ms), ""),
        ("p90", *_value_and_unit(found.p90_ms), ""),
        ("p99", *_value_and_unit(found.p99_ms), ""),
        ("p99.9", *_value_and_unit(found.p999_ms), ""),
        ("max", *_value_and_unit(found.max_ms), ""),
    ]
    if result.spread is not None:
        spread, unit = _value_and_unit(result.spread.spread_ns / 1e6)
        known = f"{unit} ± {took(result.spread.uncertainty_ns / 1e6)}"
        figures.append(("began within", spread, known, ""))
    if result.bytes:
        figures.append(("moved", f"{result.bytes / 1e6:,.1f}", "MB", ""))
    yield "<dl>"
    for name, value, unit, sign in figures:
        shown = f'<dd class="{sign}">{value}<small>{unit}</small></dd>'
        yield f'<div class="card"><dt>{name}</dt>{shown}</div>'
    yield "</dl>"


def _value_and_unit(ms: float | None) -> tuple[str, str]:
    """Return a duration and its unit separately."""
    value, _, unit = took(ms).partition(" ")
    return value, unit


def _agents(agents: Sequence[AgentResult]) -> Iterator[str]:
    heads = ("operations", "failed", "never began", "p50 ms", "p99 ms", "max ms", "clock ms", "began ms")
    most = max((each.operations for each in agents), default=0) or 1
    yield '<section class="card"><h2>Agents</h2><div class="wide"><table>'
    yield "<thead><tr><th>agent</th><th>ended</th>"
    yield from (f'<th class="n">{head}</th>' for head in heads)
    yield "</tr></thead>"
    for each in agents:
        yield "<tbody>"
        yield from _row(each, most)
        left_out = "Its numbers are not part of the result." if each.left_out else ""
        for why in filter(None, (left_out, each.error, each.corrupt, *each.error_samples)):
            yield f'<tr class="why"><td></td><td colspan="{len(heads) + 1}">{escape(why)}</td></tr>'
        yield "</tbody>"
    yield "</table></div>"
    yield (
        '<p class="soft">clock: how far its clock is ahead of the controller\'s, and how well that is known; '
        "began: how much after the common instant, by true time.</p></section>"
    )


def _row(agent: AgentResult, most: int) -> Iterator[str]:
    clock, began = "—", "—"
    if agent.offset_ms is not None:
        clock = f"{agent.offset_ms:+,.2f} <small>± {agent.uncertainty_ms or 0:.2f}</small>"
    if agent.began_ms is not None:
        began = f"{agent.began_ms:+,.2f}"
    found = agent.latencies
    bar = f'<span class="bar"><b style="width:{100 * agent.operations / most:.0f}%"></b></span>'
    figures = (
        f"{agent.operations:,}{bar}", f"{agent.errors:,}", f"{agent.dropped:,}", in_ms(found.p50_ms) or "—",
        in_ms(found.p99_ms) or "—", in_ms(found.max_ms) or "—", clock, began,
    )  # fmt: skip
    ending = f'<span class="pill {_sign(agent)}">{_ending(agent)}</span>'
    version = f" <small>{escape(agent.version)}</small>" if agent.version else ""
    yield f"<tr><td>{escape(agent.agent)}{version}</td><td>{ending}</td>"
    yield from (f'<td class="n">{figure}</td>' for figure in figures)
    yield "</tr>"


def _ending(agent: AgentResult) -> str:
    return agent.status or "LOST"


def _sign(agent: AgentResult) -> str:
    return _ENDINGS.get(agent.status, "bad")


_COLUMNS = (
    "second", "agents", "operations", "errors", "mean_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms",
)  # fmt: skip


def files_of(result: WorkloadResult, by_second: Iterable[tuple[int, Histogram]]) -> dict[str, bytes]:
    """Return every format by file name."""
    return {
        "result.json": as_json(result),
        "seconds.csv": as_csv(result),
        "latencies.hlog": as_log(result, by_second),
        "report.html": page(result).encode(),
    }


def as_json(result: WorkloadResult) -> bytes:
    """Return the result as JSON."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


def as_csv(result: WorkloadResult) -> bytes:
    """Return the result as CSV, a line for every second."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(_COLUMNS)
    for second in result.seconds:
        row = {**msgspec.structs.asdict(second), **msgspec.structs.asdict(second.latencies)}
        lines.writerow([_figure(row[column]) for column in _COLUMNS])
    return text.getvalue().encode()


def as_log(result: WorkloadResult, by_second: Iterable[tuple[int, Histogram]]) -> bytes:
    """Return a histogram for every second, in the log format of HdrHistogram.

    Its unit is a nanosecond.
    """
    text = io.StringIO()
    log = HistogramLogWriter(text)
    at = result.started_at.timestamp() if result.started_at else 0.0
    log.output_comment(f"[Latencies of {result.name or result.kind}, {result.verdict}]")
    log.output_log_format_version()
    log.output_comment(f"[StartTime: {at:.3f} (seconds since epoch)]")
    log.output_legend()
    for second, histogram in by_second:
        # The writer treats a start of 0 as missing, and then uses that of the histogram.
        histogram.set_start_time_stamp(second * 1_000)
        histogram.set_end_time_stamp((second + 1) * 1_000)
        log.output_interval_histogram(histogram)
    return text.getvalue().encode()


def _figure(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value
