"""The store that misbehaves does so exactly as its plan says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from interlock.errors import StoreUnavailable
from interlock.store.contract import Store
from interlock.store.memory import MemoryStore
from interlock.store.records import Claim, Committed, Key, Query
from interlock.testing.faults import ALL, Fault, FaultyStore, Plan
from interlock_verification.chaos.counters import CATALOGUE, one_more

KEY = Key("counter", "c")
FIRST = one_more(KEY, None, "e", "first")


def faulty(*faults: Fault, seed: int = 0, **ports: Any) -> tuple[MemoryStore, FaultyStore]:
    store = MemoryStore(CATALOGUE)
    return store, FaultyStore(store, Plan(faults=faults, seed=seed), **ports)


async def test_a_lost_request_never_reaches_the_store() -> None:
    store, spoilt = faulty(Fault("request lost", at=(1,)))
    with pytest.raises(StoreUnavailable, match="unknown"):
        await spoilt.commit([FIRST])
    assert await store.load([KEY]) == [None]
    assert spoilt.counts == {("request lost", "commit"): 1}


async def test_a_lost_reply_is_lost_after_the_store_has_done_it() -> None:
    store, spoilt = faulty(Fault("reply lost", at=(1,)))
    with pytest.raises(StoreUnavailable, match="unknown"):
        await spoilt.commit([FIRST])
    [record] = await store.load([KEY])
    assert record is not None


async def test_the_two_losses_cannot_be_distinguished() -> None:
    errors = []
    for what in ("request lost", "reply lost"):
        _, spoilt = faulty(Fault(what, at=(1,)))
        with pytest.raises(StoreUnavailable) as caught:
            await spoilt.commit([FIRST])
        errors.append(caught.value.as_dict())
    assert errors[0] == errors[1]


async def test_a_late_call_waits_and_is_then_answered() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    _, spoilt = faulty(Fault("late", at=(1,), delay_s=5.0), sleep=sleep)
    [outcome] = await spoilt.commit([FIRST])
    assert isinstance(outcome, Committed)
    assert len(waits) == 1
    assert 0.0 <= waits[0] <= 5.0


async def test_a_commit_that_is_executed_twice_returns_the_first_outcome() -> None:
    store, spoilt = faulty(Fault("done twice", at=(1,)))
    [outcome] = await spoilt.commit([FIRST])
    assert isinstance(outcome, Committed)
    assert len((await store.history(KEY)).entries) == 1


async def test_a_fault_at_a_number_befalls_that_call_and_no_other() -> None:
    _, spoilt = faulty(Fault("request lost", of=("now",), at=(2,)))
    await spoilt.now()
    with pytest.raises(StoreUnavailable):
        await spoilt.now()
    await spoilt.now()


async def test_a_fault_of_one_method_leaves_the_others_alone() -> None:
    _, spoilt = faulty(Fault("request lost", of=("load",), chance=1.0))
    await spoilt.commit([FIRST])
    with pytest.raises(StoreUnavailable, match="load"):
        await spoilt.load([KEY])


async def test_of_faults_that_meet_the_first_befalls_the_call() -> None:
    _, spoilt = faulty(Fault("late", chance=1.0, delay_s=0.0), Fault("request lost", chance=1.0))
    await spoilt.commit([FIRST])
    assert spoilt.counts == {("late", "commit"): 1}


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_seed_decides_which_calls_a_chance_befalls(seed: int) -> None:
    async def fates() -> list[bool]:
        _, spoilt = faulty(Fault("request lost", of=("now",), chance=0.5), seed=seed)
        answers = []
        for _ in range(50):
            try:
                await spoilt.now()
                answers.append(True)
            except StoreUnavailable:
                answers.append(False)
        return answers

    assert await fates() == await fates()
    assert set(await fates()) == {True, False}


@pytest.mark.parametrize("method", ALL)
async def test_every_call_of_the_contract_can_be_befallen_and_works_otherwise(method: str) -> None:
    store, spoilt = faulty(Fault("request lost", of=(method,), at=(1,)))
    await spoilt.open()
    with pytest.raises(StoreUnavailable, match=method):
        await _call(spoilt, method)
    answers = [await _call(each, method) for each in (spoilt, store)]
    if method not in ("now", "commit", "raise_epoch"):  # the one is a clock, the others remember
        assert answers[0] == answers[1]
    spoilt.subscribe(lambda: None)()
    assert spoilt.capabilities == store.capabilities
    await spoilt.close()


async def _call(store: Store, method: str) -> object:
    calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "load": (([KEY],), {}),
        "find": ((Query(kind="counter"),), {}),
        "count": ((Query(kind="counter"),), {}),
        "commit": (([FIRST],), {}),
        "claim": ((Claim(kind="counter", queues=("q",)), lambda _records, _now: []), {}),
        "due": ((["counter"], 1, lambda _records, _now: []), {}),
        "recall": (("r",), {}),
        "history": ((KEY,), {}),
        "prune": ((), {"kind": "counter", "states": ["closed"], "older_than": timedelta(0)}),
        "prune_by_queue": (
            (),
            {"kind": "counter", "state": "closed", "older_than": None, "queues": {"q": timedelta(0)}},
        ),
    }
    positional, named = calls.get(method, ((), {}))
    answer: object = await getattr(store, method)(*positional, **named)
    return answer


def test_a_plan_that_names_no_call_of_a_store_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no call comit.*commit"):
        Plan(faults=(Fault("late", of=("comit",)),))


def test_a_plan_with_an_impossible_chance_is_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Plan(faults=(Fault("late", chance=2.0),))
