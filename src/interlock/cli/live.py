"""Live screens on a terminal: a table of jobs, the graph of a run, a simulation, a workload.

They need rich, so this is imported only for a terminal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from interlock.cli.journal import JournalStep
from interlock.cli.nouns.job_views import job_status, progress_text
from interlock.cli.nouns.run_views import RunChange, drawn
from interlock.cli.nouns.simulation_views import StepRate, status_text, steps_of
from interlock.cli.output import span
from interlock.cli.sheets import COLOURS
from interlock.cli.tables import console_here, style_of
from interlock.cli.watch import News, has_ended
from interlock.machine.table import Tone
from interlock.systems.fleet.outcome import AgentProgress, WorkloadProgress
from interlock.systems.runs.graph import TONES
from interlock.systems.runs.graph_text import LineSegment
from interlock.text import counted, harmless
from interlock.wire.jobs import JobView
from interlock.wire.runs import RunView
from interlock.wire.workloads import FAILED_ENDINGS

if TYPE_CHECKING:
    from interlock.wire.simulations import SimulationView


MOST_ROWS = 20
"""Maximum number of rows; beyond it only unfinished jobs are shown."""
_BAR_WIDTH = 24


class LiveDisplay:
    """A display of rich, which is started and stopped with its block."""

    def __init__(self, shown: Live | Progress) -> None:
        self._shown = shown

    def __enter__(self) -> Self:
        self._shown.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.stop()


class LiveTable(LiveDisplay):
    """A table of jobs that stays up to date."""

    def __init__(self, clock: Callable[[], Awaitable[datetime]], console: Console | None = None) -> None:
        self._clock = clock
        self._console = console or console_here()
        self._live = Live(console=self._console, auto_refresh=False, transient=False)
        super().__init__(self._live)
        self._views: dict[str, JobView] = {}

    async def show(self, news: News) -> None:
        """Print the steps above, and the current jobs below."""
        self._views |= {view.id: view for view in news.views}
        for step in news.steps:
            self._console.print(_step(step, with_job=len(self._views) > 1))
        self._live.update(_table(list(self._views.values()), await self._clock()), refresh=True)


def _table(views: list[JobView], now: datetime) -> Table:
    living = [view for view in views if not has_ended(view)]
    shown = views if len(views) <= MOST_ROWS else living[:MOST_ROWS]
    table = Table.grid(padding=(0, 2, 0, 0))
    for view in shown:
        table.add_row(
            Text(view.id, style="bold"),
            Text(view.state, style=style_of(view.state)),
            _bar(view),
            Text(span(view.started_at or view.created_at, view.completed_at, now), style="dim"),
            Text(_flat(job_status(view)), overflow="ellipsis", no_wrap=True),
        )
    if len(views) > len(shown):
        table.add_row(Text(f"{len(views) - len(living)} of {len(views)} have ended", style="dim"))
    return table


def _bar(view: JobView) -> ProgressBar | Text:
    """Return the progress of all attempts together, if they report any."""
    reports = [one.progress for one in view.attempts if one.progress is not None and not one.ended_at]
    if has_ended(view) or not reports:
        return Text("")
    if any(progress.total is None or progress.done is None for progress in reports):
        return Text(_flat(progress_text(reports[0])))
    total = sum(progress.total or 0.0 for progress in reports)
    return ProgressBar(
        total=total, completed=sum(progress.done or 0.0 for progress in reports), width=_BAR_WIDTH
    )


def _flat(text: str) -> str:
    """Return text as one line that does not break the table."""
    return harmless(" ".join(text.split()))


def _step(step: JournalStep, *, with_job: bool) -> Text:
    line = Text()
    line.append(f"{step.at:%H:%M:%S}  ", style="dim")
    if with_job:
        line.append(f"{step.job_id}  ", style="bold")
    line.append(f"{step.who:<12} {step.event:<20} ")
    line.append(f"{step.source} → ", style="dim")
    line.append(step.target, style=style_of(step.target))
    if step.actor:
        line.append(f"  {_flat(step.actor)}", style="dim")
    if step.reason:
        line.append(f"  {_flat(step.reason)}", style="italic")
    return line


MOST_NAMED = 5


class LiveGraph(LiveDisplay):
    """The graph of a run, which stays up to date; failures are printed above it.

    Names and errors may come from a job's output: control characters in them would break the graph.
    """

    def __init__(
        self, clock: Callable[[], Awaitable[datetime]], width: int, console: Console | None = None
    ) -> None:
        self._clock = clock
        self._width = width
        self._console = console or console_here()
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        super().__init__(self._live)

    async def show(self, view: RunView, changes: list[RunChange]) -> None:
        """Draw the current graph."""
        for change in changes:
            if change.says and change.after in ("FAILED", "CANCELED"):
                self._console.print(
                    Text(f"{harmless(change.what or view.id)} {change.after}: ", style=style_of(change.after))
                    + Text(harmless(change.says.splitlines()[0]))
                )
        lines = [self._line(line) for line in drawn(view, await self._clock(), self._width)]
        if waiting := [job.name for job in view.jobs if job.state == "PENDING"]:
            more = f" and {len(waiting) - MOST_NAMED} more" if len(waiting) > MOST_NAMED else ""
            names = harmless(", ".join(waiting[:MOST_NAMED]))
            lines.append(Text(f"waiting for a runner: {names}{more}", style="dim"))
        self._live.update(Group(*lines), refresh=True)

    def _line(self, pieces: Sequence[LineSegment]) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis")
        for piece in pieces:
            tone = TONES.get(piece.node.state, "") if piece.node is not None else ""
            line.append(harmless(piece.text), style=COLOURS.get(tone, "dim"))
        return line


class LiveBar(LiveDisplay):
    """The progress bar of a simulation."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[steps]}  {task.fields[pace]}  {task.fields[said]}"),
            console=console_here(),
        )
        self._bar: TaskID | None = None
        super().__init__(self._progress)

    async def show(self, view: SimulationView, pace: StepRate) -> None:
        """Update the bar."""
        dangers = f"{view.danger_count} dangers" if view.danger_count else ""
        note = harmless(view.error or view.trouble or dangers)
        what = harmless(f"{view.run_id} {status_text(view)}")
        if self._bar is None:
            self._bar = self._progress.add_task(what, total=view.total_steps, steps="", pace="", said="")
        self._progress.update(
            self._bar,
            description=what,
            total=view.total_steps,
            completed=view.current_step,
            steps=steps_of(view),
            pace=pace.text(view),
            said=note,
        )


