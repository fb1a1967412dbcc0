"""One PostgreSQL and one Valkey for all tests of a process that do not hurt them; each test has its own part.

Their clocks can be moved (`tests.clocks.move_server`), and are never moved back. A test that stops, kills or
misconfigures a server starts its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.clocks import movable
from tests.waiting import PATIENCE_S

from interlock.store.postgres import PostgresStore
from interlock.testing.servers import PostgresServer, RedisServer, ReplyError, redis_server, running

SETTINGS = {"autovacuum": "off", "timezone": "<+0545>-05:45"}
"""Tests vacuum when they want to; no code may rely on the time zone of the server."""

KEEP = """
CREATE SCHEMA as_new;
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'interlock' LOOP
        EXECUTE format('CREATE TABLE as_new.%I AS TABLE interlock.%I', name, name);
    END LOOP;
END $$
"""
"""Keep the rows of the schema that has just been made."""

RENEW = """
SET session_replication_role = replica;  -- the schema refuses to be emptied
SET client_min_messages = error;
SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'interlock' LOOP
        IF pg_table_size(format('interlock.%I', name)::regclass) > 131072 THEN
            EXECUTE format('TRUNCATE interlock.%I', name);
        ELSE
            EXECUTE format('DELETE FROM interlock.%I', name);
        END IF;
    END LOOP;
    PERFORM setval(format('interlock.%I', sequencename)::regclass, start_value, false)
        FROM pg_sequences WHERE schemaname = 'interlock';
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'as_new' LOOP
        EXECUTE format('INSERT INTO interlock.%I OVERRIDING SYSTEM VALUE TABLE as_new.%I', name, name);
    END LOOP;
END $$;
SELECT pg_stat_reset();
"""
"""Leave the rows that the schema had when it was made, no others, and no connection.

To truncate all tables takes 20 ms of processor time more than to delete a few rows: each of them, each index
and each TOAST table gets a new file. A table that has grown is truncated, so that dead rows stay few.
"""

SCHEMA = """
SELECT md5(string_agg(line, ' ' ORDER BY line)) FROM (
    SELECT concat_ws(' ', 'schema', nspname, nspacl) FROM pg_namespace WHERE nspname !~ '^pg_(temp|toast)'
    UNION ALL SELECT concat_ws(' ', 'setting', setconfig) FROM pg_db_role_setting
        WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
    UNION ALL SELECT concat_ws(' ', oid, relname, relkind, relpersistence, reltuples, reloptions, relacl)
        FROM pg_class WHERE relnamespace IN ('interlock'::regnamespace, 'public'::regnamespace)
    UNION ALL SELECT concat_ws(' ', attrelid, attnum, a.xmin) FROM pg_attribute AS a
        JOIN pg_class AS c ON c.oid = attrelid WHERE relnamespace = 'interlock'::regnamespace
    UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_constraint
        WHERE connamespace = 'interlock'::regnamespace
    UNION ALL SELECT concat_ws(' ', indexrelid, i.xmin) FROM pg_index AS i
        JOIN pg_class AS c ON c.oid = indexrelid WHERE relnamespace = 'interlock'::regnamespace
    UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_trigger
    UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_proc
        WHERE pronamespace IN ('interlock'::regnamespace, 'public'::regnamespace)
    UNION ALL SELECT concat_ws(' ', 'extension', extname) FROM pg_extension
    UNION ALL SELECT concat_ws(' ', 'statistics', starelid, staattnum) FROM pg_statistic
        JOIN pg_class AS c ON c.oid = starelid WHERE relnamespace = 'interlock'::regnamespace
) AS everything (line)
"""
"""Describe everything that a test could have changed apart from the rows.

A copy of a template has the numbers of its objects, and `xmin` of the rows that describe them: whatever
changes such a row gives it another one. Rows of `pg_class` are written again when a table is truncated.
"""


class SharedPostgres(PostgresServer):
    """Gives each test a database with the schema and nothing else; the same ones again and again.

    Making a database costs more than most tests. One that a test has left is renewed, unless the test has
    changed the schema: then it is dropped.
    """

    def __init__(self) -> None:
        super().__init__(durable=False, tcp=False, settings=SETTINGS, around=movable)
        self._lent: list[str] = []
        self._renewed: list[str] = []
        self._schema: object = None

    def start(self) -> None:
        """Start, and make the schema in the template of all other databases."""
        super().start()
        with ThreadPoolExecutor(1) as thread:  # an async fixture may be what asks for the server
            thread.submit(asyncio.run, migrate(self.url_of("template1"))).result()
        self.sql(KEEP, database="template1")
        self._schema = self.sql(SCHEMA, database="template1")

    def new_database_name(self, *, template: str = "template1") -> str:
        """Take a database that was renewed, or make one; a test of the migrations asks for `template0`."""
        is_usual = template == "template1"
        name = (
            self._renewed.pop()
            if is_usual and self._renewed
            else super().new_database_name(template=template)
        )
        self._lent.append(name)
        return name

    def take_back(self) -> None:
        """Renew or drop the databases that were asked for since the last time."""
        while self._lent:
            name = self._lent.pop()
            if self._renew(name):
                self._renewed.append(name)
            else:
                self.drop_database(name)

    def _renew(self, name: str) -> bool:
        """Return whether the database is as new."""
        try:
            return self.sql(RENEW + SCHEMA, database=name)[-1:] == self._schema
        except ReplyError:
            return False


async def migrate(url: str) -> None:
    """Make the schema, for no lifecycle yet."""
    store = PostgresStore(url, {}, timeout_s=PATIENCE_S)
    await store.open()
    await store.close()


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[SharedPostgres]:
    """Without fsync, which no test here needs."""
    with running(SharedPostgres()) as server:
        yield server


@pytest.fixture
def postgres(shared_postgres: SharedPostgres) -> Iterator[PostgresServer]:
    """The server; its databases are taken back after the test."""
    yield shared_postgres
    shared_postgres.take_back()


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """With every write flushed, as the store asks for."""
    with redis_server(append_only="always", settings={"databases": "512"}, around=movable) as server:
        yield server
