"""The writes of a transaction: gathered step by step, and written in a few statements.

A step is a common change of several records: all fields except their ids, given data and results. Records
with consecutive numbers take one statement, others one with a list of keys.

Data are passed as a `bytearray`: `bytes` take the driver several times as long.

Equal entries of the journal, as those of a batch, share a row.

Why: decisions 0377 and 0380.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from itertools import accumulate, groupby
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import msgspec

from interlock.store.ranking import lane_of, microseconds
from interlock.store.records import Change, Note
from interlock.store.sqlite.reads import NUMBERS, PLACE_BITS, REQUEST, RowValues, list_text

Placing: TypeAlias = tuple[str | None, str | None, tuple[str, ...], int]
"""Queue, parent, labels and priority, which most steps do not change."""


class Stand(NamedTuple):
    """The standing of a record; records that were changed together share it."""

    version: int
    state: str
    placing: Placing
    since: datetime | None


class Move(NamedTuple):
    """The target of a legal step."""

    state: str
    """The state as plain text; the caller's may be an enum."""
    place: int


LONGEST_TRAIL = 256
"""From this version on each entry of a record is a separate row: a trail is written with every change."""
FEW = 4
"""Below this many records separate statements are as fast."""
MOST_JOINED = 16 * 1_048_576
"""Larger data are written one by one, so that none of them is held twice."""
_BODY = 3
"""The place of the body in the values of a state."""
_DIGITS = 13
_SPELT = f"%0{_DIGITS}d"


class RowStatement(NamedTuple):
    """A statement with nameless parameters, and a function that picks them from a row in their order."""

    text: str
    pick: Callable[[RowValues], RowValues]


def numbered(text: str) -> RowStatement:
    """Return a statement whose text has the places of its parameters.

    They are places in the row: `?1`, `?2`, … Python 3.12 before 3.12.4 takes numbered parameters for named
    ones, and warns of each.
    """
    places = [int(place) - 1 for place in re.findall(r"\?(\d+)", text)]
    return RowStatement(re.sub(r"\?\d+", "?", text), itemgetter(*places))


def _nth(parameter: int, place: str = "new.key") -> str:
    """Return the SQL for the number at a place, among numbers of fixed width."""
    return f"CAST(substr(?{parameter}, ({place}) * {_DIGITS} + 1, {_DIGITS}) AS INTEGER)"


_INTO_GIVEN = (
    "INSERT INTO record_given (number, created_us, kind, id, queue, parent, labels, priority, given)"
)
_GIVE_ONE = numbered(f"{_INTO_GIVEN} VALUES (?7, ?1, ?2, ?8, ?3, ?4, ?5, ?6, ?9)")
_GIVE_MANY = numbered(f"""
{_INTO_GIVEN}
SELECT
  {_nth(7)}, ?1, ?2, new.value, ?3, ?4, ?5, ?6, ifnull(substr(?9, {_nth(10)}, {_nth(11)}), x'')
FROM json_each(?8) AS new
""")
_BEGIN = """
INSERT INTO record_state
  (key, version, updated_us, body, trail, deadline_us, ready_us, lane, priority, handler, id)
SELECT ?1 + number, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, iif(?7 IS NULL, NULL, id)
FROM record_given WHERE number
"""
_BEGIN_RUN = numbered(f"{_BEGIN} BETWEEN ?11 AND ?12")
_BEGIN_OWN = numbered(
    _BEGIN.replace("?4", f"substr(?4, {_nth(13, 'number - ?11')}, {_nth(14, 'number - ?11')})")
    + " BETWEEN ?11 AND ?12"
)
"""The bodies of consecutive records as one blob, with the start and length of each."""
_BEGIN_LISTED = numbered(f"{_BEGIN} IN (SELECT value FROM json_each(?11))")
_LEAVE = "UPDATE record_state SET result = ? WHERE key = ?"
_PLACE = numbered(
    "UPDATE record_given SET queue = ?1, parent = ?2, labels = ?3, priority = ?4 WHERE number = ?5"
)
# An expired request counts as unknown, so that its id may be reused.
_INSERT_REQUEST = f"INSERT OR REPLACE INTO requests ({REQUEST}) VALUES (?, ?, ?, ?, ?, ?, ?)"
_INSERT_ENTRY = """
INSERT INTO journal_rows (
  sequence, size, remaining, at_us, record, members, kind, id, version,
  steps, actor, reason, cause, request_id, refusal
) VALUES (?, ?, ?, ?, ?, nullif(?, ''), ?, nullif(?, ''), ?, ?, ?, ?, ?, ?, ?)
"""

