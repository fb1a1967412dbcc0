"""Sixty-four submissions with one key at once, on every store: one job."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import pytest
from tests.effort import pick
from tests.systems.orchestrator.house import House, done, release
from tests.systems.orchestrator.test_every_store_alike import OpenHouse, open_house

from interlock.errors import DuplicateJob, InterlockError
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.jobs import JobSpec, SubmittedJob, Unique, UniquePolicy

__all__ = ["open_house"]
RACERS = 64


def spec(policy: UniquePolicy, number: int = 0, key: str = "one") -> JobSpec:
    given = msgspec.Raw(msgspec.json.encode({"n": number}))
    return JobSpec(task="race", input=given, unique=Unique(key=key, policy=policy))


async def raced(houses: list[House], policy: UniquePolicy) -> list[SubmittedJob | DuplicateJob]:
    """What each of the racers was told, through several programs on one database."""

    async def one(number: int) -> SubmittedJob | DuplicateJob:
        try:
            (made,) = await houses[number % len(houses)].jobs.submit_jobs([spec(policy, number)])
        except DuplicateJob as error:
            return error
        return made

    return await asyncio.gather(*map(one, range(RACERS)))


@pytest.mark.parametrize("policy", pick(["reject"], ["reject", "existing", "replace", "debounce"]))
async def test_of_many_submissions_with_one_key_one_creates_the_job(
    open_house: OpenHouse, policy: UniquePolicy
) -> None:
    houses = [await open_house(DEFAULT_SETTINGS) for _ in range(4)]
    results = await raced(houses, policy)
    made = [one for one in results if isinstance(one, SubmittedJob)]
    (first,) = [one for one in made if one.how == "created"]
    assert await houses[0].number_of_jobs() == 1
    if policy == "reject":
        others = [one for one in results if isinstance(one, DuplicateJob)]
        assert Counter(one.facts["job_id"] for one in others) == {first.id: RACERS - 1}
    else:
        assert Counter(one.id for one in made) == {first.id: RACERS}
    assert await houses[0].faults() == []


@pytest.mark.parametrize("rounds", [pick(2, 20)])
async def test_a_key_is_taken_once_each_time_that_its_job_ends(open_house: OpenHouse, rounds: int) -> None:
    houses = [await open_house(DEFAULT_SETTINGS) for _ in range(4)]
    seen: set[str] = set()
    for _ in range(rounds):
        results = await raced(houses, "existing")
        (job_id,) = {one.id for one in results if isinstance(one, SubmittedJob)}
        assert job_id not in seen
        seen.add(job_id)
        await houses[0].heard(done(await houses[0].grant()))
    assert await houses[0].number_of_jobs() == rounds


async def test_bulks_with_the_same_keys_make_each_job_once(open_house: OpenHouse) -> None:
    houses = [await open_house(DEFAULT_SETTINGS) for _ in range(4)]
    bulk = [spec("existing", key=f"key {number % 5}") for number in range(10)]
    results: list[list[str]] = await asyncio.gather(*(house.jobs.submit_many(bulk) for house in houses * 2))
    assert len({tuple(ids) for ids in results}) == 1
    assert len(set(results[0])) == 5 == await houses[0].number_of_jobs()


async def test_the_grant_of_a_unique_job_contains_the_replaced_input(open_house: OpenHouse) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    first = await house.jobs.submit(spec("replace", 1))
    assert await house.jobs.submit_jobs([spec("replace", 2)]) == [SubmittedJob(first, "replaced")]
    grant = await house.grant()
    assert (grant.job_id, bytes(grant.input)) == (first, b'{"n":2}')
    await house.heard(done(grant))
    assert bytes((await house.view(first)).input) == b'{"n":2}'


async def test_a_job_expires_on_every_store(open_house: OpenHouse) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    late = await house.submit(start_within_s=3_600)
    later = await house.submit(queue="other", start_within_s=3_600 * 48)
    open_house.move(3_700)
    await house.recover()
    assert [(await house.view(one)).state for one in (late, later)] == ["FAILED", "PENDING"]


async def test_a_snoozed_job_is_granted_again_after_its_delay_on_every_store(open_house: OpenHouse) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    grant = await house.started()
    await house.heard(release(grant, reason="snooze", snooze_s=3_600.0))
    assert await house.claim() == []
    open_house.move(3_700)
    assert (await house.grant()).attempt == 2


async def test_a_job_refused_as_a_duplicate_can_be_submitted_after_the_first_job_is_cancelled(
    open_house: OpenHouse,
) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    first = await house.jobs.submit(spec("reject"))
    with pytest.raises(InterlockError):
        await house.jobs.submit(spec("reject"))
    await house.jobs.cancel(first)
    assert await house.jobs.submit(spec("reject")) != first
