"""Reads of records and of the journal, and the conversion of rows.

Each state of each kind has a number, its *place*. The key of a row of `record_state` is the place of its
state, shifted, and the number of its record: see `sql/0005_three_parts.sql`.

A claim reads the heads of its lanes, one for each priority and handler, and merges them by rank. The cost is
independent of the number of records behind a head, or not ready yet. Other queues are not read.

The journal has one row for all equal entries, as those of a batch. A row has the number of its last entry and
the number of entries, so that each entry keeps its own number, a reader may stop within a row, and the row in
which it continues is found by its key. The ids come from the records: entries of a pruned record are skipped.
Rows with several entries are not in an index. A record has the list of its rows (its *trail*), which is
written with the record, and for which it need not be searched.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import msgspec

from interlock.store.cursors import bad_cursor
from interlock.store.ranking import has_handler, has_labels, lane_of, microseconds, moment, rank_of
from interlock.store.records import Claim, Entry, Feed, Key, Note, Record, Recorded, RequestAnswer, StepLine

RowValues: TypeAlias = tuple[Any, ...]

PLACE_BITS = 40
NUMBERS = (1 << PLACE_BITS) - 1
"""The highest number of a record, and the mask of the number in a key."""

RECORD = (
    "s.key, g.id, s.version, s.body, g.given, s.result, g.parent, s.ready_us, s.deadline_us,"
    " g.created_us, s.updated_us, g.kind, g.queue, g.labels, g.priority, p.name"
)
GIVEN_OF_STATE = f"""
CROSS JOIN record_given AS g ON g.number = s.key & {NUMBERS}
CROSS JOIN states AS p ON p.place = s.key >> {PLACE_BITS}
"""
STATE_OF_GIVEN = f"""
CROSS JOIN states AS p ON p.kind = g.kind
CROSS JOIN record_state AS s ON s.key = (p.place << {PLACE_BITS}) + g.number
"""
"""The key does not follow from a number alone: the few places of the kind are searched."""
KEY, ID, READY_US, DEADLINE_US = 0, 1, 7, 8

REQUEST = "id, endpoint, fingerprint, status, body, created_us, expires_us"

_encode = msgspec.json.Encoder().encode
_labels = msgspec.json.Decoder(tuple[str, ...])
_steps = msgspec.json.Decoder(tuple[StepLine, ...])


def list_text(values: Sequence[Any]) -> str:
    """Return a list as one parameter, for `json_each`.

    Labels and steps are stored in this format, too.
    """
    return _encode(values).decode()


def labels_of(text: str) -> tuple[str, ...]:
    """Decode `list_text`."""
    return _labels.decode(text)


def record_of(row: RowValues) -> Record:
    """Return a record from the columns of `RECORD`."""
    (
        _,
        name,
        version,
        body,
        given,
        result,
        parent,
        ready_us,
        deadline_us,
        created_us,
        updated_us,
        kind,
        queue,
        labels,
        priority,
        state,
    ) = row
    created_at = moment(created_us)
    return Record(
        kind=kind,
        id=name,
        state=state,
        version=version,
        body=body,
        given=given,
        result=result,
        parent=parent,
        queue=queue,
        labels=labels_of(labels) if labels else (),
        priority=priority,
        ready_at=None if ready_us is None else moment(ready_us),
        deadline_at=None if deadline_us is None else moment(deadline_us),
        created_at=created_at,
        updated_at=created_at if updated_us == created_us else moment(updated_us),
    )


def _note(row: RowValues) -> Note:
    """Return the note of a row of the journal, from its last columns."""
    steps, actor, reason, cause, request_id, refusal = row[8:14]
    return Note(
        steps=_steps.decode(steps),
        actor=actor,
        reason=reason,
        cause=cause,
        request_id=request_id,
        refusal=refusal,
    )


def recorded_of(row: RowValues) -> Recorded:
    """Return a request from the columns of `REQUEST`."""
    name, endpoint, fingerprint, status, body, created_us, expires_us = row
    return Recorded(
        id=name,
        endpoint=endpoint,
        fingerprint=fingerprint,
        answer=RequestAnswer(status=status, body=body),
        created_at=moment(created_us),
        expires_at=moment(expires_us),
    )


def row_of_recorded(recorded: Recorded) -> RowValues:
    """Return the columns of `REQUEST`."""
    return (
        recorded.id,
        recorded.endpoint,
        recorded.fingerprint,
        recorded.answer.status,
        bytearray(recorded.answer.body),
        microseconds(recorded.created_at),
        microseconds(recorded.expires_at),
    )


_LOAD = f"""
SELECT {RECORD} FROM json_each(?) AS wanted
CROSS JOIN record_given AS g ON g.kind = ? AND g.id = wanted.value {STATE_OF_GIVEN}
"""


def load(connection: sqlite3.Connection, keys: Sequence[Key]) -> list[Record | None]:
    """Return the records, in the order of the keys."""
    names: dict[str, list[str]] = {}
    for key in keys:
        names.setdefault(key.kind, []).append(key.id)
    found: dict[tuple[str, str], Record] = {}
    for kind, wanted in names.items():
        for row in connection.execute(_LOAD, (list_text(wanted), kind)):
            found[kind, row[ID]] = record_of(row)
    return [found.get((key.kind, key.id)) for key in keys]


def recall(connection: sqlite3.Connection, request_id: str, now_us: int) -> Recorded | None:
    """Return the recorded answer to a request, unless it has expired."""
    row = connection.execute(
        f"SELECT {REQUEST} FROM requests WHERE id = ? AND expires_us > ?", (request_id, now_us)
    ).fetchone()
    return None if row is None else recorded_of(row)


def latest(connection: sqlite3.Connection, back: int) -> str:
    """Return the cursor of the journal's end, or of an earlier place."""
    (sequence,) = connection.execute("SELECT sequence FROM progress").fetchone()
    return str(max(0, sequence - back))


