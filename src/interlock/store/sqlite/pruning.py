"""Removing what ended long ago, with its journal, a bounded batch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from interlock.store.records import Pruned
from interlock.store.sqlite.ledger import Ledger
from interlock.store.sqlite.rows import list_text

# A record is created before it is changed, so that the index on creation narrows the search.
_OLD = """
SELECT number, id FROM records INDEXED BY records_by_state
WHERE kind = ? AND state = ? AND created_us <= ? AND updated_us <= ?
LIMIT ?
"""
_ENTRIES = """
SELECT count(*), ifnull(max(sequence), 0) FROM journal
WHERE kind = ? AND id IN (SELECT value FROM json_each(?))
"""
_REMOVE_ENTRIES = "DELETE FROM journal WHERE kind = ? AND id IN (SELECT value FROM json_each(?))"
_REMOVE_REQUESTS = """
DELETE FROM requests
WHERE id IN (SELECT id FROM requests WHERE expires_us <= ? ORDER BY expires_us LIMIT ?)
"""
_MORE_REQUESTS = "SELECT EXISTS (SELECT 1 FROM requests WHERE expires_us <= ?)"
_PRUNED_UP_TO = "UPDATE progress SET pruned_up_to = max(pruned_up_to, ?), latest_us = max(latest_us, ?)"

_LEAST_REQUESTS = 1_000
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


def _old(
    ledger: Ledger, kind: str, states: Sequence[str], before_us: int, limit: int
) -> list[tuple[int, str]]:
    old: list[tuple[int, str]] = []
    for state in dict.fromkeys(states):
        left = limit - len(old)
        old += ledger.connection.execute(_OLD, (kind, state, before_us, before_us, left)).fetchall()
    return old


def _remove(ledger: Ledger, kind: str, gone: list[tuple[int, str]]) -> int:
    connection = ledger.connection
    names = list_text([name for _, name in gone])
    connection.executemany("DELETE FROM records WHERE number = ?", [(number,) for number, _ in gone])
    entries, newest = connection.execute(_ENTRIES, (kind, names)).fetchone()
    connection.execute(_REMOVE_ENTRIES, (kind, names))
    connection.execute(_PRUNED_UP_TO, (newest, ledger.now_us))
    return int(entries)
