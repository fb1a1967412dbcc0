"""The journal: one row for all equal entries, as those of a batch.

A row has the number of its last entry and the number of entries, so that each entry keeps its own number, a
reader may stop within a row, and the row in which it continues is found by its key. The ids come from the
records: entries of a pruned record are skipped.

Rows with several entries are not in an index. A record has the list of its rows (its *trail*), which is
written with the record, and for which it need not be searched.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from interlock.store.cursors import bad_cursor
from interlock.store.ranking import moment
from interlock.store.records import Entry, Feed, Key, Note
from interlock.store.sqlite.database import snapshot
from interlock.store.sqlite.rows import STATE_OF_GIVEN, Row, list_text, note_of

LONGEST_TRAIL = 256
"""From this version on each entry of a record is a separate row: a trail is written with every change."""

_INSERT = """
INSERT INTO journal_rows (
  sequence, size, remaining, at_us, record, members, kind, id, version,
  steps, actor, reason, cause, request_id, refusal
) VALUES (?, ?, ?, ?, ?, nullif(?, ''), ?, nullif(?, ''), ?, ?, ?, ?, ?, ?, ?)
"""
_ROW = (
    "j.sequence, j.size, j.record, j.members, j.at_us, j.kind, coalesce(g.id, j.id), j.version,"
    " j.steps, j.actor, j.reason, j.cause, j.request_id, j.refusal"
)
_WITH_ID = "LEFT JOIN record_given AS g ON g.number = j.record AND j.size = 1"
_FEED = f"SELECT {_ROW} FROM journal_rows AS j {_WITH_ID} WHERE j.sequence > ? ORDER BY j.sequence"
_TRAIL = f"""
SELECT g.number, s.trail FROM record_given AS g {STATE_OF_GIVEN} WHERE g.kind = ? AND g.id = ?
"""
_ON_TRAIL = f"""
SELECT {_ROW} FROM json_each(?) AS wanted CROSS JOIN journal_rows AS j ON j.sequence = wanted.value {_WITH_ID}
WHERE j.version > ?
"""
# For each record versions and numbers of entries are in the same order.
_ABOUT = f"""
SELECT {_ROW} FROM journal_rows AS j INDEXED BY journal_rows_by_record {_WITH_ID}
WHERE j.size = 1 AND j.record > 0 AND j.record = ? AND j.version > ?
ORDER BY j.record, j.version, j.sequence LIMIT ?
"""
# Refusals before the record existed, and entries added by a shell.
_NAMED = f"""
SELECT {_ROW} FROM journal_rows AS j INDEXED BY journal_rows_by_name {_WITH_ID}
WHERE j.record = 0 AND j.kind = ? AND j.id = ? AND j.version > ? ORDER BY j.sequence LIMIT ?
"""
_IDS_BETWEEN = "SELECT number, id FROM record_given WHERE number BETWEEN ? AND ?"
_IDS = "SELECT number, id FROM record_given WHERE number IN (SELECT value FROM json_each(?))"
_MEMBERS = """
SELECT sequence, size, record, members FROM json_each(?) AS wanted
CROSS JOIN journal_rows ON sequence = wanted.value
"""
_COUNT_DOWN = "UPDATE journal_rows SET remaining = remaining - ? WHERE sequence = ?"
_REMOVE_EMPTY = """
DELETE FROM journal_rows WHERE sequence IN (SELECT value FROM json_each(?)) AND remaining <= 0
"""
_OF_RECORDS = "size = 1 AND record > 0 AND record IN (SELECT value FROM json_each(?))"
_OF_NAMES = "record = 0 AND kind = ? AND id IN (SELECT value FROM json_each(?))"
_LARGEST = 2**63 - 1
_numbers = msgspec.json.Decoder(list[int])


class Saying:
    """Consecutive equal entries."""

    __slots__ = ("first", "kind", "note", "numbers", "version")

    def __init__(self, first: int, kind: str, version: int, note: Note) -> None:
        self.first = first
        self.kind = kind
        self.version = version
        self.note = note
        self.numbers: list[int] = []

    @property
    def is_packed(self) -> bool:
        """Whether one row has all of them."""
        return len(self.numbers) > 1 and self.version <= LONGEST_TRAIL

    @property
    def trail(self) -> str:
        """The addition to the trail of its records."""
        return f" {self.first + len(self.numbers) - 1}" if self.is_packed else ""

    def rows(self, now_us: int) -> Iterator[Row]:
        """Yield the rows for `_INSERT`."""
        numbers = self.numbers
        if self.is_packed:
            size, first = len(numbers), numbers[0]
            members = "" if numbers == list(range(first, first + size)) else list_text(numbers)
            yield self._row(self.first + size - 1, size, now_us, first, members)
        else:
            for sequence, number in enumerate(numbers, self.first):
                yield self._row(sequence, 1, now_us, number, "")

    def _row(self, sequence: int, size: int, now_us: int, record: int, members: str) -> Row:
        about = (sequence, size, size, now_us, record, members, self.kind, "", self.version)
        return (*about, *_words(self.note))


class Entries:
    """The journal entries of one transaction."""

    def __init__(self, sequence: int, now_us: int) -> None:
        self.sequence = sequence
        """Number of the last entry."""
        self._now_us = now_us
        self._sayings: list[Saying] = []
        self._others: list[Row] = []

    def __bool__(self) -> bool:
        return bool(self._sayings or self._others)

    def say(self, kind: str, version: int, note: Note, numbers: Sequence[int]) -> Saying:
        """Add an entry about each of these records, with their new version."""
        last = self._sayings[-1] if self._sayings else None
        if (
            last is None
            or last.first + len(last.numbers) != self.sequence + 1
            or (last.kind, last.version) != (kind, version)
            or (last.note is not note and last.note != note)
        ):
            last = Saying(self.sequence + 1, kind, version, note)
            self._sayings.append(last)
        last.numbers += numbers
        self.sequence += len(numbers)
        return last

    def refuse(self, number: int, kind: str, name: str, version: int, note: Note) -> None:
        """Add an entry about a refusal; the record, if there is one, is not written."""
        self.sequence += 1
        about = (self.sequence, 1, 1, self._now_us, number, "", kind, "" if number else name, version)
        self._others.append((*about, *_words(note)))

    def renumber(self, new: Mapping[int, int]) -> None:
        """Replace numbers of records in the entries."""
        for saying in self._sayings:
            saying.numbers = [new.get(number, number) for number in saying.numbers]
        self._others = [(*row[:4], new.get(row[4], row[4]), *row[5:]) for row in self._others]

    def write(self, connection: sqlite3.Connection) -> None:
        """Write all entries."""
        rows = [row for saying in self._sayings for row in saying.rows(self._now_us)]
        connection.executemany(_INSERT, rows + self._others)


class Removed(NamedTuple):
    """The number of removed entries, and the last of them."""

    number: int
    last: int


def feed(connection: sqlite3.Connection, after: str, limit: int) -> Feed:
    """Return the journal after a cursor: numbers are assigned in the order of the commits."""
    sequence = _sequence_of(after)
    with snapshot(connection):
        return _feed(connection, sequence, limit)


def _feed(connection: sqlite3.Connection, sequence: int, limit: int) -> Feed:
    (pruned_up_to,) = connection.execute("SELECT pruned_up_to FROM progress").fetchone()
    entries: list[Entry] = []
    rows = connection.execute(_FEED, (sequence,))
    for row in rows:
        entries += _entries(connection, row, sequence, limit - len(entries))
        if len(entries) == limit:
            break
    rows.close()
    cursor = entries[-1].cursor if entries else str(max(sequence, pruned_up_to))
    return Feed(tuple(entries), cursor, gap=sequence < pruned_up_to)


def history(connection: sqlite3.Connection, key: Key, after_version: int, limit: int) -> Feed:
    """Return the journal of one record."""
    with snapshot(connection):
        entries = _about(connection, key, after_version, limit)
    entries.sort(key=lambda entry: int(entry.cursor))
    del entries[limit:]
    return Feed(tuple(entries), entries[-1].cursor if entries else "")


def _about(connection: sqlite3.Connection, key: Key, after_version: int, limit: int) -> list[Entry]:
    """Return the entries of a record, at least the first `limit`, unordered."""
    found = connection.execute(_NAMED, (key.kind, key.id, after_version, limit)).fetchall()
    entries = [_entry(row, row[0], row[6], _note(row)) for row in found]
    for number, trail in connection.execute(_TRAIL, (key.kind, key.id)).fetchall():
        found = connection.execute(_ABOUT, (number, after_version, limit)).fetchall()
        entries += [_entry(row, row[0], key.id, _note(row)) for row in found]
        wanted = list_text([int(sequence) for sequence in trail.split()])
        for row in connection.execute(_ON_TRAIL, (wanted, after_version)):
            place = _members(row[1], row[2], row[3]).index(number)
            entries.append(_entry(row, row[0] - row[1] + 1 + place, key.id, _note(row)))
    return entries


def remove(
    connection: sqlite3.Connection, kind: str, names: Sequence[str], trails: Mapping[int, str]
) -> Removed:
    """Remove the entries of removed records: by name, and by number with their trails."""
    removed = last = 0
    numbers = list_text(list(trails))
    for condition, parameters in ((_OF_RECORDS, (numbers,)), (_OF_NAMES, (kind, list_text(names)))):
        (newest,) = connection.execute(
            f"SELECT ifnull(max(sequence), 0) FROM journal_rows WHERE {condition}", parameters
        ).fetchone()
        removed += connection.execute(f"DELETE FROM journal_rows WHERE {condition}", parameters).rowcount
        last = max(last, newest)
    gone: dict[int, set[int]] = {}
    for number, trail in trails.items():
        for sequence in trail.split():
            gone.setdefault(int(sequence), set()).add(number)
    rows = list_text(list(gone))
    for sequence, size, record, members in connection.execute(_MEMBERS, (rows,)):
        places = [place for place, n in enumerate(_members(size, record, members)) if n in gone[sequence]]
        last = max(last, sequence - size + 1 + places[-1])
        removed += len(places)
    connection.executemany(_COUNT_DOWN, [(len(some), sequence) for sequence, some in gone.items()])
    connection.execute(_REMOVE_EMPTY, (rows,))
    return Removed(removed, last)


def _entries(connection: sqlite3.Connection, row: Row, after: int, limit: int) -> list[Entry]:
    """Return the entries of a row after an entry, without those of pruned records."""
    sequence, size, record, members = row[:4]
    if size == 1:
        return [] if row[6] is None else [_entry(row, sequence, row[6], _note(row))]
    first, numbers, note = sequence - size + 1, _members(size, record, members), _note(row)
    entries: list[Entry] = []
    start = max(0, after - first + 1)
    while start < size and len(entries) < limit:
        some = numbers[start : start + limit - len(entries)]
        ids = _ids(connection, some)
        entries += [
            _entry(row, place, ids[number], note)
            for place, number in enumerate(some, first + start)
            if number in ids
        ]
        start += len(some)
    return entries


def _ids(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, str]:
    if isinstance(numbers, range):
        return dict(connection.execute(_IDS_BETWEEN, (numbers[0], numbers[-1])).fetchall())
    return dict(connection.execute(_IDS, (list_text(numbers),)).fetchall())


def _members(size: int, record: int, members: str | None) -> Sequence[int]:
    return range(record, record + size) if members is None else _numbers.decode(members)


def _note(row: Row) -> Note:
    return note_of(*row[8:14])


def _entry(row: Row, sequence: int, name: str, note: Note) -> Entry:
    return Entry(cursor=str(sequence), at=moment(row[4]), kind=row[5], id=name, version=row[7], note=note)


def _words(note: Note) -> tuple[Any, ...]:
    return (list_text(note.steps), note.actor, note.reason, note.cause, note.request_id, note.refusal)


def _sequence_of(cursor: str) -> int:
    if not cursor:
        return 0
    if not cursor.isdecimal() or (sequence := int(cursor)) > _LARGEST:
        raise bad_cursor(cursor)
    return sequence
