"""Every call has a deadline, whatever the server does; and what is unknown is said to be unknown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.waiting import PATIENCE_S

from interlock.errors import StoreUnavailable
from interlock.store.postgres import PostgresStore
from interlock.testing.servers import PostgresServer, postgres_server
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import Sender, creation, each, look, made, see, take, waiting

OpenStore = Callable[..., Awaitable[PostgresStore]]
TIMEOUT_S = 0.5


@pytest.fixture
def fragile() -> Iterator[PostgresServer]:
    """A server that the test may stop."""
    with postgres_server(durable=False) as server:
        yield server


@pytest.fixture
async def black_hole() -> AsyncIterator[int]:
    """The port of somebody who accepts connections and never says a word."""
    writers: list[asyncio.StreamWriter] = []

    async def swallow(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    listener = await asyncio.start_server(swallow, "127.0.0.1", 0)
    yield listener.sockets[0].getsockname()[1]
    for writer in writers:
        writer.close()
    listener.close()


async def test_opening_a_store_times_out_when_the_server_does_not_respond(black_hole: int) -> None:
    store = PostgresStore(
        f"postgresql://ann:hunter2@127.0.0.1:{black_hole}/work", CATALOGUE, timeout_s=TIMEOUT_S
    )
    with pytest.raises(StoreUnavailable, match="did not answer in time") as caught:
        async with asyncio.timeout(PATIENCE_S):
            await store.open()
    assert "hunter2" not in str(caught.value.as_dict())
    await store.close()


async def test_a_server_that_falls_silent_leaves_commits_in_doubt_and_claims_undone(
    fragile: PostgresServer, open_store: OpenStore
) -> None:
    url = fragile.new_database()
    store = await open_store(url)
    patient = await open_store(url)
    await waiting(patient, "a")
    await store.now()  # it has a connection
    store._connections.timeout_s = TIMEOUT_S
    fragile.pause()
    with pytest.raises(StoreUnavailable, match="Whether it was committed is unknown") as caught:
        await store.commit(each(creation("b")))
    assert caught.value.facts["outcome_unknown"] is True
    assert "Read" in caught.value.todo
    with pytest.raises(StoreUnavailable):
        await store.claim(take(), Sender())
    with pytest.raises(StoreUnavailable, match="Nothing was changed"):
        await store.now()
    fragile.resume()
    assert (await see(patient, "a")).state == "packed"
    await made(patient, creation("c"))


async def test_a_claimer_that_hangs_holds_records_for_a_few_seconds_at_most(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    """The server ends a transaction that nobody goes on with; the claimer's own deadline is far off."""
    store = await open_store(url)
    await waiting(store, "a")
    # In one message: between two the server might already have hung up.
    await shell.execute(
        "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '10ms';"
        "SELECT FROM interlock.live WHERE id = 'a' FOR UPDATE"
    )
    async with asyncio.timeout(PATIENCE_S):
        while not (sender := Sender()).names:
            await store.claim(take(), sender)
            if sender.names:
                break
    assert sender.names == ["a"]


async def test_a_caller_that_is_cancelled_leaves_a_pool_that_works(url: str, open_store: OpenStore) -> None:
    store = await open_store(f"{url}&pool=2")
    for _ in range(20):
        tasks = [asyncio.create_task(store.commit(each(creation("x")))) for _ in range(4)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await made(store, creation("y"))


async def test_a_caller_that_is_cancelled_while_it_is_given_a_connection_loses_none(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    store = await open_store(f"{url}&pool=2")
    clients = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'interlock'"
    clients += " AND datname = current_database()"
    before = await shell.fetchval(clients)
    for turns in range(12):
        # So long unused that it is first looked whether the server has hung up.
        start = await shell.fetchval("SELECT clock_timestamp()")
        while await shell.fetchval("SELECT clock_timestamp() < $1::timestamptz + interval '0.05 s'", start):
            pass
        task = asyncio.create_task(store.now())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await store.now()
    assert await shell.fetchval(clients) <= before + 1


async def test_more_callers_than_connections_wait_for_their_turn(url: str, open_store: OpenStore) -> None:
    store = await open_store(f"{url}&pool=2")
    await asyncio.gather(*(made(store, creation(f"p{number}")) for number in range(50)))
    assert (await store.status()).records == {"parcel": {"packed": 50}}


async def test_after_close_nothing_is_reached_any_more(url: str, open_store: OpenStore) -> None:
    store = await open_store(url)
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="has been closed"):
        await look(store, "a")
    with pytest.raises(StoreUnavailable, match="has been closed"):
        store.subscribe(lambda: None)
