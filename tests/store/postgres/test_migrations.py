"""The schema is the sum of its migrations, made once whoever comes first, and never guessed at."""

from __future__ import annotations

import asyncio
import runpy
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PROGRAM_S

from interlock.errors import ForeignSchema, SchemaTooNew, StoreMisconfigured, StoreTooOld, StoreUnavailable
from interlock.store.postgres import PostgresStore
from interlock.store.postgres.schema import MIGRATIONS, check_version
from interlock.testing.servers import PostgresServer
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import creation, made, see

OpenStore = Callable[..., Awaitable[PostgresStore]]
DUMP = Path(__file__).with_name("dump_schema.py")


@pytest.fixture
def url(server: PostgresServer) -> str:
    """A database without the schema."""
    return server.new_database(template="template0")


async def test_the_schema_is_the_sum_of_the_migrations(url: str, open_store: OpenStore) -> None:
    await open_store(url)
    tools = runpy.run_path(str(DUMP))
    pinned = tools["PINNED"].read_text(encoding="utf-8")
    assert await tools["dump"](url) == pinned, f"Run {DUMP.name}, and see whether you meant that."


async def test_opening_twice_changes_nothing(url: str, open_store: OpenStore, shell: Any) -> None:
    first = await open_store(url)
    await made(first, creation("a"))
    before = await shell.fetch("SELECT xmin, * FROM interlock.meta")
    second = await open_store(url)
    assert await shell.fetch("SELECT xmin, * FROM interlock.meta") == before
    assert (await see(second, "a")).version == 1
    assert (await second.status()).schema_version == len(MIGRATIONS)


OPEN = """
import asyncio, sys
from interlock.store.postgres import PostgresStore
from interlock.testing.store_contract import CATALOGUE

async def work() -> None:
    store = PostgresStore(sys.argv[1], CATALOGUE, timeout_s=60.0)
    await store.open()
    print((await store.status()).schema_version)
    await store.close()

asyncio.run(work())
"""


@pytest.mark.long
def test_eight_processes_may_be_the_first_at_once(url: str) -> None:
    command = [sys.executable, "-c", OPEN, url]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    assert [process.communicate(timeout=PROGRAM_S)[0] for process in processes] == [
        f"{len(MIGRATIONS)}\n"
    ] * 8


async def test_a_newer_schema_is_refused_and_left_alone(url: str, open_store: OpenStore, shell: Any) -> None:
    await open_store(url)
    await shell.execute("UPDATE interlock.meta SET schema_version = 999")
    with pytest.raises(SchemaTooNew, match="999"):
        await open_store(url)
    assert await shell.fetchval("SELECT schema_version FROM interlock.meta") == 999


@pytest.mark.parametrize(
    "theirs",
    [
        "CREATE TABLE interlock.record (song text)",
        "CREATE TABLE interlock.meta (song text)",
        "CREATE TABLE interlock.meta (application text, song text)",
        "CREATE VIEW interlock.journal AS SELECT 1 AS song",
    ],
)
async def test_tables_of_another_application_are_refused_and_left_unchanged(
    url: str, open_store: OpenStore, shell: Any, theirs: str
) -> None:
    await shell.execute(f"CREATE SCHEMA interlock; {theirs}")
    with pytest.raises(ForeignSchema) as caught:
        await open_store(url)
    assert "?schema=" in caught.value.todo
    tables = "SELECT count(*) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = $1"
    assert await shell.fetchval(tables, "interlock") == 1, "Nothing half-made is left behind."