_ONE, _RUN, _LISTED = "key = ?11", "key BETWEEN ?11 AND ?13", "key IN (SELECT value FROM json_each(?11))"
_SAME_RESULT = "result = ?12"
_OWN_RESULT = f"result = substr(?12, {_nth(14, 'key - ?11')}, {_nth(15, 'key - ?11')})"
"""The results of a range as one blob, with the start and length of each."""


@cache
def update(moves: bool, result: str, which: str) -> RowStatement:
    """Return the statement that changes records to the first ten parameters."""
    parts = ["key = key + ?1"] if moves else []
    parts += ["version = ?2", "updated_us = ?3", "body = ?4", "trail = trail || ?5", "deadline_us = ?6"]
    parts += ["ready_us = ?7", "lane = ?8", "priority = ?9", "handler = ?10"]
    parts.append(f"id = iif(?7 IS NULL, NULL, (SELECT id FROM record_given WHERE number = key & {NUMBERS}))")
    if result:
        parts.append(result)
    return numbered(f"UPDATE record_state SET {', '.join(parts)} WHERE {which}")


class JournalGroup(msgspec.Struct, eq=False):
    """Consecutive equal entries of the journal."""

    first: int
    kind: str
    version: int
    note: Note
    numbers: list[int] = []
    trail: str = ""
    """The addition to the trail of its records, if one row has all of them; else empty."""

    def rows(self, now_us: int) -> list[RowValues]:
        """Return the rows for `_INSERT_ENTRY`."""
        numbers, size, words = self.numbers, len(self.numbers), _words(self.note)
        if self.trail:
            first = numbers[0]
            members = "" if numbers == list(range(first, first + size)) else list_text(numbers)
            about = (self.first + size - 1, size, size, now_us, first, members)
            return [(*about, self.kind, "", self.version, *words)]
        return [
            (sequence, 1, 1, now_us, number, "", self.kind, "", self.version, *words)
            for sequence, number in enumerate(numbers, self.first)
        ]


class Creation(msgspec.Struct, eq=False):
    """Records that are created with equal fields, except their given data."""

    change: Change
    place: int
    journal: JournalGroup | None
    numbers: list[int]
    names: Sequence[str]
    given: Sequence[bytes]
    """In the order of the numbers; empty if there are none."""
    results: Sequence[bytes]
    """In the order of the numbers; empty if there are none."""
    bodies: Sequence[bytes] = ()
    """In the order of the numbers; empty if all have that of the change."""

    def columns(self) -> RowValues | None:
        """Return the rows as columns; None if they are too large for that."""
        given = self.given or (b"",) * len(self.names)
        if sum(map(len, given)) > MOST_JOINED:
            return None
        return (_spelt(self.numbers), list_text(self.names), *_joined(given))


class GroupedWrite(msgspec.Struct, eq=False):
    """Records with equal new fields, except their results."""

    change: Change
    place: int
    before: Stand
    after: Stand
    journal: JournalGroup | None
    keys: list[int] = []
    """Their keys before the step."""
    results: list[bytes] = []
    """In the order of the keys; empty to keep the existing ones."""

    def is_like(
        self, change: Change, before: Stand, journal: JournalGroup | None, results: Sequence[bytes]
    ) -> bool:
        """Return whether another change turns records into the same.

        The records have this standing.
        """
        mine = self.change
        return (
            self.journal is journal
            and self.before[:3] == before[:3]
            and (mine.state, mine.body, mine.handler) == (change.state, change.body, change.handler)
            and (mine.ready_at, mine.deadline_at) == (change.ready_at, change.deadline_at)
            and placing_of(mine) == placing_of(change)
            and mine.kind == change.kind
            and bool(self.results) == bool(results)
        )


