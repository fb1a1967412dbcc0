"""Where a list goes on: the place of the last record seen, so that nothing is skipped or repeated.

A cursor is opaque to whoever holds it. A page that starts after a place stays right when records
are added or removed meanwhile, and costs the same however far down it is.
"""

from __future__ import annotations

from interlock.errors import InvalidRecord

LARGEST = 2**63 - 1


def write_cursor(created_us: int, name: str) -> str:
    """The cursor of a record in a list by creation."""
    return f"{created_us}.{name}"


def read_cursor(cursor: str) -> tuple[int, str]:
    """The place that `write_cursor` wrote down."""
    number, dot, name = cursor.partition(".")
    if not dot:
        raise bad_cursor(cursor)
    return read_number(number, cursor), name


def read_number(number: str, cursor: str) -> int:
    """A number of a cursor; larger ones than any database counts to were never given out."""
    if not (number.isascii() and number.isdecimal()) or int(number) > LARGEST:
        raise bad_cursor(cursor)
    return int(number)


def bad_cursor(cursor: str) -> InvalidRecord:
    """A cursor that no store has given out."""
    return InvalidRecord(
        f"{cursor[:80]!r} is not a cursor of this store.",
        todo="Begin again without a cursor; use only cursors that the same list has answered.",
        facts={"cursor": cursor[:80]},
    )
