"""A result of a workload as tables."""

from __future__ import annotations

from collections.abc import Iterator

from interlock.cli.printing import Sheet
from interlock.systems.fleet.coverage import Verdict
from interlock.systems.fleet.figures import in_ms, took
from interlock.systems.fleet.live import Live
from interlock.systems.fleet.outcome import AgentResult, WorkloadResult

AGENT_COLUMNS = ("agent", "outcome", "done", "errors", "p99 ms", "clock ms", "began ms")
"""As many as a terminal of 80 columns shows; the report has more."""


def result_sheets(result: WorkloadResult) -> list[Sheet]:
    """All together, and each of them."""
    return [
        Sheet("workload", "", ("what", "is"), list(_about(result))),
        Sheet("agent", "", AGENT_COLUMNS, [_row(agent) for agent in result.agents]),
        Sheet("error", "errors", ("agent", "error"), list(_errors(result))),
    ]


def heard_sheet(live: Live) -> Sheet:
    """What is known of a workload that nobody was left to make a result of: never more than a part."""
    found = live.latencies
    slow = f"p50 {took(found.p50_ms)}, p99 {took(found.p99_ms)}, max {took(found.max_ms)}"
    rows = [
        ("outcome", str(Verdict.PARTIAL)),
        ("why", "No result was saved, because its controller was lost: this is what was logged before."),
        ("until", f"{live.elapsed_s:.1f} s of {live.duration_s:g} s"),
        ("agents", f"{live.running} of {live.agents} were running"),
        ("operations", f"{live.operations:,} ({live.errors:,} failed)"),
        ("last second", f"{live.rate:,.0f} operations, {slow}"),
    ]
    return Sheet("workload", "", ("what", "is"), rows)


def _about(result: WorkloadResult) -> Iterator[tuple[str, str]]:
    found = result.latencies
    yield "outcome", str(result.verdict)
    yield "why", result.sentence
    yield from (("warning", warning) for warning in result.warnings)
    yield "agents", f"{result.coverage.completed} of {result.coverage.agents}"
    yield "operations", f"{result.operations:,} ({result.rate:,.1f}/s, {result.errors:,} failed)"
    if result.dropped:
        yield "never began", f"{result.dropped:,} operations that were due"
    yield (
        "latency",
        (
            f"p50 {took(found.p50_ms)}, p90 {took(found.p90_ms)}, p99 {took(found.p99_ms)}, "
            f"p99.9 {took(found.p999_ms)}, max {took(found.max_ms)}"
        ),
    )
    for each in result.thresholds:
        yield "threshold", f"{'passed' if each.passed else 'MISSED'}: {each.sentence}"
    yield "lasted", f"{result.duration_s:.2f} s"
    if result.spread is not None:
        spread, known = result.spread.spread_ns / 1e6, result.spread.uncertainty_ns / 1e6
        yield "start", f"within {took(spread)} (± {took(known)})"


def _row(agent: AgentResult) -> tuple[str, ...]:
    found = agent.latencies
    clock = "" if agent.offset_ms is None else f"{agent.offset_ms:+.2f} ±{agent.uncertainty_ms or 0:.2f}"
    return (
        agent.agent,
        agent.status or "LOST",
        f"{agent.operations:,}",
        f"{agent.errors:,}",
        in_ms(found.p99_ms),
        clock,
        "" if agent.began_ms is None else f"{agent.began_ms:+.3f}",
    )


def _errors(result: WorkloadResult) -> Iterator[tuple[str, str]]:
    for agent in result.agents:
        for why in filter(None, (agent.error, agent.corrupt, *agent.error_samples)):
            yield agent.agent, why
