"""Many records that are created by one commit with nothing but their bodies, such as keys."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from interlock.store.contract import Store
from interlock.store.records import (
    Change,
    Commit,
    Committed,
    Conflict,
    Illegal,
    Key,
    Query,
    Repeated,
    TooLate,
)
from interlock.testing.store_contract.builders import (
    LONG_AGO,
    PACKING,
    SENDING,
    SENT,
    WRITTEN,
    creation,
    kinds_of,
    look,
    made,
    move,
    request,
    whole_feed,
)
from interlock.testing.store_contract.suite import StoreOpener

MANY = 20


def letters(names: list[str]) -> list[Change]:
    """Return the creations of plain records with bodies of different lengths."""
    bodies = [b'"' + "\u00fc".encode() * place + b'"' for place in range(len(names))]
    return [
        creation(name, WRITTEN, kind="letter", body=body) for name, body in zip(names, bodies, strict=True)
    ]


def keys_of(changes: list[Change]) -> list[Key]:
    """Return their keys."""
    return [change.key for change in changes]


async def test_plain_records_are_created_with_the_rest_of_their_commit(store: Store) -> None:
    names = [f"l{number * 7 % MANY:02}" for number in range(MANY)]
    plain = letters(names)
    changes = (creation("a", note=PACKING), creation("b", note=PACKING), *plain)
    [outcome] = await store.commit([Commit(changes=changes)])
    assert isinstance(outcome, Committed)
    found = await store.load(keys_of(plain))
    for change, record in zip(plain, found, strict=True):
        assert record is not None
        assert (record.body, record.state, record.version) == (change.body, "written", 1)
        assert record.created_at == record.updated_at == outcome.at
        assert (record.queue, record.parent, record.labels, record.priority) == (None, None, (), 0)
        assert (record.given, record.result, record.ready_at, record.deadline_at) == (b"", b"", None, None)
    assert [entry.id for entry in await whole_feed(store)] == ["a", "b"]
    page = await store.find(Query(kind="letter", newest_first=False))
    assert [record.id for record in page.records] == sorted(names)


async def test_plain_records_are_changed_like_others(store: Store) -> None:
    names = [f"l{number:02}" for number in range(MANY)]
    plain = letters(names)
    await store.commit([Commit(changes=tuple(plain))])
    found = await store.load(keys_of(plain))
    again = [move(record, WRITTEN, body=b"2", note=SENDING) for record in found if record is not None]
    assert kinds_of(await store.commit([Commit(changes=tuple(again))])) == [Committed]
    after = await store.load(keys_of(plain))
    assert [(each.version, each.body) for each in after if each is not None] == [(2, b"2")] * MANY
    assert len(await whole_feed(store)) == MANY


async def test_a_plain_record_that_is_there_refuses_the_whole_commit(store: Store) -> None:
    plain = letters([f"l{number:02}" for number in range(MANY)])
    for place in (0, MANY // 2, MANY - 1):
        there = plain[place]
        [record] = await made(store, msgspec.structs.replace(there, id=f"{there.id}-{place}", body=b"1"))
        changes = [*plain]
        changes[place] = msgspec.structs.replace(there, id=record.id)
        [outcome] = await store.commit(
            [Commit(changes=(creation("a", note=PACKING), *changes), request=request("r"))]
        )
        assert outcome == Conflict(record.key, 0, 1)
        assert await look(store, "a") is None
        others = await store.load([key for key in keys_of(changes) if key != record.key])
        assert others == [None] * (MANY - 1)
        assert await store.load([record.key]) == [record]
    assert await whole_feed(store) == []
    assert await store.recall("r") is None


async def test_a_conflict_of_a_plain_record_precedes_an_illegal_step(store: Store) -> None:
    plain = letters([f"l{number:02}" for number in range(MANY)])
    [there] = await made(store, plain[-1])
    [parcel] = await made(store, creation("a", SENT))
    illegal = move(parcel, "packed")
    assert await store.commit([Commit(changes=(illegal, *plain))]) == [Conflict(there.key, 0, 1)]
    assert await store.commit([Commit(changes=(illegal, *plain[:-1]))]) == [
        Illegal(parcel.key, "sent", "packed")
    ]
    assert await store.load(keys_of(plain[:-1])) == [None] * (MANY - 1)


async def test_of_two_commits_with_the_same_plain_record_the_first_is_done(
    store: Store, opener: StoreOpener
) -> None:
    other = await opener.open()
    first = letters([f"a{number:02}" for number in range(MANY)])
    second = letters([f"b{number:02}" for number in range(MANY)])
    second[3] = msgspec.structs.replace(second[3], id=first[5].id)
    outcomes = await store.commit([Commit(changes=tuple(first)), Commit(changes=tuple(second))])
    assert outcomes[1] == Conflict(first[5].key, 0, 1)
    assert await other.commit([Commit(changes=tuple(second))]) == [outcomes[1]]
    gone = [change.key for change in second if change.id != first[5].id]
    assert await store.load(gone) == [None] * (MANY - 1)


async def test_a_request_with_plain_records_is_done_once_and_in_time(store: Store) -> None:
    plain = letters([f"l{number:02}" for number in range(MANY)])
    late = Commit(changes=tuple(plain), request=request("r"), not_after=await store.now() - LONG_AGO)
    assert kinds_of(await store.commit([late])) == [TooLate]
    in_time = msgspec.structs.replace(late, not_after=await store.now() + timedelta(hours=1))
    assert kinds_of(await store.commit([in_time])) == [Committed]
    assert kinds_of(await store.commit([msgspec.structs.replace(in_time, not_after=None)])) == [Repeated]
    found = await store.load(keys_of(plain))
    assert [each.version for each in found if each is not None] == [1] * MANY


async def test_a_commit_creates_more_than_a_thousand_plain_records(store: Store) -> None:
    plain = letters([f"l{number:04}" for number in range(1_001)])
    plain = [msgspec.structs.replace(each, body=b"%d" % place) for place, each in enumerate(plain)]
    assert kinds_of(await store.commit([Commit(changes=(creation("a"), *plain))])) == [Committed]
    found = await store.load(keys_of(plain))
    assert [each.body for each in found if each is not None] == [change.body for change in plain]
