"""Live progress of jobs and batches in a Jupyter notebook; needs `interlock[notebook]`.

    from interlock.notebook import watch

    job = await il.submit(train, epochs=20)
    await watch(job)

The cell shows a row for each job or batch until all of them have ended. Interrupting the cell ends the
display alone; the work continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeAlias

from interlock.client_batches import OVER
from interlock.errors import InvalidSettings, ResultNotReady, StoreUnavailable
from interlock.lifecycles.job import JOB
from interlock.systems.orchestrator.batches import BATCH
from interlock.text import harmless
from interlock.wire.batches import BatchView
from interlock.wire.jobs import JobView

EVERY_S = 0.5
Progressing: TypeAlias = JobView | BatchView
_COLOURS = {"good": "#1a7f37", "bad": "#cf222e", "stopped": "#9a6700", "active": "#0969da"}
_TONES: Mapping[str, Mapping[str, str]] = {
    machine.name: {str(state): str(tone) for state, tone in machine.tones.items()} for machine in (BATCH, JOB)
}
"""The tone of each state, by the machine."""


class Watchable(Protocol):
    """A handle of a job or of a batch."""

    id: str

    async def view(self) -> Any:
        """Return the job or the batch as it is now."""
        ...


class _Screen(Protocol):
    """The place of a display in a notebook, as IPython has it."""

    def update(self, shown: object, /) -> None:
        """Show something else in its place."""
        ...


class ProgressRow(NamedTuple):
    """One line of the display."""

    id: str
    name: str
    state: str
    tone: str
    share: float | None
    """Between 0 and 1; None if it is not known."""
    message: str


class ProgressTable:
    """Jobs and batches with their progress, for a notebook or a terminal."""

    def __init__(self, views: Sequence[Progressing]) -> None:
        self.rows: list[ProgressRow] = [_row(view) for view in views]

    def __repr__(self) -> str:
        lines = [(row.id, row.state, _percent(row.share), row.message or row.name) for row in self.rows]
        return "\n".join("  ".join(filter(None, line)) for line in lines)

    def _repr_html_(self) -> str:
        """Return the table as HTML; everything that users have written is escaped."""
        rows = "".join(map(_html_row, self.rows))
        heads = "".join(f'<th style="text-align:left">{head}</th>' for head in _HEADS)
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


_HEADS = ("Id", "Work", "State", "Progress", "")


async def watch(
    *work: Watchable, every_s: float = EVERY_S, timeout_s: float | None = None
) -> list[Progressing]:
    """Show the progress of jobs and batches until all have ended.

    Return them as they are then. Raises `ResultNotReady` when `timeout_s` has passed before that.
    """
    if not work:
        return []
    screen = _display()
    try:
        async with asyncio.timeout(timeout_s):
            return await _watched(work, every_s, screen)
    except TimeoutError:
        raise ResultNotReady(
            f"Not all of {len(work)} have ended within {timeout_s:g} s.",
            todo="Watch them again: they continue.",
            facts={"ids": [each.id for each in work]},
        ) from None


async def _watched(work: Sequence[Watchable], every_s: float, screen: _Screen) -> list[Progressing]:
    shown = ""
    while True:
        with suppress(StoreUnavailable):  # the display stays as it was, and the next look may succeed
            views: list[Progressing] = list(await asyncio.gather(*(each.view() for each in work)))
            table = ProgressTable(views)
            if table._repr_html_() != shown:
                shown = table._repr_html_()
                screen.update(table)
            if all(map(_has_ended, views)):
                return views
        await asyncio.sleep(every_s)


def _display() -> _Screen:
    try:
        module = import_module("IPython.display")
    except ImportError:
        raise InvalidSettings(
            "A display in a notebook needs IPython, which is not installed.",
            todo="Install it: pip install 'interlock[notebook]'",
            facts={"extra": "notebook"},
        ) from None
    screen: _Screen = module.display(ProgressTable([]), display_id=True)
    return screen


def _has_ended(view: Progressing) -> bool:
    return view.state in OVER if isinstance(view, BatchView) else view.completed_at is not None


def _row(view: Progressing) -> ProgressRow:
    if isinstance(view, BatchView):
        counts = view.counts
        message = ", ".join(_counted(view))
        share = counts.ended / counts.total if counts.total else None
        tone = "bad" if counts.failed else _TONES[BATCH.name].get(view.state, "")
        return ProgressRow(view.id, view.description or "batch", view.state, tone, share, message)
    tone = _TONES[JOB.name].get(view.state, "")
    share = 1.0 if tone == "good" else _share(view)
    return ProgressRow(view.id, view.description or view.task, view.state, tone, share, _message(view))


def _counted(view: BatchView) -> Iterator[str]:
    """Yield how many jobs of a batch have ended, and how."""
    counts = view.counts
    yield f"{counts.completed} of {counts.total} completed"
    if counts.failed:
        yield f"{counts.failed} failed"
    if counts.canceled:
        yield f"{counts.canceled} canceled"


def _share(view: JobView) -> float | None:
    """Return the progress of the attempts together."""
    reports = [each.progress for each in view.attempts if each.progress is not None]
    shares = [each.done / each.total for each in reports if each.done is not None and each.total]
    return min(1.0, max(0.0, sum(shares) / len(shares))) if shares else None


def _message(view: JobView) -> str:
    if view.failure is not None:
        return f"{view.failure.failure_class}: {view.failure.error}"
    messages = [each.progress.message for each in view.attempts if each.progress and not each.ended_at]
    return "; ".join(filter(None, messages))


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _html_row(row: ProgressRow) -> str:
    colour = _COLOURS.get(row.tone, "inherit")
    bar = ""
    if row.share is not None:
        label = escape(f"Progress of {row.id}", quote=True)
        bar = f'<progress max="1" value="{row.share:.4f}" aria-label="{label}"></progress> {row.share:.0%}'
    cells = (
        f"<code>{_safe(row.id)}</code>",
        _safe(row.name),
        f'<span style="color:{colour}">{_safe(row.state)}</span>',
        bar,
        _safe(row.message),
    )
    columns = "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells)
    return f"<tr>{columns}</tr>"


def _safe(text: str) -> str:
    return escape(harmless(text), quote=True)