async def test_other_tables_in_the_same_schema_do_no_harm(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    await shell.execute("CREATE TABLE public.songs (name text)")
    store = await open_store(f"{url}&schema=public")
    await made(store, creation("a"))
    assert await shell.fetchval("SELECT id FROM public.record") == "a"


async def test_two_schemas_of_one_database_are_two_stores(url: str, open_store: OpenStore) -> None:
    one, two = await open_store(f"{url}&schema=one"), await open_store(f"{url}&schema=two")
    await made(one, creation("a"))
    assert (await one.status()).records == {"parcel": {"packed": 1}}
    assert (await two.status()).records == {}


async def test_a_table_that_has_changed_is_loaded_anew_and_others_are_left_alone(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    await open_store(url)
    await shell.execute("DELETE FROM interlock.path; UPDATE interlock.kind SET digest = 'old'")
    await shell.execute("INSERT INTO interlock.kind VALUES ('song', 'sung', 'x')")
    store = await open_store(url)
    await made(store, creation("a"))
    assert await shell.fetchval("SELECT count(*) FROM interlock.kind WHERE name = 'song'") == 1


@pytest.mark.parametrize("version", [(12, 22), (9, 6)])
def test_an_old_server_is_refused(version: tuple[int, int]) -> None:
    with pytest.raises(StoreTooOld, match=f"PostgreSQL {version[0]}"):
        check_version(version)


def test_the_oldest_that_will_do_is_let_in() -> None:
    check_version((13, 0))


async def test_opening_a_missing_database_raises_an_error_that_names_it(
    server: PostgresServer, open_store: OpenStore
) -> None:
    with pytest.raises(StoreMisconfigured, match="nowhere"):
        await open_store(server.url_of("nowhere"))


async def test_opening_an_address_without_a_server_raises_store_unavailable(
    open_store: OpenStore, tmp_path: Path
) -> None:
    with pytest.raises(StoreUnavailable, match="no server answers"):
        await open_store(f"postgresql://ann:hunter2@/work?host={tmp_path}")


@pytest.mark.parametrize("options", ["", "&listen=off"])
async def test_opening_a_read_only_database_raises_an_error_that_names_the_cause(
    server: PostgresServer, open_store: OpenStore, options: str
) -> None:
    name = server.new_database_name(template="template0")
    server.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(StoreUnavailable, match="read-only"):
        await open_store(server.url_of(name) + options)


async def test_a_database_of_another_encoding_is_refused(
    server: PostgresServer, open_store: OpenStore
) -> None:
    options = "ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE_PROVIDER libc LOCALE 'C'"
    server.sql(f"CREATE DATABASE ascii {options}")
    with pytest.raises(StoreMisconfigured, match="SQL_ASCII"):
        await open_store(server.url_of("ascii"))


async def test_a_wrong_password_is_refused_and_not_repeated(server: PostgresServer) -> None:
    """The private server trusts everybody, so one that asks for passwords stands in for it."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(4), "big")
        startup = await reader.readexactly(size - 4)
        if startup == (80877103).to_bytes(4, "big"):
            writer.write(b"N")
            size = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(size - 4)
        words = b'SFATAL\0C28P01\0Mpassword authentication failed for user "ann"\0\0'
        writer.write(b"E" + (len(words) + 4).to_bytes(4, "big") + words)
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        store = PostgresStore(f"postgresql://ann:hunter2@127.0.0.1:{port}/work", CATALOGUE)
        with pytest.raises(StoreMisconfigured, match="password authentication failed") as caught:
            await store.open()
        assert "hunter2" not in str(caught.value.as_dict())
        await store.close()


async def test_the_capabilities_report_that_a_server_without_fsync_is_not_durable(
    url: str, open_store: OpenStore
) -> None:
    store = await open_store(url)
    assert store.capabilities.durable is False, "This server runs without fsync."
    assert "fsync=off" in store.capabilities.durability


async def test_opening_a_store_as_a_user_without_privileges_raises_permission_denied(
    server: PostgresServer, open_store: OpenStore
) -> None:
    name = server.new_database_name(template="template0")
    server.sql("CREATE ROLE stranger LOGIN")
    url = server.url_of(name).replace("postgres@", "stranger@")
    with pytest.raises(StoreMisconfigured, match="permission denied"):
        await open_store(url)
