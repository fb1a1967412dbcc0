"""What a worker has and had, whether it is silent, and the supervisors that workers tell of."""

from __future__ import annotations

from typing import Any

import pytest
from tests.systems.orchestrator.house import House, done, failed

from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.systems.supervisor import leases
from interlock.systems.supervisor.aggregate import MISSED_BEATS
from interlock.systems.supervisor.workers import Workers
from interlock.wire.filters import read_worker_filter
from interlock.wire.workers import WorkerBeat, WorkerSpec, WorkerView

BEAT_S = DEFAULT_SETTINGS.durations.worker_beat_every_s


def workers(house: House) -> Workers:
    return house.port.services.workers


async def registered(house: House, **spec: Any) -> WorkerView:
    return await workers(house).register(WorkerSpec(**{"name": "runner", "incarnation": "1", **spec}))


async def test_the_task_list_of_a_worker_shows_only_its_own_current_and_recent_tasks(
    house: House,
) -> None:
    made = await registered(house, capacity=4)
    well, badly = await house.started(), await house.started(task="fails")
    await house.heard(done(well))
    await house.heard(failed(badly, "permanent"))
    now = await house.started(task="long", timeout_s=900.0, description="the long one")
    await house.submit()
    await house.grant("another#1")
    shown = await workers(house).tasks(made.id)
    (task,) = shown.now
    assert (task.job_id, task.task, task.description) == (now.job_id, "long", "the long one")
    assert task.expires_at is not None
    assert task.deadline_at is not None
    assert task.deadline_at > task.granted_at
    assert {(each.job_id, each.state) for each in shown.lately} == {
        (well.job_id, "SUCCEEDED"),
        (badly.job_id, "FAILED"),
    }
    assert [each.error for each in shown.lately if each.error] != []
    assert not shown.more


async def test_the_task_list_of_a_worker_is_marked_as_incomplete_if_more_jobs_run_than_are_read(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RUNNING", leases.FIRST + 1)
    made = await registered(house)
    for _ in range(leases.FIRST + 2):
        await house.started()
    shown = await workers(house).tasks(made.id)
    assert (len(shown.now), shown.more) == (leases.FIRST + 1, True)
    monkeypatch.setattr(leases, "LIGHT", 1)  # the first ones are so large that no others are read
    assert len((await workers(house).tasks(made.id)).now) == leases.FIRST


async def test_a_worker_that_misses_heartbeats_is_marked_as_silent_until_its_next_heartbeat(
    house: House,
) -> None:
    made = await registered(house)
    house.clock.jump(MISSED_BEATS * BEAT_S + 1)
    assert (await workers(house).get(made.id)).silent
    await workers(house).beat(made.id, WorkerBeat())
    assert not (await workers(house).get(made.id)).silent
    house.clock.jump(MISSED_BEATS * BEAT_S + 1)
    await workers(house).terminate(made.id)
    assert not (await workers(house).get(made.id)).silent  # it is over, and says why


async def test_workers_are_found_by_a_queue_that_they_take(house: House) -> None:
    mine = await registered(house, queues=("mail", "ci"))
    await registered(house, name="other", queues=("default",))
    selection = read_worker_filter("queue:mail").selection(await house.store.now())
    views, _ = await workers(house).find(selection.query)
    assert [view.id for view in views if selection.keeps(view)] == [mine.id]


async def test_a_pool_view_shows_its_supervisor_its_live_workers_and_how_others_died(
    house: House,
) -> None:
    about = {"pool": "web", "pool_pid": "77", "pool_least": "2", "pool_most": "4"}
    first = await registered(house, name="web-1", incarnation="1", host="h1", metadata=about)
    await workers(house).died("web-1", "1", reason="its process was killed by SIGKILL")
    again = await registered(house, name="web-1", incarnation="2", host="h1", metadata=about)
    second = await registered(house, name="web-2", incarnation="1", host="h1", metadata=about)
    await registered(house, name="alone")
    (pool,) = await workers(house).pools()
    assert (pool.host, pool.name, pool.pid, pool.least, pool.most) == ("h1", "web", 77, 2, 4)
    assert {view.id for view in pool.workers} == {again.id, second.id}
    assert pool.restarts == 1
    assert [(view.id, view.reason) for view in pool.died] == [(first.id, "its process was killed by SIGKILL")]
