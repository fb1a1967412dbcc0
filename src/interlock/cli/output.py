"""Output for people, pipes and programs: rows, times and JSON.

A terminal gets tables (`tables`). A pipe gets lines of cells between tabs, without header, colour or
shortening, so that `cut`, `grep` and `awk` can read it.

Why: decision 0347.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Self

import msgspec
import typer

from interlock.cli import forms
from interlock.cli.sheets import FORMER_NAMES
from interlock.cli.sheets import Sheet as Sheet  # noqa: PLC0414 (who prints sheets finds them here)
from interlock.errors import InvalidArguments
from interlock.text import harmless


class SortedCell(str):
    """A cell that is sorted by a number: `3 min ago` by its time."""

    order: float

    def __new__(cls, text: str, order: float) -> Self:
        """Return the text, which knows its place among others."""
        cell = super().__new__(cls, text)
        cell.order = order
        return cell


def on_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout.isatty()


def print_json(answer: object) -> None:
    """Print JSON on several lines, or in the form that was chosen."""
    _print_data(answer, lambda: json.dumps(answer, ensure_ascii=False, indent=2))


def print_sheets(sheets: Sequence[Sheet], below: str = "") -> None:
    """Print all tables that have rows.

    In a pipe, the first cell tells several tables apart. `below` is text for a terminal, after the tables.
    """
    filled = _chosen_columns(_sorted([sheet for sheet in sheets if sheet.rows]))
    if on_terminal():
        from interlock.cli.pager import print_long
        from interlock.cli.tables import rendered  # a pipe needs no rich

        print_long("".join(map(rendered, filled)) + below)
        return
    for sheet in filled:
        nouns = (sheet.noun,) if len(sheets) > 1 else ()
        for row in sheet.rows:
            print_row((*nouns, *row))


def print_lines(lines: Iterable[str]) -> None:
    """Print sentences, without control sequences."""
    for line in lines:
        typer.echo(harmless(line))


def print_more(cursor: str, also: str = "") -> None:
    """Report on stderr that a list continues, and what of it is sorted."""
    note = " (only the rows above are sorted)" if forms.chosen.is_sorted else ""
    typer.echo(f"There are more: --cursor {cursor}{also}{note}", err=True)


def print_row(cells: Iterable[str]) -> None:
    """Print one line for a pipe, and flush it."""
    print("\t".join(harmless(" ".join(cell.split())) for cell in cells), flush=True)


_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0


def iso(at: datetime | None) -> str:
    """Return a time for a program; empty when there is none."""
    return "" if at is None else SortedCell(at.isoformat().replace("+00:00", "Z"), at.timestamp())


def ago(at: datetime | None, now: datetime) -> str:
    """Return a time relative to now: `3 min ago`, `in 20 s`."""
    if at is None:
        return ""
    seconds = (now - at).total_seconds()
    if abs(seconds) < 1:
        return SortedCell("now", at.timestamp())
    return SortedCell(f"{lasting(seconds)} ago" if seconds > 0 else f"in {lasting(-seconds)}", at.timestamp())


def lasting(seconds: float) -> str:
    """Return a duration for people."""
    return SortedCell(_duration(seconds), seconds)


def _duration(seconds: float) -> str:
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
    """Return a time: relative on a terminal, ISO 8601 in a pipe."""
    return ago(at, now) if terminal else iso(at)


def full_time(at: datetime | None, now: datetime, *, terminal: bool) -> str:
    """Return a time: relative and ISO 8601 on a terminal, ISO 8601 in a pipe."""
    return f"{ago(at, now)} ({iso(at)})" if terminal and at else iso(at)


def span(start: datetime | None, end: datetime | None, now: datetime) -> str:
    """Return the duration so far, or until the end; empty before the start."""
    return "" if start is None else lasting(max(0.0, ((end or now) - start).total_seconds()))


def print_struct(answer: object) -> None:
    """Print a struct as JSON on several lines, or in the form that was chosen."""
    _print_data(answer, lambda: msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())


def _print_data(answer: object, as_json: Callable[[], str]) -> None:
    match forms.chosen.kind:
        case "yaml":
            import yaml  # needed only here

            print(yaml.safe_dump(_plain(answer), sort_keys=False, allow_unicode=True), end="")
        case "jsonl":
            for each in _items(_plain(answer)):
                print_line(each)
        case "template":
            from interlock.cli.templates import filled, whole  # needed only here

            for each in _items(whole(answer)):
                fields = each if isinstance(each, dict) else {"value": each}
                print(harmless(filled(forms.chosen.template, fields)))
        case _:
            print(as_json())


def _plain(answer: object) -> Any:
    """Return an answer as JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(answer))


