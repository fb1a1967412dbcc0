"""Which records are next: those that are ready to be claimed, and those whose deadline has passed.

A claim looks at the heads of the lanes that it may take from, one for each priority in use, and
merges them by rank. It costs the same however many records stand behind a head, and however many
are not ready yet. Other queues are not even passed by.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter

from interlock.store.ranking import lanes_for, moment, rank_of
from interlock.store.records import Claim, Record
from interlock.store.sqlite.rows import RECORD, Row, record_of

# From one lane and priority to the next by a search each, never by passing records. A comparison of
# (lane, priority) as a pair would be shorter, but SQLite passes records then.
_HEADS = """
WITH RECURSIVE heads (number) AS (
  VALUES ((
    SELECT number FROM records INDEXED BY records_by_lane
    WHERE kind = ?1 AND ready_us IS NOT NULL AND lane >= ?2 AND lane < ?3
    ORDER BY lane, priority LIMIT 1
  ))
  UNION ALL
  SELECT coalesce(
    (
      SELECT number FROM records AS next INDEXED BY records_by_lane
      WHERE next.kind = ?1 AND next.ready_us IS NOT NULL
        AND next.lane = head.lane AND next.priority > head.priority
      ORDER BY next.priority LIMIT 1
    ),
    (
      SELECT number FROM records AS next INDEXED BY records_by_lane
      WHERE next.kind = ?1 AND next.ready_us IS NOT NULL
        AND next.lane > head.lane AND next.lane < ?3
      ORDER BY next.lane, next.priority LIMIT 1
    )
  )
  FROM heads JOIN records AS head ON head.number = heads.number
)
SELECT lane, priority FROM heads JOIN records USING (number)
"""
_READY = f"""
SELECT {RECORD}, number, ready_us FROM records INDEXED BY records_by_lane
WHERE kind = ?1 AND lane = ?2 AND priority = ?3 AND ready_us <= ?4
ORDER BY ready_us, id LIMIT ?5
"""
_DUE = f"""
SELECT {RECORD}, number, deadline_us FROM records INDEXED BY records_by_deadline
WHERE kind = ?1 AND deadline_us <= ?2
ORDER BY deadline_us, id LIMIT ?3
"""
_ID, _NUMBER, _TIME = 1, 14, 15
_AFTER_SEPARATOR = "\x20"

Numbered = tuple[int, Record]
Stream = tuple[sqlite3.Cursor, int]
"""Rows in the order of their time, and what to add to it so that streams can be compared."""


def ready(connection: sqlite3.Connection, claim: Claim, now_us: int) -> list[Numbered]:
    """The first records that this claim may have, in rank order, with their numbers."""
    heads: list[tuple[str, int]] = []
    for queue in dict.fromkeys(claim.queues):
        # A lane begins with its queue and a separator that sorts before all that can be read.
        found = connection.execute(_HEADS, (claim.kind, queue, queue + _AFTER_SEPARATOR)).fetchall()
        mine = set(lanes_for({lane for lane, _ in found}, (queue,), claim.labels))
        heads += [(lane, priority) for lane, priority in found if lane in mine]
    streams = [
        (
            connection.execute(_READY, (claim.kind, lane, priority, now_us, claim.limit)),
            rank_of(moment(0), priority),
        )
        for lane, priority in heads
    ]
    return _first(streams, claim.limit)


def due(connection: sqlite3.Connection, kinds: Sequence[str], now_us: int, limit: int) -> list[Numbered]:
    """The records whose deadline passed first, with their numbers."""
    return _first(
        [(connection.execute(_DUE, (kind, now_us, limit)), 0) for kind in dict.fromkeys(kinds)], limit
    )


def _first(streams: list[Stream], limit: int) -> list[Numbered]:
    if not streams:
        return []
    if len(streams) == 1:
        return [(row[_NUMBER], record_of(row)) for row in streams[0][0]]
    ranked = heapq.merge(*(_ranked(cursor, shift) for cursor, shift in streams), key=itemgetter(0, 1))
    first = [(row[_NUMBER], record_of(row)) for _, _, row in islice(ranked, limit)]
    for cursor, _ in streams:
        cursor.close()
    return first


def _ranked(cursor: sqlite3.Cursor, shift: int) -> Iterator[tuple[int, str, Row]]:
    return ((row[_TIME] + shift, row[_ID], row) for row in cursor)
