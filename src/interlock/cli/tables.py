"""Tables on a terminal. They need rich, so this is imported only for a terminal."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from interlock.cli import forms
from interlock.cli.errors import colour_wanted
from interlock.cli.hyperlinks import link_of
from interlock.cli.sheets import COLOURS, Sheet
from interlock.text import harmless

_IN_ONE_PIECE = frozenset(
    {
        "name",
        "fingerprint",
        "states",
        "id",
        "state",
        "from",
        "to",
        "when",
        "attempt",
        "event",
        "submitted",
        "started",
        "took",
        "began",
        "agent",
        "outcome",
        "clock ms",
    }
)
"""Columns that are never broken: each is as wide as its longest cell."""
_GAP, _EDGES = 3, 2
_LEAST = 12
"""Minimum width of a column that can be shortened."""
_COLUMNS_OF_STATES = frozenset({"state", "to", "outcome"})


def style_of(state: str) -> str:
    """Return the colour of a state, by its tone in the table of its machine."""
    return COLOURS.get(_tones().get(state, ""), "")


@cache
def _tones() -> dict[str, str]:
    from interlock.lifecycles import MACHINES  # `machine check` reports faults in them

    return {str(state): tone for machine in MACHINES.values() for state, tone in machine.tones.items()}


def console_here() -> Console:
    """Return the terminal; without colours if NO_COLOR is set."""
    plain = colour_wanted() is False
    return Console(color_system=None if plain else "auto", highlight=False)


def rendered(sheet: Sheet, console: Console | None = None) -> str:
    """Return one table as the terminal gets it, at most as wide as that."""
    console = console or console_here()
    if forms.chosen.kind == "wide":
        sheet = replace(sheet, one_line=False, spare=())
        width = sum(_width(sheet, place) for place in range(len(sheet.columns)))
        console.width = max(console.width, width + _GAP * len(sheet.columns) + _EDGES)
    with console.capture() as captured:
        console.print(table_of(sheet, console.width))
    return captured.get()


def table_of(sheet: Sheet, width: int) -> Table:
    """Return the table of a sheet, at most `width` characters wide."""
    table = Table(
        title=sheet.title or None,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    shown = _fitting(sheet, width)
    for place in shown:
        column = sheet.columns[place]
        whole = _is_whole(sheet, column)
        least = _width(sheet, place) if whole else None
        table.add_column(Text(column, no_wrap=True), no_wrap=whole, overflow="fold", min_width=least)
    for row in sheet.rows:
        cells = (_cell(sheet, sheet.columns[place], row[place]) for place in shown)
        table.add_row(*cells)
    return table


def _fitting(sheet: Sheet, width: int) -> list[int]:
    """Return the places of the columns that fit.

    Spare columns are left out first.
    """
    shown = list(range(len(sheet.columns)))
    for column in sheet.spare:
        if _needed(sheet, shown) <= width:
            break
        shown = [place for place in shown if sheet.columns[place] != column]
    return shown


def _needed(sheet: Sheet, places: list[int]) -> int:
    """Return the minimum width of a table of these columns."""
    widths = [_width(sheet, place) for place in places]
    least = [
        width if _is_whole(sheet, sheet.columns[place]) else min(width, _LEAST)
        for place, width in zip(places, widths, strict=True)
    ]
    return sum(least) + _GAP * (len(places) - 1) + _EDGES


def _width(sheet: Sheet, place: int) -> int:
    texts = [sheet.columns[place], *(_shown(row[place]) for row in sheet.rows)]
    return max(cell_len(text) for text in texts)


def _is_whole(sheet: Sheet, column: str) -> bool:
    """Return whether cells are never broken.

    A name has no limit, so a list may shorten it.
    """
    return column in _IN_ONE_PIECE and not (sheet.one_line and column == "name")


def _shown(cell: str) -> str:
    return harmless(" ".join(cell.split()))


def _cell(sheet: Sheet, column: str, cell: str) -> Text:
    text = _shown(cell)
    style = Style.parse(style_of(text)) if column in _COLUMNS_OF_STATES else Style()
    if link := link_of(sheet.noun, column, text):
        style += Style(link=link)
    shortened: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"} if sheet.one_line else {}
    return Text(text, style=style, **shortened)
