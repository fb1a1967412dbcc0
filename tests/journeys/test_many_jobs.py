"""Many jobs, long jobs, and many who submit the same one: each is done, and done once."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
from tests.effort import pick
from tests.journeys import errands
from tests.journeys.crew import STEADY, Crew, stores
from tests.waiting import PROGRAM_S

from interlock import Interlock, JobView
from interlock.store.records import Query

JOBS = pick(200, 2_000)
RENEWED = msgspec.structs.replace(STEADY, lease_ttl_s=600.0)
"""So long that most of a lease may pass and still leaves two minutes to renew it."""
MOST_OF_IT = 0.8


@stores("sqlite")  # the contract has claims of many on every store
async def test_two_workers_do_many_jobs_each_exactly_once(crew: Crew) -> None:
    for name in ("anna", "ben"):
        await crew.start(name, "--log-level", "warning", "--prefetch", "20")
    made = await crew.il.submit_many([errands.jot.spec(number) for number in range(JOBS)])

    await crew.noted("jot", times=JOBS)
    await crew.all_completed(JOBS)

    assert Counter(crew.notes) == Counter(f"jot {number}" for number in range(JOBS))
    assert len({handle.id for handle in made}) == JOBS
    assert await crew.faults() == []
    assert [worker.said("lease_lost") for worker in crew.workers] == [[], []]
    # The result of each is its own.
    views = await _every_job(crew.il)
    assert sorted(msgspec.json.decode(view.result, type=int) for view in views if view.result) == [
        *range(JOBS)
    ]
    # Some may have been claimed ahead and given back, to be begun by somebody else.
    assert {view.losses for view in views} == {0}
    assert {attempt.state for view in views for attempt in view.attempts[:-1]} <= {"STALE"}


async def _every_job(il: Interlock) -> list[JobView]:
    views: list[JobView] = []
    page, cursor = await il.jobs(Query(kind="job", limit=1_000))
    while page:
        views += page
        if not cursor:
            break
        page, cursor = await il.jobs(Query(kind="job", limit=1_000, cursor=cursor))
    return views


async def test_a_task_that_outlasts_its_lease_keeps_it(crew: Crew) -> None:
    await crew.open(RENEWED)
    await crew.ready("anna")
    waits = await crew.il.submit(errands.held, "waits")
    sits = await crew.il.submit(errands.deaf_thread, "sits")
    await crew.noted("waits began 1")
    await crew.noted("sits began")
    await crew.ready("ben")  # who would take over what anna loses
    await _outlast_a_lease(crew, waits.id, sits.id)
    crew.open_gate("waits.1")
    crew.open_gate("sits")
    for made in (waits, sits):
        view = await crew.ended(made.id)
        assert view.state == "COMPLETED"
        assert [attempt.state for attempt in view.attempts] == ["SUCCEEDED"]


async def test_a_handler_that_blocks_the_event_loop_for_longer_than_a_lease_keeps_it(crew: Crew) -> None:
    await crew.open(RENEWED)
    await crew.ready("anna")
    beside = await crew.il.submit(errands.deaf_thread, "beside")
    await crew.noted("beside began")
    made = await crew.il.submit(errands.compute, "made")
    await crew.noted("made began")
    await crew.ready("ben")
    await _outlast_a_lease(crew, made.id, beside.id)
    crew.open_gate("made")
    crew.open_gate("beside")
    view = await crew.ended(made.id)
    assert view.state == "COMPLETED"
    assert [attempt.state for attempt in view.attempts] == ["SUCCEEDED"]
    # Whoever was with it in the process has not lost anything either.
    assert [attempt.state for attempt in (await crew.ended(beside.id)).attempts] == ["SUCCEEDED"]


async def _outlast_a_lease(crew: Crew, *ids: str) -> None:
    """Let most of a lease pass, again and again, each time once the leases were renewed."""

    async def renewed() -> bool:
        now = await crew.il.services.store.now()
        leases = [(await crew.il.job(job_id)).attempts[0].lease for job_id in ids]
        ends = [lease.expires_at for lease in leases if lease is not None]
        return all((at - now).total_seconds() > MOST_OF_IT * RENEWED.lease_ttl_s for at in ends)

    for _ in range(pick(1, 3)):
        await crew.pass_time(MOST_OF_IT * RENEWED.lease_ttl_s)
        await crew.until(renewed, "the leases were renewed")
    await crew.pass_time(MOST_OF_IT * RENEWED.lease_ttl_s)


@stores("sqlite")
async def test_sixty_four_concurrent_submissions_with_one_request_id_create_one_job(crew: Crew) -> None:
    others = [Interlock(crew.url, actor=f"submitter {number}") for number in range(7)]
    for other in others:
        await other.open()
    try:
        clients = [crew.il, *others] * 8
        made = await asyncio.gather(
            *(client.submit(errands.jot, 5, request_id="the one order") for client in clients)
        )
        assert len(made) == 64
        assert len({handle.id for handle in made}) == 1
        views, _ = await crew.il.jobs()
        assert [view.id for view in views] == [made[0].id]
    finally:
        for other in others:
            await other.close()

    # And it is done once.
    await crew.start("anna")
    assert await made[0].result(timeout_s=PROGRAM_S) == 5
    assert crew.notes == ["jot 5"]