def latest_us(connection: sqlite3.Connection) -> int:
    """Return the time of the latest transaction."""
    return int(connection.execute("SELECT latest_us FROM progress").fetchone()[0])


def epoch(connection: sqlite3.Connection) -> int:
    """Return the stored epoch."""
    return int(connection.execute("SELECT epoch FROM progress").fetchone()[0])


# One search from one lane, priority and handler to the next, without reading records. Comparing all of
# them at once would be shorter, but then SQLite reads records.
_HEADS = """
WITH RECURSIVE heads (key) AS (
  VALUES ((
    SELECT key FROM record_state INDEXED BY record_state_by_lane
    WHERE ready_us IS NOT NULL AND lane >= ? AND lane < ?
    ORDER BY lane, priority, handler LIMIT 1
  ))
  UNION ALL
  SELECT coalesce(
    (
      SELECT key FROM record_state AS next INDEXED BY record_state_by_lane
      WHERE next.ready_us IS NOT NULL
        AND next.lane = head.lane AND next.priority = head.priority AND next.handler > head.handler
      ORDER BY next.handler LIMIT 1
    ),
    (
      SELECT key FROM record_state AS next INDEXED BY record_state_by_lane
      WHERE next.ready_us IS NOT NULL
        AND next.lane = head.lane AND next.priority > head.priority
      ORDER BY next.priority, next.handler LIMIT 1
    ),
    (
      SELECT key FROM record_state AS next INDEXED BY record_state_by_lane
      WHERE next.ready_us IS NOT NULL
        AND next.lane > head.lane AND next.lane < ?
      ORDER BY next.lane, next.priority, next.handler LIMIT 1
    )
  )
  FROM heads JOIN record_state AS head ON head.key = heads.key
)
SELECT lane, priority, handler FROM heads JOIN record_state USING (key)
"""
_READY = f"""
SELECT {RECORD} FROM record_state AS s INDEXED BY record_state_by_lane {GIVEN_OF_STATE}
WHERE s.lane = ? AND s.priority = ? AND s.handler = ? AND s.ready_us <= ?
ORDER BY s.ready_us, s.id LIMIT ?
"""
_DUE = f"""
SELECT {RECORD} FROM record_state AS s INDEXED BY record_state_by_deadline {GIVEN_OF_STATE}
WHERE s.key >> {PLACE_BITS} = ? AND s.deadline_us <= ?
ORDER BY s.deadline_us, s.key LIMIT ?
"""
_PLACES = "SELECT place FROM states WHERE kind IN (SELECT value FROM json_each(?))"
_SEPARATOR, _AFTER_SEPARATOR = "\x1f", "\x20"

Keyed = tuple[int, Record]
Ranked = tuple[int, int | str, RowValues]


class IndexRange(NamedTuple):
    """One range of the index, within which the rank is the time."""

    text: str
    priority: int
    handler: str


def ready(connection: sqlite3.Connection, claim: Claim, now_us: int) -> list[Keyed]:
    """Return the first records for this claim, in rank order, with their keys."""
    lanes = _lanes(connection, claim)
    if not lanes:
        return []
    cursors = [connection.execute(_READY, (*lane, now_us, claim.limit)) for lane in lanes]
    if len(cursors) == 1:
        return [(row[KEY], record_of(row)) for row in cursors[0]]
    found = _merged([_by_rank(*each) for each in zip(cursors, lanes, strict=True)], cursors, claim.limit)
    return [(row[KEY], record_of(row)) for row in found]


