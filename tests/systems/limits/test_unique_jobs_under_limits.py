"""A unique job counts against its limits like any other, also when a submission changes it."""

from __future__ import annotations

import pytest
from tests.systems.limits.test_slots import TWO, given, key, limits, settle
from tests.systems.orchestrator.house import House, done

from interlock.errors import DuplicateJob, UnknownLimit
from interlock.wire.jobs import JobSpec, Unique, UniquePolicy
from interlock.wire.limits import LimitSpec


def keyed(name: str, policy: UniquePolicy = "reject", **more: object) -> JobSpec:
    unique = Unique(key=name, policy=policy)
    return JobSpec(task="call", limits=("vendor-x",), unique=unique, **more)  # type: ignore[arg-type]


async def test_unique_jobs_wait_for_a_slot(house: House) -> None:
    await limits(house).set("vendor-x", TWO)
    ids = [await house.jobs.submit(keyed(f"order {number}")) for number in range(3)]
    with pytest.raises(DuplicateJob):
        await house.jobs.submit(keyed("order 2"))
    first = await given(house)
    assert [grant.job_id for grant in first] == ids[:2]
    await house.heard(done(first[0]))
    assert [grant.job_id for grant in await given(house)] == ids[2:]
    assert not await house.faults()


async def test_the_limit_of_a_queue_holds_for_unique_jobs(house: House) -> None:
    await limits(house).set("queue:default", LimitSpec(max=1))
    specs = [JobSpec(task="call", unique=Unique(key=f"order {number}")) for number in range(2)]
    ids = [made.id for made in await house.jobs.submit_jobs(specs)]
    assert [grant.job_id for grant in await given(house)] == ids[:1]


async def test_a_job_that_is_debounced_gives_its_slot_back_until_its_time_has_come(house: House) -> None:
    await limits(house).set("vendor-x", LimitSpec(max=1))
    first = await house.jobs.submit(keyed("order", "debounce", delay_s=10))
    await settle(house)
    house.clock.jump(11)
    await settle(house)
    assert (await key(house, "vendor-x")).used == 1
    (again,) = await house.jobs.submit_jobs([keyed("order", "debounce", delay_s=10)])
    assert (again.id, again.how) == (first, "debounced")
    other = await house.jobs.submit(keyed("other"))
    (grant,) = await given(house)
    assert grant.job_id == other, "the slot is free meanwhile"
    house.clock.jump(11)
    assert await given(house) == [], "and it waits for it like any other"
    await house.heard(done(grant))
    assert [each.job_id for each in await given(house)] == [first]
    assert not await house.faults()


async def test_a_repeated_submission_is_answered_although_its_limit_was_deleted(house: House) -> None:
    await limits(house).set("vendor-x", TWO)
    first = await house.jobs.submit(keyed("order", "existing"), request_id="r1")
    await limits(house).delete("vendor-x")
    assert await house.jobs.submit(keyed("order", "existing"), request_id="r1") == first
    with pytest.raises(UnknownLimit):
        await house.jobs.submit(keyed("order", "existing"), request_id="r2")
