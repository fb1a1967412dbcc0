"""The bare loop on PostgreSQL: asyncpg, prepared statements, one round trip for each of the two."""

from __future__ import annotations

from typing import TypeAlias

import asyncpg

from bench.stores.bare.loop import Unexpected
from bench.stores.errand import ACTOR, BATCH, BODY, with_result

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_TABLES = """
CREATE TABLE job (
    id text COLLATE "C" PRIMARY KEY,
    state text NOT NULL,
    version bigint NOT NULL,
    body json NOT NULL,
    ready_at timestamptz,
    deadline_at timestamptz
) WITH (fillfactor = 85);
CREATE INDEX ON job (ready_at) WHERE state = 'ready';
CREATE TABLE audit (
    entry bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    job text NOT NULL,
    version bigint NOT NULL,
    event text NOT NULL,
    source text NOT NULL,
    target text NOT NULL,
    actor text NOT NULL
)
"""
_FILL = "INSERT INTO job SELECT name, 'ready', 1, $2::json, now(), NULL FROM unnest($1::text[]) AS name"
_CLAIM = """
WITH taken AS (
    SELECT id FROM job WHERE state = 'ready' AND ready_at <= now()
    ORDER BY ready_at LIMIT $1 FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE job SET state = 'running', version = version + 1, deadline_at = now() + interval '30 s'
    FROM taken WHERE job.id = taken.id
    RETURNING job.id, job.version, job.body
), audited AS (
    INSERT INTO audit (at, job, version, event, source, target, actor)
    SELECT now(), id, version, 'claim', 'ready', 'running', $2 FROM claimed
)
SELECT * FROM claimed
"""
_COMPLETE = """
WITH done AS (
    UPDATE job SET state = 'done', version = job.version + 1, body = said.body, deadline_at = NULL
    FROM unnest($1::text[], $2::bigint[], $3::json[]) AS said (id, version, body)
    WHERE job.id = said.id AND job.version = said.version AND job.deadline_at >= now()
    RETURNING job.id, job.version
), audited AS (
    INSERT INTO audit (at, job, version, event, source, target, actor)
    SELECT now(), id, version, 'complete', 'running', 'done', $4 FROM done
)
SELECT count(*) FROM done
"""


class BarePostgres:
    """One connection and two statements."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    async def made(cls, url: str) -> BarePostgres:
        """In a database that is still empty."""
        connection: Connection = await asyncpg.connect(url)
        await connection.execute(_TABLES)
        return cls(connection)

    async def fill(self, names: range) -> None:
        """See `BareLoop`."""
        await self._connection.execute(_FILL, [f"{name:012d}" for name in names], BODY.decode())

    async def drain(self, batches: int) -> None:
        """See `BareLoop`."""
        fetch = self._connection.fetch
        for _ in range(batches):
            rows = await fetch(_CLAIM, BATCH, ACTOR)
            ids = [row[0] for row in rows]
            bodies = [with_result(row[2].encode()).decode() for row in rows]
            [[done]] = await fetch(_COMPLETE, ids, [row[1] for row in rows], bodies, ACTOR)
            if done != BATCH:
                raise Unexpected(f"The bare loop on PostgreSQL has completed {done} of {BATCH}.")

    async def close(self) -> None:
        """See `BareLoop`."""
        await self._connection.close()
