"""A store whose records were hashes (schema 1) is migrated to lines, and everything in it goes on.

`layout_1.json` was written by the code of that time: see `make_layout_1.py`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis import Redis

from interlock.store.records import Batch, Commit, Committed, Entry, Key, Query, Record
from interlock.store.redis import RedisStore, scripts
from interlock.testing.servers import RedisServer
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import (
    PACKING,
    SENDING,
    all_found,
    claimed,
    creation,
    look,
    made,
    move,
    refusal,
    see,
    swept,
    take,
    whole_feed,
)

from .conftest import Shell

KEPT = Path(__file__).with_name("layout_1.json")


@pytest.fixture
def kept() -> dict[str, Any]:
    return dict(json.loads(KEPT.read_text(encoding="utf-8")))


@pytest.fixture
def earlier(redis: RedisServer, prefix: str, kept: dict[str, Any]) -> str:
    """A store of schema 1 under a prefix of its own; returns what its keys begin with."""
    with Redis.from_url(redis.url) as client:
        for command in kept["commands"]:
            words = [word.replace("{old}", f"{{{prefix}}}") for word in command]
            client.execute_command(*(word.encode(errors="surrogateescape") for word in words))
        client.hset(f"{{{prefix}}}:request:r", "expires_at", "5000000000000000")
        client.persist(f"{{{prefix}}}:request:r")
        client.zadd(f"{{{prefix}}}:requests", {"r": 5_000_000_000_000_000})
    return f"{{{prefix}}}:"


@pytest.fixture
async def migrated(redis: RedisServer, prefix: str, earlier: str) -> AsyncIterator[RedisStore]:
    store = RedisStore(redis.url, CATALOGUE, prefix=prefix)
    await store.open()
    yield store
    await store.close()


def read(kept: dict[str, Any], name: str, as_type: Any) -> Any:
    return msgspec.convert(kept[name], as_type)


async def test_records_and_their_journal_are_read_as_before(
    migrated: RedisStore, kept: dict[str, Any]
) -> None:
    records = read(kept, "records", list[Record])
    assert len(records) == 12
    assert await migrated.load([record.key for record in records]) == records
    entries = read(kept, "entries", list[Entry])
    assert await whole_feed(migrated, limit=3) == entries
    for place in (0, 5, len(entries) - 1):
        feed = await migrated.feed(entries[place].cursor)
        assert list(feed.entries) == entries[place + 1 :], "A cursor of that time goes on where it was."
    for record in records:
        of_record = [entry for entry in entries if entry.id == record.id]
        assert list((await migrated.history(record.key)).entries) == of_record
    worn = await migrated.history(Key("parcel", "worn"), after_version=10, limit=2)
    assert [entry.version for entry in worn.entries] == [11, 12]
    status = await migrated.status()
    assert (status.schema_version, status.entries, status.requests) == (2, len(entries), 1)
    assert status.records == {
        "parcel": {"packed": 8, "sent": 1, "delivered": 1, "lost": 2},
    }


async def test_queries_return_the_same_records_after_the_migration(migrated: RedisStore) -> None:
    for query, names in {
        Query(kind="parcel", states=("delivered",)): ["done"],
        Query(kind="parcel", states=("packed", "sent"), queue="rail"): ["sent", "held"],
        Query(kind="parcel", queue="post"): ["ready", "urgent", "van", "late"],
        Query(kind="parcel", labels=("big",)): ["urgent", "label"],
        Query(kind="parcel", labels=("red",), states=("packed",)): ["label"],
        Query(kind="parcel", parent="order-9"): ["child"],
    }.items():
        oldest_first = msgspec.structs.replace(query, newest_first=False)
        assert await all_found(migrated, oldest_first, page=1) == names
        assert (await migrated.count(query)).number == len(names)


async def test_work_continues_where_it_was(migrated: RedisStore) -> None:
    claim = take(10, labels=("big",), handlers=("van",))
    assert await claimed(migrated, claim) == ["urgent", "ready", "van"]
    assert await claimed(migrated, take(queues=("rail",))) == ["held"], "A hold of before is over."
    assert await swept(migrated) == ["label"]
    ready = await see(migrated, "ready")
    assert (ready.state, ready.version) == ("sent", 2)
    [worn] = await made(migrated, move(await see(migrated, "worn"), note=SENDING))
    history = await migrated.history(worn.key)
    assert [entry.version for entry in history.entries] == list(range(1, 15))
    await migrated.commit([Commit(refusals=(refusal("worn", "late"),))])
    await made(migrated, move(worn, note=SENDING))
    history = await migrated.history(worn.key)
    assert [entry.version for entry in history.entries][-3:] == [14, 14, 15]
    batch = Batch(change=creation("", note=PACKING), ids=("new-1", "new-2"), given=(b"1", b"2"))
    before = await migrated.latest()
    assert [type(outcome) for outcome in await migrated.commit([batch])] == [Committed] * 2
    assert [entry.id for entry in await whole_feed(migrated, before)] == ["new-1", "new-2"]


async def test_ended_records_of_before_are_pruned_with_their_entries(
    migrated: RedisStore, shell: Shell, earlier: str
) -> None:
    entries = (await migrated.status()).entries
    pruned = await migrated.prune(kind="parcel", states=("delivered", "lost"), older_than=timedelta(0))
    assert (pruned.records, pruned.entries) == (3, 4)
    assert (await migrated.status()).entries == entries - 4
    assert await look(migrated, "done") is None
    assert (await migrated.history(Key("parcel", "done"))).entries == ()
    assert not [key for key in shell("KEYS", f"{earlier}*") if key.endswith((":done", ":lost", ":asked"))]


async def test_requests_of_before_are_remembered(migrated: RedisStore) -> None:
    recorded = await migrated.recall("r")
    assert recorded is not None
    assert recorded.answer.body == b'"done"'


async def test_nothing_of_the_earlier_layout_is_left(
    migrated: RedisStore, shell: Shell, earlier: str
) -> None:
    names = {key.removeprefix(earlier).split(":")[0] for key in shell("KEYS", f"{earlier}*")}
    earlier_names = "record ready lanes delayed due ended table held hold handlers migrating"
    assert names.isdisjoint(earlier_names.split())


@pytest.mark.parametrize("steps", [1, 2])
async def test_a_migration_that_was_interrupted_is_gone_on_with(
    redis: RedisServer, prefix: str, earlier: str, kept: dict[str, Any], steps: int
) -> None:
    store = RedisStore(redis.url, CATALOGUE, prefix=prefix)
    store._links.unlock()
    for _ in range(steps):
        assert await store._links.call(scripts.migrating(scripts.MIGRATIONS[1])) == b"more"
    assert redis.run("HGET", f"{earlier}schema", "version") == "1"
    assert redis.run("GET", f"{earlier}floor") == "2", "Programs of before write nothing from here on."
    await store.open()
    records = read(kept, "records", list[Record])
    assert await store.load([record.key for record in records]) == records
    await store.close()


async def test_many_records_are_migrated_in_several_steps(
    redis: RedisServer, prefix: str, earlier: str, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within one deadline only some of the steps are taken, and then it is asked again."""
    monkeypatch.setattr("interlock.store.redis.handshake._STEPS_AT_ONCE", 1)
    record = shell("HGETALL", f"{earlier}record:parcel:child")
    with Redis.from_url(redis.url) as client, client.pipeline() as pipeline:
        for number in range(1_200):
            pipeline.hset(f"{earlier}record:parcel:m{number}", mapping=record)
            pipeline.zadd(f"{earlier}created:parcel", {f"m{number}": int(record["created_at"])})
        pipeline.execute()
    store = RedisStore(redis.url, CATALOGUE, prefix=prefix)
    await store.open()
    found = await store.load([Key("parcel", f"m{number}") for number in range(1_200)])
    assert all(found)
    await store.close()
