"""A runner that says which tasks it has is given jobs of these tasks and no other."""

from __future__ import annotations

import pytest
from tests.systems.orchestrator.house import House, release

from interlock.errors import RequestIdReused
from interlock.store.records import Change, Commit, Committed


async def test_a_runner_is_given_jobs_of_the_tasks_that_it_has(house: House) -> None:
    send, sort = await house.submit("shop.send"), await house.submit("shop.sort")
    assert await house.claim(tasks=("shop.count", "shop.sen")) == []
    assert await house.claim(tasks=()) == []
    assert [grant.job_id for grant in await house.claim(tasks=("shop.sort",))] == [sort]
    assert [grant.job_id for grant in await house.claim(tasks=("shop.send", "shop.sort"))] == [send]


async def test_a_runner_that_declares_no_tasks_is_granted_jobs_of_any_task(house: House) -> None:
    made = [await house.submit(task) for task in ("shop.send", "interlock.shell", "shop.sort")]
    assert [grant.job_id for grant in await house.claim()] == made


async def test_all_shards_and_all_attempts_are_of_the_task(house: House) -> None:
    job_id = await house.submit("shop.send", worker_count=2)
    first = await house.grant(tasks=("shop.send",))
    assert await house.claim("runner#2", tasks=("shop.sort",)) == []
    await house.heard(release(first))
    assert await house.claim("runner#2", tasks=("shop.sort",)) == []
    again = [await house.grant("runner#2", tasks=("shop.send",)) for _ in range(2)]
    assert {(grant.job_id, grant.shard) for grant in again} == {(job_id, 1), (job_id, 2)}


async def test_a_name_of_a_claim_is_for_the_tasks_that_it_was_first_used_with(house: House) -> None:
    await house.submit("shop.send")
    (given,) = await house.claim(claim_id="c" * 32, tasks=("shop.send",))
    (again,) = await house.claim(claim_id="c" * 32, tasks=("shop.send",))
    assert again.token == given.token
    with pytest.raises(RequestIdReused):
        await house.claim(claim_id="c" * 32, tasks=("shop.sort",))


async def test_a_job_stored_by_an_earlier_version_is_not_granted_again_to_a_runner_without_its_task(
    house: House,
) -> None:
    """Its lane does not name the task, so the first runner to come is given it."""
    job_id = await house.submit("shop.send")
    was = await house.record(job_id)
    as_before = Change(
        kind=was.kind,
        id=was.id,
        expected=was.version,
        state=was.state,
        body=was.body,
        queue=was.queue,
        ready_at=was.ready_at,
        deadline_at=was.deadline_at,
    )
    (outcome,) = await house.store.commit([Commit(changes=(as_before,))])
    assert isinstance(outcome, Committed)
    given = await house.grant(tasks=("shop.sort",))
    await house.heard(release(given, reason="this worker has no task shop.send"))
    assert await house.claim(tasks=("shop.sort",)) == []
    again = await house.grant("runner#2", tasks=("shop.send",))
    assert (again.job_id, again.attempt) == (job_id, 2)
    assert (await house.view(job_id)).losses == 0
