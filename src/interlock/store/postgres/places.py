"""Places in the journal, and the cursors in which they are written down.

The order of the journal is by transaction, then by entry. A cursor of `latest` may also carry a
snapshot: while a transaction is running that began before others that have ended, "after what is there"
is no single place, and the snapshot tells the two apart until the feed has passed them all.
"""

from __future__ import annotations

import re

import msgspec

from interlock.store.cursors import bad_cursor

_CURSOR = re.compile(r"(\d{1,19})\.(\d{1,19})(?:\.(\d{1,19}):(\d{1,19}):([\d,]*))?")
_LARGEST = 2**63 - 1


class Place(msgspec.Struct, frozen=True, order=True, gc=False):
    """Behind one entry of the journal."""

    xact: int = 0
    entry: int = 0
    snapshot: str | None = None

    @property
    def cursor(self) -> str:
        """For whoever reads the feed."""
        tail = f".{self.snapshot}" if self.snapshot else ""
        return f"{self.xact}.{self.entry}{tail}"

    def at(self, xact: int, entry: int, xact_offset: int) -> Place:
        """The place of an entry that was read from here on; past its end the snapshot has no say."""
        if self.snapshot is None or xact - xact_offset >= int(self.snapshot.split(":")[1]):
            return Place(xact, entry)
        return Place(xact, entry, self.snapshot)


def place_of(cursor: str) -> Place:
    """The place that a cursor stands for; without one, the beginning."""
    if not cursor:
        return Place()
    match = _CURSOR.fullmatch(cursor)
    if match is None or not cursor.isascii():
        raise bad_cursor(cursor)
    xact, entry = int(match[1]), int(match[2])
    if max(xact, entry) > _LARGEST:
        raise bad_cursor(cursor)
    return Place(xact, entry, cursor.split(".", 2)[2] if match[3] else None)
