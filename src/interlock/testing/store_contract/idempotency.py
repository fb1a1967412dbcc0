"""A request is done at most once, and whoever repeats it is told what was answered."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec

from interlock.store.contract import Store
from interlock.store.records import Answer, Commit, Committed, Recorded, Repeated, RequestReused
from interlock.testing.store_contract.builders import (
    LONG_AGO,
    PACKING,
    creation,
    each,
    kinds_of,
    look,
    made,
    move,
    request,
    see,
    whole_feed,
)
from interlock.testing.store_contract.catalogue import DELIVERED, LOST
from interlock.testing.store_contract.opener import StoreOpener


async def test_a_request_is_remembered_with_its_answer(store: Store) -> None:
    asked = request("r", answer='{"id":"ä"}'.encode(), ttl_s=90.5)
    [outcome] = await store.commit([Commit(changes=(creation("a"),), request=asked)])
    assert isinstance(outcome, Committed)
    assert await store.recall("r") == Recorded(
        id="r",
        endpoint="POST /parcels",
        fingerprint="a",
        answer=Answer(status=201, body='{"id":"ä"}'.encode()),
        created_at=outcome.at,
        expires_at=outcome.at + timedelta(seconds=90.5),
    )


async def test_an_unknown_request_is_not_recalled(store: Store) -> None:
    assert await store.recall("nobody") is None


async def test_a_repeat_is_answered_and_does_nothing(store: Store, opener: StoreOpener) -> None:
    await store.commit([Commit(changes=(creation("a", note=PACKING),), request=request("r", answer=b"1"))])
    other = await opener.open()
    again = Commit(changes=(creation("b", note=PACKING),), request=request("r", answer=b"2"))
    [outcome] = await other.commit([again])
    recorded = await store.recall("r")
    assert recorded is not None
    assert outcome == Repeated(recorded)
    assert recorded.answer.body == b"1"
    assert await look(store, "b") is None
    assert len(await whole_feed(store)) == 1


async def test_the_same_id_for_something_else_is_refused(store: Store) -> None:
    await store.commit([Commit(changes=(creation("a"),), request=request("r", fingerprint="one"))])
    [outcome] = await store.commit(
        [Commit(changes=(creation("b"),), request=request("r", fingerprint="two"))]
    )
    recorded = await store.recall("r")
    assert recorded is not None
    assert outcome == RequestReused(recorded, "two")
    assert recorded.fingerprint == "one"
    assert await look(store, "b") is None


async def test_a_request_that_changes_nothing_is_remembered_too(store: Store) -> None:
    assert kinds_of(await store.commit([Commit(request=request("r"))] * 2)) == [Committed, Repeated]


async def test_a_request_twice_in_one_batch_is_done_once(store: Store) -> None:
    outcomes = await store.commit(
        [
            Commit(changes=(creation("a"),), request=request("r", answer=b"1")),
            *each(creation("n")),
            Commit(changes=(creation("b"),), request=request("r", answer=b"2")),
            Commit(changes=(creation("c"),), request=request("r", fingerprint="other")),
        ]
    )
    assert kinds_of(outcomes) == [Committed, Committed, Repeated, RequestReused]
    assert isinstance(outcomes[2], Repeated)
    assert outcomes[2].recorded.answer.body == b"1"
    assert [await look(store, name) for name in "bc"] == [None, None]


async def test_a_refused_commit_leaves_its_request_free(store: Store) -> None:
    [a, b] = await made(store, creation("a"), creation("b", DELIVERED))
    await made(store, move(a))
    past = await store.now() - LONG_AGO
    for refused in (
        Commit(changes=(creation("a"),), request=request("r")),
        Commit(changes=(move(b, LOST),), request=request("r")),
        Commit(request=request("r"), not_after=past),
    ):
        assert Committed not in kinds_of(await store.commit([refused]))
        assert await store.recall("r") is None
    other = request("r", fingerprint="other")
    assert kinds_of(await store.commit([Commit(changes=(creation("c"),), request=other)])) == [Committed]


async def test_an_expired_request_is_forgotten_without_anybody_sweeping(
    store: Store, opener: StoreOpener
) -> None:
    await store.commit([Commit(changes=(creation("a"),), request=request("r", answer=b"1", ttl_s=0.02))])
    await opener.elapse(store, 0.03)
    assert await store.recall("r") is None


async def test_an_expired_request_is_new_again(store: Store, opener: StoreOpener) -> None:
    await store.commit([Commit(changes=(creation("a"),), request=request("r", answer=b"1", ttl_s=0.02))])
    await opener.elapse(store, 0.03)
    again = request("r", fingerprint="other", answer=b"2")
    [outcome] = await store.commit([Commit(changes=(creation("b"),), request=again)])
    assert isinstance(outcome, Committed)
    recorded = await store.recall("r")
    assert recorded is not None
    assert (recorded.answer.body, recorded.fingerprint, recorded.created_at) == (b"2", "other", outcome.at)
    assert kinds_of(await store.commit([Commit(request=again)])) == [Repeated]


async def test_a_request_lives_as_long_as_it_said(store: Store, opener: StoreOpener) -> None:
    await store.commit([Commit(request=request("short", ttl_s=0.02)), Commit(request=request("long"))])
    await opener.elapse(store, 0.03)
    assert await store.recall("short") is None
    assert await store.recall("long") is not None


async def test_sixty_four_racers_with_one_request_have_one_effect(store: Store, opener: StoreOpener) -> None:
    stores = [await opener.open() for _ in range(4)]
    [goal] = await made(store, creation("goal"))

    async def race(number: int) -> object:
        change = move(goal, body=str(number).encode(), note=PACKING)
        commit = Commit(changes=(change, creation(f"p{number}")), request=request("r", answer=b"%d" % number))
        [outcome] = await stores[number % 4].commit([commit])
        return outcome

    outcomes = await asyncio.gather(*(race(number) for number in range(64)))
    winners = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Committed)]
    repeats = [outcome for outcome in outcomes if isinstance(outcome, Repeated)]
    assert (len(winners), len(repeats)) == (1, 63)
    assert {repeat.recorded.answer.body for repeat in repeats} == {b"%d" % winners[0]}
    after = await see(store, "goal")
    assert (after.version, after.body) == (2, b"%d" % winners[0])
    there = [number for number in range(64) if await look(store, f"p{number}") is not None]
    assert there == winners
    assert len(await whole_feed(store)) == 1


async def test_different_requests_do_not_know_each_other(store: Store) -> None:
    names = ["a", "A", "á", "a ", " a", "a:b", "{a}", "a%", "a*"]
    commits = [Commit(request=msgspec.structs.replace(request(name), fingerprint=name)) for name in names]
    assert kinds_of(await store.commit(commits)) == [Committed] * len(names)
    found = [await store.recall(name) for name in names]
    assert [recorded and recorded.fingerprint for recorded in found] == names
