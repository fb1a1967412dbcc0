"""A newer program may migrate a store under an older one, which then goes on or refuses to write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from tests.waiting import PATIENCE_S

from interlock.errors import SchemaMismatch, SchemaTooNew
from interlock.store.contract import Store
from interlock.store.migrations import Migration
from interlock.store.postgres import PostgresStore, schema
from interlock.store.redis import RedisStore, scripts
from interlock.store.sqlite import SqliteStore, database
from interlock.testing.servers import PostgresServer, RedisServer
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import creation, look, made

INCOMPATIBLE = "-- incompatible\n"
WRITERS = "".join(
    f"ALTER FUNCTION interlock.{name} RENAME TO later_{name};\n"
    for name in ("write_wave", "judge_commits", "write_batch", "write_one")
)


class Place(NamedTuple):
    """Where programs of one store meet, and what the next migration of it could be."""

    open: Callable[[], Awaitable[Store]]
    module: ModuleType
    harmless: str
    harmful: str


@pytest.fixture(params=["sqlite", "postgres", "redis"])
async def place(
    request: pytest.FixtureRequest, postgres: PostgresServer, redis: RedisServer, tmp_path: Path
) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:

        async def opened(make: Callable[..., Store], *named: Any, **settings: Any) -> Store:
            store = make(*named, CATALOGUE, timeout_s=PATIENCE_S, **settings)
            stack.push_async_callback(store.close)
            await store.open()
            return store

        if request.param == "sqlite":
            table = "CREATE TABLE later (a);\n"
            yield Place(lambda: opened(SqliteStore, str(tmp_path / "a.db")), database, table, table)
        elif request.param == "postgres":
            url = postgres.new_database()
            table = "CREATE TABLE interlock.later (a integer);\n"
            yield Place(lambda: opened(PostgresStore, url), schema, table, WRITERS)
        else:
            prefix = redis.new_prefix()
            script = "call('SET', P .. 'later', 1)\n"
            yield Place(lambda: opened(RedisStore, redis.url, prefix=prefix), scripts, script, script)


@asynccontextmanager
async def newer(place: Place, monkeypatch: pytest.MonkeyPatch, text: str) -> AsyncIterator[Store]:
    """Open the store with a program that has one migration more."""
    with monkeypatch.context() as patch:
        migrations = place.module.MIGRATIONS
        more = (*migrations, Migration(len(migrations) + 1, "later", text))
        patch.setattr(place.module, "MIGRATIONS", more)
        patch.setattr(place.module, "SCHEMA_VERSION", len(more), raising=False)
        store = await place.open()
        assert (await store.status()).schema_version == len(more)
        yield store
        await store.close()


async def migrate(place: Place, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    async with newer(place, monkeypatch, text):
        pass


async def test_a_running_program_continues_after_a_migration_that_fits_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = await place.open()
    await made(older, creation("a"))
    await migrate(place, monkeypatch, place.harmless)
    [record] = await made(older, creation("b"))
    assert record.version == 1


async def test_a_running_program_refuses_to_write_after_a_migration_that_does_not_fit_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = await place.open()
    await made(older, creation("a"))
    harmful = INCOMPATIBLE + place.harmful
    await migrate(place, monkeypatch, harmful)
    for _ in range(2):  # it refuses the next commit as well
        with pytest.raises(SchemaTooNew, match=r"while this program was running\. Nothing was written"):
            await made(older, creation("b"))
    async with newer(place, monkeypatch, harmful) as store:
        assert await look(store, "b") is None


async def test_an_older_program_refuses_to_open_a_store_that_a_newer_program_has_migrated(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.open()
    await migrate(place, monkeypatch, place.harmless)
    known = len(place.module.MIGRATIONS)
    with pytest.raises(SchemaTooNew, match=f"schema version {known + 1}, this program knows {known}"):
        await place.open()


async def test_a_store_with_another_text_of_a_migration_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.open()
    first, *rest = place.module.MIGRATIONS
    edited = Migration(1, first.name, first.text + "-- edited in place\n")
    monkeypatch.setattr(place.module, "MIGRATIONS", (edited, *rest))
    with pytest.raises(SchemaMismatch, match=f"Migration 0001 .*{edited.fingerprint}"):
        await place.open()
