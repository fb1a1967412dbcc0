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
    ID,
    NUMBER,
    OWN_RECORD,
    RECORD,
    Row,
    list_text,
    placed_record_of,
    record_of,
)

# From one lane, priority and handler to the next by a search each, never by passing records. A comparison
# of them all at once would be shorter, but SQLite passes records then.
_HEADS = """
WITH RECURSIVE heads (number) AS (
  VALUES ((
    SELECT number FROM records INDEXED BY records_by_lane
    WHERE ready_us IS NOT NULL AND lane >= ?1 AND lane < ?2
    ORDER BY lane, priority, handler LIMIT 1
  ))
  UNION ALL
  SELECT coalesce(
    (
      SELECT number FROM records AS next INDEXED BY records_by_lane
      WHERE next.ready_us IS NOT NULL
        AND next.lane = head.lane AND next.priority = head.priority AND next.handler > head.handler
      ORDER BY next.handler LIMIT 1
    ),
    (
      SELECT number FROM records AS next INDEXED BY records_by_lane
      WHERE next.ready_us IS NOT NULL
        AND next.lane = head.lane AND next.priority > head.priority
      ORDER BY next.priority, next.handler LIMIT 1
    ),
    (
      SELECT number FROM records AS next INDEXED BY records_by_lane
      WHERE next.ready_us IS NOT NULL
        AND next.lane > head.lane AND next.lane < ?2
      ORDER BY next.lane, next.priority, next.handler LIMIT 1
    )
  )
  FROM heads JOIN records AS head ON head.number = heads.number
)
SELECT lane, priority, handler FROM heads JOIN records USING (number)
"""
_READY = f"""
SELECT {OWN_RECORD} FROM records INDEXED BY records_by_lane
WHERE lane = ?1 AND priority = ?2 AND handler = ?3 AND ready_us <= ?4
ORDER BY ready_us, id LIMIT ?5
"""
_DUE = f"""
SELECT {RECORD} FROM records INDEXED BY records_by_deadline
WHERE place = ?1 AND deadline_us <= ?2
ORDER BY deadline_us, number LIMIT ?3
"""
_PLACES = "SELECT place FROM states WHERE kind IN (SELECT value FROM json_each(?1))"
_READY_US, _DEADLINE_US = 6, 7
_SEPARATOR, _AFTER_SEPARATOR = "\x1f", "\x20"

Numbered = tuple[int, Record]
Ranked = tuple[int, int | str, Row]


class Lane(NamedTuple):
    """What the records of one stretch have in common; their rows need not say it again."""

    text: str
    handler: str
    queue: str
    labels: tuple[str, ...]
    priority: int


def ready(connection: sqlite3.Connection, claim: Claim, now_us: int) -> list[Numbered]:
    """The first records that this claim may have, in rank order, with their numbers."""
    kind, limit = claim.kind, claim.limit
    lanes = _lanes(connection, claim)
    cursors = [
        connection.execute(_READY, (lane.text, lane.priority, lane.handler, now_us, limit)) for lane in lanes
    ]
    if len(lanes) == 1:
        _, _, queue, labels, priority = lanes[0]
        return [(row[NUMBER], placed_record_of(row, kind, queue, labels, priority)) for row in cursors[0]]
    found = _merged([_by_rank(*each) for each in zip(cursors, lanes, strict=True)], cursors, limit)
    return [(row[NUMBER], placed_record_of(row[:-1], kind, *row[-1][2:])) for row in found]


def due(connection: sqlite3.Connection, kinds: Sequence[str], now_us: int, limit: int) -> list[Numbered]:
    """The records whose deadline passed first, with their numbers."""
    places = connection.execute(_PLACES, (list_text(kinds),)).fetchall()
    cursors = [connection.execute(_DUE, (place, now_us, limit)) for (place,) in places]
    found = _merged(
        [((row[_DEADLINE_US], row[NUMBER], row) for row in cursor) for cursor in cursors], cursors, limit
    )
    return [(row[NUMBER], record_of(row)) for row in found]


def _lanes(connection: sqlite3.Connection, claim: Claim) -> list[Lane]:
    lanes: list[Lane] = []
    for queue in dict.fromkeys(claim.queues):
        # A lane begins with kind, queue and a separator that sorts before all that can be read.
        first = lane_of(claim.kind, (queue,))
        found = connection.execute(_HEADS, (first, first + _AFTER_SEPARATOR)).fetchall()
        lanes += [
            Lane(lane, handler, queue, tuple(labels), priority)
            for lane, priority, handler in found
            if lane is not None
            for _, of, *labels in [lane.split(_SEPARATOR)]
            if of == queue and has_labels(labels, claim) and has_handler(handler, claim)
        ]
    return lanes


def _by_rank(cursor: sqlite3.Cursor, lane: Lane) -> Iterator[Ranked]:
    shift = rank_of(moment(0), lane.priority)
    return ((row[_READY_US] + shift, row[ID], (*row, lane)) for row in cursor)


def _merged(streams: list[Iterator[Ranked]], cursors: list[sqlite3.Cursor], limit: int) -> list[Row]:
    first = [row for _, _, row in islice(heapq.merge(*streams, key=itemgetter(0, 1)), limit)]
    for cursor in cursors:
        cursor.close()
    return first
