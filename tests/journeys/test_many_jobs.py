"""Many jobs, long jobs, and many who submit the same one: each is done, and done once."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import pytest
from tests.journeys import errands
from tests.journeys.crew import Crew

from interlock import Interlock, JobView
from interlock.lifecycles.durations import Durations
from interlock.store.records import Query

every_store = pytest.mark.parametrize("store_url", ["sqlite", "postgres", "redis"], indirect=True)

SHORT_LEASES = Durations(
    lease_ttl_s=1.5,
    heartbeat_every_s=0.2,
    ack_window_s=1.5,
    sweep_every_s=0.1,
    cancel_deadline_s=0.5,
    abort_warning_s=0.1,
    abort_kill_s=0.2,
    shutdown_soft_s=0.3,
    shutdown_deadline_s=0.8,
    backoff_cap_s=0.3,
)


@every_store
async def test_two_workers_do_two_thousand_jobs_each_exactly_once(crew: Crew) -> None:
    for name in ("anna", "ben"):
        await crew.start(name, "--log-level", "warning", "--prefetch", "20")
    made = await crew.il.submit_many([errands.jot.spec(number) for number in range(2_000)])

    await crew.noted("jot", times=2_000, within_s=60)
    await crew.all_completed(2_000)

    assert Counter(crew.notes) == Counter(f"jot {number}" for number in range(2_000))
    assert len({handle.id for handle in made}) == 2_000
    assert await crew.faults() == []
    assert [worker.said("lease_lost") for worker in crew.workers] == [[], []]
    # The result of each is its own.
    views = await _every_job(crew.il)
    assert sorted(msgspec.json.decode(view.result, type=int) for view in views if view.result) == [
        *range(2_000)
    ]
    assert {len(view.attempts) for view in views} == {1}


async def _every_job(il: Interlock) -> list[JobView]:
    views: list[JobView] = []
    page, cursor = await il.jobs(Query(kind="job", limit=1_000))
    while page:
        views += page
        if not cursor:
            break
        page, cursor = await il.jobs(Query(kind="job", limit=1_000, cursor=cursor))
    return views


async def test_a_task_of_three_lease_lengths_keeps_its_lease(crew: Crew) -> None:
    await crew.open(SHORT_LEASES)
    await crew.ready("anna")
    long_s = 3 * SHORT_LEASES.lease_ttl_s
    waits = await crew.il.submit(errands.wait_for, long_s)
    sits = await crew.il.submit(errands.wait_in_a_thread, long_s)
    await crew.ready("ben")  # who would take over what anna loses
    for made in (waits, sits):
        view = await crew.ended(made.id)
        assert view.state == "COMPLETED"
        assert [attempt.state for attempt in view.attempts] == ["SUCCEEDED"]


async def test_a_handler_that_blocks_the_event_loop_for_longer_than_a_lease_keeps_it(crew: Crew) -> None:
    await crew.open(SHORT_LEASES)
    await crew.ready("anna")
    made = await crew.il.submit(errands.compute, 2 * SHORT_LEASES.lease_ttl_s)
    beside = await crew.il.submit(errands.wait_in_a_thread, SHORT_LEASES.lease_ttl_s)
    await crew.ready("ben")
    view = await crew.ended(made.id)
    assert view.state == "COMPLETED"
    assert [attempt.state for attempt in view.attempts] == ["SUCCEEDED"]
    # Whoever was with it in the process has not lost anything either.
    assert [attempt.state for attempt in (await crew.ended(beside.id)).attempts] == ["SUCCEEDED"]


@every_store
async def test_sixty_four_who_submit_at_once_with_one_request_id_make_one_job(crew: Crew) -> None:
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
    assert await made[0].result(timeout_s=60) == 5
    assert crew.notes == ["jot 5"]