def due(connection: sqlite3.Connection, kinds: Sequence[str], now_us: int, limit: int) -> list[Keyed]:
    """Return the records with the oldest passed deadlines, with their keys."""
    places = connection.execute(_PLACES, (list_text(kinds),)).fetchall()
    cursors = [connection.execute(_DUE, (place, now_us, limit)) for (place,) in places]
    found = _merged(
        [((row[DEADLINE_US], row[KEY] & NUMBERS, row) for row in cursor) for cursor in cursors],
        cursors,
        limit,
    )
    return [(row[KEY], record_of(row)) for row in found]


def _lanes(connection: sqlite3.Connection, claim: Claim) -> list[IndexRange]:
    lanes: list[IndexRange] = []
    for queue in dict.fromkeys(claim.queues):
        # A lane begins with kind, queue and a separator that sorts before all printable characters.
        first = lane_of(claim.kind, (queue,))
        end = first + _AFTER_SEPARATOR
        found = connection.execute(_HEADS, (first, end, end)).fetchall()
        lanes += [
            IndexRange(lane, priority, handler)
            for lane, priority, handler in found
            if lane is not None
            for _, of, *labels in [lane.split(_SEPARATOR)]
            if of == queue and (not labels or has_labels(labels, claim)) and has_handler(handler, claim)
        ]
    return lanes


def _by_rank(cursor: sqlite3.Cursor, lane: IndexRange) -> Iterator[Ranked]:
    shift = rank_of(moment(0), lane.priority)
    return ((row[READY_US] + shift, row[ID], row) for row in cursor)


def _merged(streams: list[Iterator[Ranked]], cursors: list[sqlite3.Cursor], limit: int) -> list[RowValues]:
    first = [row for _, _, row in islice(heapq.merge(*streams, key=itemgetter(0, 1)), limit)]
    for cursor in cursors:
        cursor.close()
    return first


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
_LARGEST = 2**63 - 1
_numbers = msgspec.json.Decoder(list[int])


def feed(connection: sqlite3.Connection, after: str, limit: int) -> Feed:
    """Return the journal after a cursor.

    Numbers are assigned in the order of the commits.
    """
    if after and (not after.isdecimal() or int(after) > _LARGEST):
        raise bad_cursor(after)
    sequence = int(after or 0)
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
    entries = _entries_of_record(connection, key, after_version, limit)
    entries.sort(key=lambda entry: int(entry.cursor))
    del entries[limit:]
    return Feed(tuple(entries), entries[-1].cursor if entries else "")


def _entries_of_record(
    connection: sqlite3.Connection, key: Key, after_version: int, limit: int
) -> list[Entry]:
    """Return the entries of a record, at least the first `limit`, unordered."""
    found = connection.execute(_NAMED, (key.kind, key.id, after_version, limit)).fetchall()
    entries = [_entry(row, row[0], row[6], _note(row)) for row in found]
    for number, trail in connection.execute(_TRAIL, (key.kind, key.id)).fetchall():
        found = connection.execute(_ABOUT, (number, after_version, limit)).fetchall()
        entries += [_entry(row, row[0], key.id, _note(row)) for row in found]
        wanted = list_text([int(sequence) for sequence in trail.split()])
        for row in connection.execute(_ON_TRAIL, (wanted, after_version)):
            place = members_of(row[1], row[2], row[3]).index(number)
            entries.append(_entry(row, row[0] - row[1] + 1 + place, key.id, _note(row)))
    return entries


def _entries(connection: sqlite3.Connection, row: RowValues, after: int, limit: int) -> list[Entry]:
    """Return entries of a row after an entry, but none of pruned records."""
    sequence, size, record, members = row[:4]
    if size == 1:
        return [] if row[6] is None else [_entry(row, sequence, row[6], _note(row))]
    first, numbers, note = sequence - size + 1, members_of(size, record, members), _note(row)
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


def members_of(size: int, record: int, members: str | None) -> Sequence[int]:
    """Return the numbers of the records that a row of the journal is about."""
    return range(record, record + size) if members is None else _numbers.decode(members)


def _entry(row: RowValues, sequence: int, name: str, note: Note) -> Entry:
    return Entry(cursor=str(sequence), at=moment(row[4]), kind=row[5], id=name, version=row[7], note=note)
