"""Write in a transaction of the user, on a connection of asyncpg or psycopg.

`write_wave` validates and writes in one statement, as in a transaction of the store. The journal has the
number of the user's transaction, and readers wait for it as for any other open one. PostgreSQL wakes other
processes by NOTIFY when the transaction is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from interlock.store.postgres.commits import CommitWriter
from interlock.store.postgres.queries import in_schema, query
from interlock.store.postgres.rows import record_of
from interlock.store.postgres.target import Target
from interlock.store.records import Outcome, Record
from interlock.store.transactions import LoadRecords, Now, Statement, TransactionStep

_LOAD = """
SELECT kind, id, state, version, body::text, given::text, result::text, parent, queue, labels, priority,
    ready_at, deadline_at, created_at, updated_at
FROM interlock.load_records($1, $2)
"""
_WAVE = (
    *("boolean", "timestamptz", "text", "text", "text", "text[]", "text[]"),
    *("integer[]", "text[]", "text[]", "json[]", "timestamptz", "integer[]", "timestamptz[]"),
    *("integer[]", "text[]", "text[]", "text[]", "integer[]", "bytea[]", "double precision[]"),
)
"""The types of the arguments of `write_wave`."""


class PostgresDialect:
    """The statements by which records are read and written."""

    def __init__(self, writing: CommitWriter, target: Target) -> None:
        self._writing = writing
        self._target = target

    def statement(self, step: TransactionStep) -> Statement:
        """Return the statement of a step."""
        schema = self._target.schema
        if isinstance(step, Now):
            return Statement(query("now", schema), (), (), self._read_now)
        if isinstance(step, LoadRecords):
            keys = [key.kind for key in step.keys], [key.id for key in step.keys]
            return Statement(in_schema(_LOAD, schema), keys, ("text[]", "text[]"), _read_records)
        self._writing.check(step.commits)
        wave = self._writing.wave(step.commits)
        sql, arguments = query("write", schema), wave.arguments(True, self._writing.seen)

        def read(rows: Sequence[Any]) -> list[Outcome]:
            return self._writing.read(wave, rows)

        return Statement(sql, arguments, _WAVE, read, by_name=True)

    def notify(self) -> Statement:
        """Return the statement that notifies after the commit."""
        return Statement("SELECT pg_notify($1, '')", (self._target.channel,), ("text",), len)

    def _read_now(self, rows: Sequence[Any]) -> datetime:
        now: datetime = rows[0][0]
        return self._writing.saw(now.astimezone(UTC))


def _read_records(rows: Sequence[Any]) -> list[Record | None]:
    return [None if row[0] is None else record_of(_in_utc(row)) for row in rows]


def _in_utc(row: Sequence[Any]) -> Any:
    """Return the row with times in UTC, as asyncpg gives them.

    psycopg returns times in the time zone of the session.
    """
    return tuple(value.astimezone(UTC) if isinstance(value, datetime) else value for value in row)
