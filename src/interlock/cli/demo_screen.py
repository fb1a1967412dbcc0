"""What `interlock demo` shows: the jobs while they run, and afterwards the story of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from interlock.cli.steps import steps_in
from interlock.cli.tables import style_of
from interlock.client import Interlock
from interlock.lifecycles import job
from interlock.wire.jobs import AttemptView, JobView

MANY = "studio.develop"
_BAR = 30


class Screen:
    """The jobs, live on a terminal; into a pipe only what changes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._states: dict[str, str] = {}

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, views: Sequence[JobView]) -> None:
        """The jobs as they are now."""
        if self._live is not None:
            self._live.update(_picture(views), refresh=True)
        else:
            self._print_changes(views)

    def say(self, what: str) -> None:
        """Something that fate does."""
        self._console.print(Text(f"  ⚡ {what}", style="bold yellow"))

    def _print_changes(self, views: Sequence[JobView]) -> None:
        for view in views:
            now = f"{view.state} {view.attempts[-1].state if view.attempts else ''}".strip()
            if self._states.get(view.id) != now:
                self._states[view.id] = now
                self._console.print(f"{view.id}  {view.task:<15} {now}")


def _picture(views: Sequence[JobView]) -> Group:
    table = Table.grid(padding=(0, 2, 0, 0))
    many = [view for view in views if view.task == MANY]
    done = sum(view.state == job.COMPLETED for view in many)
    table.add_row(
        Text(f"{MANY} ({len(many)} of them)", style="bold"),
        Text(f"{done}/{len(many)}", style="green" if done == len(many) else "default"),
        ProgressBar(total=len(many), completed=done, width=_BAR),
        Text(""),
    )
    for view in views:
        if view.task != MANY:
            table.add_row(
                Text(view.task, style="bold"), Text(view.state, style=style_of(view.state)), *_told(view)
            )
    return Group(table)


def _told(view: JobView) -> tuple[ProgressBar | Text, Text]:
    one = view.attempts[-1]
    bar: ProgressBar | Text = Text("")
    if one.progress is not None and one.progress.total:
        bar = ProgressBar(total=one.progress.total, completed=one.progress.done or 0, width=_BAR)
    elif one.progress is not None:
        bar = Text(one.progress.message)
    return bar, Text(_words(view, one), style="dim")


def _words(view: JobView, one: AttemptView) -> str:
    words = [f"attempt {one.index}"]
    if one.lease is not None and not one.ended_at:
        words.append(f"on {one.lease.runner_id.partition('#')[0]}")
    failed = [f"{a.failure.failure_class}: {a.failure.error}" for a in view.attempts if a.failure]
    if failed:
        words.append(f"after {failed[-1]}" if not one.failure else failed[-1])
    if view.stop_reason:
        words.append(f"stopped: {view.stop_reason}")
    return ", ".join(words)


async def tell_story(il: Interlock, job_id: str, console: Console) -> None:
    """Everything that happened to one job, from the journal."""
    history = await il.here.jobs.history(job_id)
    console.print(f"[bold]The story of the film, {job_id}, as the journal tells it:[/]")
    table = Table.grid(padding=(0, 2, 0, 0))
    for step in steps_in(history):
        after = (step.at - history[0].at).total_seconds()
        moved = Text(f"{step.source} → ", style="dim")
        moved.append(step.target, style=style_of(step.target))
        who = Text(step.actor.partition("#")[0] or step.owner, style="dim")
        table.add_row(Text(f"{after:6.2f} s", style="dim"), step.who, step.event, moved, who, step.reason)
    console.print(table)
    view = await il.job(job_id)
    console.print(f"It ended {view.state} and returned {bytes(view.result).decode()}." if view.result else "")
