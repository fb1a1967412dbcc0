"""Show a workload: its result as tables, and a live table or a line a second while it runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Console, Group
from rich.live import Live as RichLive
from rich.table import Table
from rich.text import Text

from interlock.cli.output import Sheet, print_row
from interlock.cli.sheets import COLOURS
from interlock.cli.tables import console_here, style_of
from interlock.machine.table import Tone
from interlock.systems.fleet.clocks import in_ms, took
from interlock.systems.fleet.outcome import AgentProgress, WorkloadProgress
from interlock.text import counted
from interlock.wire.workloads import FAILED_ENDINGS, AgentResult, Verdict, WorkloadResult

AGENT_COLUMNS = ("agent", "outcome", "done", "errors", "p99 ms", "clock ms", "began ms")
"""Columns that fit on a terminal of 80 characters; the report has more."""


def result_sheets(result: WorkloadResult) -> list[Sheet]:
    """Return the result of all agents together, and of each."""
    return [
        Sheet("workload", "", ("what", "is"), list(_about(result))),
        Sheet("agent", "", AGENT_COLUMNS, [_row(agent) for agent in result.agents]),
        Sheet("error", "Errors", ("agent", "error"), list(_errors(result))),
    ]


def last_second_sheet(live: WorkloadProgress) -> Sheet:
    """Return the last second in the log of a workload without a result; it is partial."""
    found = live.latencies
    slow = f"p50 {took(found.p50_ms)}, p99 {took(found.p99_ms)}, max {took(found.max_ms)}"
    rows = [
        ("outcome", str(Verdict.PARTIAL)),
        ("why", "No result was saved, because its controller was lost: this is the last second in its log."),
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


SPARKS = "▁▂▃▄▅▆▇█"
WIDTH = 60
MOST_AGENTS = 16
"""Maximum number of agents shown; beyond it only the slowest and those not running."""


class WorkloadScreen:
    """A table that stays up to date."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        self._title = title
        self._rates: deque[float] = deque(maxlen=WIDTH)
        self._live = RichLive(console=console or console_here(), auto_refresh=False)

    def begin(self) -> None:
        """Start the display."""
        self._live.start()

    def end(self) -> None:
        """Stop the display."""
        self._live.stop()

    def show(self, live: WorkloadProgress) -> None:
        """Show the current progress."""
        if live.operations:
            self._rates.append(live.rate)
        self._live.update(self.drawn(live), refresh=True)

    def drawn(self, live: WorkloadProgress) -> Group:
        """Return the picture of the current progress."""
        until = f" of {live.duration_s:g} s" if live.duration_s else ""
        head = Text.assemble((self._title, "bold"), f"  {live.elapsed_s:.0f} s{until}")
        sparks = Text(sparkline(self._rates), style=COLOURS[Tone.ACTIVE])
        return Group(head, Text(live.sentence), sparks, _table(live.members, live.silent))


class WorkloadLines:
    """Lines for a pipe: seconds, op/s, p50 and p99 in ms, errors, running agents.

    Then the operations that wait to begin, and the silent agents (`-`: none).
    """

    def begin(self) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""

    def show(self, live: WorkloadProgress) -> None:
        """Print the current progress."""
        found = live.latencies
        figures = (
            f"{live.elapsed_s:.1f}", f"{live.rate:.0f}", _ms(found.p50_ms), _ms(found.p99_ms),
            f"{live.errors}", f"{live.running}/{live.agents}", f"{live.backlog}",
            ",".join(live.silent) or "-",
        )  # fmt: skip
        print_row(("second", *figures))


class NoDisplay(WorkloadLines):
    """No display: a program needs only the result."""

    def show(self, live: WorkloadProgress) -> None:
        """Do nothing."""


def sparkline(values: Iterable[float]) -> str:
    """Return the values as a row of little bars, from 0 to the highest."""
    known = list(values)
    top = max(known, default=0.0)
    if top <= 0:
        return ""
    return "".join(SPARKS[min(len(SPARKS) - 1, int(value / top * len(SPARKS)))] for value in known)


def _ms(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:.3f}"


def _table(members: Sequence[AgentProgress], silent: Mapping[str, float]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    shown, bad = _worth_a_look(members, silent), COLOURS[Tone.BAD]
    for each in shown:
        state = each.state.upper() or "…"
        table.add_row(
            Text(each.agent, style="bold"),
            Text(state, style=bad if each.state in FAILED_ENDINGS else style_of(state)),
            Text(f"{each.rate:,.0f} op/s", justify="right"),
            Text(f"{each.operations:,}", justify="right"),
            Text(counted(each.errors, "error") if each.errors else "", style=bad),
            Text(f"silent for {silent[each.agent]:.0f} s" if each.agent in silent else "", style=bad),
            Text("impossible numbers" if each.corrupt else "", style=bad),
        )
    if len(shown) < len(members):
        table.add_row(Text(f"and {len(members) - len(shown)} more", style="dim"))
    return table


def _worth_a_look(members: Sequence[AgentProgress], silent: Mapping[str, float]) -> Sequence[AgentProgress]:
    if len(members) <= MOST_AGENTS:
        return members

    def well(each: AgentProgress) -> tuple[bool, bool, float]:
        return each.state == "running" and each.agent not in silent, not each.corrupt, each.rate

    return sorted(members, key=well)[:MOST_AGENTS]
