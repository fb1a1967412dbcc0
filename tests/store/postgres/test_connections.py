"""A store at rest holds two connections, grows to a small limit, and waits for a server that is full."""

from __future__ import annotations

import asyncio
import gc
import logging
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal

import asyncpg
import pytest
from tests.waiting import until

from interlock.errors import StoreUnavailable
from interlock.lifecycles.process import BACKING_OFF, RUNNING
from interlock.store.contract import Store
from interlock.store.postgres import PostgresStore, connections, failures
from interlock.store.postgres.connections import AsyncpgConnection, PostgresPool, TimedConnection
from interlock.store.postgres.driver import ARRAYS
from interlock.store.postgres.target import POOL, target_of
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.testing.servers import PostgresServer, postgres_server
from interlock.testing.store_contract.builders import Sender, creation, made, take, waiting
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import Registry
from interlock.worker.telemetry import make_log

from .conftest import OpenStore


def held(server: PostgresServer, url: str) -> int:
    """How many connections of Interlock the server has to a database."""
    name = url.partition("?")[0].rpartition("/")[2]
    sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'interlock' AND datname = "
    [[number]] = server.sql(f"{sql}'{name}'")
    return int(number or 0)


@asynccontextmanager
async def load(store: Store) -> AsyncIterator[None]:
    """Have the store answer many calls at once, all the time."""

    async def ask() -> None:
        while True:
            with suppress(StoreUnavailable):  # the machine may stand still for longer than a call may take
                await store.status()

    asking = [asyncio.create_task(ask()) for _ in range(20)]
    try:
        yield
    finally:
        for task in asking:
            task.cancel()
        ended = await asyncio.gather(*asking, return_exceptions=True)
    assert {type(end) for end in ended} == {asyncio.CancelledError}


