"""What is refused, in which order it is judged, and that a refusal disturbs nobody else."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from interlock.store.contract import Store
from interlock.store.records import (
    Commit,
    Committed,
    Conflict,
    Illegal,
    Key,
    Repeated,
    RequestReused,
    TooLate,
)
from interlock.testing.store_contract.builders import (
    LONG_AGO,
    SENDING,
    creation,
    each,
    ids_of,
    kinds_of,
    look,
    made,
    move,
    request,
    see,
    whole_feed,
)
from interlock.testing.store_contract.catalogue import DELIVERED, LOST, PACKED, RETURNED, SENT
from interlock.testing.store_contract.opener import StoreOpener


async def test_a_late_write_under_an_old_version_is_refused(store: Store, opener: StoreOpener) -> None:
    [seen] = await made(store, creation("a"))
    other = await opener.open()
    [moved] = await made(other, move(seen, LOST))
    assert await store.commit(each(move(seen, SENT, note=SENDING))) == [Conflict(seen.key, 1, 2)]
    assert await see(store, "a") == moved
    assert await whole_feed(store) == []


async def test_a_write_under_a_version_that_is_yet_to_come_is_refused(store: Store) -> None:
    [seen] = await made(store, creation("a"))
    early = msgspec.structs.replace(move(seen), expected=2)
    assert await store.commit(each(early)) == [Conflict(seen.key, 2, 1)]


async def test_what_is_not_there_cannot_be_changed(store: Store) -> None:
    change = msgspec.structs.replace(creation("a", SENT), expected=3)
    assert await store.commit(each(change)) == [Conflict(Key("parcel", "a"), 3, 0)]
    assert await look(store, "a") is None


async def test_a_version_that_was_written_at_another_time_is_not_the_one_that_was_decided_on(
    store: Store,
) -> None:
    """After a fail-over that lost it the same number may stand for something else."""
    [a, b, c] = await made(store, creation("a"), creation("b"), creation("c"))
    lost_at = a.updated_at - timedelta(microseconds=1)
    late = move(a, expected_at=lost_at, note=SENDING)
    assert await store.commit(each(late)) == [Conflict(a.key, 1, 1)]
    outcomes = await store.commit(each(late, move(b), move(c, expected_at=None)))
    assert kinds_of(outcomes) == [Conflict, Committed, Committed]
    assert outcomes[0] == Conflict(a.key, 1, 1)
    assert await store.commit([Commit(changes=(creation("d"), late))]) == [Conflict(a.key, 1, 1)]
    assert await see(store, "a") == a
    assert await look(store, "d") is None
    assert await whole_feed(store) == []


async def test_what_was_written_in_one_moment_may_be_changed_together(store: Store) -> None:
    records = await made(store, *(creation(f"p{number:02}") for number in range(20)))
    records = await made(store, *(move(record, note=SENDING) for record in records))
    assert {record.version for record in records} == {2}
    wrong = move(records[7], DELIVERED, expected_at=records[7].updated_at + LONG_AGO)
    changes = [move(record, DELIVERED) for record in records]
    outcomes = await store.commit(each(*changes[:7], wrong, *changes[8:]))
    assert [place for place, outcome in enumerate(outcomes) if isinstance(outcome, Conflict)] == [7]
    assert (await see(store, "p07")).state == "sent"


async def test_what_is_there_cannot_be_created(store: Store) -> None:
    [seen] = await made(store, creation("a"))
    assert await store.commit(each(creation("a", body=b"2"))) == [Conflict(seen.key, 0, 1)]
    assert await see(store, "a") == seen


async def test_of_two_in_a_batch_on_one_version_the_first_wins(store: Store) -> None:
    [seen] = await made(store, creation("a"))
    outcomes = await store.commit(each(move(seen, LOST), creation("b"), move(seen, SENT)))
    assert kinds_of(outcomes) == [Committed, Committed, Conflict]
    assert outcomes[2] == Conflict(seen.key, 1, 2)
    assert (await see(store, "a")).state == "lost"


async def test_of_two_in_a_batch_that_create_one_record_the_first_wins(store: Store) -> None:
    outcomes = await store.commit(each(creation("a", body=b"1"), creation("a", body=b"2")))
    assert outcomes[1] == Conflict(Key("parcel", "a"), 0, 1)
    assert (await see(store, "a")).body == b"1"


async def test_a_loser_of_a_batch_leaves_room_for_the_next(store: Store) -> None:
    [a, b] = await made(store, creation("a"), creation("b"))
    await made(store, move(b))
    outcomes = await store.commit(
        [Commit(changes=(move(a, LOST), move(b, LOST))), Commit(changes=(move(a, SENT),))]
    )
    assert outcomes[0] == Conflict(b.key, 1, 2)
    assert kinds_of(outcomes) == [Conflict, Committed]
    assert (await see(store, "a")).state == "sent"


async def test_a_conflict_names_the_first_of_its_records_that_conflicts(store: Store) -> None:
    [a, b, c] = await made(store, creation("a"), creation("b"), creation("c"))
    await made(store, move(a), move(b))
    assert await store.commit([Commit(changes=(move(c), move(b), move(a)))]) == [Conflict(b.key, 1, 2)]
    assert await store.commit([Commit(changes=(move(c), move(a), move(b)))]) == [Conflict(a.key, 1, 2)]


async def test_ten_bad_commits_do_not_disturb_a_hundred_and_ninety_neighbours(store: Store) -> None:
    records = await made(store, *(creation(f"p{number:03}") for number in range(200)))
    bad = set(range(7, 200, 20))
    await made(store, *(move(records[number], LOST) for number in sorted(bad)))
    cursor = await store.latest()
    outcomes = await store.commit(each(*(move(record, SENT, note=SENDING) for record in records)))
    assert {place for place, outcome in enumerate(outcomes) if isinstance(outcome, Conflict)} == bad
    assert sum(isinstance(outcome, Committed) for outcome in outcomes) == 190
    after = await store.load([record.key for record in records])
    assert {place for place, record in enumerate(after) if record and record.state == "lost"} == bad
    good = [record.id for place, record in enumerate(records) if place not in bad]
    assert ids_of(await whole_feed(store, cursor)) == good


async def test_neighbours_of_every_kind_of_refusal_are_committed(store: Store) -> None:
    past = await store.now() - LONG_AGO
    [a, b] = await made(store, creation("a"), creation("b", DELIVERED))
    await store.commit([Commit(request=request("r"))])
    outcomes = await store.commit(
        [
            *each(creation("n1"), creation("a")),
            Commit(changes=(creation("n2"), move(b, LOST))),
            *each(creation("n2")),
            Commit(changes=(creation("n3"),), not_after=past),
            *each(creation("n3")),
            Commit(changes=(creation("n4"),), request=request("r")),
            *each(creation("n4")),
            Commit(changes=(creation("n5"),), request=request("r", fingerprint="other")),
            *each(creation("n5"), move(a)),
        ]
    )
    refused: list[type] = [Conflict, Illegal, TooLate, Repeated, RequestReused]
    assert [kind for kind in kinds_of(outcomes) if kind is not Committed] == refused
    assert kinds_of(outcomes).count(Committed) == 6
    assert [(await see(store, f"n{number}")).version for number in range(1, 6)] == [1] * 5


@pytest.mark.parametrize(
    ("source", "target"),
    [(SENT, PACKED), (DELIVERED, SENT), (DELIVERED, LOST), (LOST, SENT), (LOST, DELIVERED), (RETURNED, LOST)],
)
async def test_a_move_that_no_path_allows_is_refused(store: Store, source: str, target: str) -> None:
    [record] = await made(store, creation("a", source))
    outcomes = await store.commit(each(move(record, target, note=SENDING), creation("b")))
    assert outcomes[0] == Illegal(record.key, source, target)
    assert isinstance(outcomes[1], Committed)
    assert await see(store, "a") == record
    assert await whole_feed(store) == []


async def test_a_declared_exit_from_an_end_may_be_taken(store: Store) -> None:
    [record] = await made(store, creation("a", LOST))
    [record] = await made(store, move(record, RETURNED))
    assert (record.state, record.version) == ("returned", 2)


async def test_one_illegal_change_refuses_its_whole_commit(store: Store) -> None:
    [a, b] = await made(store, creation("a"), creation("b", DELIVERED))
    commit = Commit(changes=(move(a, note=SENDING), move(b, SENT), creation("c")), request=request("r"))
    assert await store.commit([commit]) == [Illegal(b.key, "delivered", "sent")]
    assert await see(store, "a") == a
    assert await look(store, "c") is None
    assert await store.recall("r") is None
    assert await whole_feed(store) == []


async def test_a_commit_after_its_time_is_too_late(store: Store) -> None:
    not_after = await store.now() - timedelta(microseconds=1)
    [outcome] = await store.commit([Commit(changes=(creation("a"),), not_after=not_after)])
    assert isinstance(outcome, TooLate)
    assert outcome.not_after == not_after
    assert not_after < outcome.now <= await store.now()
    assert await look(store, "a") is None


async def test_a_commit_within_its_time_is_done(store: Store) -> None:
    not_after = await store.now() + LONG_AGO
    [outcome] = await store.commit([Commit(changes=(creation("a"),), not_after=not_after)])
    assert isinstance(outcome, Committed)


async def test_time_runs_out_without_anybody_sweeping(store: Store, opener: StoreOpener) -> None:
    not_after = await store.now() + timedelta(milliseconds=20)
    await opener.elapse(store, 0.03)
    [outcome] = await store.commit([Commit(changes=(creation("a"),), not_after=not_after)])
    assert isinstance(outcome, TooLate)


async def test_a_known_request_is_answered_before_anything_else_is_judged(store: Store) -> None:
    past = await store.now() - LONG_AGO
    [a, b] = await made(store, creation("a"), creation("b", DELIVERED))
    await made(store, move(a))
    await store.commit([Commit(request=request("r"))])
    changes = (move(a, LOST), move(b, LOST))
    [outcome] = await store.commit([Commit(changes=changes, request=request("r"), not_after=past)])
    assert isinstance(outcome, Repeated)
    reused = request("r", fingerprint="other")
    [outcome] = await store.commit([Commit(changes=changes, request=reused, not_after=past)])
    assert isinstance(outcome, RequestReused)


async def test_lateness_is_judged_before_versions_and_versions_before_the_table(store: Store) -> None:
    past = await store.now() - LONG_AGO
    [a, b] = await made(store, creation("a"), creation("b", DELIVERED))
    await made(store, move(a))
    both = Commit(changes=(move(b, LOST), move(a, LOST)), request=request("new"), not_after=past)
    [outcome] = await store.commit([both])
    assert isinstance(outcome, TooLate)
    [outcome] = await store.commit([msgspec.structs.replace(both, not_after=None)])
    assert outcome == Conflict(a.key, 1, 2), "The versions of all its changes come before the table."
    assert await store.recall("new") is None


async def test_a_repeat_without_a_request_meets_its_own_version(store: Store) -> None:
    [seen] = await made(store, creation("a"))
    commit = Commit(changes=(move(seen),))
    assert kinds_of(await store.commit([commit])) == [Committed]
    assert await store.commit([commit]) == [Conflict(seen.key, 1, 2)]
