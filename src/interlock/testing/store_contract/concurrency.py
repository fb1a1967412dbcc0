"""Many callers at once, in one process and in several, with one clock: the store's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from interlock.store.contract import Store
from interlock.store.records import (
    Commit,
    Committed,
    Conflict,
    Entry,
    Key,
    Outcome,
    Query,
    Repeated,
    TooLate,
)
from interlock.testing.store_contract.builders import (
    LONG_AGO,
    PACKED,
    PACKING,
    PATIENCE_S,
    SENT,
    Sender,
    all_found,
    claimed,
    creation,
    each,
    kinds_of,
    made,
    move,
    see,
    swept,
    take,
    waiting,
    whole_feed,
)
from interlock.testing.store_contract.processes import (
    ask,
    ask_many,
    claim_and_hang,
    drain_by_claims,
    drain_by_sweeps,
    just_open,
    kill_amid,
    look_at_the_clock,
    race_with_a_request,
    write_entries,
)
from interlock.testing.store_contract.suite import StoreOpener, needs


async def test_no_update_is_lost_among_many_who_retry(store: Store, opener: StoreOpener) -> None:
    stores = [await opener.open() for _ in range(4)]
    await made(store, creation("counter", SENT, body=b"0"))

    async def increment(mine: Store) -> None:
        while True:
            seen = await see(mine, "counter")
            await asyncio.sleep(0)  # a store in memory answers without yielding to the loop
            change = move(seen, SENT, body=b"%d" % (int(seen.body) + 1))
            [outcome] = await mine.commit(each(change))
            if isinstance(outcome, Committed):
                return
            assert isinstance(outcome, Conflict)

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(increment(stores[number % 4]) for number in range(24)))
    after = await see(store, "counter")
    assert (after.version, after.body) == (25, b"24")


async def test_commits_that_meet_in_opposite_orders_all_get_an_answer(
    store: Store, opener: StoreOpener
) -> None:
    stores = [await opener.open() for _ in range(4)]
    names = [f"p{number}" for number in range(6)]
    await made(store, *(creation(name, SENT) for name in names))

    async def touch(number: int) -> int:
        done = 0
        for turn in range(10):
            mine = stores[number % 4]
            order = names if (number + turn) % 2 else names[::-1]
            found = await mine.load([Key("parcel", name) for name in order])
            changes = tuple(move(record, SENT) for record in found if record)
            batch = [Commit(changes=changes[:3]), Commit(changes=changes[3:])]
            done += 3 * kinds_of(await mine.commit(batch)).count(Committed)
        return done

    async with asyncio.timeout(PATIENCE_S):
        done = sum(await asyncio.gather(*(touch(number) for number in range(8))))
    assert done > 0
    versions = [(await see(store, name)).version for name in names]
    assert sum(versions) - len(names) == done, "Acknowledged changes were executed."


async def test_many_who_create_the_same_record_create_it_once(store: Store, opener: StoreOpener) -> None:
    stores = [await opener.open() for _ in range(4)]

    async def create(number: int) -> Outcome:
        change = creation("a", body=b"%d" % number, note=PACKING)
        return (await stores[number % 4].commit(each(change)))[0]

    outcomes = await asyncio.gather(*(create(number) for number in range(32)))
    winners = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Committed)]
    assert (len(winners), kinds_of(outcomes).count(Conflict)) == (1, 31)
    assert (await see(store, "a")).body == b"%d" % winners[0]
    assert len(await whole_feed(store)) == 1


async def test_claims_sweeps_and_commits_on_the_same_records_do_not_get_stuck(
    store: Store, opener: StoreOpener
) -> None:
    past = await store.now() - LONG_AGO
    names = [f"p{number:03}" for number in range(90)]
    records = await waiting(store, *names, deadline_at=past)
    stores = [await opener.open() for _ in range(3)]

    async def commit_some() -> int:
        done = 0
        for record in records[::3]:
            [outcome] = await stores[2].commit(each(move(record, ready_at=None, deadline_at=None)))
            done += isinstance(outcome, Committed)
        return done

    async def drain(take_some: Callable[[Sender], Awaitable[list[Outcome]]]) -> int:
        done = 0
        sender = Sender()
        while outcomes := await take_some(sender):
            assert set(kinds_of(outcomes)) <= {Committed, Conflict}, "Others may have been quicker."
            done += kinds_of(outcomes).count(Committed)
        return done

    async with asyncio.timeout(PATIENCE_S):
        shares = await asyncio.gather(
            commit_some(),
            drain(lambda sender: stores[0].claim(take(4), sender)),
            drain(lambda sender: stores[1].due(["parcel"], 4, sender)),
        )
    after = await store.load([record.key for record in records])
    assert {record.version for record in after if record} == {2}, "Each was moved once, by one of them."
    assert sum(shares) == len(names)


async def test_many_can_open_an_empty_database_at_once(opener: StoreOpener) -> None:
    fresh = await opener.elsewhere()
    stores = await asyncio.gather(*(fresh.open() for _ in range(6)))
    await made(stores[0], creation("a", note=PACKING))
    assert [(await see(mine, "a")).version for mine in stores] == [1] * 6
    assert len({(await mine.status()).schema_version for mine in stores}) == 1


@needs("processes")
async def test_four_processes_can_open_an_empty_database_at_once(opener: StoreOpener) -> None:
    fresh = await opener.elsewhere()
    epochs = await ask_many(fresh, just_open, [()] * 4)
    assert len(set(epochs)) == 1


@needs("processes")
async def test_eight_processes_claim_ten_thousand_records_each_once(
    store: Store, opener: StoreOpener
) -> None:
    names = [f"p{number:05}" for number in range(10_000)]
    for start in range(0, len(names), 1_000):
        await waiting(store, *names[start : start + 1_000])
    shares = await ask_many(opener, drain_by_claims, [(50,)] * 8, meetings=1)
    assert sorted(name for share in shares for name in share) == names
    assert sum(1 for share in shares if share) > 1, "More than one process took part."
    assert [entry.version for entry in await whole_feed(store)] == [2] * len(names)
    assert await all_found(store, Query(kind="parcel", states=("packed",))) == []


@needs("processes")
async def test_two_sweeping_processes_sweep_each_record_once(store: Store, opener: StoreOpener) -> None:
    past = await store.now() - LONG_AGO
    names = [f"p{number:04}" for number in range(1_000)]
    await made(store, *(creation(name, deadline_at=past) for name in names))
    shares = await ask_many(opener, drain_by_sweeps, [(20,)] * 2, meetings=1)
    assert sorted(name for share in shares for name in share) == names


@needs("processes")
async def test_a_claimer_that_is_killed_lets_go_within_seconds(store: Store, opener: StoreOpener) -> None:
    names = [f"p{number}" for number in range(5)]
    before = await waiting(store, *names)
    await kill_amid(opener, claim_and_hang, 3)
    got = await claimed(store, take(5))
    async with asyncio.timeout(PATIENCE_S):
        while len(got) < len(names):
            await opener.elapse(store, 1.0)
            got += await claimed(store, take(5))
    assert sorted(got) == names
    assert {entry.version for entry in await whole_feed(store)} == {before[0].version + 1}


@needs("processes")
async def test_sixty_four_racers_in_eight_processes_with_one_request_have_one_effect(
    store: Store, opener: StoreOpener
) -> None:
    answers = await ask_many(opener, race_with_a_request, [(8 * number, 8) for number in range(8)])
    outcomes = [outcome for answer in answers for outcome in answer]
    winners = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Committed)]
    repeats = [outcome for outcome in outcomes if isinstance(outcome, Repeated)]
    assert (len(winners), len(repeats)) == (1, 63)
    assert {repeat.recorded.answer.body for repeat in repeats} == {b"%d" % winners[0]}
    assert [entry.id for entry in await whole_feed(store)] == [f"p{winners[0]}"]


@needs("processes")
async def test_a_reader_among_writing_processes_sees_every_entry_once(
    store: Store, opener: StoreOpener
) -> None:
    entries: list[Entry] = []
    total = 4 * 150

    async def read() -> None:
        cursor = ""
        while len(entries) < total:
            page = await store.feed(cursor, limit=50)
            assert not page.gap
            entries.extend(page.entries)
            cursor = page.cursor

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(read())
        group.create_task(ask_many(opener, write_entries, [(number, 150) for number in range(4)]))
    assert len({entry.id for entry in entries}) == total
    assert entries == await whole_feed(store), "Nothing came later before what had been read."
    for number in range(4):
        mine = [entry.id for entry in entries if entry.id.startswith(f"w{number}-")]
        assert mine == sorted(mine)


@needs("processes")
async def test_a_subscriber_is_woken_by_what_another_process_commits(
    store: Store, opener: StoreOpener
) -> None:
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(woken.set)

    stop = store.subscribe(wake)
    await ask_many(opener, write_entries, [(1, 1)])
    async with asyncio.timeout(PATIENCE_S):
        await woken.wait()
    stop()


async def test_the_time_is_in_utc(store: Store) -> None:
    assert (await store.now()).utcoffset() == timedelta(0)


async def test_the_times_of_a_record_are_in_utc(store: Store) -> None:
    now = await store.now()
    [record] = await made(store, creation("a", queue="post", ready_at=now, deadline_at=now))
    for at in (record.created_at, record.updated_at, record.ready_at, record.deadline_at):
        assert at is not None
        assert at.utcoffset() == timedelta(0)


async def test_time_never_goes_back_through_one_store(store: Store) -> None:
    seen = [await store.now() for _ in range(50)]
    assert seen == sorted(seen)


async def test_a_commit_happens_between_before_and_after(store: Store) -> None:
    for number in range(5):
        before = await store.now()
        [outcome] = await store.commit(each(creation(f"p{number}")))
        assert isinstance(outcome, Committed)
        assert before <= outcome.at <= await store.now()


async def test_commits_one_after_the_other_have_times_in_that_order(
    store: Store, opener: StoreOpener
) -> None:
    other = await opener.open()
    times = []
    for number in range(20):
        [outcome] = await (store, other)[number % 2].commit(each(creation(f"p{number}")))
        assert isinstance(outcome, Committed)
        times.append(outcome.at)
    assert times == sorted(times)


async def test_two_stores_on_one_database_have_one_clock(store: Store, opener: StoreOpener) -> None:
    other = await opener.open()
    times = [await (store, other)[turn % 2].now() for turn in range(10)]
    assert times == sorted(times)


async def test_the_epoch_is_the_same_for_everybody(store: Store, opener: StoreOpener) -> None:
    assert await store.epoch() >= 0
    epoch = await store.raise_epoch(2**45)  # far above the value that time alone would reach
    await made(store, creation("a"))
    assert await store.epoch() == epoch
    assert await (await opener.open()).epoch() == epoch


@pytest.mark.parametrize("skew_h", [-1, 1])
async def test_a_client_that_is_an_hour_off_is_judged_by_the_clock_of_the_store(
    store: Store, skew_h: int
) -> None:
    theirs = await store.now() + timedelta(hours=skew_h)
    await made(store, creation("a", queue="post", ready_at=theirs, deadline_at=theirs))
    assert (await claimed(store, take(1)) == ["a"]) == (skew_h < 0)
    [outcome] = await store.commit([Commit(changes=(creation("b"),), not_after=theirs)])
    assert isinstance(outcome, TooLate if skew_h < 0 else Committed)
    assert abs((await see(store, "a")).created_at - await store.now()) < timedelta(minutes=1)
    assert await swept(store) == []


@needs("shared")
@pytest.mark.parametrize("skew_h", [-1, 1])
async def test_a_host_whose_own_clock_is_an_hour_off_changes_nothing(
    store: Store, opener: StoreOpener, skew_h: int
) -> None:
    now = await store.now()
    [soon, past] = await made(
        store,
        creation("soon", queue="post", ready_at=now + timedelta(minutes=30)),
        creation("past", queue="post", ready_at=now - timedelta(minutes=30)),
    )
    await made(store, move(soon, PACKED, deadline_at=now + timedelta(minutes=30)))
    await made(store, move(past, PACKED, deadline_at=now - timedelta(minutes=30)))
    off = now - datetime.now(UTC)  # the store's clock may be ahead of this host's
    seen = await ask(opener, look_at_the_clock, off.total_seconds() + skew_h * 3_600.0)
    assert abs(seen["own"] - now) > timedelta(minutes=50), "Otherwise this test shows nothing."
    for name in ("now", "created_at", "claimed_at"):
        assert abs(seen[name] - now) < timedelta(minutes=1), name
    assert seen["claimed"] == ["past"]
    assert seen["due"] == ["past"]
    assert seen["remembered"], "A request that lives for half an hour is alive."
    assert seen["in_time"], "A commit that may be done within half an hour is done."
    assert seen["too_late"], "One that had to be done half an hour ago is not."


async def test_an_epoch_that_is_raised_is_larger_for_everybody(store: Store, opener: StoreOpener) -> None:
    before = await store.epoch()
    raised = await store.raise_epoch()
    assert raised > before
    assert await store.raise_epoch(raised + 1_000) > raised + 1_000
    assert await (await opener.open()).epoch() > raised + 1_000
