"""How batches lie in Redis: few commands, one row of the journal, and rows that go with their last record."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from redis import Redis

from interlock.errors import InvalidSettings
from interlock.store.catalogue import Shown
from interlock.store.records import Batch, Commit, Committed, Key, Note, Query, Record, Work
from interlock.store.redis import RedisStore
from interlock.testing.servers import RedisServer
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import (
    PACKING,
    SENDING,
    creation,
    ids_of,
    kinds_of,
    leave,
    look,
    made,
    move,
    refusal,
    see,
    take,
    whole_feed,
)

from .conftest import OpenStore, Shell

DELIVERED = "delivered"


def names(number: int) -> tuple[str, ...]:
    return tuple(f"p{place:05}" for place in range(number))


def new(ids: Sequence[str], **columns: Any) -> Batch:
    columns.setdefault("note", PACKING)
    return Batch(change=creation("", **columns), ids=tuple(ids), given=tuple(b'"%d"' % len(n) for n in ids))


def moving(records: Sequence[Record], state: str, **columns: Any) -> Batch:
    columns = {"note": SENDING, "ready_at": None, "deadline_at": None, **columns}
    change = msgspec.structs.replace(move(records[0], state, **columns), id="", expected_at=None)
    seen = tuple(record.updated_at for record in records)
    return Batch(change=change, ids=tuple(record.id for record in records), expected_at=seen)


async def loaded(store: RedisStore, ids: Sequence[str]) -> list[Record]:
    found = await store.load([Key("parcel", name) for name in ids])
    return [record for record in found if record is not None]


async def committed(store: RedisStore, batch: Batch) -> None:
    assert set(kinds_of(await store.commit([batch]))) == {Committed}


def send(records: Sequence[Record], now: datetime) -> list[Work]:
    return [moving(records, "sent", deadline_at=now + timedelta(hours=1))]


def counted(redis: RedisServer) -> int:
    """How many commands the server has done since it was asked last."""
    with Redis.from_url(redis.url) as client:
        found = client.info("commandstats")
        client.config_resetstat()
    return sum(
        of["calls"] for name, of in found.items() if not name.startswith(("cmdstat_info", "cmdstat_con"))
    )


async def test_the_number_of_redis_commands_of_a_batch_does_not_grow_with_its_size(
    redis: RedisServer, open_store: OpenStore
) -> None:
    counts: list[list[int]] = []
    for number in (10, 10, 500):
        store, ids = await open_store(redis, redis.new_prefix()), names(number)
        past = await store.now() - timedelta(hours=1)
        await store.claim(take(1), leave)  # every script is loaded
        await store.commit([])
        steps: list[int] = []
        counted(redis)
        await committed(store, new(ids, queue="post", ready_at=past))
        steps.append(counted(redis))
        assert kinds_of(await store.claim(take(number), send)) == [Committed] * number
        steps.append(counted(redis))
        sent = await loaded(store, ids)
        counted(redis)
        await committed(store, moving(sent, DELIVERED))
        steps.append(counted(redis))
        counts.append(steps)
    _, few, many = counts
    # What is claimed is read in pieces, so that large records do not fill the memory.
    assert few[0] == many[0]
    assert few[1] <= many[1] <= few[1] + 1
    assert few[2] == many[2]
    assert max(many) < 40


async def test_a_batch_is_one_row_of_the_journal(shell: Shell, prefix: str, store: RedisStore) -> None:
    await committed(store, new(names(300)))
    await committed(store, moving(await loaded(store, names(300)), "sent"))
    assert shell("XLEN", f"{{{prefix}}}:journal") == 2
    assert shell("KEYS", f"{{{prefix}}}:history:*") == []
    assert (await store.status()).entries == 600


async def test_a_journal_row_of_a_batch_is_deleted_when_its_last_record_is_pruned(
    shell: Shell, prefix: str, store: RedisStore
) -> None:
    ids = names(10)
    await committed(store, new(ids))
    for first, last in ((0, 4), (4, 9), (9, 10)):
        await committed(store, moving(await loaded(store, ids[first:last]), DELIVERED))
        pruned = await store.prune(kind="parcel", states=(DELIVERED,), older_than=timedelta(0))
        assert (pruned.records, pruned.entries) == (last - first, 2 * (last - first))
        left = ids[last:]
        assert ids_of(await whole_feed(store, limit=1)) == list(left)
        assert (await store.status()).entries == len(left)
        assert shell("XLEN", f"{{{prefix}}}:journal") == bool(left)
        assert shell("HLEN", f"{{{prefix}}}:gone") == bool(left)
    assert shell("KEYS", f"{{{prefix}}}:line:*") == []
    assert shell("KEYS", f"{{{prefix}}}:given:*") == []


async def test_many_steps_and_refusals_of_one_record_are_reported_in_their_order(
    shell: Shell, prefix: str, store: RedisStore
) -> None:
    [record] = await made(store, creation("a", note=PACKING))
    expected = ["1 "]
    for number in range(30):
        [record] = await made(store, move(record, "packed", note=Note(reason="again")))
        expected.append(f"{record.version} ")
        if number % 11 == 3:
            await store.commit([Commit(refusals=(refusal("a", "stale"),))])
            expected.append(f"{record.version} stale")
        assert await see(store, "a") == record
    history = await store.history(record.key)
    assert [f"{entry.version} {entry.note.refusal}" for entry in history.entries] == expected
    assert [entry.cursor for entry in history.entries] == [e.cursor for e in await whole_feed(store)]
    page = await store.history(record.key, after_version=20, limit=8)
    assert [entry.version for entry in page.entries] == [21, 22, 23, 24, 25, 26, 27, 27]
    await made(store, move(record, DELIVERED))
    pruned = await store.prune(kind="parcel", states=(DELIVERED,), older_than=timedelta(0))
    assert (pruned.records, pruned.entries) == (1, len(expected))
    assert shell("KEYS", f"{{{prefix}}}:history:*") == []
    assert shell("XLEN", f"{{{prefix}}}:journal") == 0


async def test_a_batch_that_is_larger_than_a_row_is_kept_in_several(
    shell: Shell, prefix: str, store: RedisStore
) -> None:
    ids = names(2_500)
    outcomes = await store.commit([new(ids)])
    assert kinds_of(outcomes) == [Committed] * 2_500
    assert shell("XLEN", f"{{{prefix}}}:journal") == 4
    assert ids_of(await whole_feed(store, limit=900)) == list(ids)
    assert ids_of(await store.history(Key("parcel", ids[-1]))) == [ids[-1]]
    assert (await store.count(Query(kind="parcel"))).number == 2_500


async def test_a_batch_of_a_kind_that_is_shown_shows_each_of_its_records(
    redis: RedisServer, prefix: str, shell: Shell
) -> None:
    shown = Shown("seen:{id}", lambda change: change.body, index="seen")
    catalogue = {**CATALOGUE, "parcel": msgspec.structs.replace(CATALOGUE["parcel"], shown=shown)}
    store = RedisStore(redis.url, catalogue, prefix=prefix)
    await store.open()
    try:
        await committed(store, new(["a", "b"]))
        assert shell("GET", f"{{{prefix}}}:seen:b") == '{"weight":3}'
        assert shell("ZRANGE", f"{{{prefix}}}:seen", "0", "-1") == ["a", "b"]
        assert ids_of(await whole_feed(store)) == ["a", "b"]
    finally:
        await store.close()


async def test_a_batch_too_large_for_one_call_is_done_in_several(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.store.redis.codec._MAX_CALL_BYTES", 300)
    ids = names(40)
    await committed(store, new(ids))
    await committed(store, moving(await loaded(store, ids), "sent"))
    assert {record.version for record in await loaded(store, ids)} == {2}
    assert await look(store, ids[-1]) is not None


def test_a_state_with_a_line_break_is_refused(redis: RedisServer) -> None:
    odd = msgspec.structs.replace(CATALOGUE["parcel"], states=("packed", "se\nnt"))
    with pytest.raises(InvalidSettings, match="without a line break"):
        RedisStore(redis.url, {"parcel": odd})
