"""Which records are next: those that are ready to be claimed, and those whose deadline has passed.

A claim looks at the heads of the lanes that it may take from, one for each priority and handler, and
merges them by rank. It costs the same however many records stand behind a head, and however many
are not ready yet. Other queues are not even passed by.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from interlock.store.ranking import has_handler, has_labels, lane_of, moment, rank_of
from interlock.store.records import Claim, Record
from interlock.store.sqlite.rows import (
    DEADLINE_US,
    GIVEN_OF_STATE,
    ID,
    KEY,
    NUMBERS,
    PLACE_BITS,
    READY_US,
    RECORD,
    Row,
    list_text,
    record_of,
)

# From one lane, priority and handler to the next by a search each, never by passing records. A comparison
# of them all at once would be shorter, but SQLite passes records then.
_HEADS = """
WITH RECURSIVE heads (key) AS (
  VALUES ((
    SELECT key FROM record_state INDEXED BY record_state_by_lane
    WHERE ready_us IS NOT NULL AND lane >= ?1 AND lane < ?2
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
        AND next.lane > head.lane AND next.lane < ?2
      ORDER BY next.lane, next.priority, next.handler LIMIT 1
    )
  )
  FROM heads JOIN record_state AS head ON head.key = heads.key
)
SELECT lane, priority, handler FROM heads JOIN record_state USING (key)
"""
_READY = f"""
SELECT {RECORD} FROM record_state AS s INDEXED BY record_state_by_lane {GIVEN_OF_STATE}
WHERE s.lane = ?1 AND s.priority = ?2 AND s.handler = ?3 AND s.ready_us <= ?4
ORDER BY s.ready_us, s.id LIMIT ?5
"""
_DUE = f"""
SELECT {RECORD} FROM record_state AS s INDEXED BY record_state_by_deadline {GIVEN_OF_STATE}
WHERE s.key >> {PLACE_BITS} = ?1 AND s.deadline_us <= ?2
ORDER BY s.deadline_us, s.key LIMIT ?3
"""
_PLACES = "SELECT place FROM states WHERE kind IN (SELECT value FROM json_each(?1))"
_SEPARATOR, _AFTER_SEPARATOR = "\x1f", "\x20"

Keyed = tuple[int, Record]
Ranked = tuple[int, int | str, Row]


class Lane(NamedTuple):
    """One stretch of the index, within which rank is time."""

    text: str
    priority: int
    handler: str


def ready(connection: sqlite3.Connection, claim: Claim, now_us: int) -> list[Keyed]:
    """The first records that this claim may have, in rank order, with their keys."""
    lanes = _lanes(connection, claim)
    cursors = [connection.execute(_READY, (*lane, now_us, claim.limit)) for lane in lanes]
    if len(cursors) == 1:
        return [(row[KEY], record_of(row)) for row in cursors[0]]
    found = _merged([_by_rank(*each) for each in zip(cursors, lanes, strict=True)], cursors, claim.limit)
    return [(row[KEY], record_of(row)) for row in found]


def due(connection: sqlite3.Connection, kinds: Sequence[str], now_us: int, limit: int) -> list[Keyed]:
    """The records whose deadline passed first, with their keys."""
    places = connection.execute(_PLACES, (list_text(kinds),)).fetchall()
    cursors = [connection.execute(_DUE, (place, now_us, limit)) for (place,) in places]
    found = _merged(
        [((row[DEADLINE_US], row[KEY] & NUMBERS, row) for row in cursor) for cursor in cursors],
        cursors,
        limit,
    )
    return [(row[KEY], record_of(row)) for row in found]


def _lanes(connection: sqlite3.Connection, claim: Claim) -> list[Lane]:
    lanes: list[Lane] = []
    for queue in dict.fromkeys(claim.queues):
        # A lane begins with kind, queue and a separator that sorts before all that can be read.
        first = lane_of(claim.kind, (queue,))
        found = connection.execute(_HEADS, (first, first + _AFTER_SEPARATOR)).fetchall()
        lanes += [
            Lane(lane, priority, handler)
            for lane, priority, handler in found
            if lane is not None
            for _, of, *labels in [lane.split(_SEPARATOR)]
            if of == queue and has_labels(labels, claim) and has_handler(handler, claim)
        ]
    return lanes


def _by_rank(cursor: sqlite3.Cursor, lane: Lane) -> Iterator[Ranked]:
    shift = rank_of(moment(0), lane.priority)
    return ((row[READY_US] + shift, row[ID], row) for row in cursor)


def _merged(streams: list[Iterator[Ranked]], cursors: list[sqlite3.Cursor], limit: int) -> list[Row]:
    first = [row for _, _, row in islice(heapq.merge(*streams, key=itemgetter(0, 1)), limit)]
    for cursor in cursors:
        cursor.close()
    return first
