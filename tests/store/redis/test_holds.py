"""Taking records, deciding on them, and not coming back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from tests.clocks import move_server
from tests.waiting import PATIENCE_S

from interlock.errors import InvalidRecord
from interlock.store.ranking import microseconds, moment
from interlock.store.records import Claim, Commit, Committed, Conflict, Key, Note, Record
from interlock.store.redis import RedisStore, scripts
from interlock.store.redis.codec import pack
from interlock.testing.servers import RedisServer
from interlock.testing.store_contract.builders import creation, move

from .conftest import OpenStore, Shell

TAKE = Claim(kind="parcel", queues=("post",), limit=10)


def send(records: Sequence[Record], now: datetime) -> list[Commit]:
    return [Commit(changes=(move(record, ready_at=None, deadline_at=None),)) for record in records]


async def waiting(store: RedisStore, *names: str, deadline: bool = False) -> None:
    past = await store.now() - timedelta(hours=1)
    changes = [
        creation(n, queue="post", ready_at=past, deadline_at=past if deadline else None) for n in names
    ]
    await store.commit([Commit(changes=(change,)) for change in changes])


HOLD_S = PATIENCE_S
"""Longer than a machine stands still; the clock of the server is moved past it."""


async def take_and_die(store: RedisStore, *, verb: str = "claim") -> None:
    """The first half of a claim, by somebody who never comes to the second."""
    if verb == "claim":
        args = ("parcel", 10, 0, store._hold_us, 100, 1, pack((["post"], [], False)))
        await store._links.call(scripts.CLAIM, *args)
    else:
        await store._links.call(scripts.DUE, 10, 0, store._hold_us, pack(["parcel"]))


async def until_some(store: RedisStore) -> list[str]:
    """Claim until something is given out."""
    async with asyncio.timeout(PATIENCE_S):
        names: list[str] = []
        while not names:

            def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
                names.extend(record.id for record in records)
                return send(records, now)

            outcomes = await store.claim(TAKE, decide)
            assert all(isinstance(outcome, Committed) for outcome in outcomes)
        return names


@pytest.mark.parametrize("verb", ["claim", "due"])
async def test_records_held_by_a_dead_claimer_can_be_claimed_after_the_hold_expires(
    redis: RedisServer, prefix: str, open_store: OpenStore, verb: str
) -> None:
    store = await open_store(redis, prefix, hold_s=HOLD_S)
    await waiting(store, "a", "b", deadline=True)
    await take_and_die(store, verb=verb)
    assert await store.claim(TAKE, send) == []
    assert await store.due(["parcel"], 10, send) == []
    move_server(redis, HOLD_S)
    assert await until_some(store) == ["a", "b"]
    assert redis.run("ZCARD", f"{{{prefix}}}:taken") == "0"
    assert redis.run("EXISTS", f"{{{prefix}}}:taken:1") == "0"


async def test_a_claimer_that_decides_too_late_meets_newer_versions(
    redis: RedisServer, prefix: str, open_store: OpenStore
) -> None:
    slow = await open_store(redis, prefix, hold_s=0)
    await waiting(slow, "a", "b")
    quick = await open_store(redis, prefix)
    taken: list[str] = []

    def decide_late(records: Sequence[Record], now: datetime) -> list[Commit]:
        taken.extend(record.id for record in records)
        return send(records, now)

    args = ("parcel", 10, 0, 0, 100, 1, pack((["post"], [], False)))
    answer = await slow._links.call(scripts.CLAIM, *args)
    assert await until_some(quick) == ["a", "b"]
    outcomes = await slow._decided(answer, decide_late, slow._links.deadline())
    assert [type(outcome) for outcome in outcomes] == [Conflict, Conflict]
    assert taken == ["a", "b"]
    assert await quick.claim(TAKE, send) == [], "Letting go late gives nothing out a second time."


async def test_claimed_records_without_a_decision_are_released_at_once(store: RedisStore) -> None:
    await waiting(store, "a", "b", "c", deadline=True)
    await store.claim(TAKE, lambda records, now: send(records[1:2], now))
    assert await until_some(store) == ["a", "c"]


async def test_a_commit_does_not_wait_for_a_hold(store: RedisStore) -> None:
    await waiting(store, "a", "b")
    [record, _] = await store.load([Key("parcel", "a"), Key("parcel", "b")])
    assert record is not None
    args = ("parcel", 10, 0, 60_000_000, 100, 1, pack((["post"], [], False)))
    answer = await store._links.call(scripts.CLAIM, *args)
    [outcome] = await store.commit([Commit(changes=(move(record, "lost", ready_at=None),))])
    assert isinstance(outcome, Committed)
    outcomes = await store._decided(answer, send, store._links.deadline())
    assert [type(outcome) for outcome in outcomes] == [Conflict, Committed]


async def test_a_held_record_that_another_commit_changed_is_claimed_only_once(store: RedisStore) -> None:
    await waiting(store, "a")
    [record] = await store.load([Key("parcel", "a")])
    assert record is not None
    await take_and_die(store)
    await store.commit([Commit(changes=(move(record, "packed", priority=3),))])
    assert await until_some(store) == ["a"], "The change made it free."
    assert await store.claim(TAKE, send) == []


async def test_many_delayed_records_are_given_out_by_rank_once_their_time_has_come(
    redis: RedisServer, store: RedisStore
) -> None:
    soon = await store.now() + timedelta(seconds=PATIENCE_S)
    names = [f"p{number:04}" for number in range(1_200)]
    changes = [creation(name, queue="post", ready_at=soon, priority=int(name == "p1100")) for name in names]
    await store.commit([Commit(changes=(change,)) for change in changes])
    assert await store.claim(TAKE, send) == []
    move_server(redis, PATIENCE_S)
    assert (await until_some(store))[:2] == ["p1100", "p0000"]


async def test_records_are_claimed_by_exact_rank_and_then_by_id(
    shell: Shell, prefix: str, store: RedisStore
) -> None:
    top, numbers = 2**53 - 1, f"{{{prefix}}}:numbers"
    shell("ZADD", numbers, str(top), "a", str(top - 1), "b", str(top - 2), "c")
    assert shell("ZRANGE", numbers, "0", "-1") == ["c", "b", "a"]
    assert shell("ZRANGEBYSCORE", numbers, str(top - 1), f"({top}") == ["b"]
    assert shell("EVAL", f"return string.format('%d', {top})", "0") == str(top)
    shell("DEL", numbers)
    names = ["é", "z", "Z", "a", "\U0001f4e6", "a0"]
    at = await store.now() - timedelta(hours=1)
    order = sorted(names)
    changes = [creation(name, queue="post", ready_at=at) for name in names]
    changes.append(creation("first", queue="post", ready_at=moment(microseconds(at) - 1)))
    changes.append(creation("last", queue="post", ready_at=moment(microseconds(at) + 1)))
    await store.commit([Commit(changes=(change,)) for change in changes])
    assert await until_some(store) == ["first", *order, "last"]


async def test_records_of_equal_rank_in_different_lanes_are_claimed_by_id(store: RedisStore) -> None:
    at = await store.now() - timedelta(hours=1)
    names = ["b", "a", "Z", "é", "c"]
    changes = [
        creation(name, queue="post", ready_at=at, labels=("x",) if number % 2 else ())
        for number, name in enumerate(names)
    ]
    await store.commit([Commit(changes=(change,)) for change in changes])
    taken: list[str] = []

    def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
        taken.extend(record.id for record in records)
        return send(records, now)

    await store.claim(Claim(kind="parcel", queues=("post",), labels=("x",), limit=10), decide)
    assert taken == sorted(names)


async def test_a_claim_releases_its_records_when_its_decision_cannot_be_encoded(store: RedisStore) -> None:
    await waiting(store, "a")
    broken = Note(reason="half a character: \ud83d")
    with pytest.raises(InvalidRecord, match="text"):
        await store.claim(TAKE, lambda records, _now: [Commit(changes=(move(records[0], note=broken),))])
    assert await until_some(store) == ["a"]
