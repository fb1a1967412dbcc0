"""Names of jobs: their shape, their order, and that no two jobs ever share one."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from tests.systems.orchestrator.house import House, done

from interlock.systems.orchestrator.ids import JobIds
from interlock.systems.orchestrator.jobs import Jobs
from interlock.wire.jobs import JobSpec

NOW = datetime(2026, 5, 1, tzinfo=UTC)
SHAPE = re.compile(r"j_[0-9a-f]{12}")


def nothing_by_chance(_: int) -> int:
    return 0


def names_of(house: House, below: object = nothing_by_chance) -> Jobs:
    """The jobs of the same store, with names drawn by another process."""
    return Jobs(house.port.services.engine, ids=JobIds(below))  # type: ignore[arg-type]


def test_a_name_is_j_and_twelve_hex_digits_up_to_the_end_of_the_century() -> None:
    for at in (NOW, datetime(2024, 1, 1, tzinfo=UTC), datetime(2090, 1, 1, tzinfo=UTC)):
        for below in (nothing_by_chance, lambda limit: limit - 1):
            assert SHAPE.fullmatch(JobIds(below).draw(at))


def test_one_process_never_draws_a_name_twice_and_they_sort_by_creation() -> None:
    ids = JobIds(Random(7).randrange)
    names, now = [], NOW
    for _ in range(5_000):
        names.append(ids.draw(now))
        now += timedelta(microseconds=Random(len(names)).choice([0, 0, 1, 500]))
    assert names == sorted(set(names))


def test_job_ids_keep_increasing_when_the_clock_is_set_back() -> None:
    ids = JobIds(nothing_by_chance)
    first = ids.draw(NOW)
    assert ids.draw(NOW - timedelta(hours=1)) > first


def test_names_of_different_processes_sort_by_creation_when_time_has_passed() -> None:
    names = [JobIds(Random(n).randrange).draw(NOW + timedelta(milliseconds=n)) for n in range(100)]
    assert names == sorted(set(names))


async def test_two_that_draw_the_same_name_both_get_a_job(house: House) -> None:
    first = await names_of(house).submit(JobSpec(task="one"))
    second = await names_of(house).submit(JobSpec(task="two"))
    assert first != second
    assert ((await house.view(first)).task, (await house.view(second)).task) == ("one", "two")
    assert await house.number_of_jobs() == 2


async def test_many_that_draw_the_same_names_at_once_all_get_their_jobs(house: House) -> None:
    submitters = [names_of(house) for _ in range(4)]
    batches = await asyncio.gather(
        *(
            jobs.submit_many([JobSpec(task=f"{n}.{m}") for m in range(25)])
            for n, jobs in enumerate(submitters)
        )
    )
    ids = [job_id for batch in batches for job_id in batch]
    assert len(set(ids)) == 100
    assert [(await house.view(job_id)).task for job_id in ids] == [
        f"{n}.{m}" for n in range(4) for m in range(25)
    ]


@pytest.mark.parametrize("request_id", [None, "r-1"])
async def test_a_name_that_is_taken_is_drawn_again_also_under_a_request_or_a_parent(
    house: House, request_id: str | None
) -> None:
    parent = await names_of(house).submit(JobSpec(task="parent"))
    spec = JobSpec(task="child", parent_job_id=parent)
    child = await names_of(house).submit(spec, request_id=request_id)
    assert child != parent
    assert (await house.view(child)).parent_job_id == parent
    assert (await house.view(parent)).children == 1


async def test_a_name_that_is_taken_is_drawn_again_for_a_retry(house: House) -> None:
    job_id = await names_of(house).submit(JobSpec(task="one"))
    await house.port.report([done(await house.grant())])
    again = await names_of(house).retry(job_id)
    assert again != job_id
    assert (await house.view(job_id)).state == "COMPLETED"


async def test_jobs_of_one_submission_sort_in_their_order(house: House) -> None:
    ids = await house.jobs.submit_many([JobSpec(task=str(n)) for n in range(300)])
    assert ids == sorted(set(ids))
