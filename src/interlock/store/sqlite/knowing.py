"""What a writer knows of records: read when it is needed, kept for as long as it is true."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from datetime import datetime
from typing import TypeAlias

from interlock.store.ranking import moment
from interlock.store.records import Record
from interlock.store.sqlite.rows import labels_of, list_text

Placing: TypeAlias = tuple[str | None, str | None, tuple[str, ...], int]
"""Queue, parent, labels and priority: what most steps leave as it was."""

Stands: TypeAlias = tuple[int, str, Placing, bool, bool, datetime | None]
"""Version, state, placing, whether it is ready and has a deadline, and since when it stands so."""

Standing: TypeAlias = tuple[int, int, str, Placing, bool, bool, datetime | None]
"""The same behind the number of a record; all empty for one that is not there."""

Known: TypeAlias = dict[str, dict[str, Standing]]

NOWHERE: Placing = (None, None, (), 0)
ABSENT: Standing = (0, 0, "", NOWHERE, False, False, None)

_COLUMNS = (
    "r.id, r.number, r.version, r.state, r.queue, r.parent, r.labels, r.priority,"
    " r.ready_us IS NOT NULL, r.deadline_us IS NOT NULL, r.updated_us"
)
_ONE = f"SELECT {_COLUMNS} FROM records AS r WHERE kind = ? AND id = ?"
# CROSS JOIN holds the order: each name is looked up, however many records there are.
_MANY = (
    f"SELECT {_COLUMNS} FROM json_each(?2) AS wanted"
    " CROSS JOIN records AS r ON r.kind = ?1 AND r.id = wanted.value"
)


class Memory:
    """What a writer may go on knowing from one transaction to the next.

    SQLite tells a connection whether any other has committed since; as long as none has, what this one
    read or wrote is how it is. It spares reading a record that was claimed a moment ago.
    """

    def __init__(self, kinds: Iterable[str], most: int = 20_000) -> None:
        self._most = most
        self._seen = -1
        self._known: Known = {kind: {} for kind in kinds}

    def learn(self, kinds: Iterable[str]) -> None:
        """Know about more kinds."""
        self._known = {**{kind: {} for kind in kinds}, **self._known}

    def recall(self, connection: sqlite3.Connection) -> Known:
        """What is still true; asked in a transaction, so that it stays true to its end."""
        (seen,) = connection.execute("PRAGMA data_version").fetchone()
        if seen != self._seen or sum(map(len, self._known.values())) > self._most:
            self.forget()
            self._seen = seen
        return self._known

    def forget(self) -> None:
        """What was written has been undone, or changed by somebody else."""
        for standings in self._known.values():
            standings.clear()


def look_up(connection: sqlite3.Connection, kind: str, names: list[str], known: dict[str, Standing]) -> None:
    """Read how these records stand; those that are not there are known as well."""
    for name in names:
        known[name] = ABSENT
    one = len(names) == 1
    found = connection.execute(_ONE if one else _MANY, (kind, names[0] if one else list_text(names)))
    for name, number, version, state, queue, parent, labels, priority, ready, timed, since_us in found:
        placing = (queue, parent, labels_of(labels), priority)
        known[name] = (number, version, state, placing, bool(ready), bool(timed), moment(since_us))


def keep(numbered: Iterable[tuple[int, Record]], known: Known) -> None:
    """These were read in this transaction, and need not be read again."""
    for number, record in numbered:
        placing = (record.queue, record.parent, record.labels, record.priority)
        ready, timed = record.ready_at is not None, record.deadline_at is not None
        known[record.kind][record.id] = (
            number,
            record.version,
            record.state,
            placing,
            ready,
            timed,
            record.updated_at,
        )