def _items(plain: Any) -> list[Any]:
    """Return the records of a list or a page; a single record is one."""
    if isinstance(plain, dict):
        lists = [value for value in plain.values() if isinstance(value, list)]
        return lists[0] if len(lists) == 1 and "cursor" in plain else [plain]
    return plain if isinstance(plain, list) else [plain]


def _chosen_columns(sheets: Sequence[Sheet]) -> list[Sheet]:
    """Return the tables with the chosen columns, without empty tables."""
    wanted = [_present_name(name) for name in forms.chosen.columns]
    if not wanted or not sheets:
        return list(sheets)
    _check_columns(sheets, wanted)
    return [_narrowed(sheet, wanted) for sheet in sheets if set(wanted) & set(sheet.columns)]


def _present_name(column: str) -> str:
    return FORMER_NAMES.get(column, column)


def _check_columns(sheets: Sequence[Sheet], wanted: Iterable[str]) -> None:
    known = list(dict.fromkeys(column for sheet in sheets for column in sheet.columns))
    for name in wanted:
        if name not in known:
            raise InvalidArguments(
                f"There is no column {name!r}.", allowed=known, todo="Choose from the columns that are there."
            )


def _sorted(sheets: Sequence[Sheet]) -> list[Sheet]:
    """Return the tables with their rows in the chosen order.

    A table without the column keeps its own order.
    """
    keys = [(_present_name(name.removeprefix("-")), name.startswith("-")) for name in forms.chosen.sort]
    if sheets:
        _check_columns(sheets, [name for name, _ in keys])
    return [replace(sheet, rows=_sorted_rows(sheet, keys)) for sheet in sheets]


def _sorted_rows(sheet: Sheet, keys: Sequence[tuple[str, bool]]) -> list[Sequence[str]]:
    rows = list(sheet.rows)
    for name, descending in reversed(keys):  # sorting is stable, so the first key comes last
        if name in sheet.columns:
            place = sheet.columns.index(name)
            rows.sort(key=lambda row: _order(row[place]), reverse=descending)
            rows.sort(key=lambda row: not row[place])  # empty cells are last in both directions
    return rows[::-1] if forms.chosen.reverse else rows


_NUMBER = re.compile(r"-?\d+(\.\d+)?(?=$|[ %+/])")


def _order(cell: str) -> tuple[bool, float, str]:
    """Return the place of a cell: numbers and times by value, before texts."""
    if isinstance(cell, SortedCell):
        return False, cell.order, ""
    number = _NUMBER.match(cell)
    return number is None, float(number[0]) if number else 0.0, cell.casefold()


def _narrowed(sheet: Sheet, wanted: Sequence[str]) -> Sheet:
    places = [sheet.columns.index(name) for name in wanted if name in sheet.columns]
    rows = [[row[place] for place in places] for row in sheet.rows]
    return replace(sheet, columns=[sheet.columns[place] for place in places], rows=rows, spare=())


def print_line(answer: object) -> None:
    """Print a struct as JSON on one line, and flush it."""
    _write(msgspec.json.encode(answer))
    sys.stdout.flush()


def _write(text: bytes) -> None:
    print(text.decode())
