"""Servers die, come back and are replaced; nothing acknowledged is lost, and the epoch tells."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S, PROGRAM_S

from interlock.errors import StoreUnavailable
from interlock.store.postgres import PostgresStore
from interlock.store.records import Committed, Conflict, Key
from interlock.testing.servers import PostgresServer, postgres_server
from interlock.testing.store_contract.builders import (
    DELIVERED,
    PACKING,
    SENDING,
    SENT,
    creation,
    each,
    made,
    move,
    see,
    whole_feed,
)

OpenStore = Callable[..., Awaitable[PostgresStore]]
ROUNDS = 3


@pytest.fixture
def fragile() -> Iterator[PostgresServer]:
    """A server that the test may kill; it keeps what it promises."""
    with postgres_server(durable=True) as server:
        yield server


class Writer:
    """Creates one parcel after the other, and repeats what is in doubt until it knows."""

    def __init__(self, store: PostgresStore, name: str) -> None:
        self.store = store
        self.name = name
        self.done: list[str] = []
        self.troubles = 0
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            name = f"{self.name}.{len(self.done)}"
            try:
                [outcome] = await self.store.commit(each(creation(name, note=PACKING)))
            except StoreUnavailable:
                self.troubles += 1
                continue
            assert isinstance(outcome, Committed) or outcome == Conflict(Key("parcel", name), 0, 1)
            self.done.append(name)

    async def more(self, number: int) -> None:
        """Come back when so many more are done."""
        wanted = len(self.done) + number
        while len(self.done) < wanted:
            await asyncio.sleep(0)


@pytest.mark.long  # chaos/test_killing kills a server in a quick run
async def test_a_server_that_is_killed_under_load_loses_nothing_that_was_acknowledged(
    fragile: PostgresServer, open_store: OpenStore
) -> None:
    store = await open_store(fragile.new_database())
    writers = [Writer(store, f"w{number}") for number in range(4)]
    async with asyncio.timeout(PROGRAM_S), asyncio.TaskGroup() as group:
        for writer in writers:
            group.create_task(writer.run())
        for _ in range(ROUNDS):
            await asyncio.gather(*(writer.more(20) for writer in writers))
            await asyncio.to_thread(fragile.kill)
            await asyncio.to_thread(fragile.start)
        await asyncio.gather(*(writer.more(20) for writer in writers))
        for writer in writers:
            writer.stopping = True
    names = [name for writer in writers for name in writer.done]
    assert sum(writer.troubles for writer in writers) > 0, "Nobody was disturbed."
    found = await store.load([Key("parcel", name) for name in names])
    assert [record.version for record in found if record is not None] == [1] * len(names)
    journal = [entry.id for entry in await whole_feed(store)]
    assert sorted(journal) == sorted(names), "Each was applied once, and nothing else."


async def test_a_restart_is_no_fail_over(fragile: PostgresServer, open_store: OpenStore) -> None:
    store = await open_store(fragile.new_database())
    before = await store.raise_epoch(above=10_000_000)  # which is far from what the time makes it grow to
    fragile.restart()
    assert await store.epoch() == before


async def test_a_stand_by_is_refused_until_it_is_promoted_and_then_the_epoch_has_grown(
    fragile: PostgresServer, open_store: OpenStore
) -> None:
    store = await open_store(fragile.new_database(), timeout_s=PATIENCE_S)
    await made(store, creation("a"))
    before = await store.epoch()
    fragile.stop()
    signal = fragile.data / "standby.signal"
    signal.touch()
    signal.chmod(0o666)
    fragile.start()
    with pytest.raises(StoreUnavailable, match="read-only"):
        await store.commit(each(creation("b")))
    assert fragile.sql("SELECT pg_promote()") == [["t"]]
    assert await store.epoch() > before
    assert await store.epoch() >= 2, "No less than the timeline."
    await made(store, creation("b"))
    assert (await see(store, "a")).version == 1


async def test_a_change_decided_on_a_write_that_a_failover_lost_is_refused_with_a_conflict(
    fragile: PostgresServer, open_store: OpenStore, tmp_path: Path
) -> None:
    """The promoted one counts to the same version again; who decided before must not be taken for later."""
    store = await open_store(fragile.new_database(), timeout_s=PATIENCE_S)
    [first] = await made(store, creation("a", body=b'"first"'))
    before = await store.epoch()
    fragile.stop()
    stand_by = tmp_path / "stand-by"
    subprocess.run(["cp", "-a", str(fragile.data), str(stand_by)], check=True)
    fragile.start()
    [lost] = await made(store, move(first, SENT, body=b'"lost"', note=SENDING))
    fragile.kill()
    shutil.rmtree(fragile.data)
    subprocess.run(["cp", "-a", str(stand_by), str(fragile.data)], check=True)
    signal = fragile.data / "standby.signal"
    signal.touch()
    signal.chmod(0o666)
    fragile.start()
    assert fragile.sql("SELECT pg_promote()") == [["t"]]
    assert await store.epoch() > before
    assert await see(store, "a") == first, "The write is lost."
    [other] = await made(store, move(first, SENT, body=b'"somebody else"', note=SENDING))
    assert (other.version, other.state) == (lost.version, lost.state)
    late = move(lost, DELIVERED, note=SENDING)
    assert await store.commit(each(late)) == [Conflict(other.key, 2, 2)]
    assert await see(store, "a") == other
    assert (await made(store, move(other, DELIVERED)))[0].state == "delivered"
