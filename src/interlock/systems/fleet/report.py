"""A result as one page: what it is worth first, then the curves, then every agent. It needs no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from interlock.systems.fleet.coverage import Verdict
from interlock.systems.fleet.drawing import Curve, plot
from interlock.systems.fleet.results import AgentResult, WorkloadResult

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --paper: #fff; --faint: #d9dee7; --soft: #5d6b82;
  --good: #1a7f4b; --bad: #c02b32; --warn: #a05a00; --a: #2f6fde; --b: #1a9c6b; --c: #d0811c; --d: #c0397f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf2; --paper: #14181f; --faint: #2b3340;
  --soft: #93a1b8; --good: #4cc38a; --bad: #ff6b70; --warn: #f0a94a; --a: #7aa7ff; --b: #4cc38a; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 60rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 .3rem; }
.verdict { font-weight: 600; } .COMPLETE { color: var(--good); } .FAILED { color: var(--bad); }
.PARTIAL, .ABORTED { color: var(--warn); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .8rem;
  margin: 1.2rem 0; }
dt { color: var(--soft); font-size: .85rem; } dd { margin: 0; font-size: 1.15rem; }
svg { width: 100%; height: auto; margin: .6rem 0; } svg text { font-size: 12px; fill: var(--soft); }
svg .title { font-size: 14px; fill: var(--ink); font-weight: 600; } svg .y, svg .unit { text-anchor: end; }
svg .x { text-anchor: middle; } svg .grid { stroke: var(--faint); } svg .curve { fill: none;
  stroke-width: 2; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th { text-align: left; color: var(--soft); font-weight: 500; } td, th { padding: .3rem .8rem .3rem 0;
  border-bottom: 1px solid var(--faint); white-space: nowrap; } td.n, th.n { text-align: right; }
.why { color: var(--bad); white-space: normal; }
"""


def page(result: WorkloadResult) -> str:
    """The whole page."""
    title = escape(result.name or result.kind)
    verdict = f'<span class="verdict {result.verdict}">{result.verdict}</span>'
    return "\n".join(
        (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}: {result.verdict}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{title}</h1>",
            f"<p>{verdict} {escape(result.sentence)}</p>",
            *_figures(result),
            *_plots(result),
            *_agents(result.agents),
            "</body></html>\n",
        )
    )


def _figures(result: WorkloadResult) -> Iterator[str]:
    found = result.latencies
    spread = "—"
    if result.spread is not None:
        spread = f"{result.spread.spread_ns / 1e6:.3g} ± {result.spread.uncertainty_ns / 1e6:.3g} ms"
    share = 100 * result.errors / max(1, result.operations)
    told = {
        "agents": f"{result.coverage.completed} of {result.coverage.agents}",
        "operations": f"{result.operations:,}",
        "per second": f"{result.rate:,.1f}",
        "failed": f"{result.errors:,} ({share:.3g} %)",
        "p50": f"{found.p50_ms:.3g} ms",
        "p99": f"{found.p99_ms:.3g} ms",
        "p99.9": f"{found.p999_ms:.3g} ms",
        "max": f"{found.max_ms:.3g} ms",
        "lasted": f"{result.duration_s:.2f} s",
        "start spread": spread,
    }
    yield "<dl>"
    yield from (f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in told.items())
    yield "</dl>"


def _plots(result: WorkloadResult) -> Iterator[str]:
    seconds = [each.second for each in result.seconds]
    done = [float(each.operations) for each in result.seconds]
    failed = [float(each.errors) for each in result.seconds]
    curves = [Curve("done", "a", done)]
    if any(failed):
        curves.append(Curve("failed", "d", failed))
    yield plot("Operations", "per second", seconds, curves)
    measured = [each.latencies for each in result.seconds]
    yield plot(
        "Latency",
        "ms",
        seconds,
        [
            Curve("p50", "b", [each.p50_ms for each in measured]),
            Curve("p99", "c", [each.p99_ms for each in measured]),
            Curve("max", "d", [each.max_ms for each in measured]),
        ],
    )


def _agents(agents: Sequence[AgentResult]) -> Iterator[str]:
    heads = ("operations", "failed", "p50 ms", "p99 ms", "max ms", "clock ms", "began ms")
    yield '<div class="wide"><table><thead><tr><th>agent</th><th>ended</th>'
    yield from (f'<th class="n">{head}</th>' for head in heads)
    yield "</tr></thead><tbody>"
    for each in agents:
        clock = "—" if each.offset_ms is None else f"{each.offset_ms:+.3f} ± {each.uncertainty_ms:.3f}"
        began = "—" if each.began_ms is None else f"{each.began_ms:+.3f}"
        found = each.latencies
        figures = (
            f"{each.operations:,}", f"{each.errors:,}", f"{found.p50_ms:.3g}", f"{found.p99_ms:.3g}",
            f"{found.max_ms:.3g}", clock, began,
        )  # fmt: skip
        yield f"<tr><td>{escape(each.agent)}</td><td>{_ended(each)}</td>"
        yield from (f'<td class="n">{figure}</td>' for figure in figures)
        yield "</tr>"
        for why in filter(None, (each.error, each.corrupt, *each.error_samples)):
            yield f'<tr><td></td><td class="why" colspan="{len(heads) + 1}">{escape(why)}</td></tr>'
    yield "</tbody></table></div>"


def _ended(agent: AgentResult) -> str:
    kind = {"COMPLETED": Verdict.COMPLETE, "ABORTED": Verdict.ABORTED}.get(agent.status, Verdict.FAILED)
    return f'<span class="{kind}">{agent.status or "LOST"}</span>'
