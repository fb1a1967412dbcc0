"""Servers that die, hang, fill up and forget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.effort import further
from tests.waiting import PATIENCE_S

from interlock.errors import StoreUnavailable
from interlock.store.contract import Store
from interlock.store.records import Commit, Committed, Conflict, JournalledRefusal, Key, Note, Query, Record
from interlock.store.redis import RedisStore
from interlock.testing.servers import RedisServer
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import PACKING, SENDING, creation, move

from .conftest import OpenStore

StartServer = Callable[..., RedisServer]


@contextmanager
def hasty(store: RedisStore, timeout_s: float) -> Iterator[None]:
    """Let it wait no longer than this; what has to succeed is outside."""
    before, store._links._timeout_s = store._links._timeout_s, timeout_s
    try:
        yield
    finally:
        store._links._timeout_s = before


@contextmanager
def deadlines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[asyncio.Timeout]]:
    """Collect the deadlines of calls that begin now, so that a test can say when one is over."""
    made: list[asyncio.Timeout] = []

    def noted(when: float | None) -> asyncio.Timeout:
        made.append(asyncio.Timeout(when))
        return made[-1]

    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "timeout_at", noted)
        yield made


async def bump(store: Store, name: str) -> bool:
    """Count one further in a record; whether that was acknowledged. What is unknown is read, not hoped."""
    [record] = await store.load([Key("parcel", name)])
    assert record is not None
    change = move(record, "packed", body=str(record.version).encode(), note=SENDING)
    [outcome] = await store.commit([Commit(changes=(change,))])
    return isinstance(outcome, Committed)


async def count_up(store: Store, name: str, stop: asyncio.Event) -> int:
    acknowledged = 0
    while not stop.is_set():
        try:
            acknowledged += await bump(store, name)
        except StoreUnavailable:
            await asyncio.sleep(0)
    return acknowledged


@pytest.mark.long  # chaos/test_killing kills the server as well
async def test_nothing_acknowledged_is_lost_and_nothing_done_twice_when_the_server_is_killed(
    own_server: StartServer, open_store: OpenStore
) -> None:
    server = own_server(append_only="always")
    store = await open_store(server, "a")
    names = [f"p{number}" for number in range(8)]
    await store.commit([Commit(changes=(creation(name, note=PACKING),)) for name in names])
    stop = asyncio.Event()
    counters = [asyncio.create_task(count_up(store, name, stop)) for name in names]
    for _ in range(3):
        cursor = await store.latest()
        async with asyncio.timeout(PATIENCE_S):
            while len((await store.feed(cursor)).entries) < 100:
                await asyncio.sleep(0)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
    stop.set()
    acknowledged = await asyncio.gather(*counters)
    for name, number in zip(names, acknowledged, strict=True):
        [record] = await store.load([Key("parcel", name)])
        assert record is not None
        entries = (await store.history(record.key)).entries
        assert record.version - 1 >= number, "Nothing acknowledged is lost."
        assert record.version - 1 <= number + 3, "At most one unknown outcome for each crash."
        assert [entry.version for entry in entries][-1] == record.version
        assert len(entries) == min(record.version, 1_000), "One entry for each step, none twice."


@pytest.mark.parametrize("verb", ["commit", "load", "open", *further("now", "epoch", "latest", "status")])
async def test_the_deadline_holds_when_the_server_hangs(
    own_server: StartServer, open_store: OpenStore, verb: str
) -> None:
    server = own_server()
    store = await open_store(server, "a")
    fresh = RedisStore(server.url, store._catalogue, prefix="a", timeout_s=0.3)
    calls = {
        "now": store.now,
        "epoch": store.epoch,
        "commit": lambda: store.commit([Commit(changes=(creation("a"),))]),
        "load": lambda: store.load([Key("parcel", "a")]),
        "latest": store.latest,
        "status": store.status,
        "open": fresh.open,
    }
    server.pause()
    try:
        with hasty(store, 0.3), pytest.raises(StoreUnavailable, match=r"0\.3 s") as caught:
            async with asyncio.timeout(PATIENCE_S):
                await calls[verb]()
    finally:
        server.resume()
    assert caught.value.facts["outcome"] == ("unknown" if verb in {"commit", "epoch"} else "not done")
    await store.now()


class Proxy:
    """Stands between a store and its server, and eats answers when told to."""

    def __init__(self, server: RedisServer, path: Path) -> None:
        self._server, self._path = server, path
        self.eats = False
        self.eaten = asyncio.Event()
        self.url = f"unix://{path}?db=0"

    async def serve(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._carry, self._path)

    async def _carry(self, requests: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        assert isinstance(self._server.address, Path)
        reader, writer = await asyncio.open_unix_connection(self._server.address)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(requests, writer, to_server=True))
                both.create_task(self._pass_on(reader, answers, to_server=False))
        finally:
            answers.close()

    async def _pass_on(
        self, source: asyncio.StreamReader, to: asyncio.StreamWriter, *, to_server: bool
    ) -> None:
        while data := await source.read(65_536):
            if self.eats and not to_server:
                self.eaten.set()
                continue
            to.write(data)
        to.close()


async def test_a_commit_whose_reply_was_lost_is_applied_once_and_a_repeat_returns_a_conflict(
    redis: RedisServer, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy(redis, tmp_path / "proxy.sock")
    async with await proxy.serve():
        store = RedisStore(proxy.url, CATALOGUE, prefix=prefix, timeout_s=PATIENCE_S)
        await store.open()
        await store.commit([Commit(changes=(creation("first"),))])  # or the lost answer would be NOSCRIPT
        commit = Commit(
            changes=(creation("a", note=PACKING),),
            refusals=(JournalledRefusal(kind="parcel", id="b", note=Note(refusal="late")),),
        )
        proxy.eats = True
        with deadlines(monkeypatch) as made:
            committing = asyncio.create_task(store.commit([commit]))
            await proxy.eaten.wait()
            made[-1].reschedule(0.0)
            with pytest.raises(StoreUnavailable, match="unknown"):
                await committing
        proxy.eats = False
        [again] = await store.commit([commit])
        assert again == Conflict(Key("parcel", "a"), 0, 1)
        assert len((await store.feed()).entries) == 2, "Neither the driver nor the store has repeated it."
        await store.close()


async def test_a_late_answer_is_not_taken_for_the_next_one(
    own_server: StartServer, open_store: OpenStore
) -> None:
    server = own_server()
    store = await open_store(server, "a")
    await store.commit([Commit(changes=(creation("a"),))])
    server.pause()
    for _ in range(3):
        with hasty(store, 0.2), pytest.raises(StoreUnavailable):
            await store.latest()
    server.resume()
    [record] = await store.load([Key("parcel", "a")])
    assert isinstance(record, Record)


async def test_a_commit_on_a_server_that_is_out_of_memory_raises_and_changes_nothing(
    own_server: StartServer, open_store: OpenStore
) -> None:
    server = own_server()
    store = await open_store(server, "a")
    await store.commit([Commit(changes=(creation("a"),))])
    server.run("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreUnavailable, match="out of memory") as caught:
        await store.commit([Commit(changes=(creation("b", note=PACKING),))])
    assert caught.value.facts["outcome"] == "not done"
    assert "maxmemory" in caught.value.todo
    [a, b] = await store.load([Key("parcel", "a"), Key("parcel", "b")])
    assert (a is not None, b) == (True, None), "What is there can still be read."
    server.run("CONFIG", "SET", "maxmemory", "0")
    [outcome] = await store.commit([Commit(changes=(creation("b", note=PACKING),))])
    assert isinstance(outcome, Committed)


async def test_the_store_reloads_its_scripts_after_the_server_has_flushed_them(
    redis: RedisServer, store: RedisStore
) -> None:
    redis.run("SCRIPT", "FLUSH")
    [outcome] = await store.commit([Commit(changes=(creation("a"),))])
    assert isinstance(outcome, Committed)


async def test_a_cancelled_call_leaves_no_connection_behind(
    own_server: StartServer, open_store: OpenStore
) -> None:
    server = own_server()
    store = await open_store(server, "a")
    server.pause()
    tasks = [asyncio.create_task(store.now()) for _ in range(40)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    server.resume()
    assert await asyncio.gather(*(store.latest() for _ in range(40)))


async def test_a_closed_store_raises_store_unavailable_and_can_be_closed_twice(store: RedisStore) -> None:
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.now()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.epoch()


async def test_a_batch_too_large_for_one_call_is_done_in_several(store: RedisStore) -> None:
    body = b'"' + b"x" * 1_000_000 + b'"'
    commits = [Commit(changes=(creation(f"p{number:02}", body=body),)) for number in range(40)]
    assert {type(outcome) for outcome in await store.commit(commits)} == {Committed}
    page = await store.find(Query(kind="parcel", newest_first=False))
    assert [record.id for record in page.records] == [f"p{number:02}" for number in range(40)]
    assert all(record.body == body for record in page.records)
