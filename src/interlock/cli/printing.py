"""How rows are shown: tables on a terminal, and in a pipe lines of cells between tabs.

A pipe gets no header, no colour and nothing cut short, so that `cut`, `grep` and `awk` can read it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from interlock.wire.harmless import harmless


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table. `noun` begins each line of a pipe when several tables share it."""

    noun: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]] = field(default=())
    one_line: bool = False
    """A terminal shows each row on one line: long cells end with an ellipsis instead of wrapping."""
    spare: Sequence[str] = ()
    """Columns that a terminal leaves out while it is too narrow for all, the first of these first."""


def on_terminal() -> bool:
    """Whether somebody is looking."""
    return sys.stdout.isatty()


def print_json(answer: object) -> None:
    """An answer for a program."""
    print(json.dumps(answer, ensure_ascii=False, indent=2))


def print_sheets(sheets: Sequence[Sheet]) -> None:
    """All the tables that have rows; in a pipe several are told apart by their first cell."""
    filled = [sheet for sheet in sheets if sheet.rows]
    if on_terminal():
        from interlock.cli.tables import print_table  # a pipe need not wait for rich

        for sheet in filled:
            print_table(sheet)
        return
    for sheet in filled:
        nouns = (sheet.noun,) if len(sheets) > 1 else ()
        for row in sheet.rows:
            print_row((*nouns, *row))


def print_row(cells: Iterable[str]) -> None:
    """One line for a pipe; it is there at once, for whoever follows."""
    print("\t".join(harmless(" ".join(cell.split())) for cell in cells), flush=True)
