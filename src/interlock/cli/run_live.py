"""A run on a terminal while it goes on: its graph, drawn anew whenever something has happened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from interlock.cli.run_graphs import drawn
from interlock.cli.tables import console_here, style_of
from interlock.systems.runs.drawing.text import Piece
from interlock.wire.harmless import harmless
from interlock.wire.runs import RunView

if TYPE_CHECKING:
    from interlock.cli.run_watching import Change

MOST_NAMED = 5
_BY_MARK = {"STOPPING": "yellow", "WAITING": "dim", "PENDING": "dim"}


class LiveGraph(AbstractContextManager["LiveGraph"]):
    """The graph of one run, which stays up to date; failures are written above it.

    Names and errors may come from a job's output: what moves the cursor in them would tear the graph.
    """

    def __init__(
        self, clock: Callable[[], Awaitable[datetime]], width: int, console: Console | None = None
    ) -> None:
        self._clock = clock
        self._width = width
        self._console = console or console_here()
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    async def show(self, view: RunView, changes: list[Change]) -> None:
        """Draw it as it is now."""
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

    def _line(self, pieces: Sequence[Piece]) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis")
        for piece in pieces:
            state = piece.node.state if piece.node is not None else ""
            line.append(
                harmless(piece.text), style=_BY_MARK.get(state) or style_of(state) or ("" if state else "dim")
            )
        return line
