"""Removing what ended long ago, with its journal, a bounded batch at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from interlock.store.records import Pruned
from interlock.store.sqlite import journal
from interlock.store.sqlite.failures import store_error
from interlock.store.sqlite.ledger import Ledger
from interlock.store.sqlite.opening import connect
from interlock.store.sqlite.queries import number_at
from interlock.store.sqlite.rows import GIVEN_OF_STATE, NUMBERS, PLACE_BITS, list_text

# A record is created before it is changed, so that numbers, which are in the order of creation, narrow
# the search.
_OLD = f"""
WITH ended AS (SELECT place << {PLACE_BITS} AS first FROM states WHERE kind = ? AND name = ?)
SELECT s.key, g.id, s.trail FROM ended
CROSS JOIN record_state AS s ON s.key > first AND s.key < first + ? {GIVEN_OF_STATE}
WHERE s.updated_us <= ? LIMIT ?
"""
_REMOVE = "DELETE FROM record_state WHERE key IN (SELECT value FROM json_each(?))"
_REMOVE_REQUESTS = """
DELETE FROM requests
WHERE id IN (SELECT id FROM requests WHERE expires_us <= ? ORDER BY expires_us LIMIT ?)
"""
_MORE_REQUESTS = "SELECT EXISTS (SELECT 1 FROM requests WHERE expires_us <= ?)"
_PRUNED_UP_TO = "UPDATE progress SET pruned_up_to = max(pruned_up_to, ?), latest_us = max(latest_us, ?)"

_LEAST_REQUESTS = 1_000
_INCREMENTAL = 2
_PAGES = 1_000
_PATIENCE_MS = 60_000
_OLDEST_US = -(2**62)
_MICROSECOND = timedelta(microseconds=1)


def prune(ledger: Ledger, kind: str, states: Sequence[str], older_than: timedelta, limit: int) -> Pruned:
    """One batch. The caller has made sure that the states are ends; the database does so again."""
    before_us = max(ledger.now_us - older_than // _MICROSECOND, _OLDEST_US)
    old = _old(ledger, kind, states, before_us, limit + 1)
    gone = old[:limit]
    entries = _remove(ledger, kind, gone) if gone else 0
    removed = ledger.connection.execute(_REMOVE_REQUESTS, (ledger.now_us, max(limit, _LEAST_REQUESTS)))
    (more_requests,) = ledger.connection.execute(_MORE_REQUESTS, (ledger.now_us,)).fetchone()
    ledger.forget()
    return Pruned(len(gone), entries, removed.rowcount, more=len(old) > limit or bool(more_requests))


def compact(path: Path) -> int:
    """Give free pages back to the file system; return how many bytes smaller the file is.

    The first time the file is rewritten as a whole, so that later it can be done in small steps, between
    which others write.
    """
    before = path.stat().st_size
    try:
        with closing(connect(path)) as connection:
            connection.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
            if connection.execute("PRAGMA auto_vacuum").fetchone() != (_INCREMENTAL,):
                connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
                connection.execute("VACUUM")
            while connection.execute("PRAGMA freelist_count").fetchone() != (0,):
                connection.execute(f"PRAGMA incremental_vacuum({_PAGES})").fetchall()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    return before - path.stat().st_size


def _old(
    ledger: Ledger, kind: str, states: Sequence[str], before_us: int, limit: int
) -> list[tuple[int, str, str]]:
    """Return keys, ids and trails."""
    old: list[tuple[int, str, str]] = []
    newer = number_at(ledger.connection, before_us + 1)
    for state in dict.fromkeys(states):
        left = limit - len(old)
        old += ledger.connection.execute(_OLD, (kind, state, newer, before_us, left)).fetchall()
    return old


def _remove(ledger: Ledger, kind: str, gone: list[tuple[int, str, str]]) -> int:
    connection = ledger.connection
    connection.execute(_REMOVE, (list_text([key for key, _, _ in gone]),))
    trails = {key & NUMBERS: trail for key, _, trail in gone}
    removed = journal.remove(connection, kind, [name for _, name, _ in gone], trails)
    connection.execute(_PRUNED_UP_TO, (removed.last, ledger.now_us))
    return removed.number
