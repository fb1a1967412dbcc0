"""Many records at once: each item has an outcome of its own, decided on what is true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pytest
from tests.clocks import AskingClock
from tests.waiting import PATIENCE_S

from interlock.engine.bulk import Item, apply_all
from interlock.engine.committer import DirectCommitter, GroupCommit
from interlock.engine.unit_of_work import Applied, Decision, Engine
from interlock.errors import (
    Contended,
    GuardRefused,
    IllegalChange,
    RequestIdReused,
    StoreUnavailable,
    UnknownState,
)
from interlock.store.memory import MemoryStore
from interlock.store.records import (
    Change,
    Commit,
    Committed,
    JournalledRefusal,
    Key,
    Note,
    Outcome,
    Record,
    Repeated,
    Request,
    RequestAnswer,
    Work,
    record_after,
)

MakeCommit = Callable[..., Commit]
MakeChange = Callable[..., Change]


@pytest.fixture
def engine(store: MemoryStore) -> Engine:
    return Engine(store, GroupCommit(store), AskingClock(store))


def key(name: str) -> Key:
    return Key("parcel", name)


def sending(make_commit: MakeCommit, name: str, **item: Any) -> Item[str]:
    """Make a parcel, or send it on."""

    def decide(record: Record | None, now: datetime, commit_id: str) -> Decision[str]:
        if record is None:
            return Decision("packed", make_commit(name, 0, "packed"))
        if record.state == "packed":
            return Decision("sent", make_commit(name, record.version, "sent"))
        return Decision(f"already {record.state}")

    return Item(key(name), decide, **item)


def answers(results: Sequence[object]) -> list[object]:
    return [result.answer if isinstance(result, Applied) else type(result) for result in results]


async def test_many_are_decided_and_committed_together(
    engine: Engine, store: Any, make_commit: MakeCommit
) -> None:
    names = [f"p{n}" for n in range(50)]
    assert answers(await apply_all(engine, [sending(make_commit, name) for name in names])) == ["packed"] * 50
    assert store.calls == 1
    assert answers(await apply_all(engine, [sending(make_commit, name) for name in names])) == ["sent"] * 50
    assert store.calls == 2


async def test_nothing_to_do_is_no_work(engine: Engine, store: Any) -> None:
    assert await apply_all(engine, []) == []
    assert store.calls == 0


async def test_several_items_about_one_record_have_their_turns_in_order(
    engine: Engine, make_commit: MakeCommit
) -> None:
    items = [sending(make_commit, name) for name in ("p", "q", "p", "p")]
    assert answers(await apply_all(engine, items)) == ["packed", "packed", "sent", "already sent"]


async def test_however_many_items_one_record_has_all_get_their_turn(
    engine: Engine, store: MemoryStore
) -> None:
    """Nobody else is at it: they are no reason to give up."""

    def more(record: Record | None, now: datetime, commit_id: str) -> Decision[int]:
        version = record.version if record else 0
        note = Note(actor=str(version))
        change = Change(kind="parcel", id="p", expected=version, state="packed", body=b"{}", note=note)
        return Decision(version + 1, Commit(changes=(change,)))

    results = await apply_all(engine, [Item(key("p"), more) for _ in range(120)])
    assert answers(results) == list(range(1, 121))


async def test_an_item_whose_decision_is_refused_does_not_affect_the_other_items(
    engine: Engine, make_commit: MakeCommit
) -> None:
    def refuse(record: Record | None, now: datetime, commit_id: str) -> Decision[str]:
        raise GuardRefused("Not now.")

    items = [sending(make_commit, "p"), Item(key("q"), refuse), sending(make_commit, "r")]
    assert answers(await apply_all(engine, items)) == ["packed", GuardRefused, "packed"]


async def test_an_item_that_the_store_refuses_does_not_affect_the_other_items(
    engine: Engine, make_commit: MakeCommit
) -> None:
    def wrong(record: Record | None, now: datetime, commit_id: str) -> Decision[str]:
        return Decision("lost", make_commit("q", 0, "lost at sea"))

    def illegal(record: Record | None, now: datetime, commit_id: str) -> Decision[str]:
        return Decision("back", make_commit("s", 1, "packed"))

    await engine.committer.commit(make_commit("s", 0, "delivered"))
    items = [
        sending(make_commit, "p"),
        Item(key("q"), wrong),
        sending(make_commit, "r"),
        Item(key("s"), illegal),
    ]
    assert answers(await apply_all(engine, items)) == ["packed", UnknownState, "packed", IllegalChange]


async def test_only_the_item_that_conflicted_is_decided_again(
    engine: Engine, store: Any, make_commit: MakeCommit
) -> None:
    await apply_all(engine, [sending(make_commit, name) for name in ("p", "q")])
    found = await store.load([key("p"), key("q")])
    await store.commit([make_commit("q", 1, "sent")])
    items = [sending(make_commit, r.id, known=r) for r in found]
    assert answers(await apply_all(engine, items)) == ["sent", "already sent"]


async def test_a_known_record_that_is_current_is_not_loaded(
    engine: Engine, store: Any, make_commit: MakeCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply_all(engine, [sending(make_commit, "p")])
    (record,) = await store.load([key("p")])

    async def load(keys: Sequence[Key]) -> list[Record | None]:
        raise AssertionError("nothing has to be loaded")

    monkeypatch.setattr(store, "load", load)
    assert answers(await apply_all(engine, [sending(make_commit, "p", known=record)])) == ["sent"]


async def test_an_answer_without_a_commit_is_decided_again_if_the_known_record_is_outdated(
    engine: Engine, store: Any, make_commit: MakeCommit
) -> None:
    """What was known may have been overtaken; without a commit nobody else would find that out."""
    await apply_all(engine, [sending(make_commit, "p")])
    (old,) = await store.load([key("p")])
    await store.commit([make_commit("p", 1, "sent")])

    def look(record: Record | None, now: datetime, commit_id: str) -> Decision[str]:
        return Decision(record.state if record else "nothing")

    assert answers(await apply_all(engine, [Item(key("p"), look, known=old)])) == ["sent"]


async def test_a_refusal_is_decided_again_if_the_known_record_is_outdated(
    engine: Engine, store: Any, make_commit: MakeCommit
) -> None:
    await apply_all(engine, [sending(make_commit, "p")])
    (old,) = await store.load([key("p")])
    await store.commit([make_commit("p", 1, "sent")])

    def only_sent(record: Record | None, now: datetime, commit_id: str) -> Decision[str]:
        if record is None or record.state != "sent":
            raise GuardRefused("Only what was sent.")
        return Decision("fine")

    assert answers(await apply_all(engine, [Item(key("p"), only_sent, known=old)])) == ["fine"]


async def test_a_refusal_is_not_journalled_if_the_known_record_is_outdated(
    engine: Engine, store: Any, make_commit: MakeCommit
) -> None:
    """A commit of refusals names no version, so it succeeds whatever the record has become."""
    await apply_all(engine, [sending(make_commit, "p")])
    (old,) = await store.load([key("p")])
    await store.commit([make_commit("p", 1, "sent")])

    def only_sent(record: Record | None, now: datetime, commit_id: str) -> Decision[str]:
        if record is not None and record.state == "sent":
            return Decision("fine")
        note = Note(refusal="not sent yet", request_id=commit_id)
        return Decision("refused", Commit(refusals=(JournalledRefusal(kind="parcel", id="p", note=note),)))

    assert answers(await apply_all(engine, [Item(key("p"), only_sent, known=old)])) == ["fine"]
    assert not any(entry.note.refusal for entry in (await store.history(key("p"))).entries)


async def test_an_answer_on_a_loaded_record_needs_no_second_look(
    engine: Engine, store: Any, make_commit: MakeCommit
) -> None:
    await apply_all(engine, [sending(make_commit, "p")])
    records = []

    def look(record: Record | None, now: datetime, commit_id: str) -> Decision[str]:
        records.append(record)
        return Decision("seen")

    await apply_all(engine, [Item(key("p"), look)])
    assert len(records) == 1


async def test_an_item_for_a_new_record_that_exists_already_is_decided_on_the_existing_record(
    engine: Engine, make_commit: MakeCommit
) -> None:
    await apply_all(engine, [sending(make_commit, "p", fresh=True)])
    results = await apply_all(engine, [sending(make_commit, name, fresh=True) for name in ("p", "q")])
    assert answers(results) == ["sent", "packed"]


async def test_an_item_that_conflicts_on_every_try_returns_contended(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    engine = Engine(store, DirectCommitter(store), AskingClock(store), max_tries=3)

    def behind(record: Record | None, now: datetime, commit_id: str) -> Decision[str]:
        return Decision("never", make_commit("p", 7, "sent"))

    (result,) = await apply_all(engine, [Item(key("p"), behind)])
    assert isinstance(result, Contended)


async def test_a_commit_that_is_too_late_is_decided_again_with_the_new_time(
    engine: Engine, store: Any, clock: Any, make_change: MakeChange
) -> None:
    seen: list[datetime] = []

    def decide(record: Record | None, now: datetime, commit_id: str) -> Decision[str]:
        seen.append(now)
        if len(seen) == 1:
            clock.jump(10)
            return Decision("in time", Commit(changes=(make_change("p", 0, "packed"),), not_after=now))
        return Decision("late")

    assert answers(await apply_all(engine, [Item(key("p"), decide)])) == ["late"]
    assert len(seen) == 2
    assert await store.load([key("p")]) == [None]


@pytest.mark.parametrize("loss", ["before", "after"])
async def test_a_lost_answer_is_resolved_and_nothing_is_done_twice(
    engine: Engine, store: Any, make_commit: MakeCommit, loss: str
) -> None:
    store.losses = [loss]
    names = ["p", "q", "r"]
    assert answers(await apply_all(engine, [sending(make_commit, name) for name in names])) == ["packed"] * 3
    for name in names:
        assert [entry.version for entry in (await store.history(key(name))).entries] == [1]


async def test_each_item_returns_store_unavailable_when_the_store_stays_unavailable(
    store: Any, make_commit: MakeCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(store, GroupCommit(store), AskingClock(store))
    monkeypatch.setattr("interlock.engine.recovery.FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr("interlock.engine.recovery.LONGEST_PAUSE_S", 0.0)
    store.losses = ["before"] * 1_000
    results = await apply_all(engine, [sending(make_commit, name) for name in ("p", "q")])
    assert answers(results) == [StoreUnavailable, StoreUnavailable]


async def test_a_repeated_request_gets_its_old_answer_and_a_reused_one_an_error(
    engine: Engine, make_change: MakeChange
) -> None:
    def asking(name: str, fingerprint: str) -> Item[str]:
        def decide(record: Record | None, now: datetime, commit_id: str) -> Decision[str]:
            request = Request(
                id="r", endpoint="pack", fingerprint=fingerprint, answer=RequestAnswer(body=b'"p"')
            )
            return Decision("packed", Commit(changes=(make_change(name, 0, "packed"),), request=request))

        return Item(key(name), decide, fresh=True)

    (first,) = await apply_all(engine, [asking("p", "same")])
    assert isinstance(first, Applied)
    (again,) = await apply_all(engine, [asking("p", "same")])
    assert isinstance(again, Repeated)
    (other,) = await apply_all(engine, [asking("q", "other")])
    assert isinstance(other, RequestIdReused)


async def test_each_decision_has_a_mark_that_no_other_has(
    engine: Engine, store: Any, make_change: MakeChange
) -> None:
    marks: list[str] = []

    def decide(record: Record | None, now: datetime, commit_id: str) -> Decision[str]:
        marks.append(commit_id)
        version = record.version if record else 0
        state = "sent" if version else "packed"
        return Decision(state, Commit(changes=(make_change("p", version, state),)))

    await apply_all(engine, [Item(key("p"), decide), Item(key("p"), decide)])
    assert len(set(marks)) == 2


async def test_record_after_returns_the_record_that_the_store_then_holds(
    engine: Engine, store: MemoryStore, clock: Any, make_change: MakeChange
) -> None:
    first = make_change("p", 0, "packed")
    (outcome,) = await store.commit([Commit(changes=(first,))])
    assert isinstance(outcome, Committed)
    made = record_after(first, None, outcome.at)
    assert [made] == await store.load([key("p")])
    clock.jump(5)
    second = make_change("p", 1, "sent", deadline_at=clock())
    (outcome,) = await store.commit([Commit(changes=(second,))])
    assert isinstance(outcome, Committed)
    assert [record_after(second, made, outcome.at)] == await store.load([key("p")])


# Many commits of one caller


class Gate(MemoryStore):
    """Commits when it is let."""

    def __init__(self, like: MemoryStore) -> None:
        super().__init__(like._catalogue)
        self.go = asyncio.Event()

    async def commit(self, commits: Sequence[Work]) -> list[Outcome]:
        await self.go.wait()
        return await super().commit(commits)


async def test_two_callers_with_many_each_both_get_through_a_narrow_door(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    group = GroupCommit(store, max_batch=3, max_waiting=5)
    batches = [[make_commit(f"{who}{n}", 0, "packed") for n in range(40)] for who in "ab"]
    results = await asyncio.wait_for(
        asyncio.gather(*(group.commit_all(batch) for batch in batches)), PATIENCE_S
    )
    assert [len(outcomes) for outcomes in results] == [40, 40]
    assert all(isinstance(outcome, Committed) for outcomes in results for outcome in outcomes)


async def test_many_with_a_store_that_is_away_have_an_error_each(store: Any, make_commit: MakeCommit) -> None:
    for committer in (GroupCommit(store), DirectCommitter(store)):
        store.losses = ["before", "before"]
        outcomes = await committer.commit_all([make_commit(name, 0, "packed") for name in ("p", "q")])
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable, StoreUnavailable]
        store.losses = []


async def test_each_commit_after_closing_the_group_commit_returns_store_unavailable(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    group = GroupCommit(store)
    await group.close()
    outcomes = await group.commit_all([make_commit(name, 0, "packed") for name in ("p", "q")])
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable, StoreUnavailable]


async def test_a_caller_that_leaves_with_many_items_under_way_holds_up_no_other(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    gate = Gate(store)
    group = GroupCommit(gate, max_batch=2, max_waiting=3)
    first = asyncio.create_task(group.commit_all([make_commit(f"a{n}", 0, "packed") for n in range(8)]))
    second = asyncio.create_task(group.commit_all([make_commit(f"b{n}", 0, "packed") for n in range(8)]))
    for _ in range(3):
        await asyncio.sleep(0)
    first.cancel()
    gate.go.set()
    outcomes = await asyncio.wait_for(second, 60)
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    with pytest.raises(asyncio.CancelledError):
        await first
    await group.close()
    assert isinstance(await GroupCommit(gate).commit(make_commit("c", 0, "packed")), Committed)
