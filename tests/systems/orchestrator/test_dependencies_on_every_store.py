"""Jobs that come after others, on every store: none is lost, released twice, or released too early."""

from __future__ import annotations

import asyncio

import msgspec
from tests.effort import pick
from tests.systems.orchestrator.house import House, done, failed
from tests.systems.orchestrator.test_every_store_alike import OpenHouse, open_house
from tests.waiting import until

from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.jobs import After, JobSpec
from interlock.wire.runner import Grant

__all__ = ["open_house"]
RACERS = 64


async def grants(houses: list[House], number: int, queue: str = "default") -> list[Grant]:
    """So many jobs of a queue, given to whichever program asks for them."""
    given: list[Grant] = []

    async def are_given() -> bool:
        for house in houses:
            await house.recover()
            given.extend(await house.claim(queues=(queue,), limit=number))
        return len(given) >= number

    await until(are_given, f"{number} jobs of the queue {queue} are given")
    return given


async def test_jobs_that_are_submitted_while_the_job_before_them_ends_are_all_released_once(
    open_house: OpenHouse,
) -> None:
    houses = [await open_house(DEFAULT_SETTINGS) for _ in range(4)]
    first = await houses[0].started()

    async def follow(number: int) -> str:
        rule = After(jobs=(first.job_id,))
        return await houses[number % 4].submit("next", queue="next", after=rule)

    async def end() -> None:
        await houses[1].heard(done(first))

    results = await asyncio.gather(*map(follow, range(RACERS // 2)), end(), *map(follow, range(RACERS // 2)))
    ids = [each for each in results if each is not None]
    given = await grants(houses, RACERS, "next")
    assert sorted(grant.job_id for grant in given) == sorted(ids)
    assert await houses[0].faults() == []


async def test_a_job_after_many_that_end_at_the_same_time_is_released_by_the_last(
    open_house: OpenHouse,
) -> None:
    houses = [await open_house(DEFAULT_SETTINGS) for _ in range(4)]
    number = pick(20, 64)
    specs = [JobSpec(task="part") for _ in range(number)]
    every = tuple(f"#{place}" for place in range(number))
    specs.append(JobSpec(task="sum", queue="next", after=After(jobs=every, into="parts")))
    *parts, last = await houses[0].jobs.submit_many(specs, request_id="all")
    given = await grants(houses, number)
    order = {job_id: place for place, job_id in enumerate(parts)}

    async def end(grant: Grant, house: House) -> None:
        await house.heard(done(grant, str(order[grant.job_id]).encode()))
        await house.recover()

    await asyncio.gather(*(end(grant, houses[place % 4]) for place, grant in enumerate(given[1:])))
    assert await houses[0].claim(queues=("next",)) == []
    await end(given[0], houses[3])
    (grant,) = await grants(houses, 1, "next")
    assert grant.job_id == last
    assert msgspec.json.decode(grant.input) == {"parts": list(range(number))}
    assert await houses[0].faults() == []


async def test_a_failed_job_cancels_its_followers_recursively_on_every_store(open_house: OpenHouse) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    specs = [
        JobSpec(task="a", retries=0),
        JobSpec(task="b", after=After(jobs=("#0",))),
        JobSpec(task="c", after=After(jobs=("#1",))),
        JobSpec(task="d", queue="next", after=After(jobs=("#2",), on="end")),
    ]
    ids = await house.jobs.submit_many(specs)
    await house.heard(failed(await house.grant()))
    (last,) = await grants([house], 1, "next")
    views = [await house.view(each) for each in ids[:3]]
    assert [(view.state, view.stop_reason) for view in views] == [
        ("FAILED", None),
        ("CANCELED", "upstream"),
        ("CANCELED", "upstream"),
    ]
    assert last.job_id == ids[3]
