"""The bare loop on SQLite: the standard library, WAL and FULL, select and then update by number."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from bench.stores.bare.loop import Unexpected
from bench.stores.errand import ACTOR, BATCH, BODY, LEASE, QUEUE, with_result

_TABLES = """
CREATE TABLE job (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, queue TEXT NOT NULL, state TEXT NOT NULL,
  version INTEGER NOT NULL, body BLOB NOT NULL, ready_us INTEGER, deadline_us INTEGER
);
CREATE INDEX ready ON job (queue, ready_us) WHERE state = 'ready';
CREATE TABLE audit (
  entry INTEGER PRIMARY KEY, at_us INTEGER NOT NULL, job TEXT NOT NULL, version INTEGER NOT NULL,
  event TEXT NOT NULL, source TEXT NOT NULL, target TEXT NOT NULL, actor TEXT NOT NULL
);
"""
_FILL = "INSERT INTO job (id, queue, state, version, body, ready_us) VALUES (?, ?, 'ready', 1, ?, ?)"
_TAKE = (
    "SELECT number, id, version, body FROM job"
    " WHERE queue = ? AND state = 'ready' AND ready_us <= ? ORDER BY ready_us LIMIT ?"
)
_CLAIM = "UPDATE job SET state = 'running', version = version + 1, deadline_us = ? WHERE number = ?"
_COMPLETE = (
    "UPDATE job SET state = 'done', version = version + 1, body = ?, deadline_us = NULL"
    " WHERE number = ? AND version = ? AND deadline_us >= ?"
)
_AUDIT = "INSERT INTO audit (at_us, job, version, event, source, target, actor) VALUES (?, ?, ?, ?, ?, ?, ?)"
_LEASE_US = round(LEASE.total_seconds() * 1_000_000)


class BareSqlite:
    """A connection in the thread of the loop: nothing has to be handed over."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        # Those of our store, where they make it faster.
        for setting in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -8192"):
            self._connection.execute(f"PRAGMA {setting}")
        self._connection.execute("PRAGMA wal_autocheckpoint = 4000")
        self._connection.executescript(_TABLES)

    async def fill(self, names: range) -> None:
        """See `BareLoop`."""
        now_us = time.time_ns() // 1_000
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(_FILL, [(f"{name:012d}", QUEUE, BODY, now_us) for name in names])
        self._connection.execute("COMMIT")

    async def drain(self, batches: int) -> None:
        """See `BareLoop`."""
        for _ in range(batches):
            self._complete(self._claim())

    async def close(self) -> None:
        """See `BareLoop`."""
        self._connection.close()

    def _claim(self) -> list[tuple[int, str, int, bytes]]:
        execute, executemany = self._connection.execute, self._connection.executemany
        execute("BEGIN IMMEDIATE")
        now_us = time.time_ns() // 1_000
        taken = execute(_TAKE, (QUEUE, now_us, BATCH)).fetchall()
        executemany(_CLAIM, [(now_us + _LEASE_US, row[0]) for row in taken])
        executemany(
            _AUDIT, [(now_us, row[1], row[2] + 1, "claim", "ready", "running", ACTOR) for row in taken]
        )
        execute("COMMIT")
        return taken

    def _complete(self, taken: list[tuple[int, str, int, bytes]]) -> None:
        execute, executemany = self._connection.execute, self._connection.executemany
        execute("BEGIN IMMEDIATE")
        now_us = time.time_ns() // 1_000
        done = executemany(
            _COMPLETE, [(with_result(row[3]), row[0], row[2] + 1, now_us) for row in taken]
        ).rowcount
        executemany(
            _AUDIT, [(now_us, row[1], row[2] + 2, "complete", "running", "done", ACTOR) for row in taken]
        )
        execute("COMMIT")
        if done != BATCH:
            raise Unexpected(f"The bare loop on SQLite has completed {done} of {BATCH}.")
