"""Where lists and the journal go on: cursors, and the places that the scripts understand."""

from __future__ import annotations

from interlock.store.cursors import bad_cursor, read_cursor, write_cursor
from interlock.store.ranking import microseconds
from interlock.store.records import Query, Record

START = ("", "")
"""Before the first record of a list."""

BEGINNING = (0, 0)
"""Before the first entry of the journal."""

_EXACT = 2**53
"""Sorted sets keep numbers as doubles, in which whole ones are exact up to here: until the year 2255."""


def after(query: Query) -> tuple[str, str]:
    """After which record a page begins: when it was created, and its id."""
    if not query.cursor:
        return START
    created_us, name = read_cursor(query.cursor)
    if created_us >= _EXACT:
        raise bad_cursor(query.cursor)
    return str(created_us), name


def cursor_of(record: Record) -> str:
    """The cursor of a record in a list."""
    return write_cursor(microseconds(record.created_at), record.id)


def place_of(cursor: str) -> tuple[int, int]:
    """Where a cursor stands in the journal: in which epoch, and at which number."""
    if not cursor:
        return BEGINNING
    epoch, dash, number = cursor.partition("-")
    if not (dash and epoch.isdecimal() and number.isdecimal()):
        raise bad_cursor(cursor)
    if max(int(epoch), int(number)) >= _EXACT:
        raise bad_cursor(cursor)
    return int(epoch), int(number)


def written(place: tuple[int, int]) -> str:
    """A place in the journal as the server writes it."""
    return f"{place[0]}-{place[1]}"