class PendingWrites:
    """The pending writes of one transaction: creations first, then steps in their order."""

    def __init__(
        self, connection: sqlite3.Connection, now: datetime, now_us: int, number: int, sequence: int
    ) -> None:
        self.sequence: int = sequence
        """Number of the last entry of the journal."""
        self._recorded: list[RowValues] = []
        self.number: int = number
        """The highest number of a record."""
        self._now = now
        self._now_us = now_us
        self._connection = connection
        self.created: list[Creation] = []
        self._steps: list[GroupedWrite] = []
        self._journal: list[JournalGroup] = []
        self._refusals: list[RowValues] = []
        self._last_name = ""
        self._in_order = True
        self.is_empty: bool = True

    def create(
        self,
        change: Change,
        move: Move,
        names: Sequence[str],
        given: Sequence[bytes],
        results: Sequence[bytes],
        bodies: Sequence[bytes] = (),
    ) -> tuple[list[int], Stand]:
        """Create records; return their keys and standing.

        They have their own bodies, or that of the change.
        """
        self.is_empty = False
        first = self.number + 1
        self.number += len(names)
        numbers = list(range(first, self.number + 1))
        group = self._add_entries(change, numbers)
        self.created.append(Creation(change, move.place, group, numbers, names, given, results, bodies))
        if self._last_name >= names[0] or (len(names) > 1 and list(names) != sorted(names)):
            self._in_order = False
        self._last_name = names[-1]
        shift = move.place << PLACE_BITS
        return [shift + number for number in numbers], Stand(1, move.state, placing_of(change), self._now)

    def change(
        self, change: Change, move: Move, before: Stand, keys: Sequence[int], results: Sequence[bytes]
    ) -> tuple[list[int], Stand]:
        """Change records of the same standing; return their new keys and standing."""
        self.is_empty = False
        journal = self._add_entries(change, [key & NUMBERS for key in keys])
        step = self._steps[-1] if self._steps else None
        if step is None or not step.is_like(change, before, journal, results):
            after = Stand(change.expected + 1, move.state, placing_of(change), self._now)
            step = GroupedWrite(change, move.place, before, after, journal)
            self._steps.append(step)
        step.keys += keys
        step.results += results
        shift = move.place << PLACE_BITS
        return [shift + (key & NUMBERS) for key in keys], step.after

    def write(self) -> list[tuple[str, str, int]]:
        """Write all of it; return the records that got other numbers.

        There is a kind, an id and a number for each of them.
        """
        renumbered = [] if self._in_order else self._renumber()
        if self.created:
            self._write_creations()
        if self._steps:
            self._write_steps()
        if self._journal or self._refusals:
            rows = [row for group in self._journal for row in group.rows(self._now_us)]
            self._connection.executemany(_INSERT_ENTRY, rows + self._refusals)
        if self._recorded:
            self._connection.executemany(_INSERT_REQUEST, self._recorded)
        for written in (self.created, self._steps, self._journal, self._refusals, self._recorded):
            written.clear()
        self._last_name, self._in_order, self.is_empty = "", True, True
        return renumbered

    def record(self, row: RowValues) -> None:
        """Add the answer to a request."""
        self.is_empty = False
        self._recorded.append(row)

    def refuse(self, number: int, kind: str, name: str, version: int, note: Note) -> None:
        """Add an entry about a refusal; the record itself is not written."""
        self.is_empty = False
        self.sequence += 1
        about = (self.sequence, 1, 1, self._now_us, number, "", kind, "" if number else name, version)
        self._refusals.append((*about, *_words(note)))

    def _add_entries(self, change: Change, numbers: list[int]) -> JournalGroup | None:
        """Add an entry for each of these records, if the change has a note.

        It has the new version.
        """
        kind, version, note = change.kind, change.expected + 1, change.note
        if note is None:
            return None
        last = self._journal[-1] if self._journal else None
        if (
            last is None
            or last.first + len(last.numbers) != self.sequence + 1
            or (last.kind, last.version) != (kind, version)
            or (last.note is not note and last.note != note)
        ):
            last = JournalGroup(self.sequence + 1, kind, version, note)
            self._journal.append(last)
        last.numbers += numbers
        self.sequence += len(numbers)
        if version <= LONGEST_TRAIL and len(last.numbers) > 1:
            last.trail = f" {self.sequence}"
        return last

    def _renumber(self) -> list[tuple[str, str, int]]:
        """Assign numbers in the order of ids.

        Records of one time are listed by their ids.
        """
        pairs = sorted(pair for each in self.created for pair in zip(each.names, each.numbers, strict=True))
        new = {number: place for place, (_, number) in enumerate(pairs, min(number for _, number in pairs))}
        for creation in self.created:
            creation.numbers = [new[number] for number in creation.numbers]
        for step in self._steps:
            step.keys = [(key & ~NUMBERS) + new.get(key & NUMBERS, key & NUMBERS) for key in step.keys]
        for group in self._journal:
            group.numbers = [new.get(number, number) for number in group.numbers]
        self._refusals = [(*row[:4], new.get(row[4], row[4]), *row[5:]) for row in self._refusals]
        return [
            (each.change.kind, name, number)
            for each in self.created
            for name, number in zip(each.names, each.numbers, strict=True)
        ]

    def _write_creations(self) -> None:
        execute, many = self._connection.execute, self._connection.executemany
        ones: list[RowValues] = []
        for creation in self.created:
            shared = (self._now_us, creation.change.kind, *_placed(creation.change))
            if len(creation.names) >= FEW and (columns := creation.columns()):
                execute(_GIVE_MANY.text, _GIVE_MANY.pick((*shared, *columns)))
            else:
                given = map(bytearray, creation.given or (b"",) * len(creation.names))
                rows = zip(creation.numbers, creation.names, given, strict=True)
                ones += [(*shared, *row) for row in rows]
        if ones:
            many(_GIVE_ONE.text, map(_GIVE_ONE.pick, ones))
        left: list[RowValues] = []
        for statement, calls in groupby(self._beginnings(), key=itemgetter(0)):
            many(statement.text, [statement.pick(row) for _, row in calls])
        for creation in self.created:
            shift = creation.place << PLACE_BITS
            keyed = zip(creation.results, creation.numbers, strict=False)
            left += [(bytearray(result), shift + number) for result, number in keyed]
        if left:
            many(_LEAVE, left)

    def _beginnings(self) -> Iterator[tuple[RowStatement, RowValues]]:
        for creation in self.created:
            values = self._values(creation.change, creation.place << PLACE_BITS, creation.journal)
            numbers = creation.numbers
            first, last = min(numbers), max(numbers)
            if creation.bodies:
                yield from _with_bodies(values, numbers, creation.bodies)
            elif last - first == len(numbers) - 1:
                yield _BEGIN_RUN, (*values, first, last)
            else:
                yield _BEGIN_LISTED, (*values, list_text(numbers))

    def _write_steps(self) -> None:
        """Write the steps.

        Equal statements for single records are executed together.
        """
        for statement, calls in groupby(self._calls(), key=itemgetter(0)):
            rows = [statement.pick(row) for _, row in calls]
            if len(rows) == 1:
                self._connection.execute(statement.text, rows[0])
            else:
                self._connection.executemany(statement.text, rows)

    def _calls(self) -> Iterator[tuple[RowStatement, RowValues]]:
        """Yield each statement with its parameters."""
        for step in self._steps:
            moves = step.before.state != step.after.state
            shift = (step.place << PLACE_BITS) - (step.keys[0] & ~NUMBERS)
            values = self._values(step.change, shift, step.journal)
            if step.before.placing != step.after.placing:
                for key in step.keys:
                    yield _PLACE, (*_placed(step.change), key & NUMBERS)
            for which, result, row in _addressed(step.keys, step.results):
                yield update(moves, result, which), (*values, *row)

    def _values(self, change: Change, shift: int, journal: JournalGroup | None) -> RowValues:
        """Return the first ten parameters of the statements that write a state."""
        ready_at, deadline_at = change.ready_at, change.deadline_at
        deadline = None if deadline_at is None else microseconds(deadline_at)
        timing: RowValues = (deadline, None, None, None, None)
        if ready_at is not None:
            lane = lane_of(change.kind, (change.queue or "", *change.labels))
            timing = (timing[0], microseconds(ready_at), lane, change.priority, change.handler)
        trail = journal.trail if journal else ""
        return (shift, change.expected + 1, self._now_us, bytearray(change.body), trail, *timing)


