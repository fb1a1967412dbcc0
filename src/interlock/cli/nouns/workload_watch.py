"""Command `workload watch`, and the display of `workload run`: a live table, or a line a second.

It needs rich, and so is imported only by these two.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

import msgspec
from rich.console import Console, Group
from rich.live import Live as RichLive
from rich.table import Table
from rich.text import Text

from interlock.cli.connection import run_connected
from interlock.cli.nouns.workload_views import exit_code, find_agents, find_driver, find_workload, sheets_of
from interlock.cli.output import on_terminal, print_row, print_sheets, print_struct
from interlock.cli.sheets import COLOURS
from interlock.cli.tables import console_here, style_of
from interlock.cli.watch import POLL_S, has_ended
from interlock.machine.table import Tone
from interlock.remote.reach import Reach
from interlock.systems.fleet.outcome import AgentProgress, WorkloadProgress, progress_in
from interlock.systems.fleet.spec import spec_of
from interlock.text import counted
from interlock.wire.jobs import JobView
from interlock.wire.workloads import FAILED_ENDINGS, WorkloadView


def watch(store: str | None, text: str, *, as_json: bool) -> int:
    """Follow a workload that another process drives; return the exit code."""

    async def work(reach: Reach) -> int:
        found = await find_driver(reach, text)
        title = f"{found.description or found.id} on {counted(len(spec_of(found).agents), 'agent')}"
        screen = NoDisplay() if as_json else WorkloadScreen(title) if on_terminal() else WorkloadLines()
        screen.begin()
        try:
            async for live in _lives(reach, found):
                screen.show(live)
        finally:
            screen.end()
        ended = await find_workload(reach, found.id)
        if as_json:
            print_struct(ended)
        else:
            print_sheets(sheets_of(ended, await reach.now()))
        return exit_code(ended.job, ended.result)

    return run_connected(store, work)


async def _lives(reach: Reach, found: JobView) -> AsyncIterator[WorkloadProgress]:
    """Yield every second of the log with the agents, until the job has ended.

    Without a server, this process looks after the lease of the controller.
    """
    chunks, loop, swept_at = reach.new_chunks(found.id), asyncio.get_running_loop(), float("-inf")
    while True:
        if loop.time() - swept_at >= reach.settings.durations.sweep_every_s:
            swept_at = loop.time()
            await reach.recover()
        view = await reach.here.jobs.get(found.id)
        members = await find_agents(reach, found.id)
        async for chunk in chunks():
            for live in progress_in(chunk):
                yield _with_members(live, members)
        if has_ended(view):
            return
        await asyncio.sleep(POLL_S)


def _with_members(live: WorkloadProgress, members: tuple[WorkloadView, ...]) -> WorkloadProgress:
    known = tuple(
        AgentProgress(agent=each.agent, state=(each.final or each.state).lower(), operations=each.operations)
        for each in members
    )
    return msgspec.structs.replace(live, members=known)


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

    def runs_well(each: AgentProgress) -> tuple[bool, bool, float]:
        return each.state == "running" and each.agent not in silent, not each.corrupt, each.rate

    return sorted(members, key=runs_well)[:MOST_AGENTS]
