"""There is one clock, the store's; nobody else's makes a difference."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from interlock.store.contract import Store
from interlock.store.records import Commit, Committed, TooLate
from interlock.testing.store_contract.builders import claimed, creation, each, made, move, see, swept, take
from interlock.testing.store_contract.catalogue import PACKED
from interlock.testing.store_contract.opener import StoreOpener, needs
from interlock.testing.store_contract.processes import ask, look_at_the_clock


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
    epoch = await store.raise_epoch(2**45)  # far from what the time makes it grow to
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