def _words(note: Note) -> RowValues:
    return (list_text(note.steps), note.actor, note.reason, note.cause, note.request_id, note.refusal)


def placing_of(change: Change) -> Placing:
    """Return the placing of a record after a change."""
    return change.queue, change.parent, change.labels, change.priority


def _placed(change: Change) -> tuple[str | None, str | None, str | None, int]:
    labels = list_text(change.labels) if change.labels else None
    return change.queue or None, change.parent or None, labels, change.priority


def _addressed(keys: list[int], results: list[bytes]) -> Iterator[tuple[str, str, RowValues]]:
    """Yield the condition and the result expression of record groups.

    Their parameters come with them.
    """
    if len(keys) == 1:
        yield _ONE, _SAME_RESULT if results else "", (keys[0], *map(bytearray, results))
        return
    same = not results or results.count(results[0]) == len(results)
    if same or keys == list(range(keys[0], keys[0] + len(keys))):
        ordered = sorted(keys)
    else:
        pairs = sorted(zip(keys, results, strict=True))
        ordered, results = [key for key, _ in pairs], [result for _, result in pairs]
    one_run = ordered[-1] - ordered[0] == len(ordered) - 1
    if same:
        result, row = (_SAME_RESULT, bytearray(results[0])) if results else ("", bytearray())
        if one_run:
            yield _RUN, result, (ordered[0], row, ordered[-1])
        else:
            yield _LISTED, result, (list_text(ordered), row)[: 2 if result else 1]
        return
    if one_run and sum(map(len, results)) <= MOST_JOINED:
        joined, starts, lengths = _joined(results)
        yield _RUN, _OWN_RESULT, (ordered[0], joined, ordered[-1], starts, lengths)
        return
    for key, result_of in zip(ordered, results, strict=True):
        yield _ONE, _SAME_RESULT, (key, bytearray(result_of))


