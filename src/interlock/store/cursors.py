"""Where a list goes on: the place of the last record seen, so that nothing is skipped or repeated.

A cursor is opaque to whoever holds it. A page that starts after a place stays right when records
are added or removed meanwhile, and costs the same however far down it is.
"""

from __future__ import annotations

from interlock.errors import InvalidRecord


def write_cursor(created_us: int, name: str) -> str:
    """The cursor of a record in a list by creation."""
    return f"{created_us}.{name}"


def read_cursor(cursor: str) -> tuple[int, str]:
    """The place that `write_cursor` wrote down."""
    number, dot, name = cursor.partition(".")
    if not dot or not number.isdecimal():
        raise bad_cursor(cursor)
    return int(number), name


def bad_cursor(cursor: str) -> InvalidRecord:
    """A cursor that no store has given out."""
    return InvalidRecord(
        f"{cursor[:80]!r} is not a cursor of this store.",
        todo="Begin again without a cursor; use only cursors that the same list has answered.",
        facts={"cursor": cursor[:80]},
    )
