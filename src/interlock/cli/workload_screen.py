"""How a workload is shown while it runs: a live table on a terminal, a line for each second in a pipe."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, Group
from rich.live import Live as RichLive
from rich.table import Table
from rich.text import Text

from interlock.cli.printing import print_row
from interlock.cli.tables import console_here, style_of
from interlock.plurals import counted
from interlock.systems.fleet.live import AgentLive, Live

SPARKS = "▁▂▃▄▅▆▇█"
WIDTH = 60
MOST_AGENTS = 16
"""Of more agents than that only those are shown that need a look: the slowest, and whoever is not running."""


class Screen:
    """A table that stays up to date."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        self._title = title
        self._rates: deque[float] = deque(maxlen=WIDTH)
        self._live = RichLive(console=console or console_here(), auto_refresh=False)

    def begin(self) -> None:
        """Take the place on the terminal."""
        self._live.start()

    def end(self) -> None:
        """Leave what is there."""
        self._live.stop()

    def show(self, live: Live) -> None:
        """How it goes now."""
        if live.operations:
            self._rates.append(live.rate)
        self._live.update(self.drawn(live), refresh=True)

    def drawn(self, live: Live) -> Group:
        """What stands on the terminal."""
        until = f" of {live.duration_s:g} s" if live.duration_s else ""
        head = Text.assemble((self._title, "bold"), f"  {live.elapsed_s:.0f} s{until}")
        sparks = Text(sparkline(self._rates), style="cyan")
        return Group(head, Text(live.sentence), sparks, _table(live.members, live.silent))


class Lines:
    """The same for a pipe: seconds, op/s, p50 and p99 in ms, errors, agents that are running.

    Behind them how many operations wait to begin, and which agents are silent (`-`: none).
    """

    def begin(self) -> None:
        """Nothing has to be begun."""

    def end(self) -> None:
        """Nor ended."""

    def show(self, live: Live) -> None:
        """How it goes now."""
        found = live.latencies
        figures = (
            f"{live.elapsed_s:.1f}", f"{live.rate:.0f}", _ms(found.p50_ms), _ms(found.p99_ms),
            f"{live.errors}", f"{live.running}/{live.agents}", f"{live.backlog}",
            ",".join(live.silent) or "-",
        )  # fmt: skip
        print_row(("second", *figures))


class Silent(Lines):
    """For a program, which wants the result alone."""

    def show(self, live: Live) -> None:
        """Nothing is said meanwhile."""


def sparkline(values: Iterable[float]) -> str:
    """The values as a row of little bars, from 0 to the highest."""
    known = list(values)
    top = max(known, default=0.0)
    if top <= 0:
        return ""
    return "".join(SPARKS[min(len(SPARKS) - 1, int(value / top * len(SPARKS)))] for value in known)


def _ms(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:.3f}"


def _table(members: Sequence[AgentLive], silent: Mapping[str, float]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    shown = _worth_a_look(members, silent)
    for each in shown:
        state = each.state.upper() or "…"
        table.add_row(
            Text(each.agent, style="bold"),
            Text(state, style="red" if state in ("LOST", "ERROR", "REFUSED") else style_of(state)),
            Text(f"{each.rate:,.0f} op/s", justify="right"),
            Text(f"{each.operations:,}", justify="right"),
            Text(counted(each.errors, "error") if each.errors else "", style="red"),
            Text(f"silent for {silent[each.agent]:.0f} s" if each.agent in silent else "", style="red"),
            Text("its numbers cannot be true" if each.corrupt else "", style="red"),
        )
    if len(shown) < len(members):
        table.add_row(Text(f"and {len(members) - len(shown)} more", style="dim"))
    return table


def _worth_a_look(members: Sequence[AgentLive], silent: Mapping[str, float]) -> Sequence[AgentLive]:
    if len(members) <= MOST_AGENTS:
        return members

    def well(each: AgentLive) -> tuple[bool, bool, float]:
        return each.state == "running" and each.agent not in silent, not each.corrupt, each.rate

    return sorted(members, key=well)[:MOST_AGENTS]