SPARKS = "▁▂▃▄▅▆▇█"
WIDTH = 60
MOST_AGENTS = 16
"""Maximum number of agents shown; beyond it only the slowest and those not running."""


class LiveWorkload(LiveDisplay):
    """The rate of a workload, second by second, and its agents."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        self._title = title
        self._rates: deque[float] = deque(maxlen=WIDTH)
        self._live = Live(console=console or console_here(), auto_refresh=False)
        super().__init__(self._live)

    async def show(self, progress: WorkloadProgress) -> None:
        """Draw the current progress."""
        if progress.operations:
            self._rates.append(progress.rate)
        self._live.update(self.drawn(progress), refresh=True)

    def drawn(self, progress: WorkloadProgress) -> Group:
        """Return the picture of the current progress."""
        until = f" of {progress.duration_s:g} s" if progress.duration_s else ""
        head = Text.assemble((self._title, "bold"), f"  {progress.elapsed_s:.0f} s{until}")
        sparks = Text(sparkline(self._rates), style=COLOURS[Tone.ACTIVE])
        return Group(head, Text(progress.sentence), sparks, _agents(progress.members, progress.silent))


def sparkline(values: Iterable[float]) -> str:
    """Return the values as a row of little bars, from 0 to the highest."""
    known = list(values)
    top = max(known, default=0.0)
    if top <= 0:
        return ""
    return "".join(SPARKS[min(len(SPARKS) - 1, int(value / top * len(SPARKS)))] for value in known)


def _agents(members: Sequence[AgentProgress], silent: Mapping[str, float]) -> Table:
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
