"""Conflicting, late and illegal changes are refused: by the store, and by the database itself."""

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
    DELIVERED,
    LONG_AGO,
    LOST,
    PACKED,
    RETURNED,
    SENDING,
    SENT,
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
from interlock.testing.store_contract.suite import StoreOpener, needs


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


async def test_a_missing_record_cannot_be_changed(store: Store) -> None:
    change = msgspec.structs.replace(creation("a", SENT), expected=3)
    assert await store.commit(each(change)) == [Conflict(Key("parcel", "a"), 3, 0)]
    assert await look(store, "a") is None


async def test_a_version_that_was_written_at_another_time_is_not_the_one_that_was_decided_on(
    store: Store,
) -> None:
    """After a failover that lost it, the same version number may stand for another change."""
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


async def test_records_written_in_one_moment_may_be_changed_together(store: Store) -> None:
    records = await made(store, *(creation(f"p{number:02}") for number in range(20)))
    records = await made(store, *(move(record, note=SENDING) for record in records))
    assert {record.version for record in records} == {2}
    wrong = move(records[7], DELIVERED, expected_at=records[7].updated_at + LONG_AGO)
    changes = [move(record, DELIVERED) for record in records]
    outcomes = await store.commit(each(*changes[:7], wrong, *changes[8:]))
    assert [place for place, outcome in enumerate(outcomes) if isinstance(outcome, Conflict)] == [7]
    assert (await see(store, "p07")).state == "sent"


async def test_an_existing_record_cannot_be_created(store: Store) -> None:
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


@needs("sql")
async def test_the_store_says_that_its_database_enforces_the_tables(store: Store) -> None:
    assert store.capabilities.enforces_tables


@needs("sql")
async def test_records_can_be_read_from_a_shell(store: Store, opener: StoreOpener) -> None:
    await made(store, creation("a", SENT))
    table = opener.record_table()
    rows = await opener.sql(f"SELECT kind, id, state, version FROM {table.name}")
    assert [[str(value) for value in row] for row in rows] == [["parcel", "a", "sent", "1"]]


@needs("sql")
@pytest.mark.parametrize("state", ["sent", "delivered", "returned"])
async def test_a_legal_move_can_be_made_from_a_shell(store: Store, opener: StoreOpener, state: str) -> None:
    await made(store, creation("a"))
    await opener.sql(_moving("a", state, opener))
    assert (await see(store, "a")).state == state


@needs("sql")
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("packed", "mislaid"),
        ("packed", ""),
        ("packed", "PACKED"),
        ("sent", "packed"),
        ("delivered", "sent"),
        ("delivered", "lost"),
        ("delivered", "returned"),
        ("lost", "sent"),
        ("returned", "lost"),
        ("packed", "written"),
    ],
)
async def test_an_illegal_move_is_refused_from_a_shell(
    store: Store, opener: StoreOpener, source: str, target: str
) -> None:
    [record] = await made(store, creation("a", source))
    await opener.sql(_moving("a", source, opener))
    with pytest.raises(Exception):  # noqa: B017, PT011
        await opener.sql(_moving("a", target, opener))
    assert await see(store, "a") == record


@needs("sql")
async def test_a_declared_exit_can_be_taken_from_a_shell(store: Store, opener: StoreOpener) -> None:
    await made(store, creation("a", LOST))
    await opener.sql(_moving("a", "returned", opener))
    assert (await see(store, "a")).state == "returned"


@needs("sql")
@pytest.mark.parametrize("state", ["mislaid", "", "written"])
async def test_a_record_in_an_unknown_state_cannot_be_inserted_from_a_shell(
    store: Store, opener: StoreOpener, state: str
) -> None:
    await made(store, creation("a"))
    await opener.sql(_copying("a", "parcel", "fine", "sent", opener))
    assert (await see(store, "fine")).state == "sent"
    with pytest.raises(Exception):  # noqa: B017, PT011
        await opener.sql(_copying("a", "parcel", "bad", state, opener))
    assert await look(store, "bad") is None


@needs("sql")
async def test_a_record_of_an_unknown_kind_cannot_be_inserted_from_a_shell(
    store: Store, opener: StoreOpener
) -> None:
    await made(store, creation("a"))
    with pytest.raises(Exception):  # noqa: B017, PT011
        await opener.sql(_copying("a", "crate", "bad", "packed", opener))
    table = opener.record_table()
    assert len(await opener.sql(f"SELECT id FROM {table.name}")) == 1


@needs("sql")
async def test_one_illegal_row_refuses_its_whole_statement(store: Store, opener: StoreOpener) -> None:
    states = {"a": PACKED, "b": SENT, "c": DELIVERED, "d": PACKED}
    records = await made(store, *(creation(name, state) for name, state in states.items()))
    table = opener.record_table()
    with pytest.raises(Exception):  # noqa: B017, PT011
        await opener.sql(f"UPDATE {table.name} SET state = 'sent'")
    assert [await see(store, name) for name in states] == records
    await opener.sql(f"UPDATE {table.name} SET state = 'sent' WHERE state <> 'delivered'")
    assert [(await see(store, name)).state for name in states] == ["sent", "sent", "delivered", "sent"]


def _moving(name: str, state: str, opener: StoreOpener) -> str:
    return (
        f"UPDATE {opener.record_table().name} SET state = '{state}' WHERE kind = 'parcel' AND id = '{name}'"
    )


def _copying(source: str, kind: str, name: str, state: str, opener: StoreOpener) -> str:
    """Return an INSERT of a copy under another name and in another state."""
    table = opener.record_table()
    copied = ", ".join(table.required)
    return (
        f"INSERT INTO {table.name} (kind, id, state, {copied}) "
        f"SELECT '{kind}', '{name}', '{state}', {copied} FROM {table.name} WHERE id = '{source}'"
    )
