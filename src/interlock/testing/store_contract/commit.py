"""Commits are atomic and ordered, and a request is done at most once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from interlock.errors import InvalidRecord
from interlock.store.contract import Store
from interlock.store.records import (
    Change,
    Commit,
    Committed,
    Conflict,
    Key,
    Note,
    Recorded,
    Repeated,
    RequestAnswer,
    RequestReused,
    StepLine,
)
from interlock.testing.store_contract.builders import (
    DELIVERED,
    LONG_AGO,
    LOST,
    PACKED,
    PACKING,
    SENDING,
    SENT,
    creation,
    each,
    kinds_of,
    look,
    made,
    move,
    refusal,
    request,
    see,
    whole_feed,
)
from interlock.testing.store_contract.suite import StoreOpener


async def test_a_created_record_is_as_it_was_said(store: Store) -> None:
    ready_at = await store.now() + timedelta(days=2, microseconds=123_456)
    deadline_at = ready_at + timedelta(microseconds=1)
    columns: dict[str, Any] = {
        "parent": "order-9",
        "queue": "post",
        "labels": ("fragile", "heavy"),
        "priority": -7,
        "ready_at": ready_at,
        "deadline_at": deadline_at,
    }
    [outcome] = await store.commit(each(creation("a", body=b'{"to":"Ann","weight":3}', **columns)))
    assert isinstance(outcome, Committed)
    record = await see(store, "a")
    assert (record.kind, record.id, record.state, record.version) == ("parcel", "a", "packed", 1)
    assert record.body == b'{"to":"Ann","weight":3}'
    assert {name: getattr(record, name) for name in columns} == columns
    assert record.created_at == record.updated_at == outcome.at


async def test_a_bare_record_has_nothing_that_was_not_said(store: Store) -> None:
    [record] = await made(store, creation("a"))
    assert (record.parent, record.queue, record.labels, record.priority) == (None, None, (), 0)
    assert (record.ready_at, record.deadline_at) == (None, None)


async def test_a_commit_may_change_a_record_and_journal_a_refusal_about_it(store: Store) -> None:
    [record] = await made(store, creation("a", note=PACKING))
    commit = Commit(changes=(move(record, LOST, note=SENDING),), refusals=(refusal("a", "late"),))
    assert kinds_of(await store.commit([commit])) == [Committed]
    assert (await see(store, "a")).state == LOST
    notes = [(entry.version, entry.note.refusal) for entry in (await store.history(record.key)).entries]
    assert notes == [(1, ""), (2, ""), (2, "late")]


async def test_a_change_replaces_everything_but_the_time_of_creation(
    store: Store, opener: StoreOpener
) -> None:
    now = await store.now()
    [before] = await made(
        store,
        creation(
            "a",
            parent="order-9",
            queue="post",
            labels=("heavy",),
            priority=5,
            ready_at=now,
            deadline_at=now,
        ),
    )
    await opener.elapse(store, 0.002)
    [outcome] = await store.commit(each(Change(kind="parcel", id="a", expected=1, state=SENT, body=b"[1]")))
    assert isinstance(outcome, Committed)
    after = await see(store, "a")
    assert (after.state, after.version, after.body) == ("sent", 2, b"[1]")
    assert (after.parent, after.queue, after.labels, after.priority) == (None, None, (), 0)
    assert (after.ready_at, after.deadline_at) == (None, None)
    assert after.created_at == before.created_at
    assert after.updated_at == outcome.at > before.updated_at


async def test_all_of_one_commit_has_the_same_time(store: Store) -> None:
    changes = tuple(creation(name, note=PACKING) for name in "cab")
    [outcome] = await store.commit([Commit(changes=changes, refusals=(refusal("x"),), request=request("r"))])
    assert isinstance(outcome, Committed)
    records = [await see(store, name) for name in "abc"]
    assert {record.created_at for record in records} == {outcome.at}
    assert {entry.at for entry in await whole_feed(store)} == {outcome.at}
    recorded = await store.recall("r")
    assert recorded is not None
    assert recorded.created_at == outcome.at


async def test_a_record_may_be_changed_without_leaving_its_state(store: Store) -> None:
    [record] = await made(store, creation("a", DELIVERED))
    [after] = await made(store, move(record, DELIVERED, body=b'"signed"'))
    assert (after.state, after.version, after.body) == ("delivered", 2, b'"signed"')


async def test_one_commit_may_take_several_steps(store: Store) -> None:
    [record] = await made(store, creation("a"))
    [after] = await made(store, move(record, DELIVERED))
    assert after.state == "delivered"


async def test_a_record_may_be_created_in_any_state_that_can_be_reached(store: Store) -> None:
    records = await made(store, creation("a", PACKED), creation("b", SENT), creation("c", LOST))
    assert [record.state for record in records] == ["packed", "sent", "lost"]


async def test_load_answers_in_the_order_of_the_keys(store: Store) -> None:
    await made(store, creation("a"), creation("b"), creation("a", "written", kind="letter"))
    keys = [
        Key("parcel", "b"),
        Key("parcel", "x"),
        Key("letter", "a"),
        Key("parcel", "a"),
        Key("parcel", "b"),
    ]
    found = await store.load(keys)
    assert [record and (record.kind, record.id) for record in found] == [
        ("parcel", "b"),
        None,
        ("letter", "a"),
        ("parcel", "a"),
        ("parcel", "b"),
    ]
    assert await store.load([]) == []


async def test_a_thousand_records_can_be_loaded_at_once(store: Store) -> None:
    names = [f"p{number:04}" for number in range(1_000)]
    await store.commit(each(*(creation(name) for name in names)))
    found = await store.load([Key("parcel", name) for name in reversed(names)])
    assert [record.id for record in found if record] == names[::-1]


async def test_nothing_to_commit_is_nothing(store: Store) -> None:
    assert await store.commit([]) == []
    assert await whole_feed(store) == []


async def test_an_empty_commit_is_true(store: Store) -> None:
    before = await store.now()
    [outcome] = await store.commit([Commit()])
    assert isinstance(outcome, Committed)
    assert before <= outcome.at <= await store.now()


async def test_a_note_becomes_one_entry_of_the_journal(store: Store) -> None:
    note = Note(
        steps=(
            StepLine("parcel", "self", "send", "packed", "sent", "sender"),
            StepLine("label", "0/ä", "tick", "on", "on", "clock", moves=False),
        ),
        actor="ann@example.org",
        reason="Grüße, “quoted” \\ 'single' \n next line 🚚",
        cause="letter/9#3",
        request_id="r-1",
    )
    [outcome] = await store.commit([Commit(changes=(creation("a", note=note),))])
    assert isinstance(outcome, Committed)
    [entry] = await whole_feed(store)
    assert (entry.kind, entry.id, entry.version) == ("parcel", "a", 1)
    assert entry.note == note
    assert entry.at == outcome.at


async def test_a_change_without_a_note_is_no_news(store: Store) -> None:
    [record] = await made(store, creation("a"))
    await made(store, move(record, PACKED, deadline_at=await store.now()))
    assert await whole_feed(store) == []


async def test_a_refusal_is_journalled_and_changes_nothing(store: Store) -> None:
    [record] = await made(store, creation("a"))
    [record] = await made(store, move(record, SENT))
    [outcome] = await store.commit([Commit(refusals=(refusal("a", "late"), refusal("nobody", "stale")))])
    assert isinstance(outcome, Committed)
    assert await see(store, "a") == record
    assert await look(store, "nobody") is None
    entries = await whole_feed(store)
    assert [(e.id, e.version, e.note.refusal, e.note.actor) for e in entries] == [
        ("a", 2, "late", "eve"),
        ("nobody", 0, "stale", "eve"),
    ]


async def test_a_refusal_names_the_version_that_the_record_has_in_its_turn(store: Store) -> None:
    [record] = await made(store, creation("a"))
    outcomes = await store.commit(
        [
            Commit(refusals=(refusal("a", "before"),)),
            Commit(changes=(move(record, SENT, note=SENDING),), refusals=(refusal("a", "with"),)),
            Commit(refusals=(refusal("a", "after"),)),
        ]
    )
    assert kinds_of(outcomes) == [Committed] * 3
    entries = [(entry.version, entry.note.refusal) for entry in await whole_feed(store)]
    assert entries == [(1, "before"), (2, ""), (2, "with"), (2, "after")]


async def test_a_commit_is_done_as_a_whole_or_not_at_all(store: Store) -> None:
    [a, b, c] = await made(store, creation("a"), creation("b"), creation("c"))
    await made(store, move(c))
    commit = Commit(
        changes=(
            move(a, SENT, note=SENDING),
            creation("d", note=PACKING),
            move(b, SENT, note=SENDING),
            move(c, SENT, note=SENDING),
        ),
        refusals=(refusal("a"),),
        request=request("r"),
    )
    assert await store.commit([commit]) == [Conflict(c.key, 1, 2)]
    assert [(await see(store, name)).version for name in "abc"] == [1, 1, 2]
    assert await look(store, "d") is None
    assert await whole_feed(store) == []
    assert await store.recall("r") is None


async def test_the_answers_are_in_the_order_of_the_commits(store: Store) -> None:
    [a, b] = await made(store, creation("a"), creation("b"))
    outcomes = await store.commit(
        [
            *each(creation("a"), move(a), creation("c")),
            Commit(refusals=(refusal("b"),)),
            *each(creation("b"), move(b, LOST)),
        ]
    )
    assert kinds_of(outcomes) == [Conflict, Committed, Committed, Committed, Conflict, Committed]
    assert [(await see(store, name)).state for name in "abc"] == ["sent", "lost", "packed"]


async def test_a_batch_may_create_a_record_and_change_it(store: Store) -> None:
    chain = [
        creation("a", note=PACKING),
        creation("b"),
        msgspec.structs.replace(creation("a", SENT, note=SENDING), expected=1),
        msgspec.structs.replace(creation("a", DELIVERED, body=b"3"), expected=2),
    ]
    assert kinds_of(await store.commit(each(*chain))) == [Committed] * 4
    record = await see(store, "a")
    assert (record.version, record.state, record.body) == (3, "delivered", b"3")
    assert [entry.version for entry in (await store.history(record.key)).entries] == [1, 2]


async def test_a_batch_as_large_as_the_store_takes_is_done_at_once(store: Store) -> None:
    size = store.capabilities.max_batch
    outcomes = await store.commit(each(*(creation(f"p{number}", note=PACKING) for number in range(size))))
    assert kinds_of(outcomes) == [Committed] * size
    assert [entry.id for entry in await whole_feed(store)] == [f"p{number}" for number in range(size)]


async def test_a_batch_with_something_that_no_store_may_take_is_refused_whole(store: Store) -> None:
    with pytest.raises(InvalidRecord) as caught:
        await store.commit(each(creation("a"), creation("b", priority=1_000), creation("c")))
    assert caught.value.todo
    assert [await look(store, name) for name in "abc"] == [None, None, None]


async def test_a_commit_changes_each_record_once(store: Store) -> None:
    with pytest.raises(InvalidRecord):
        await store.commit([Commit(changes=(creation("a"), creation("a")))])
    assert await look(store, "a") is None


async def test_records_of_different_kinds_may_have_the_same_id(store: Store) -> None:
    changes = (creation("a", note=PACKING), creation("a", "written", kind="letter", note=PACKING))
    assert kinds_of(await store.commit([Commit(changes=changes)])) == [Committed]
    assert (await see(store, "a")).state == "packed"
    assert (await see(store, "a", "letter")).state == "written"
    assert len((await store.history(Key("letter", "a"))).entries) == 1


async def test_of_many_that_are_changed_alike_each_keeps_its_own_body_and_entry(store: Store) -> None:
    names = [f"p{number:02}" for number in range(20)]
    records = await made(store, *(creation(name) for name in names))
    bodies = [b'"' + "\u00fc".encode() * place + b'"' for place in range(20)]
    changes = [move(record, body=body, note=SENDING) for record, body in zip(records, bodies, strict=True)]
    cursor = await store.latest()
    records = await made(store, *changes)
    assert [record.body for record in records] == bodies
    entries = await whole_feed(store, cursor)
    assert [(entry.id, entry.version) for entry in entries] == [(name, 2) for name in names]


async def test_a_record_that_is_changed_twice_in_a_batch_has_an_entry_for_each_version(store: Store) -> None:
    """All entries have the same content, and none depends on the final version of the record."""
    records = await made(store, *(creation(f"p{number:02}") for number in range(10)))
    once = [move(record, note=SENDING) for record in records]
    again = msgspec.structs.replace(once[3], expected=2, expected_at=None)
    outcomes = await store.commit(each(*once, again))
    assert [type(outcome) for outcome in outcomes] == [Committed] * 11
    history = await store.history(records[3].key)
    assert [entry.version for entry in history.entries] == [2, 3]


async def test_a_request_is_remembered_with_its_answer(store: Store) -> None:
    sent = request("r", answer='{"id":"ä"}'.encode(), ttl_s=90.5)
    [outcome] = await store.commit([Commit(changes=(creation("a"),), request=sent)])
    assert isinstance(outcome, Committed)
    assert await store.recall("r") == Recorded(
        id="r",
        endpoint="POST /parcels",
        fingerprint="a",
        answer=RequestAnswer(status=201, body='{"id":"ä"}'.encode()),
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