def _with_bodies(
    values: RowValues, numbers: list[int], bodies: Sequence[bytes]
) -> Iterator[tuple[RowStatement, RowValues]]:
    """Yield the statements that begin records with their own bodies."""
    first, last = numbers[0], numbers[-1]
    if numbers == list(range(first, last + 1)) and sum(map(len, bodies)) <= MOST_JOINED:
        joined, starts, lengths = _joined(bodies)
        yield _BEGIN_OWN, (*values[:_BODY], joined, *values[_BODY + 1 :], first, last, starts, lengths)
        return
    for number, body in zip(numbers, bodies, strict=True):
        yield _BEGIN_RUN, (*values[:_BODY], bytearray(body), *values[_BODY + 1 :], number, number)


def _joined(data: Sequence[bytes]) -> tuple[bytearray, bytearray, bytearray]:
    """Join data; return also the start and length of each."""
    lengths = [len(each) for each in data]
    starts = accumulate(lengths[:-1], initial=1)
    return bytearray(b"".join(data)), _spelt(starts), _spelt(lengths)


def _spelt(numbers: Iterable[int]) -> bytearray:
    """Return numbers of fixed width as bytes.

    In text SQLite would count characters.
    """
    return bytearray("".join([_SPELT % number for number in numbers]).encode())