@pytest.mark.long  # a connection is let go of after it was not needed for a while
async def test_a_store_opens_connections_up_to_its_limit_under_load_and_closes_them_when_idle(
    server: PostgresServer, url: str, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MEASURE_S", 0.5)
    store = await open_store(url)
    stop = store.subscribe(lambda: None)
    await until(lambda: held(server, url) == 2, "one is for work and one for listening")
    async with load(store):
        await until(lambda: held(server, url) == POOL + 1, "it has as many as it may")
    # Calls that are cancelled take their connections with them; that may be all of them.
    await until(lambda: held(server, url) <= 2, "it has let go of what it does not need")
    await made(store, creation("a"))
    stop()


async def test_the_pool_never_exceeds_the_size_set_in_the_url(
    server: PostgresServer, url: str, open_store: OpenStore
) -> None:
    store = await open_store(f"{url}&pool=2")
    async with load(store):
        await until(lambda: held(server, url) == 2, "it has as many as it may")
        await asyncio.gather(*(store.now() for _ in range(50)))
        assert held(server, url) == 2


async def test_a_worker_at_rest_holds_two_or_three_connections(
    server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MEASURE_S", 0.5)
    ports: list[EmbeddedOrchestrator] = []  # the last is open: one that connects too slowly is given up
    home = threading.get_ident()

    def port() -> EmbeddedOrchestrator:
        made = EmbeddedOrchestrator(url)
        if threading.get_ident() == home:  # leases are renewed in a thread, over a port of their own
            ports.append(made)
        return made

    worker = WorkerProcess(
        WorkerSettings(name="test", stop_grace_s=1.0, log_level="error"),
        Registry(),
        port,
        incarnation="0",
        log=make_log("error", "text"),
    )
    running = asyncio.create_task(worker.run())
    try:
        await until(lambda: worker.state in (RUNNING, BACKING_OFF), "it has begun")
        async with load(ports[-1].services.store):
            await until(lambda: held(server, url) > POOL, "it has as many as it may")
        await until(lambda: held(server, url) in (2, 3), "it rests")
    finally:
        worker.shutdown.hurry()
        await asyncio.wait([running])
    running.result()


def say_goodbye(store: PostgresStore) -> int:
    """Have the driver read the last word of a server that has not closed its end yet; how often."""
    fields = b"SFATAL\0C57P05\0Mterminating connection due to idle-session timeout\0\0"
    idle = store._connections._idle
    word = b"E" + struct.pack("!i", len(fields) + 4) + fields
    for link in idle:
        link.connection._protocol.data_received(word)  # type: ignore[attr-defined]
        assert not link.connection.is_closed()
    return len(idle)


@pytest.mark.parametrize("pooled", ["", "&prepared=off"])
async def test_a_connection_that_the_server_has_terminated_is_replaced(
    url: str, open_store: OpenStore, pooled: str
) -> None:
    store = await open_store(url + pooled)
    assert say_goodbye(store) == 1
    await store.now()
    assert say_goodbye(store) == 1
    await waiting(store, "a")
    assert say_goodbye(store) == 1
    await store.claim(take(), sender := Sender())
    assert sender.names == ["a"]


async def test_a_commit_raises_store_unavailable_when_the_server_terminates_every_connection(
    url: str, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(url)
    connect = store._connections.connect

    async def connect_in_vain(timeout_s: float) -> AsyncpgConnection:
        connection = await connect(timeout_s)
        store._connections._idle.append(TimedConnection(connection))
        say_goodbye(store)
        store._connections._idle.clear()
        return connection

    monkeypatch.setattr(store._connections, "connect", connect_in_vain)
    say_goodbye(store)
    with pytest.raises(StoreUnavailable, match=r"the connection broke\. Nothing was changed"):
        await made(store, creation("a"))


async def test_a_listener_that_is_stopped_while_it_connects_leaves_no_error_behind(
    small: PostgresServer, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_store(small.new_database())
    for _ in range(20):
        store.subscribe(lambda: None)()
    await store.close()
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


async def test_a_store_whose_closing_is_cancelled_closes_all_its_connections(
    server: PostgresServer, url: str, open_store: OpenStore
) -> None:
    store = await open_store(url)
    pool = store._connections
    pool._idle += [TimedConnection(await pool.connect(10.0)) for _ in range(3)]
    links = [*pool._idle]
    closing = asyncio.create_task(store.close())
    while pool._idle:
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    await until(lambda: all(link.connection.is_closed() for link in links), "none is left open")


async def test_a_store_that_is_closed_while_it_connects_to_a_silent_server_hangs_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "_LEAVE_S", 0.01)
    greeted, hung_up = asyncio.Event(), asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        greeted.set()
        await reader.read()
        hung_up.set()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        pool = PostgresPool(target_of(f"postgresql://interlock@127.0.0.1:{port}/none?sslmode=disable"), 600.0)
        calling = asyncio.create_task(pool.fetch("Asking", "SELECT 1"))
        await until(greeted.is_set, "it has begun")
        calling.cancel()
        await asyncio.wait([calling])
        assert not hung_up.is_set(), "the driver is still connecting"
        await pool.close()
        await until(hung_up.is_set, "nothing is left behind")


async def test_array_types_are_those_of_the_server_and_no_query_asks_for_them(
    url: str, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = (await open_store(url))._connections
    connection = await pool.connect(10.0)
    asked = []
    ask = asyncpg.Connection._introspect_types  # type: ignore[attr-defined]

    async def note(self: object, types: list[int], timeout_s: float | None) -> object:
        asked.append(types)
        return await ask(self, types, timeout_s)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", note)
    values = {
        "bool": [True, None, False],
        "bytea": [b"", b"\x00{,}"],
        "int2": [-1, 2],
        "int4": [1, None],
        "int8": [2**62],
        "float8": [0.5, None],
        "text": ["", "a,b", 'q"{}', None],
        "timestamptz": [datetime(2026, 1, 1, microsecond=1, tzinfo=UTC), None],
    }
    assert sorted(values) == sorted(name for name, _ in ARRAYS.values())
    for oid, (name, element) in ARRAYS.items():
        sql = f"SELECT $1::{name}[] AS given, t.oid, t.typelem FROM pg_type AS t WHERE t.oid = {oid}"
        row = await connection.fetchrow(sql, values[name])
        assert row is not None
        assert [*row] == [values[name], oid, element]
        assert await connection.fetchval(f"SELECT $1::{name}[]", []) == []
    assert asked == []
    assert await connection.fetchval("SELECT '{1.5}'::numeric[]") == [Decimal("1.5")]
    assert asked == [[1231]], "the driver asks for types that we do not use"
    await connection.close()


async def test_the_stores_of_a_process_share_one_connection_that_listens(
    server: PostgresServer, url: str, open_store: OpenStore
) -> None:
    here, there = await open_store(url), await open_store(url)
    first, second = asyncio.Event(), asyncio.Event()
    stop = here.subscribe(first.set)
    there.subscribe(second.set)
    await until(lambda: first.is_set() and second.is_set(), "both listen")
    assert held(server, url) == 3
    stop()
    second.clear()
    elsewhere = await asyncpg.connect(url)
    await elsewhere.execute("NOTIFY interlock_journal")
    await elsewhere.close()
    await until(second.is_set, "who is left is woken")


@pytest.fixture
def small() -> Iterator[PostgresServer]:
    """A server on TCP with room for five."""
    settings = {"max_connections": "5", "superuser_reserved_connections": "0", "max_wal_senders": "0"}
    with postgres_server(durable=False, tcp=True, settings=settings) as server:
        yield server


async def test_opening_a_store_on_a_full_server_waits_for_a_connection_and_logs_a_warning(
    small: PostgresServer, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    url = small.new_database()
    others = [await asyncpg.connect(url) for _ in range(5)]
    try:
        with caplog.at_level(logging.WARNING, "interlock.store"):
            opening = asyncio.create_task(open_store(url))
            await until(lambda: "waiting for a connection" in caplog.text, "it waits")
            assert "too many clients" in caplog.text
            assert not opening.done()
            for other in others[:2]:
                await other.close()
            store = await opening
        async with load(store):  # with the connections that it can have
            await made(store, creation("a"))
    finally:
        for other in others:
            other.terminate()


def test_the_error_for_a_full_server_names_max_connections_and_the_pool_option() -> None:
    error = asyncpg.TooManyConnectionsError("sorry, too many clients already")
    translated = failures.translate(error, "Opening", target_of("postgresql://ann@db/work"), unknown=False)
    assert "no connection left" in translated.sentence
    assert "max_connections" in translated.todo
    assert "?pool=" in translated.todo
