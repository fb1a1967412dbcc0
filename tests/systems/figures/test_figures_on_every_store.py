"""Figures are exact on every store, with two servers that count at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from tests.systems.figures.counters import count, counter, counts, seen
from tests.systems.orchestrator.house import House, done, failed
from tests.systems.orchestrator.test_every_store_alike import OpenHouse
from tests.waiting import until

from interlock.store.records import Key
from interlock.systems.figures import figures as module
from interlock.systems.figures.figures import Figures
from interlock.systems.figures.series import FIGURES, CountedEvent, CountedJob
from interlock.systems.settings import DEFAULT_SETTINGS

JOBS = 24


async def work(house: House, number: int) -> None:
    """A job that ends in one of three ways."""
    queue = f"q{number}"
    job_id = await house.submit(queue=queue)
    if number % 3 == 2:
        await house.jobs.cancel(job_id)
        return
    grant = await house.grant(queues=(queue,))
    await house.heard(done(grant) if number % 3 else failed(grant, "user"))


async def all_counted(house: House, *figures: Figures) -> None:
    """Come back when every job is counted: a feed may hold back what could still be overtaken."""

    async def is_counted() -> bool:
        for each in figures:
            await count(each)
        totals = (await seen(house)).totals
        return totals.completed + totals.failed + totals.canceled >= JOBS

    await until(is_counted, "every job is counted")


async def test_two_servers_that_count_at_once_count_everything_once(
    open_house: OpenHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENTRIES", 10)
    one, other = [await open_house(DEFAULT_SETTINGS) for _ in range(2)]
    here, there = counter(one), counter(other)
    await asyncio.gather(here.round(), there.round())
    over = asyncio.Event()

    async def go_on(figures: Figures) -> None:
        while not over.is_set():
            await figures.round()
            await asyncio.sleep(0)

    loops = [asyncio.create_task(go_on(each)) for each in (here, there)]
    for number in range(JOBS):
        await work((one, other)[number % 2], number)
    over.set()
    await asyncio.gather(*loops)
    await all_counted(one, here, there)
    for house, minutes in ((one, 60), (other, 1_440), (one, 10_080)):
        view = await seen(house, minutes)
        third = JOBS // 3
        assert counts(view.totals) == (JOBS, third, third, third, 0)
        assert {counts(each)[0] for each in view.tasks} == {1}
        assert len(view.tasks) == JOBS


async def test_a_new_server_continues_counting_jobs_where_the_previous_server_stopped(
    open_house: OpenHouse,
) -> None:
    first = await open_house(DEFAULT_SETTINGS)
    await counter(first).round()
    for number in range(JOBS // 2):
        await work(first, number)
    await count(counter(first))
    for number in range(JOBS // 2, JOBS):
        await work(first, number)
    second = await open_house(DEFAULT_SETTINGS)
    await all_counted(second, counter(second))
    assert (await seen(second)).totals.submitted == JOBS


async def test_a_counting_round_that_another_server_has_overtaken_counts_no_job_twice(
    open_house: OpenHouse,
) -> None:
    one, other = [await open_house(DEFAULT_SETTINGS) for _ in range(2)]
    here, there = counter(one), counter(other)
    await here.round()
    for number in range(JOBS):
        await work(one, number)
    load = there._facts

    async def overtaken(events: Sequence[CountedEvent]) -> dict[str, CountedJob]:
        await all_counted(one, here)
        return await load(events)

    there._facts = overtaken  # type: ignore[method-assign]
    await there.round()
    totals = (await seen(one)).totals
    assert counts(totals)[0] in (0, JOBS)
    there._facts = load  # type: ignore[method-assign]
    await all_counted(one, here, there)
    assert counts((await seen(one)).totals) == (JOBS, JOBS // 3, JOBS // 3, JOBS // 3, 0)


async def test_figures_are_forgotten_after_seven_days_on_every_store(open_house: OpenHouse) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    await counter(house).round()
    for number in range(JOBS):
        await work(house, number)
    await all_counted(house, counter(house))
    now = await house.store.now()
    open_house.move(8 * 86_400)
    await house.submit()  # the next to open the store finds that so much time has passed
    later = await open_house(DEFAULT_SETTINGS)
    assert await counter(later).sweep() >= 2
    key = Key(FIGURES.name, f"hours.{int(now.timestamp()) // 43_200}")
    (record,) = await later.store.load([key])
    assert record is not None
    assert (record.state, record.body) == ("forgotten", b"{}")
    assert (await seen(later, 10_080)).totals.completed == 0
    pruned = await later.store.prune(
        kind=FIGURES.name, states=["forgotten"], older_than=timedelta(seconds=0), limit=100
    )
    assert (pruned.records >= 2, pruned.entries) == (True, 0)
    assert await later.store.load([key]) == [None]
