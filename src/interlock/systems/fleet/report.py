"""A result as one page: what it is worth first, then the curves, then every agent. It needs no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from interlock.plurals import counted
from interlock.systems.fleet.coverage import Verdict
from interlock.systems.fleet.figures import in_ms, took
from interlock.systems.fleet.outcome import AgentResult, WorkloadResult
from interlock.systems.fleet.plots import plots_of
from interlock.systems.fleet.style import STYLE
from interlock.systems.fleet.svg_plots import plot

_SIGNS = {
    Verdict.COMPLETE: "good",
    Verdict.DEGRADED: "warn",
    Verdict.PARTIAL: "warn",
    Verdict.ABORTED: "warn",
    Verdict.FAILED: "bad",
}
_ENDINGS = {"COMPLETED": "good", "ABORTED": "warn"}


def page(result: WorkloadResult) -> str:
    """The whole page."""
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
    said = (result.kind, began, f"{result.duration_s:,.1f} s", f"policy {result.policy}")
    yield f'<header><h1>{title}<span class="pill {_SIGNS[result.verdict]}">{result.verdict}</span></h1>'
    yield f'<p class="lead">{escape(result.sentence)}</p>'
    yield from (f'<p class="warn note">{escape(warning)}</p>' for warning in result.warnings)
    for each in result.thresholds:
        sign, word = ("good", "passed") if each.passed else ("bad", "missed")
        yield f'<p class="soft"><span class="pill {sign}">{word}</span> {escape(each.sentence)}</p>'
    yield f'<p class="soft">{" · ".join(map(escape, said))}</p></header>'


def _coverage(result: WorkloadResult) -> Iterator[str]:
    """One piece for each agent, so that who is missing is seen before anything is read."""
    found = result.coverage
    told = f"{found.completed} of {counted(found.agents, 'agent')} completed ({found.share:.0%})"
    yield f'<div class="coverage" role="img" aria-label="{told}">'
    for agent in result.agents:
        yield f'<i class="{_sign(agent)}" title="{escape(agent.agent)}: {_ending(agent)}"></i>'
    yield f'</div><p class="soft">{told}</p>'


def _figures(result: WorkloadResult) -> Iterator[str]:
    found = result.latencies
    share = f"{100 * result.errors / max(1, result.operations):.3g} %" if result.errors else ""
    told = [
        ("throughput", f"{result.rate:,.1f}", "/s", ""),
        ("operations", f"{result.operations:,}", "", ""),
        ("failed", f"{result.errors:,}", share, "bad" if result.errors else ""),
        *([("never began", f"{result.dropped:,}", "", "warn")] if result.dropped else ()),
        ("p50", *_apart(found.p50_ms), ""),
        ("p90", *_apart(found.p90_ms), ""),
        ("p99", *_apart(found.p99_ms), ""),
        ("p99.9", *_apart(found.p999_ms), ""),
        ("max", *_apart(found.max_ms), ""),
    ]
    if result.spread is not None:
        spread, unit = _apart(result.spread.spread_ns / 1e6)
        known = f"{unit} ± {took(result.spread.uncertainty_ns / 1e6)}"
        told.append(("began within", spread, known, ""))
    if result.bytes:
        told.append(("moved", f"{result.bytes / 1e6:,.1f}", "MB", ""))
    yield "<dl>"
    for name, value, unit, sign in told:
        shown = f'<dd class="{sign}">{value}<small>{unit}</small></dd>'
        yield f'<div class="card"><dt>{name}</dt>{shown}</div>'
    yield "</dl>"


def _apart(ms: float | None) -> tuple[str, str]:
    """A duration, and apart from it its unit."""
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
        left_out = "Its numbers are not in those of the result." if each.left_out else ""
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
