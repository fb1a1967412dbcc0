"""What is to be written: gathered row by row, and written in a few batches."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from itertools import accumulate, groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeAlias

from interlock.store.ranking import lane_of, microseconds
from interlock.store.records import Change
from interlock.store.sqlite.entries import Entries, Said
from interlock.store.sqlite.knowing import NOWHERE, Known, Placing, Standing, Stands
from interlock.store.sqlite.rows import NO_LABELS, list_text
from interlock.store.sqlite.shapes import (
    CLEARED,
    DIGITS,
    INSERT_REQUEST,
    KEPT,
    SET,
    Changing,
    Row,
    insertion,
    update,
    update_stretch,
)

Moved: TypeAlias = tuple[str, int, bool]
"""Where a legal step leads: the state as a plain text (the caller's may be an enumeration's), its place,
and whether that is another one."""

Step: TypeAlias = tuple[bool, Moved, int, Placing, bool, bool, datetime | None, datetime | None, Placing, str]
"""Whether it has another body, and where it leads; from which version and placing, if it was ready and had a
deadline; when it is ready, its deadline, its placing and its handler from then on."""


class Alike(NamedTuple):
    """Where to put what the next ones have of their own, and how each of them stands then."""

    numbers: list[int]
    bodies: list[bytes]
    said: list[Said]
    after: Stands


MOST_JOINED = 16 * 1_048_576
"""Bodies that are larger together go one by one, so that none of them is held twice."""
_DIGITS = f"%0{DIGITS}d"
_NUMBER, _KIND, _ID = 0, 1, 2
# The journal may still tell of a record that somebody has removed by hand.
_LAST_NUMBER = (
    "SELECT max(ifnull((SELECT max(number) FROM records), 0), ifnull((SELECT max(record) FROM journal), 0))"
)


class Pending:
    """One batch. Creations are written first, then the changes in their order: one may follow another."""

    def __init__(self, connection: sqlite3.Connection, now_us: int, now: datetime) -> None:
        self.now_us = now_us
        self._now = now
        self.recorded: list[Row] = []
        self._connection = connection
        self._created: defaultdict[tuple[bool, bool, bool], list[list[Any]]] = defaultdict(list)
        self._changed: list[_Alike] = []
        """Stretches of changes after which the records are alike."""
        self._alike = _Alike((False, False, KEPT, KEPT, False), [])
        self._step: Step | None = None
        self._after: Stands = (0, "", NOWHERE, False, False, None)
        self.entries = Entries(now_us)
        self._last_number = -1
        self._last_name = ""
        self._in_order = True
        self._at: datetime | None = None
        self._at_us = 0

    def __bool__(self) -> bool:
        return bool(self._created or self._changed or self.entries or self.recorded)

    @property
    def creates(self) -> bool:
        """Whether records are among it that were not there."""
        return bool(self._created)

    def create(self, change: Change, moved: Moved) -> Standing:
        """A record that was not there; how it stands then."""
        name, ready_at, deadline_at, queue = change.id, change.ready_at, change.deadline_at, change.queue
        placing = (queue, change.parent, change.labels, change.priority)
        state, place, _ = moved
        number, now_us = self._next_number(name), self.now_us
        row: list[Any] = [number, change.kind, name, state, place, 1, bytearray(change.body)]
        row += (now_us, now_us, queue or "")
        if ready_at is not None:
            row += (_lane(change), change.handler, self._us(ready_at))
        if deadline_at is not None:
            row.append(self._us(deadline_at))
        placed = placing[1:] != NOWHERE[1:]
        if placed:
            row += _placed(change)
        ready, timed = ready_at is not None, deadline_at is not None
        self._created[ready, timed, placed].append(row)
        return number, 1, state, placing, ready, timed, self._now

    def change(self, change: Change, standing: Standing, moved: Moved, *, bodied: bool) -> Standing:
        """A record that is there; how it stands then. Unless `bodied`, its body stays as it is."""
        number, version, _, before, was_ready, was_timed, since = standing
        if since is self._now:
            self.entries.are_final = False
        ready_at, deadline_at = change.ready_at, change.deadline_at
        placing = (change.queue, change.parent, change.labels, change.priority)
        handler = change.handler
        step = (bodied, moved, version, before, was_ready, was_timed, ready_at, deadline_at, placing, handler)
        if step != self._step:
            self._step, self._after = step, self._new_step(step, change)
        self._alike.numbers.append(number)
        if bodied:
            self._alike.bodies.append(change.body)
        return number, *self._after

    def alike(self) -> Alike:
        """What gathers those that do what the last one did."""
        return Alike(self._alike.numbers, self._alike.bodies, self.entries.said, self._after)

    def _new_step(self, step: Step, change: Change) -> Stands:
        """How records stand that take this step, as those do that come next."""
        bodied, moved, version, before, was_ready, was_timed, ready_at, deadline_at, placing, _ = step
        state, place, is_moved = moved
        version += 1
        values: list[Any] = [version, self.now_us]
        if is_moved:
            values += (state, place)
        ready = CLEARED if was_ready else KEPT
        if ready_at is not None:
            values += (_lane(change), change.handler, self._us(ready_at))
            ready = SET
        timed = CLEARED if was_timed else KEPT
        if deadline_at is not None:
            values.append(self._us(deadline_at))
            timed = SET
        placed = placing != before
        if placed:
            values += (change.queue or "", *_placed(change))
        self._alike = _Alike((bodied, is_moved, ready, timed, placed), values)
        self._changed.append(self._alike)
        return version, state, placing, ready == SET, timed == SET, self._now

    def write(self, known: Known) -> None:
        """All of it."""
        if not self._in_order:
            self._renumber(known)
        many = self._connection.executemany
        for creating, rows in self._created.items():
            many(insertion(*creating), rows)
        for changing, some in groupby(self._changed, key=attrgetter("changing")):
            self._write_changes(changing, some)
        self.entries.write(self._connection)
        if self.recorded:
            many(INSERT_REQUEST, self.recorded)

    def _write_changes(self, changing: Changing, some: Iterable[_Alike]) -> None:
        """In their order. Neighbours that become the same take one statement, all others one each."""
        rows: list[tuple[Any, ...]] = []
        for alike in some:
            if not alike.are_neighbours:
                rows += alike.rows()
                continue
            if rows:
                self._connection.executemany(update(changing), rows)
                rows = []
            self._connection.execute(update_stretch(changing), alike.row_of_all())
        if rows:
            self._connection.executemany(update(changing), rows)

    def _next_number(self, name: str) -> int:
        if self._last_number < 0:
            (self._last_number,) = self._connection.execute(_LAST_NUMBER).fetchone()
        if name < self._last_name:
            self._in_order = False
        self._last_name = name
        self._last_number += 1
        return self._last_number

    def _renumber(self, known: Known) -> None:
        """Records of one moment are listed by their ids, and all are listed by their numbers."""
        created = sorted((row for rows in self._created.values() for row in rows), key=itemgetter(_ID))
        first = min(row[_NUMBER] for row in created)
        new = {row[_NUMBER]: number for number, row in enumerate(created, first)}
        for row in created:
            standings, name = known[row[_KIND]], row[_ID]
            standings[name] = (new[row[_NUMBER]], *standings[name][1:])
            row[_NUMBER] = new[row[_NUMBER]]
        for alike in self._changed:
            alike.numbers[:] = [new.get(number, number) for number in alike.numbers]
        self.entries.renumber(new)

    def _us(self, at: datetime) -> int:
        """Records that are claimed together have one deadline, and often it is one object."""
        if at is not self._at:
            self._at, self._at_us = at, microseconds(at)
        return self._at_us


class _Alike:
    """Changes after which records are the same but for their bodies, as after a claim of many."""

    __slots__ = ("bodies", "changing", "numbers", "values")

    def __init__(self, changing: Changing, values: list[Any]) -> None:
        self.changing = changing
        self.values = values
        self.numbers: list[int] = []
        self.bodies: list[bytes] = []
        """In the order of the numbers; none where they stay."""

    @property
    def are_neighbours(self) -> bool:
        """Whether one statement will do."""
        first, last = self.numbers[0], self.numbers[-1]
        if first >= last or self.numbers != list(range(first, last + 1)):
            return False
        return sum(map(len, self.bodies)) <= MOST_JOINED

    def row_of_all(self) -> tuple[Any, ...]:
        """For `update_stretch`."""
        bodies = _joined(self.bodies) if self.bodies else ()
        return (*self.values, self.numbers[0], self.numbers[-1], *bodies)

    def rows(self) -> list[tuple[Any, ...]]:
        """For `update`."""
        if not self.bodies:
            return [(*self.values, number) for number in self.numbers]
        bodies = map(bytearray, self.bodies)
        return [(*self.values, *row) for row in zip(bodies, self.numbers, strict=True)]


def _joined(bodies: list[bytes]) -> tuple[bytearray, bytearray, bytearray]:
    """All of them as one, and where each begins and how long it is: see `shapes.update_stretch`."""
    lengths = [len(body) for body in bodies]
    starts = accumulate(lengths[:-1], initial=1)
    return bytearray(b"".join(bodies)), _spelt(starts), _spelt(lengths)


def _spelt(numbers: Iterable[int]) -> bytearray:
    """As bytes: in a text SQLite would count the characters before each of them."""
    return bytearray("".join([_DIGITS % number for number in numbers]).encode())


def _lane(change: Change) -> str:
    return lane_of(change.kind, (change.queue or "", *change.labels))


def _placed(change: Change) -> tuple[object, ...]:
    labels = change.labels
    return change.parent or "", list_text(labels) if labels else NO_LABELS, change.priority
