"""Ready records are claimed in order, each by one claimer; passed deadlines are swept once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
import pytest

from interlock.errors import UnknownKind, UnknownState
from interlock.store.contract import Store
from interlock.store.records import (
    Claim,
    Commit,
    Committed,
    Conflict,
    Guard,
    Key,
    Record,
    Repeated,
    TooLate,
)
from interlock.testing.store_contract.builders import (
    DELIVERED,
    LONG_AGO,
    LOST,
    MANY_HANDLERS,
    PACKED,
    PATIENCE_S,
    POSTED,
    SENT,
    WRITTEN,
    Sender,
    claimed,
    creation,
    each,
    ids_of,
    kinds_of,
    leave,
    look,
    made,
    move,
    request,
    see,
    swept,
    take,
    waiting,
    whole_feed,
)
from interlock.testing.store_contract.suite import StoreOpener


class Trouble(Exception):
    """An error in a decision."""


async def test_a_ready_record_is_claimed_and_committed(store: Store) -> None:
    [record] = await waiting(store, "a")
    sender = Sender()
    before = await store.now()
    outcomes = await store.claim(take(5), sender)
    assert kinds_of(outcomes) == [Committed]
    assert sender.calls == [(record,)]
    assert before <= sender.times[0] <= await store.now()
    after = await see(store, "a")
    assert (after.state, after.version, after.ready_at) == ("sent", 2, None)
    assert ids_of(await whole_feed(store)) == ["a"]


async def test_a_record_that_is_not_ready_is_not_claimed(store: Store) -> None:
    future = await store.now() + LONG_AGO
    await made(store, creation("idle", queue="post"), creation("later", queue="post", ready_at=future))
    sender = Sender()
    assert await store.claim(take(5), sender) == []
    assert sender.calls == [], "Without records the decider is not called."


async def test_a_claimed_record_is_not_claimed_again(store: Store) -> None:
    await waiting(store, "a", "b")
    assert await claimed(store, take(1)) == ["a"]
    assert await claimed(store, take(5)) == ["b"]
    assert await claimed(store, take(5)) == []


async def test_under_a_guard_something_is_given_out_only_while_it_holds(store: Store) -> None:
    await waiting(store, "a", "b", "c")
    [guard] = await made(store, creation("guard"))

    async def given(*states: str, of: str = "guard") -> list[str]:
        claim = msgspec.structs.replace(take(1), guard=Guard(Key("parcel", of), states))
        return await claimed(store, claim)

    assert await given(SENT) == []
    assert await given(PACKED, of="nobody") == [], "A missing record is in no state."
    assert await given(SENT, PACKED) == ["a"]
    [guard] = await made(store, move(guard, SENT))
    assert await given(PACKED) == []
    assert await given(SENT) == ["b"]
    await made(store, move(guard, DELIVERED))
    assert await given(SENT) == []
    assert await given(DELIVERED) == ["c"], "It has ended, and is in that state."


async def test_a_claim_whose_guard_does_not_hold_decides_nothing_and_locks_nothing(store: Store) -> None:
    [record] = await waiting(store, "a")
    sender = Sender()
    guard = Guard(Key("parcel", "a"), (SENT, LOST))
    assert await store.claim(msgspec.structs.replace(take(5), guard=guard), sender) == []
    assert sender.calls == []
    assert await see(store, "a") == record
    assert await claimed(store, take(5)) == ["a"]


async def test_a_guard_that_can_never_hold_is_refused(store: Store) -> None:
    for guard in (Guard(Key("parcel", "a"), ("lost at sea",)), Guard(Key("ship", "a"), (SENT,))):
        with pytest.raises((UnknownState, UnknownKind)):
            await store.claim(msgspec.structs.replace(take(5), guard=guard), Sender())


async def test_no_more_than_the_limit_is_given_out_in_one_call(store: Store) -> None:
    await waiting(store, *(f"p{number}" for number in range(7)))
    sender = Sender()
    await store.claim(take(5), sender)
    assert [len(call) for call in sender.calls] == [5]
    await store.claim(take(5), sender)
    assert [len(call) for call in sender.calls] == [5, 2]


async def test_the_longest_ready_comes_first(store: Store) -> None:
    now = await store.now()
    ages = {"a": 5, "b": 50, "c": 20, "d": 21}
    for name, age in ages.items():
        await waiting(store, name, ready_at=now - timedelta(seconds=age))
    assert await claimed(store, take(3)) == ["b", "d", "c"]
    assert await claimed(store, take(3)) == ["a"]


async def test_equals_are_given_out_by_id(store: Store) -> None:
    ready_at = await store.now() - LONG_AGO
    for name in ("m", "z", "B", "a", "é", "_"):
        await waiting(store, name, ready_at=ready_at)
    assert await claimed(store, take(10)) == ["B", "_", "a", "m", "z", "é"]


async def test_a_step_of_priority_is_worth_a_minute(store: Store) -> None:
    now = await store.now()
    placing = {"old": (130, 0), "urgent": (5, 2), "pressing": (5, 3), "idle": (65, -1), "new": (4, 0)}
    for name, (age, priority) in placing.items():
        await waiting(store, name, ready_at=now - timedelta(seconds=age), priority=priority)
    assert await claimed(store, take(10)) == ["pressing", "old", "urgent", "idle", "new"]


async def test_the_least_urgent_outranks_everything_newer_in_the_end(store: Store) -> None:
    now = await store.now()
    patience = timedelta(seconds=60) * 200
    await waiting(store, "patient", ready_at=now - patience - timedelta(seconds=2), priority=-100)
    for number in range(20):
        await waiting(store, f"vip{number}", ready_at=now - timedelta(seconds=1), priority=100)
    assert await claimed(store, take(1)) == ["patient"]


async def test_the_order_holds_across_queues_and_labels(store: Store) -> None:
    now = await store.now()
    lanes = [
        ("post", ()),
        ("rail", ()),
        ("post", ("cold",)),
        ("rail", ("cold",)),
        ("post", ("cold", "heavy")),
    ]
    for age in range(1, 21):
        queue, labels = lanes[age % len(lanes)]
        ready_at = now - timedelta(seconds=age)
        await waiting(store, f"p{age:02}", queue=queue, labels=labels, ready_at=ready_at)
    claim = take(8, queues=("post", "rail"), labels=("cold", "heavy"))
    given = [await claimed(store, claim) for _ in range(3)]
    expected = [f"p{age:02}" for age in range(20, 0, -1)]
    assert given == [expected[:8], expected[8:16], expected[16:]]


async def test_only_the_queues_that_were_asked_for_are_looked_at(store: Store) -> None:
    await waiting(store, "a", queue="post")
    await waiting(store, "b", queue="rail")
    await waiting(store, "c", queue="postal")
    assert await claimed(store, take(5, queues=("rail",))) == ["b"]
    assert await claimed(store, take(5, queues=("air", "pos"))) == []
    assert await claimed(store, take(5, queues=("post", "post"))) == ["a"]
    assert await claimed(store, take(5, queues=())) == []


async def test_a_claimer_gets_what_needs_no_other_labels_than_it_has(store: Store) -> None:
    for labels in [(), ("a",), ("b",), ("a", "b"), ("c",), ("a", "c"), ("a", "b", "c")]:
        await waiting(store, "-".join(("p", *labels)), labels=labels)
    assert sorted(await claimed(store, take(10, labels=("b", "a", "z")))) == ["p", "p-a", "p-a-b", "p-b"]
    assert await claimed(store, take(10)) == []
    assert sorted(await claimed(store, take(10, labels=("c",)))) == ["p-c"]
    assert sorted(await claimed(store, take(10, labels=("a", "b", "c")))) == ["p-a-b-c", "p-a-c"]


async def test_a_record_that_needs_a_handler_goes_to_claimers_that_have_it(store: Store) -> None:
    for name, handler in {"a": "van", "b": "bike", "c": "", "d": "van", "e": "ship"}.items():
        await waiting(store, name, handler=handler)
    assert await claimed(store, take(1)) == ["c"], "Without handlers it receives records that need none."
    assert await claimed(store, take(10)) == []
    assert await claimed(store, take(10, handlers=("va", "vans"))) == []
    assert await claimed(store, take(10, handlers=("bike", "plane"))) == ["b"]
    assert await claimed(store, take(1, handlers=("bike", "van"))) == ["a"]
    assert await claimed(store, take(10, handlers=None)) == ["d", "e"], "None accepts any handler."


async def test_among_many_handlers_a_claimer_finds_its_own(store: Store) -> None:
    for number in range(60):
        await waiting(store, f"p{number}", handler=f"h{number:02}")
    assert await claimed(store, take(5, handlers=MANY_HANDLERS)) == []
    assert await claimed(store, take(5, handlers=(*MANY_HANDLERS, "h57", "h03"))) == ["p3", "p57"]
    assert await claimed(store, take(5, handlers=("h04",))) == ["p4"]


async def test_the_order_holds_across_handlers_labels_and_priorities(store: Store) -> None:
    now = await store.now()
    lanes = [("van", ()), ("", ("cold",)), ("bike", ("cold",)), ("van", ("cold",)), ("", ())]
    for age in range(1, 21):
        handler, labels = lanes[age % len(lanes)]
        late = 60 if age % 2 else 0
        ready_at = now - timedelta(seconds=age) + timedelta(seconds=late - 60)
        await waiting(
            store, f"p{age:02}", labels=labels, handler=handler, ready_at=ready_at, priority=late // 60
        )
    claim = take(8, labels=("cold",), handlers=("bike", "van"))
    given = [await claimed(store, claim) for _ in range(3)]
    expected = [f"p{age:02}" for age in range(20, 0, -1)]
    assert given == [expected[:8], expected[8:16], expected[16:]]


async def test_records_that_differ_in_their_handler_alone_are_distinguished(store: Store) -> None:
    ready_at = await store.now() - LONG_AGO
    kinds = ["van"] * 5 + ["bike"] * 5 + ["van", "bike"]
    names = [f"p{number:02}" for number in range(len(kinds))]
    records = await made(
        store,
        *(
            creation(name, queue="post", ready_at=ready_at, handler=kind)
            for name, kind in zip(names, kinds, strict=True)
        ),
    )
    swapped = {"van": "bike", "bike": "van"}
    vans = [name for name, kind in zip(names, kinds, strict=True) if kind == "van"]
    assert await claimed(store, take(3, handlers=("van",))) == vans[:3]
    left = [(record, kind) for record, kind in zip(records, kinds, strict=True) if record.id not in vans[:3]]
    await made(store, *(move(record, PACKED, handler=swapped[kind]) for record, kind in left))
    were_vans = [record.id for record, kind in left if kind == "van"]
    assert await claimed(store, take(20, handlers=("bike",))) == were_vans
    assert len(await claimed(store, take(20, handlers=("van",)))) == kinds.count("bike")


async def test_records_of_other_kinds_are_not_given_out(store: Store) -> None:
    ready_at = await store.now() - LONG_AGO
    await made(store, creation("x", "written", kind="letter", queue="post", ready_at=ready_at))
    await waiting(store, "a")
    assert await claimed(store, take(5)) == ["a"]
    given: list[str] = []

    def remember(records: Sequence[Record], _now: datetime) -> list[Commit]:
        given.extend(record.id for record in records)
        return []

    assert await store.claim(Claim(kind="letter", queues=("post",), limit=5), remember) == []
    assert given == ["x"]


async def test_among_a_hundred_lanes_a_claimer_finds_its_own(store: Store) -> None:
    for number in range(100):
        await waiting(store, f"p{number}", labels=(f"host-{number:02}",))
    assert await claimed(store, take(5, labels=("host-57",))) == ["p57"]
    assert await claimed(store, take(5, labels=("host-57",))) == []


async def test_urgent_records_that_are_not_ready_yet_do_not_hide_those_that_are(store: Store) -> None:
    later = await store.now() + timedelta(minutes=30)
    delayed = [creation(f"d{n:03}", queue="post", ready_at=later, priority=100) for n in range(400)]
    await made(store, *delayed)
    await waiting(store, "x", "y", priority=-5)
    assert await claimed(store, take(1)) == ["x"]
    assert await claimed(store, take(5)) == ["y"]
    assert await claimed(store, take(5)) == []


async def test_a_delayed_record_is_given_out_when_its_time_has_come(
    store: Store, opener: StoreOpener
) -> None:
    soon = await store.now() + timedelta(milliseconds=60)
    await made(store, creation("late", queue="post", ready_at=soon))
    await made(store, creation("urgent", queue="post", ready_at=soon, priority=1))
    await opener.elapse(store, 0.07)
    await waiting(store, "old", ready_at=soon - timedelta(seconds=30))
    await made(store, creation("new", queue="post", ready_at=await store.now()))
    assert await claimed(store, take(10)) == ["urgent", "old", "late", "new"]


async def test_a_record_that_is_made_to_wait_again_is_not_given_out(store: Store) -> None:
    [a, b, _c] = await waiting(store, "a", "b", "c")
    future = await store.now() + LONG_AGO
    await made(store, move(a, PACKED, ready_at=future), move(b, PACKED, ready_at=None))
    assert await claimed(store, take(5)) == ["c"]


async def test_a_record_that_changes_its_queue_is_given_out_from_the_new_one_only(store: Store) -> None:
    [a, b] = await waiting(store, "a", "b")
    await made(store, move(a, PACKED, queue="rail"), move(b, PACKED, labels=("cold",)))
    assert await claimed(store, take(5)) == []
    assert await claimed(store, take(5, queues=("rail",))) == ["a"]
    assert await claimed(store, take(5, labels=("cold",))) == ["b"]


async def test_a_record_that_changes_its_priority_is_given_out_by_the_new_one(store: Store) -> None:
    [_, _, c] = await waiting(store, "a", "b", "c")
    await made(store, move(c, PACKED, priority=9))
    assert await claimed(store, take(1)) == ["c"]


async def test_a_delayed_record_that_is_called_early_is_given_out_at_once(store: Store) -> None:
    now = await store.now()
    [record] = await made(store, creation("a", queue="post", ready_at=now + LONG_AGO))
    await made(store, move(record, PACKED, ready_at=now))
    assert await claimed(store, take(5)) == ["a"]


async def test_a_decision_may_postpone_a_record(store: Store) -> None:
    await waiting(store, "a")
    later = await store.now() + LONG_AGO
    await store.claim(take(5), Sender(ready_at=later))
    assert await claimed(store, take(5)) == []
    assert (await see(store, "a")).ready_at == later


async def test_a_record_without_a_decision_stays_as_it_is(store: Store) -> None:
    [a, _, c] = await waiting(store, "a", "b", "c")

    def only_b(records: Sequence[Record], _now: datetime) -> list[Commit]:
        return each(*(move(record, SENT, ready_at=None) for record in records if record.id == "b"))

    assert kinds_of(await store.claim(take(3), only_b)) == [Committed]
    assert await see(store, "a") == a
    assert await see(store, "c") == c
    assert await store.claim(take(3), leave) == []
    assert await claimed(store, take(3)) == ["a", "c"]


async def test_a_decision_may_touch_other_records_too(store: Store) -> None:
    await waiting(store, "a")
    [order] = await made(store, creation("order"))

    def with_order(records: Sequence[Record], _now: datetime) -> list[Commit]:
        moves = [move(record, SENT, ready_at=None) for record in records]
        return [Commit(changes=(*moves, move(order, LOST), creation("copy")))]

    assert kinds_of(await store.claim(take(5), with_order)) == [Committed]
    assert [(await see(store, name)).state for name in ("a", "order", "copy")] == ["sent", "lost", "packed"]


async def test_decisions_are_judged_like_any_commit(store: Store) -> None:
    await waiting(store, "a", "b", "c", "d")
    past = await store.now() - LONG_AGO
    await store.commit([Commit(request=request("r"))])

    def mixed(records: Sequence[Record], _now: datetime) -> list[Commit]:
        a, b, c, d = (move(record, SENT, ready_at=None) for record in records)
        return [
            Commit(changes=(d,)),
            Commit(changes=(msgspec.structs.replace(b, expected=7),)),
            Commit(changes=(a,), request=request("r")),
            Commit(changes=(c,), not_after=past),
        ]

    assert kinds_of(await store.claim(take(4), mixed)) == [Committed, Conflict, Repeated, TooLate]
    assert await claimed(store, take(5)) == ["a", "b", "c"]


async def test_a_decision_that_raises_changes_nothing_and_lets_go_of_everything(store: Store) -> None:
    before = await waiting(store, "a", "b")

    def raising(_records: Sequence[Record], _now: datetime) -> list[Commit]:
        raise Trouble("No van.")

    with pytest.raises(Trouble, match=r"No van\."):
        await store.claim(take(5), raising)
    assert [await see(store, name) for name in "ab"] == before
    assert await claimed(store, take(5)) == ["a", "b"]


async def test_a_decision_that_no_store_may_take_lets_go_of_everything(store: Store) -> None:
    await waiting(store, "a", "b")

    def nonsense(records: Sequence[Record], _now: datetime) -> list[Commit]:
        return each(move(records[0], SENT, ready_at=None), move(records[1], "mislaid"))

    with pytest.raises(UnknownState):
        await store.claim(take(5), nonsense)
    assert await claimed(store, take(5)) == ["a", "b"]


async def test_a_claim_fences_off_earlier_readers_of_the_record(store: Store, opener: StoreOpener) -> None:
    [seen] = await waiting(store, "a")
    other = await opener.open()
    assert await claimed(other, take(1)) == ["a"]
    assert await store.commit(each(move(seen, LOST))) == [Conflict(seen.key, 1, 2)]


async def test_concurrent_claimers_get_each_record_once(store: Store, opener: StoreOpener) -> None:
    names = [f"p{number:03}" for number in range(240)]
    await waiting(store, *names)
    stores = [await opener.open() for _ in range(4)]

    async def drain(mine: Store) -> list[str]:
        got: list[str] = []
        while some := await claimed(mine, take(7)):
            got += some
        return got

    shares = await asyncio.gather(*(drain(mine) for mine in stores * 2))
    assert sorted(name for share in shares for name in share) == names
    assert ids_of(await store.history((await see(store, "p000")).key)) == ["p000"]


async def test_a_claimer_that_is_cancelled_leaves_each_record_free_or_done(
    store: Store, opener: StoreOpener
) -> None:
    names = [f"p{number:02}" for number in range(12)]
    await waiting(store, *names)
    for patience in range(12):
        claiming = asyncio.ensure_future(store.claim(take(1), Sender()))
        for _ in range(patience):
            await asyncio.sleep(0)
        claiming.cancel()
        await asyncio.gather(claiming, return_exceptions=True)
    async with asyncio.timeout(PATIENCE_S):
        done: set[str] = set()
        while len(done) < len(names):
            if not await claimed(store, take(20)):
                await opener.elapse(store, 1.0)  # an abandoned claim may lock its records for a while
            records = [await look(store, name) for name in names]
            done = {record.id for record in records if record and record.state == "sent"}
    assert sorted(ids_of(await whole_feed(store))) == names, "Each was sent once."


async def test_overdue_records_are_swept_oldest_first(store: Store) -> None:
    now = await store.now()
    for name, age in {"a": 5, "b": 50, "c": 20, "d": 21}.items():
        await made(store, creation(name, deadline_at=now - timedelta(seconds=age)))
    assert await swept(store, 3) == ["b", "d", "c"]
    assert await swept(store, 3) == ["a"]
    assert await swept(store, 3) == []


async def test_a_sweep_is_one_decision_by_the_clock_of_the_store(store: Store) -> None:
    past = await store.now() - LONG_AGO
    records = await made(store, *(creation(name, deadline_at=past) for name in "ab"))
    sender = Sender()
    before = await store.now()
    assert kinds_of(await store.due(["parcel"], 5, sender)) == [Committed, Committed]
    assert [set(call) for call in sender.calls] == [set(records)]
    assert before <= sender.times[0] <= await store.now()


async def test_a_record_with_no_deadline_or_a_later_one_is_left_alone(store: Store) -> None:
    future = await store.now() + LONG_AGO
    await made(store, creation("idle"), creation("later", deadline_at=future))
    sender = Sender()
    assert await store.due(["parcel"], 5, sender) == []
    assert sender.calls == []


async def test_a_deadline_that_is_past_when_it_is_set_is_due_at_once(store: Store) -> None:
    [record] = await made(store, creation("a"))
    assert await swept(store) == []
    await made(store, move(record, PACKED, deadline_at=await store.now() - timedelta(days=400)))
    assert await swept(store) == ["a"]


async def test_a_deadline_passes_by_itself(store: Store, opener: StoreOpener) -> None:
    await made(store, creation("a", deadline_at=await store.now() + timedelta(milliseconds=20)))
    await opener.elapse(store, 0.03)
    assert await swept(store) == ["a"]


async def test_a_deadline_that_was_moved_or_lifted_is_not_due(store: Store) -> None:
    now = await store.now()
    past, future = now - LONG_AGO, now + LONG_AGO
    [a, b, _c] = await made(store, *(creation(name, deadline_at=past) for name in "abc"))
    await made(store, move(a, PACKED, deadline_at=future), move(b, SENT, deadline_at=None))
    assert await swept(store) == ["c"]


async def test_only_the_kinds_that_were_asked_for_are_swept_all_in_one_order(store: Store) -> None:
    now = await store.now()
    for seconds, name in enumerate(["p1", "l2", "p3", "l4"], 1):
        deadline_at = now - timedelta(seconds=60 - seconds)
        kind, state = ("parcel", PACKED) if name.startswith("p") else ("letter", WRITTEN)
        await made(store, creation(name, state, kind=kind, deadline_at=deadline_at))
    given: list[str] = []

    def post(records: Sequence[Record], _now: datetime) -> list[Commit]:
        given.extend(record.id for record in records)
        ends = {"parcel": SENT, "letter": POSTED}
        return each(*(move(record, ends[record.kind], deadline_at=None) for record in records))

    await store.due(["letter"], 1, post)
    assert given == ["l2"]
    await store.due(["letter", "parcel"], 10, post)
    assert given == ["l2", "p1", "p3", "l4"]
    assert await store.due([], 10, post) == []


async def test_a_due_record_without_a_decision_stays_due(store: Store) -> None:
    past = await store.now() - LONG_AGO
    [record] = await made(store, creation("a", deadline_at=past))
    assert await store.due(["parcel"], 5, leave) == []
    assert await see(store, "a") == record
    assert await swept(store) == ["a"]


async def test_a_sweep_that_raises_changes_nothing_and_lets_go_of_everything(store: Store) -> None:
    past = await store.now() - LONG_AGO
    await made(store, creation("a", deadline_at=past))

    def raising(_records: Sequence[Record], _now: datetime) -> list[Commit]:
        raise Trouble("No light.")

    with pytest.raises(Trouble, match=r"No light\."):
        await store.due(["parcel"], 5, raising)
    assert await swept(store) == ["a"]


async def test_a_record_can_be_ready_and_due_at_once(store: Store) -> None:
    past = await store.now() - LONG_AGO
    await made(store, creation("a", queue="post", ready_at=past, deadline_at=past))
    assert await swept(store) == ["a"]
    assert (await see(store, "a")).version == 2


async def test_a_sweep_twice_over_does_nothing_the_second_time(store: Store) -> None:
    past = await store.now() - LONG_AGO
    records = await made(store, *(creation(f"p{number}", deadline_at=past) for number in range(5)))
    late = each(*(move(record, LOST, deadline_at=None) for record in records))
    assert len(await swept(store)) == 5
    assert Committed not in kinds_of(await store.commit(late)), "The decision of a stale timer is refused."


async def test_two_sweepers_sweep_each_record_once(store: Store, opener: StoreOpener) -> None:
    past = await store.now() - LONG_AGO
    names = [f"p{number:03}" for number in range(120)]
    await made(store, *(creation(name, deadline_at=past) for name in names))
    stores = [await opener.open(), await opener.open()]

    async def sweep(mine: Store) -> list[str]:
        got: list[str] = []
        while some := await swept(mine, 7):
            got += some
        return got

    shares = await asyncio.gather(*(sweep(mine) for mine in stores))
    assert sorted(name for share in shares for name in share) == names
