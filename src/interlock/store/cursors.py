"""Cursors of lists: the place of the last record, so that none is skipped or repeated.

A cursor is opaque. A page that starts after a place stays correct when records are added or removed
meanwhile, and costs the same at any depth.
"""

from __future__ import annotations

from interlock.errors import InvalidRecord

LARGEST = 2**63 - 1


def write_cursor(created_us: int, name: str) -> str:
    """Return the cursor of a record in a list by creation."""
    return f"{created_us}.{name}"


def read_cursor(cursor: str) -> tuple[int, str]:
    """Return the place in a cursor of `write_cursor`."""
    number, dot, name = cursor.partition(".")
    if not dot:
        raise bad_cursor(cursor)
    return read_number(number, cursor), name


def read_number(number: str, cursor: str) -> int:
    """Return a number of a cursor; raise for one that is too large.

    No database counts further than `LARGEST`.
    """
    counted = number.isascii() and number.isdecimal() and len(number) <= len(str(LARGEST))
    if not counted or int(number) > LARGEST:
        raise bad_cursor(cursor)
    return int(number)


def bad_cursor(cursor: str) -> InvalidRecord:
    """Return the error of an invalid cursor."""
    return InvalidRecord(
        f"{cursor[:80]!r} is not a cursor of this store.",
        todo="Begin again without a cursor; use only cursors that the same list has returned.",
        facts={"cursor": cursor[:80]},
    )
