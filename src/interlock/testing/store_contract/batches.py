"""The three parts of a record's data, and one change of many records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from interlock.errors import InvalidRecord, TooLarge
from interlock.store.contract import Store
from interlock.store.records import (
    Batch,
    Change,
    Commit,
    Committed,
    Conflict,
    Illegal,
    Key,
    Query,
    Record,
    TooLate,
    Work,
)
from interlock.testing.store_contract.builders import (
    DELIVERED,
    LOST,
    PACKED,
    PACKING,
    QUEUE,
    SENDING,
    SENT,
    all_found,
    creation,
    each,
    ids_of,
    kinds_of,
    look,
    made,
    move,
    refusal,
    request,
    see,
    swept,
    take,
    whole_feed,
)

MANY = tuple(f"p{number:03}" for number in range(40))


def new(names: Sequence[str], **columns: Any) -> Batch:
    """Return a batch of new parcels, equal except for their `given`."""
    columns.setdefault("note", PACKING)
    given = tuple(f'{{"to":"{name}"}}'.encode() for name in names)
    return Batch(change=creation("", **columns), ids=tuple(names), given=given)


def sending(records: Sequence[Record], state: str = SENT, **columns: Any) -> Batch:
    """Return a batch that applies the same step to equal records."""
    columns = {"note": SENDING, "ready_at": None, "deadline_at": None, **columns}
    change = msgspec.structs.replace(move(records[0], state, **columns), id="", expected_at=None)
    seen = tuple(record.updated_at for record in records)
    return Batch(change=change, ids=tuple(record.id for record in records), expected_at=seen)


class BatchSender:
    """Decides to send all records of a claim as one batch, and remembers them."""

    def __init__(self) -> None:
        self.given: list[Record] = []

    def __call__(self, records: Sequence[Record], _now: datetime) -> list[Work]:
        self.given = list(records)
        return [sending(records)] if records else []


async def created(store: Store, names: Sequence[str] = MANY, **columns: Any) -> list[Record]:
    """Create a batch of parcels and load them."""
    outcomes = await store.commit([new(names, **columns)])
    assert kinds_of(outcomes) == [Committed] * len(names), outcomes
    return [await see(store, name) for name in names]


# Given data


async def test_the_given_part_of_a_record_is_kept_through_all_its_changes(store: Store) -> None:
    [record] = await made(store, creation("a", given=b'{"to":"Ann"}'))
    assert record.given == b'{"to":"Ann"}'
    [record] = await made(store, move(record, SENT, body=b"[1]"))
    assert (record.given, record.body) == (b'{"to":"Ann"}', b"[1]")
    [record] = await made(store, move(record, DELIVERED, body=b"[2]"))
    assert (record.given, record.body) == (b'{"to":"Ann"}', b"[2]")


async def test_a_record_that_was_given_nothing_has_nothing(store: Store) -> None:
    [record] = await made(store, creation("a"))
    assert (record.given, record.result) == (b"", b"")


async def test_the_given_part_can_never_be_changed(store: Store) -> None:
    [record] = await made(store, creation("a", given=b"1"))
    with pytest.raises(InvalidRecord, match="never be changed"):
        await store.commit(each(move(record, SENT, given=b"2")))
    assert await see(store, "a") == record


async def test_every_way_of_reading_returns_the_given_part(store: Store) -> None:
    now = await store.now()
    past = now - timedelta(minutes=1)
    await created(store, ["a", "b"], queue=QUEUE, ready_at=past, deadline_at=past, parent="order-9")
    for query in (
        Query(kind="parcel"),
        Query(kind="parcel", states=(PACKED,)),
        Query(kind="parcel", parent="order-9"),
    ):
        page = await store.find(query)
        assert {record.id: record.given for record in page.records} == {
            "a": b'{"to":"a"}',
            "b": b'{"to":"b"}',
        }
    sender = BatchSender()
    assert kinds_of(await store.claim(take(1), sender)) == [Committed]
    assert [(record.id, record.given) for record in sender.given] == [("a", b'{"to":"a"}')]
    sender = BatchSender()
    await store.due(["parcel"], 10, sender)
    assert [(record.id, record.given) for record in sender.given] == [("b", b'{"to":"b"}')]


# Result data


async def test_a_result_stays_until_another_is_said(store: Store) -> None:
    [record] = await made(store, creation("a"))
    [record] = await made(store, move(record, DELIVERED, result=b'{"by":"Bob"}'))
    assert record.result == b'{"by":"Bob"}'
    [record] = await made(store, move(record, DELIVERED, body=b"[2]"))
    assert (record.result, record.body) == (b'{"by":"Bob"}', b"[2]")
    [record] = await made(store, move(record, DELIVERED, result=b"2"))
    assert record.result == b"2"
    page = await store.find(Query(kind="parcel", states=(DELIVERED,)))
    assert page.records == (record,)


async def test_data_that_are_no_json_or_too_large_are_refused(store: Store) -> None:
    large = b'"' + b"x" * store.capabilities.max_body_bytes + b'"'
    for part in ("given", "result"):
        no_json: dict[str, Any] = {part: b"{"}
        too_large: dict[str, Any] = {part: large}
        second_bad: dict[str, Any] = {part: (b"1", b"{")}
        with pytest.raises(InvalidRecord, match="not JSON"):
            await store.commit(each(creation("a", **no_json)))
        with pytest.raises(TooLarge):
            await store.commit(each(creation("a", **too_large)))
        with pytest.raises(InvalidRecord, match="not JSON"):
            await store.commit([Batch(change=creation(""), ids=("a", "b"), **second_bad)])
    assert await look(store, "a") is None


async def test_data_come_back_byte_for_byte(store: Store) -> None:
    odd = '{"a" : "\\u0000é\\ud83d\\ude00\u2028", "b":1.50}'.encode()
    [record] = await made(store, creation("a", given=odd, result=odd))
    assert (record.given, record.result) == (odd, odd)


# Batches


async def test_a_batch_creates_what_single_commits_would(store: Store) -> None:
    records = await created(store, labels=("heavy",), priority=3, parent="order-9")
    assert [record.given for record in records] == [f'{{"to":"{name}"}}'.encode() for name in MANY]
    assert {record.version for record in records} == {1}
    assert {(record.labels, record.priority, record.parent) for record in records} == {
        (("heavy",), 3, "order-9")
    }
    entries = await whole_feed(store)
    assert ids_of(entries) == list(MANY)
    assert {(entry.version, entry.note) for entry in entries} == {(1, PACKING)}
    assert {entry.at for entry in entries} == {records[0].created_at}


async def test_a_batch_changes_what_single_commits_would(store: Store) -> None:
    records = await created(store)
    cursor = await store.latest()
    results = tuple(f'"{name}"'.encode() for name in MANY)
    batch = msgspec.structs.replace(sending(records, DELIVERED, body=b"[2]"), result=results)
    outcomes = await store.commit([batch])
    assert kinds_of(outcomes) == [Committed] * len(MANY)
    after = [await see(store, name) for name in MANY]
    assert [record.result for record in after] == list(results)
    assert [record.given for record in after] == [record.given for record in records]
    assert {(record.state, record.version, record.body) for record in after} == {(DELIVERED, 2, b"[2]")}
    assert [record.created_at for record in after] == [record.created_at for record in records]
    entries = await whole_feed(store, cursor)
    assert [(entry.id, entry.version, entry.note) for entry in entries] == [
        (name, 2, SENDING) for name in MANY
    ]


async def test_a_batch_fails_only_for_records_that_have_changed_meanwhile(store: Store) -> None:
    records = await created(store)
    await made(store, move(records[3], SENT), move(records[17], LOST))
    outcomes = await store.commit([sending(records, DELIVERED)])
    assert outcomes[3] == Conflict(Key("parcel", MANY[3]), 1, 2)
    assert outcomes[17] == Conflict(Key("parcel", MANY[17]), 1, 2)
    assert kinds_of(outcomes).count(Committed) == len(MANY) - 2
    assert (await see(store, MANY[3])).state == SENT
    assert (await see(store, MANY[4])).state == DELIVERED


async def test_of_a_batch_that_creates_only_those_fail_that_are_there_already(store: Store) -> None:
    await made(store, creation(MANY[5]))
    outcomes = await store.commit([new(MANY)])
    assert outcomes[5] == Conflict(Key("parcel", MANY[5]), 0, 1)
    assert kinds_of(outcomes).count(Committed) == len(MANY) - 1


async def test_a_batch_compares_when_each_version_was_written(store: Store) -> None:
    records = await created(store)
    batch = sending(records)
    other = list(batch.expected_at)
    other[7] = records[7].updated_at + timedelta(microseconds=1)
    outcomes = await store.commit([msgspec.structs.replace(batch, expected_at=tuple(other))])
    assert outcomes[7] == Conflict(Key("parcel", MANY[7]), 1, 1)
    assert kinds_of(outcomes).count(Committed) == len(MANY) - 1


async def test_a_batch_may_say_nothing_about_when_its_versions_were_written(store: Store) -> None:
    records = await created(store)
    outcomes = await store.commit([msgspec.structs.replace(sending(records), expected_at=())])
    assert kinds_of(outcomes) == [Committed] * len(MANY)


async def test_a_batch_that_comes_too_late_changes_nothing(store: Store) -> None:
    records = await created(store)
    late = msgspec.structs.replace(sending(records), not_after=await store.now() - timedelta(seconds=1))
    assert kinds_of(await store.commit([late])) == [TooLate] * len(MANY)
    assert [await see(store, name) for name in MANY] == records


async def test_a_batch_of_an_illegal_step_changes_nothing(store: Store) -> None:
    records = await created(store, state=DELIVERED)
    outcomes = await store.commit([sending(records, SENT)])
    assert outcomes == [Illegal(Key("parcel", name), DELIVERED, SENT) for name in MANY]
    assert [await see(store, name) for name in MANY] == records


async def test_of_two_batches_about_the_same_records_the_first_wins(store: Store) -> None:
    records = await created(store)
    outcomes = await store.commit([sending(records[:30]), sending(records[20:])])
    assert kinds_of(outcomes[:30]) == [Committed] * 30
    assert kinds_of(outcomes[30:]) == [Conflict] * 10 + [Committed] * 10


async def test_batches_and_commits_are_judged_in_their_order(store: Store) -> None:
    records = await created(store, MANY[:6])
    [other] = await made(store, creation("other"))
    work: list[Work] = [
        Commit(changes=(move(other, SENT, note=SENDING),), request=request("r")),
        sending(records[:3]),
        *each(move(records[3], LOST, note=SENDING)),
        sending(records[3:]),
    ]
    cursor = await store.latest()
    outcomes = await store.commit(work)
    assert kinds_of(outcomes) == [Committed] * 5 + [Conflict] + [Committed] * 2
    assert ids_of(await whole_feed(store, cursor)) == ["other", *MANY[:4], *MANY[4:6]]


async def test_a_batch_without_a_note_leaves_no_entry(store: Store) -> None:
    records = await created(store)
    cursor = await store.latest()
    await store.commit([sending(records, PACKED, note=None)])
    assert await whole_feed(store, cursor) == []
    assert {(await see(store, name)).version for name in MANY} == {2}


async def test_a_batch_that_says_nonsense_is_refused_whole(store: Store) -> None:
    good = new(["a", "b"])
    bad = [
        msgspec.structs.replace(good, ids=("a", "a")),
        msgspec.structs.replace(good, ids=()),
        msgspec.structs.replace(good, given=(b"1",)),
        msgspec.structs.replace(good, result=(b"1", b"2", b"3")),
        msgspec.structs.replace(good, change=creation("c")),
        msgspec.structs.replace(good, change=Change(kind="parcel", id="", expected=1, state=SENT, body=b"1")),
    ]
    for batch in bad:
        with pytest.raises(InvalidRecord):
            await store.commit([new(["z"]), batch])
    assert (await store.find(Query(kind="parcel"))).records == ()


# Claiming and sweeping in batches


async def test_a_claim_may_be_decided_as_a_batch(store: Store) -> None:
    past = await store.now() - timedelta(minutes=1)
    await created(store, queue=QUEUE, ready_at=past)
    sender = BatchSender()
    outcomes = await store.claim(take(30), sender)
    assert kinds_of(outcomes) == [Committed] * 30
    assert [record.id for record in sender.given] == list(MANY[:30])
    assert await all_found(store, Query(kind="parcel", states=(PACKED,), newest_first=False)) == list(
        MANY[30:]
    )


async def test_records_of_a_batch_are_claimed_when_ready_and_swept_at_their_deadline(
    store: Store,
) -> None:
    records = await created(store)
    past = await store.now() - timedelta(minutes=1)
    await store.commit([sending(records, PACKED, queue=QUEUE, ready_at=past, deadline_at=past)])
    sender = BatchSender()
    await store.claim(take(5), sender)
    assert [record.id for record in sender.given] == list(MANY[:5])
    assert await swept(store) == list(MANY[5:])


# The journal of a batch


async def test_a_page_of_the_feed_may_end_within_a_batch(store: Store) -> None:
    records = await created(store)
    await store.commit([sending(records)])
    names = [*MANY, *MANY]
    for limit in (1, 7, 39, 40, 41, 79):
        entries = await whole_feed(store, limit=limit)
        assert ids_of(entries) == names, limit
        cursors = [entry.cursor for entry in entries]
        assert len(set(cursors)) == len(names), "Each entry has a place of its own."
    for place in (0, 6, 38, 39, 40, 78):
        assert ids_of(await store.feed(cursors[place])) == names[place + 1 :], (
            "A reader continues after any entry."
        )


async def test_the_history_of_one_record_of_batches_is_its_own(store: Store) -> None:
    records = await created(store)
    await store.commit([sending(records)])
    [record] = await made(store, move(await see(store, MANY[8]), LOST, note=SENDING))
    history = await store.history(record.key)
    assert [(entry.id, entry.version, entry.note) for entry in history.entries] == [
        (MANY[8], 1, PACKING),
        (MANY[8], 2, SENDING),
        (MANY[8], 3, SENDING),
    ]
    later = await store.history(record.key, after_version=1, limit=1)
    assert [entry.version for entry in later.entries] == [2]


async def test_pruning_some_records_of_a_batch_leaves_the_others_their_history(store: Store) -> None:
    records = await created(store)
    await store.commit([sending(records[:10], DELIVERED), sending(records[10:])])
    pruned = await store.prune(kind="parcel", states=(DELIVERED,), older_than=timedelta(0))
    assert (pruned.records, pruned.entries) == (10, 20)
    assert [await look(store, name) for name in MANY[:10]] == [None] * 10
    left = await store.history(Key("parcel", MANY[10]))
    assert [entry.version for entry in left.entries] == [1, 2]
    assert (await store.history(Key("parcel", MANY[0]))).entries == ()
    entries = await whole_feed(store)
    assert ids_of(entries) == [*MANY[10:], *MANY[10:]]
    again = await created(store, MANY[:2])
    assert [entry.version for entry in (await store.history(again[0].key)).entries] == [1]


async def test_a_refusal_about_a_record_of_a_batch_is_in_its_history(store: Store) -> None:
    await created(store)
    await store.commit([Commit(refusals=(refusal(MANY[2], "stale"),))])
    history = await store.history(Key("parcel", MANY[2]))
    assert [(entry.version, entry.note.refusal) for entry in history.entries] == [(1, ""), (1, "stale")]


async def test_a_refusal_in_the_commit_of_a_change_of_the_same_record_keeps_both(store: Store) -> None:
    [record] = await made(store, creation("a", note=PACKING))
    change = move(record, SENT, note=SENDING, result=b'"half"')
    await store.commit([Commit(changes=(change,), refusals=(refusal("a", "late"),))])
    after = await see(store, "a")
    assert (after.state, after.version, after.result) == (SENT, 2, b'"half"')
    history = await store.history(record.key)
    assert [(entry.version, entry.note.refusal) for entry in history.entries] == [
        (1, ""),
        (2, ""),
        (2, "late"),
    ]


async def test_entries_of_a_record_that_was_pruned_stay_gone_when_it_is_made_again(store: Store) -> None:
    records = await created(store, MANY[:3])
    await store.commit([sending(records[:1], DELIVERED)])
    await store.prune(kind="parcel", states=(DELIVERED,), older_than=timedelta(0))
    await created(store, MANY[:1])
    assert ids_of(await whole_feed(store)) == [MANY[1], MANY[2], MANY[0]]


async def test_a_reader_within_a_batch_whose_rest_was_pruned_goes_on_after_it(store: Store) -> None:
    records = await created(store, MANY[:6])
    second = (await store.feed(limit=2)).entries[-1]
    await store.commit([sending(records[2:], DELIVERED, note=None)])
    await store.prune(kind="parcel", states=(DELIVERED,), older_than=timedelta(0))
    await created(store, ["later"])
    for limit in (1, 5):
        feed = await store.feed(second.cursor, limit=limit)
        assert (ids_of(feed), feed.gap) == (["later"], True)
