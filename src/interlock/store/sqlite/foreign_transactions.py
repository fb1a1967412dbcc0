"""Write in a transaction of the user, on a connection of sqlite3.

Commits are validated as in a transaction of the store. Other processes and the reader of this one notice the
commit by polling, as they notice all others.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from interlock.errors import InvalidArguments
from interlock.store.catalogue import Catalogue
from interlock.store.ranking import moment
from interlock.store.sqlite import reads
from interlock.store.sqlite.database import HeldClock, check_floor
from interlock.store.sqlite.transaction import Moves, RowCache, Transaction
from interlock.store.transactions import LoadRecords, Now, Step
from interlock.store.validation import check_commits


class SqliteDialect:
    """Reads and writes the records of a file on a connection to it."""

    def __init__(
        self, path: Path, catalogue: Catalogue, clock: HeldClock, moves: Moves, max_body_bytes: int
    ) -> None:
        self._path = path
        self._catalogue = catalogue
        self._clock = clock
        self._moves = moves
        self._max_body_bytes = max_body_bytes

    def check(self, connection: sqlite3.Connection) -> None:
        """Raise unless the connection leads to this file."""
        found = [row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main"]
        if found and found[0] and Path(found[0]).resolve() == self._path.resolve():
            return
        raise InvalidArguments(
            f"The connection leads to {found[0] if found and found[0] else 'memory'}, and the store is "
            f"{self._path}.",
            todo="Open Interlock on the file of your connection: both have to be one database.",
            facts={"store": str(self._path)},
        )

    def do(self, connection: sqlite3.Connection, step: Step) -> Any:
        """Carry out a step."""
        if isinstance(step, Now):
            return moment(self._clock.read(reads.latest_us(connection)))
        if isinstance(step, LoadRecords):
            return reads.load(connection, step.keys)
        check_floor(connection)
        check_commits(self._catalogue, step.commits, self._max_body_bytes)
        ledger = Transaction(connection, self._moves, self._clock, RowCache(self._catalogue))
        outcomes = ledger.judge(step.commits)
        ledger.flush()
        return outcomes
