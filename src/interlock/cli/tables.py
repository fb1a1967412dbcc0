"""Tables on a terminal. The only file here that needs rich."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from interlock.cli.errors import colour_wanted
from interlock.cli.sheets import Sheet

_IN_ONE_PIECE = frozenset({"name", "fingerprint", "states"})


def print_table(sheet: Sheet) -> None:
    """One table, as wide as the terminal at most; without colours when NO_COLOR asks for it."""
    plain = colour_wanted() is False
    console = Console(color_system=None if plain else "auto", highlight=False)
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
        table.add_row(*(Text(" ".join(cell.split())) for cell in row))
    console.print(table)
