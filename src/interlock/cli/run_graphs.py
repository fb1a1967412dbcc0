"""What `interlock run graph` does, and how a graph looks on a terminal."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import typer

from interlock.cli import printing
from interlock.cli.answers import print_struct
from interlock.cli.connecting import ask
from interlock.cli.errors import colour_wanted
from interlock.cli.run_finding import whole_run_id
from interlock.cli.run_sheets import change_of, said, span_of
from interlock.remote.interfaces import Reach
from interlock.systems.runs.drawing.graph import graph_of
from interlock.systems.runs.drawing.text import Piece, draw_text
from interlock.wire.harmless import harmless
from interlock.wire.runs import RunView

if TYPE_CHECKING:
    from interlock.cli.runs import Format

WIDE = 10_000
"""A pipe has no edge."""


def show(store: str | None, text: str, form: Format) -> None:
    """Print the graph of a run."""

    async def work(port: Reach) -> tuple[RunView, datetime]:
        return await port.here.runs.view(await whole_run_id(port.here.runs, text)), await port.now()

    view, now = ask(store, work)
    match str(form):
        case "json":
            print_struct(graph_of(view, most=WIDE))
        case "text":
            width = shutil.get_terminal_size().columns if printing.on_terminal() else WIDE
            for line in drawn(view, now, width):
                typer.echo(coloured(line), color=colour_wanted())
        case other:
            print(_written(other, view, now), end="")


def _written(form: str, view: RunView, now: datetime) -> str:
    from interlock.systems.runs.drawing import others, svg

    graph, note = graph_of(view), partial(span_of, now=now)
    title = heading(view)
    match form:
        case "svg":
            return svg.draw_svg(graph, title, note)
        case "dot":
            return others.draw_dot(graph, title, note)
        case _:
            return others.draw_mermaid(graph, note)


def drawn(view: RunView, now: datetime, width: int) -> Iterator[Sequence[Piece]]:
    """A heading, the graph, and what was left out."""
    graph = graph_of(view)
    yield [Piece(heading(view))]
    yield from draw_text(graph, width, partial(span_of, now=now))
    if graph.left_out:
        yield [Piece(f"… and {graph.left_out:,} more jobs")]
    yield from ([Piece(f"↷ {job.name}: {job.why}"[:width])] for job in view.skipped)


def heading(view: RunView) -> str:
    """The run in one line."""
    state = f"{view.state} ({view.outcome})" if view.outcome and view.state != view.outcome else view.state
    return "  ".join(filter(None, (view.workflow, view.id, state, change_of(view), said(view))))


def coloured(line: Sequence[Piece]) -> str:
    """A line with the colours of the states."""
    shown = [(piece.node, harmless(piece.text)) for piece in line]
    return "".join(
        text if node is None else typer.style(text, fg=_COLOURS.get(node.state)) for node, text in shown
    )


_COLOURS = {
    "COMPLETED": "green",
    "FAILED": "red",
    "CANCELED": "yellow",
    "STOPPING": "yellow",
    "RUNNING": "cyan",
}
