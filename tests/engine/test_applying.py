"""Apply: decide until it is true, or say why it cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.clocks import AskingClock

from interlock.engine.committer import DirectCommitter, GroupCommit
from interlock.engine.recovery import commit_with_recovery, find_outcome
from interlock.engine.unit_of_work import Applied, Decision, Engine
from interlock.errors import Contended, IllegalChange, RequestIdReused, StoreUnavailable
from interlock.store.memory import MemoryStore
from interlock.store.records import (
    Change,
    Commit,
    Committed,
    Conflict,
    JournalledRefusal,
    Key,
    Note,
    Record,
    Repeated,
    Request,
    RequestAnswer,
    TooLate,
)

MakeChange = Callable[..., Change]
MakeCommit = Callable[..., Commit]
P = Key("parcel", "p")


def engine_on(store: MemoryStore, **options: Any) -> Engine:
    return Engine(store, DirectCommitter(store), AskingClock(store), **options)


async def no_sleep(_: float) -> None:
    await asyncio.sleep(0)


async def test_a_decision_becomes_true_and_is_answered(store: MemoryStore, make_commit: MakeCommit) -> None:
    def pack(records: Sequence[Record | None], now: datetime) -> Decision[str]:
        assert records == [None]
        return Decision("packed", make_commit("p", 0, "packed"))

    applied = await engine_on(store).apply([P], pack)
    assert isinstance(applied, Applied)
    assert applied.answer == "packed"
    assert [record and record.state for record in await store.load([P])] == ["packed"]


async def test_a_decision_that_changes_nothing_commits_nothing(store: MemoryStore) -> None:
    applied = await engine_on(store).apply([P], lambda _, __: Decision("nothing to do"))
    assert isinstance(applied, Applied)
    assert store.calls == 0  # type: ignore[attr-defined]


async def test_a_decision_that_conflicts_is_made_again_on_the_present_record(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    await store.commit([make_commit("p", 0, "packed")])
    seen: list[int] = []

    def send_it(records: Sequence[Record | None], _: datetime) -> Decision[int]:
        (record,) = records
        assert record is not None
        seen.append(record.version)
        if len(seen) == 1:  # somebody else is faster, between deciding and committing
            store._commit_one(make_commit("p", 1, "packed", actor="somebody else"))
        return Decision(record.version, make_commit("p", record.version, "sent"))

    applied = await engine_on(store).apply([P], send_it)
    assert isinstance(applied, Applied)
    assert seen == [1, 2]
    assert applied.answer == 2


@pytest.mark.parametrize("changed", [False, True])
async def test_known_records_are_decided_on_at_once_and_loaded_only_after_a_conflict(
    store: MemoryStore, make_commit: MakeCommit, monkeypatch: pytest.MonkeyPatch, *, changed: bool
) -> None:
    await store.commit([make_commit("p", 0, "packed")])
    known = await store.load([P])
    if changed:
        await store.commit([make_commit("p", 1, "packed", actor="somebody else")])
    loads, seen = list[Key](), list[int]()
    load = store.load

    async def load_noted(keys: Sequence[Key]) -> list[Record | None]:
        loads.extend(keys)
        return await load(keys)

    def send_it(records: Sequence[Record | None], _: datetime) -> Decision[int]:
        (record,) = records
        assert record is not None
        seen.append(record.version)
        return Decision(record.version, make_commit("p", record.version, "sent"))

    monkeypatch.setattr(store, "load", load_noted)
    applied = await engine_on(store).apply([P], send_it, known=known)
    assert isinstance(applied, Applied)
    assert (seen, loads) == (([1, 2], [P]) if changed else ([1], []))


async def test_a_version_with_the_same_number_after_a_lossy_fail_over_is_decided_again(
    store: Any, clock: Any, make_commit: MakeCommit
) -> None:
    """The commit is sent a second time, to a database that has counted to the same number anew."""
    await store.commit([make_commit("p", 0, "packed")])
    seen: list[str] = []

    def send_it(records: Sequence[Record | None], _: datetime) -> Decision[str]:
        (record,) = records
        assert record is not None
        seen.append(record.state)
        if len(seen) == 1:
            clock.jump(1)
            store._put(P, None)
            store._commit_one(make_commit("p", 0, "delivered", actor="somebody else"))
            store.losses = ["before"]
        if record.state == "delivered":
            return Decision("it has arrived")
        return Decision("sent", make_commit("p", 1, "sent"))

    applied = await engine_on(store).apply([P], send_it)
    assert isinstance(applied, Applied)
    assert (applied.answer, seen) == ("it has arrived", ["packed", "delivered"])


async def test_a_hundred_racers_on_one_record_all_get_through(
    store: MemoryStore, make_change: MakeChange
) -> None:
    await store.commit([Commit(changes=(make_change("p", 0, "packed"),))])
    engine = Engine(store, GroupCommit(store), AskingClock(store), max_tries=200)

    def touch(records: Sequence[Record | None], _: datetime) -> Decision[None]:
        assert records[0] is not None
        return Decision(None, Commit(changes=(make_change("p", records[0].version, "packed"),)))

    await asyncio.gather(*(engine.apply([P], touch) for _ in range(100)))
    (record,) = await store.load([P])
    assert record is not None
    assert record.version == 101


async def test_a_change_that_conflicts_on_every_try_raises_contended(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    def too_late(_: Sequence[Record | None], __: datetime) -> Decision[None]:
        return Decision(None, make_commit("p", 5, "sent"))

    with pytest.raises(Contended) as caught:
        await engine_on(store, max_tries=3).apply([P], too_late)
    assert caught.value.facts == {"tries": 3, "expected": 5, "found": 0}


async def test_a_commit_that_is_too_late_is_decided_again_with_the_new_time(
    store: MemoryStore, clock: Any, make_commit: MakeCommit
) -> None:
    limit = clock() + timedelta(seconds=10)
    times: list[datetime] = []

    def in_time_or_not(_: Sequence[Record | None], now: datetime) -> Decision[str]:
        times.append(now)
        if now > limit:
            return Decision("refused: too late")
        clock.jump(60)  # the commit takes its time
        commit = make_commit("p", 0, "packed")
        return Decision("accepted", Commit(changes=commit.changes, not_after=limit))

    applied = await engine_on(store).apply([P], in_time_or_not)
    assert isinstance(applied, Applied)
    assert applied.answer == "refused: too late"
    assert len(times) == 2
    assert await store.load([P]) == [None]


def with_request(commit: Commit, fingerprint: str = "abc") -> Commit:
    request = Request(
        id="r1", endpoint="POST /parcels", fingerprint=fingerprint, answer=RequestAnswer(status=201)
    )
    return Commit(changes=commit.changes, request=request)


async def test_a_request_that_was_done_before_gets_its_old_answer(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    engine = engine_on(store)

    def pack(records: Sequence[Record | None], _: datetime) -> Decision[None]:
        return Decision(
            None, with_request(make_commit("p", records[0].version if records[0] else 0, "packed"))
        )

    assert isinstance(await engine.apply([P], pack), Applied)
    again = await engine.apply([P], pack)
    assert isinstance(again, Repeated)
    assert again.recorded.answer.status == 201
    (record,) = await store.load([P])
    assert record is not None
    assert record.version == 1


async def test_a_request_id_that_belongs_to_another_request_is_refused(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    await store.commit([with_request(make_commit("p", 0, "packed"))])
    with pytest.raises(RequestIdReused, match="POST /parcels"):
        await engine_on(store).apply(
            [P], lambda _, __: Decision(None, with_request(make_commit("q", 0, "packed"), "xyz"))
        )


async def test_a_change_that_no_path_allows_is_a_fault_of_the_program(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    await store.commit([make_commit("p", 0, "delivered")])
    with pytest.raises(IllegalChange, match="from delivered to packed"):
        await engine_on(store).apply([P], lambda _, __: Decision(None, make_commit("p", 1, "packed")))


@pytest.mark.parametrize("loss", ["before", "after"])
async def test_a_lost_answer_is_resolved_by_reading_and_nothing_is_done_twice(
    store: Any, make_commit: MakeCommit, loss: str
) -> None:
    store.losses = [loss]
    outcome = await commit_with_recovery(
        store, DirectCommitter(store), make_commit("p", 0, "packed"), sleep=no_sleep
    )
    assert isinstance(outcome, Committed)
    (record,) = await store.load([P])
    assert record is not None
    assert record.version == 1
    assert len((await store.feed()).entries) == 1


async def test_a_lost_answer_and_a_deadline_that_passed_meanwhile_is_still_a_success(
    store: Any, clock: Any, make_commit: MakeCommit
) -> None:
    commit = Commit(changes=make_commit("p", 0, "packed").changes, not_after=clock())
    store.losses = ["after"]

    async def sleep(_: float) -> None:
        clock.jump(60)

    outcome = await commit_with_recovery(store, DirectCommitter(store), commit, sleep=sleep)
    assert isinstance(outcome, Committed)


async def test_a_creation_that_is_committed_after_its_retry_was_too_late_is_a_success(
    store: Any, clock: Any, make_commit: MakeCommit
) -> None:
    """A server may be in the middle of committing what it will not answer any more."""
    commit = Commit(changes=make_commit("p", 0, "packed").changes, not_after=clock())
    store.losses = ["before"]
    pauses: list[float] = []

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        clock.jump(60)
        if len(pauses) == 3:
            store._commit_one(msgspec.structs.replace(commit, not_after=None))

    assert isinstance(
        await commit_with_recovery(store, DirectCommitter(store), commit, sleep=sleep), Committed
    )
    assert len(pauses) == 3


async def test_a_change_whose_retry_is_too_late_returns_too_late_at_once(
    store: Any, clock: Any, make_commit: MakeCommit
) -> None:
    """Had the first try been under way, the second would have waited for it."""
    await store.commit([make_commit("p", 0, "packed")])
    commit = Commit(changes=make_commit("p", 1, "sent").changes, not_after=clock())
    store.losses = ["before"]

    async def sleep(_: float) -> None:
        clock.jump(60)

    assert isinstance(await commit_with_recovery(store, DirectCommitter(store), commit, sleep=sleep), TooLate)
    assert store.calls == 3  # the creation, the one that was lost, and the one that was too late


async def test_after_a_lost_answer_the_change_of_another_caller_is_not_taken_for_ones_own(
    store: Any, make_commit: MakeCommit
) -> None:
    await store.commit([make_commit("p", 0, "packed")])
    store.losses = ["before"]

    async def meanwhile(_: float) -> None:
        store._commit_one(make_commit("p", 1, "sent", actor="somebody else"))

    mine = make_commit("p", 1, "sent", actor="me")
    outcome = await commit_with_recovery(store, DirectCommitter(store), mine, sleep=meanwhile)
    assert outcome == Conflict(P, 1, 2)


async def test_a_change_without_a_note_is_recognised_by_the_record_that_it_wrote(store: Any) -> None:
    renewed = Change(kind="parcel", id="p", expected=0, state="packed", body=b'{"seen": 1}')
    store.losses = ["after"]
    outcome = await commit_with_recovery(
        store, DirectCommitter(store), Commit(changes=(renewed,)), sleep=no_sleep
    )
    assert isinstance(outcome, Committed)
    other = Change(kind="parcel", id="p", expected=0, state="packed", body=b"{}")
    assert await find_outcome(store, Commit(changes=(other,))) is None


async def test_a_store_that_stays_away_is_given_up_on(store: Any, make_commit: MakeCommit) -> None:
    store.losses = ["before"] * 10
    with pytest.raises(StoreUnavailable):
        await commit_with_recovery(
            store, DirectCommitter(store), make_commit("p", 0, "packed"), tries=3, sleep=no_sleep
        )
    assert store.calls == 3


async def test_a_twin_that_did_the_same_first_is_not_taken_for_oneself(
    store: Any, make_commit: MakeCommit
) -> None:
    """Two engines decide the same, word for word; each step has to be done once for each of them."""
    await store.commit([make_commit("p", 0, "packed")])

    def touch(records: Sequence[Record | None], _: datetime) -> Decision[int]:
        assert records[0] is not None
        return Decision(records[0].version, make_commit("p", records[0].version, "packed"))

    twin = engine_on(store)
    mine = engine_on(store)
    store.losses = ["before"]
    first = asyncio.create_task(mine.apply([P], touch))
    while store.losses:
        await asyncio.sleep(0)
    assert isinstance(await twin.apply([P], touch), Applied)
    assert isinstance(await first, Applied)
    (record,) = await store.load([P])
    assert record is not None
    assert record.version == 3


async def test_a_refusal_whose_answer_was_lost_is_journalled_once(
    store: Any, make_commit: MakeCommit
) -> None:
    await store.commit([make_commit("p", 0, "packed")])
    refusal = JournalledRefusal(kind="parcel", id="p", note=Note(refusal="too late", request_id="m1"))
    for loss in ("after", "before"):
        note = msgspec.structs.replace(refusal.note, request_id=loss)
        store.losses = [loss]
        commit = Commit(refusals=(msgspec.structs.replace(refusal, note=note),))
        assert isinstance(
            await commit_with_recovery(store, DirectCommitter(store), commit, sleep=no_sleep), Committed
        )
    refusals = [entry for entry in (await store.feed()).entries if entry.note.refusal]
    assert [entry.note.request_id for entry in refusals] == ["after", "before"]
