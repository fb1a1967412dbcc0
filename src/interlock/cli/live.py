"""Jobs on a terminal while they run: what happens is written above, how far they are stays below."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from interlock.cli.following import News, has_ended
from interlock.cli.job_sheets import progress_text, said
from interlock.cli.steps import StepShown
from interlock.cli.tables import console_here, style_of
from interlock.cli.times import lasting
from interlock.wire.harmless import harmless
from interlock.wire.jobs import JobView

MOST_ROWS = 20
"""Of more jobs than that only those are shown that have not ended."""
_BAR_WIDTH = 24


class LiveTable(AbstractContextManager["LiveTable"]):
    """The jobs in a table that stays up to date."""

    def __init__(self, clock: Callable[[], Awaitable[datetime]], console: Console | None = None) -> None:
        self._clock = clock
        self._console = console or console_here()
        self._live = Live(console=self._console, auto_refresh=False, transient=False)
        self._views: dict[str, JobView] = {}

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    async def show(self, news: News) -> None:
        """Write the steps above, and the jobs as they are now below."""
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
            Text(_age(view, now), style="dim"),
            Text(_flat(said(view)), overflow="ellipsis", no_wrap=True),
        )
    if len(views) > len(shown):
        table.add_row(Text(f"{len(views) - len(living)} of {len(views)} have ended", style="dim"))
    return table


def _bar(view: JobView) -> ProgressBar | Text:
    """How far its attempts are together, where they say so."""
    told = [one.progress for one in view.attempts if one.progress is not None and not one.ended_at]
    if has_ended(view) or not told:
        return Text("")
    if any(progress.total is None or progress.done is None for progress in told):
        return Text(_flat(progress_text(told[0])))
    total = sum(progress.total or 0.0 for progress in told)
    return ProgressBar(
        total=total, completed=sum(progress.done or 0.0 for progress in told), width=_BAR_WIDTH
    )


def _flat(text: str) -> str:
    """Return what a job or a person has written as one line that does not move the table."""
    return harmless(" ".join(text.split()))


def _age(view: JobView, now: datetime) -> str:
    since = view.started_at or view.created_at
    return lasting(max(0.0, ((view.completed_at or now) - since).total_seconds()))


def _step(step: StepShown, *, with_job: bool) -> Text:
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
