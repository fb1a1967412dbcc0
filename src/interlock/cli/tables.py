"""Tables on a terminal. Only this file and `live` need rich."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from interlock.cli.errors import colour_wanted
from interlock.cli.printing import Sheet
from interlock.wire.harmless import harmless

_IN_ONE_PIECE = frozenset(
    {
        "name",
        "fingerprint",
        "states",
        "id",
        "when",
        "attempt",
        "submitted",
        "took",
        "began",
        "agent",
        "outcome",
        "clock ms",
    }
)
_COLUMNS_OF_STATES = frozenset({"state", "to", "outcome"})
_STYLES = {
    **dict.fromkeys(("COMPLETED", "SUCCEEDED", "SUCCESS"), "green"),
    **dict.fromkeys(("FAILED", "STALE", "EXPIRED", "TIMED_OUT", "TIMEOUT", "REVOKED"), "red"),
    **dict.fromkeys(("CANCELED", "CANCEL_REQUESTED", "RELEASED"), "yellow"),
    **dict.fromkeys(("RUNNING", "STARTING", "ACTIVE", "UPLOADING"), "cyan"),
}


def style_of(state: str) -> str:
    """How a state looks: good, bad, stopped or at work."""
    return _STYLES.get(state, "")


def console_here() -> Console:
    """The terminal; without colours when NO_COLOR asks for it."""
    plain = colour_wanted() is False
    return Console(color_system=None if plain else "auto", highlight=False)


def print_table(sheet: Sheet) -> None:
    """One table, as wide as the terminal at most."""
    table = Table(
        title=sheet.title or None,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in sheet.columns:
        table.add_column(column, no_wrap=column in _IN_ONE_PIECE, overflow="fold")
    for row in sheet.rows:
        table.add_row(*(_cell(column, cell) for column, cell in zip(sheet.columns, row, strict=True)))
    console_here().print(table)


def _cell(column: str, cell: str) -> Text:
    text = harmless(" ".join(cell.split()))
    return Text(text, style=style_of(text) if column in _COLUMNS_OF_STATES else "")
