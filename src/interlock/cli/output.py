"""Output for people, pipes and programs: rows, times and JSON.

A terminal gets tables (`tables`). A pipe gets lines of cells between tabs, without header, colour or
shortening, so that `cut`, `grep` and `awk` can read it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from interlock.text import harmless


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


_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0


def iso(at: datetime | None) -> str:
    """A time for a program; empty when there is none."""
    return "" if at is None else at.isoformat().replace("+00:00", "Z")


def ago(at: datetime | None, now: datetime) -> str:
    """A time for people, as seen from now: `3 min ago`, `in 20 s`."""
    if at is None:
        return ""
    seconds = (now - at).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{lasting(seconds)} ago" if seconds > 0 else f"in {lasting(-seconds)}"


def lasting(seconds: float) -> str:
    """How long something took, as precisely as people care."""
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.0f} h" if seconds < 2 * _DAY else f"{seconds / _DAY:.0f} d"


def shown(at: datetime | None, now: datetime, *, terminal: bool) -> str:
    """A time as the reader wants it."""
    return ago(at, now) if terminal else iso(at)


def print_struct(answer: object) -> None:
    """An answer on several lines, for eyes as well."""
    _write(msgspec.json.format(msgspec.json.encode(answer), indent=2))


def print_line(answer: object) -> None:
    """An answer on one line, as one of many; it is there at once, also in a pipe."""
    _write(msgspec.json.encode(answer))
    sys.stdout.flush()


def _write(text: bytes) -> None:
    print(text.decode())
