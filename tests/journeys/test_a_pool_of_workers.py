"""`interlock supervisor` keeps workers alive: dead ones are replaced, and all go when it goes."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest
from tests.journeys import errands
from tests.journeys.crew import SUPERVISOR, Crew, Worker, alive

from interlock.store.records import Query
from interlock.wire.jobs import JobView
from interlock.wire.workers import WorkerView


async def pool(crew: Crew, *options: str, module: str = errands.__name__) -> Worker:
    """A pool, as somebody starts it from a shell."""
    return await crew.start("web", *options, module=module, command=SUPERVISOR)


async def spawned(crew: Crew, keeper: Worker, number: int) -> list[int]:
    """Wait for so many workers to have been started; their processes, in that order."""
    await crew.until(lambda: len(keeper.said("worker_spawned")) >= number, f"{number} workers were started")
    return [line["worker_pid"] for line in keeper.said("worker_spawned")]


async def busy(crew: Crew, *names: str) -> None:
    """Jobs that wait at their gates, one after the other, so that all are begun."""
    for name in names:
        await crew.il.submit(errands.held, name)
    for name in names:
        await crew.noted(f"{name} began")


async def test_a_worker_that_is_killed_is_replaced_and_its_work_is_done(crew: Crew) -> None:
    keeper = await pool(crew, "--workers", "2", "--slots", "1")
    first = await spawned(crew, keeper, 2)
    made = await crew.il.submit(errands.held, "work")
    await crew.noted("work began 1")
    holder = await _holder(crew, made.id)
    assert holder in first
    os.kill(holder, signal.SIGKILL)
    third = (await spawned(crew, keeper, 3))[2]
    assert third not in first
    # No lease runs out in this test: the pool has said that the worker is dead.
    crew.open_gate("work.2")
    view = await crew.ended(made.id)
    assert (view.state, view.losses) == ("COMPLETED", 1)
    lost = view.attempts[0]
    assert lost.lease is not None
    assert lost.lease.state == "EXPIRED"
    await keeper.says("death_reported")
    (reported,) = keeper.said("death_reported")
    assert reported["reason"] == "its process was killed by SIGKILL"
    (died,) = keeper.said("worker_died")
    assert (died["exit_code"], died["again_in_s"]) == (-signal.SIGKILL, 0.5)
    keeper.ask_to_go()
    assert await keeper.gone() == 0
    assert not any(map(alive, [*first, third]))


async def test_workers_do_not_outlive_a_pool_that_was_killed(crew: Crew) -> None:
    keeper = await pool(crew, "--workers", "2")
    pids = await spawned(crew, keeper, 2)
    await crew.until(lambda: len(keeper.said("worker_started")) == 2, "both have begun")
    await keeper.kill()
    await crew.until(lambda: not any(map(alive, pids)), "they have gone as well")


async def _holder(crew: Crew, job_id: str) -> int:
    """The process that executes a job, as the books say."""
    (attempt,) = (await crew.il.job(job_id)).attempts
    assert attempt.lease is not None
    name, _, incarnation = attempt.lease.runner_id.partition("#")
    found: list[int] = []

    async def look() -> bool:
        lives, _ = await crew.il.services.workers.find(Query(kind="worker", parent=name))
        found[:] = [view.pid for view in lives if view.incarnation == incarnation]
        return bool(found)

    await crew.until(look, f"{attempt.lease.runner_id} is in the books")
    return found[0]


@pytest.mark.long
async def test_two_pools_on_one_store_keep_their_own_workers_although_their_names_are_the_same(
    crew: Crew,
) -> None:
    ours, others = [await pool(crew, "--workers", "1", "--slots", "1") for _ in range(2)]
    (first,), (other,) = [await spawned(crew, keeper, 1) for keeper in (ours, others)]
    lives = await _lives(crew, 2)
    assert {view.pid for view in lives} == {first, other}
    assert [view.name for view in lives] == ["web-1", "web-1"]
    assert len({view.incarnation for view in lives}) == 2
    await busy(crew, "a", "b")
    os.kill(first, signal.SIGKILL)
    (_, second) = await spawned(crew, ours, 2)
    for gate in ("a.1", "b.1"):
        crew.open_gate(gate)
    await crew.all_completed(1)
    for gate in ("a.2", "b.2"):
        crew.open_gate(gate)
    await crew.all_completed(2)
    assert len(others.said("worker_spawned")) == 1, "what is not its own is not its business"
    assert sum(len(job.attempts) for job in await _jobs(crew)) == 3, "only what was lost is done again"
    ours.ask_to_go()
    assert await ours.gone() == 0
    assert (alive(second), alive(other)) == (False, True)
    assert (await crew.ended((await crew.il.submit(errands.jot, 1)).id)).state == "COMPLETED"
    others.ask_to_go()
    assert await others.gone() == 0
    assert await crew.faults() == []


async def _lives(crew: Crew, number: int) -> list[WorkerView]:
    """So many workers that live, once they are in the books."""
    found: list[WorkerView] = []

    async def look() -> bool:
        found[:], _ = await crew.il.services.workers.find(Query(kind="worker", states=("IDLE", "RUNNING")))
        return len(found) == number

    await crew.until(look, f"{number} workers are in the books")
    return found


async def _jobs(crew: Crew) -> list[JobView]:
    views, _ = await crew.il.services.jobs.find(Query(kind="job"))
    return views


async def test_there_are_more_workers_when_there_is_more_to_do(crew: Crew) -> None:
    keeper = await pool(crew, "--workers", "1", "--max", "2", "--slots", "1")
    await spawned(crew, keeper, 1)
    await busy(crew, "a", "b")
    assert len(await spawned(crew, keeper, 2)) == 2
    for name in ("a", "b"):
        crew.open_gate(f"{name}.1")
    await crew.all_completed(2)
    keeper.ask_to_go()
    assert await keeper.gone() == 0


@pytest.mark.long  # others replace a worker that was killed
async def test_the_supervisor_replaces_every_worker_on_sighup_and_jobs_still_complete(crew: Crew) -> None:
    keeper = await pool(crew, "--workers", "2", "--slots", "1")
    before = await spawned(crew, keeper, 2)
    await crew.until(lambda: all(map(alive, before)), "both live")
    keeper.ask_to_go(signal.SIGHUP)
    await crew.until(lambda: len(keeper.said("worker_replaced")) == 2, "both were replaced")
    await crew.until(lambda: not any(map(alive, before)), "the old ones have gone")
    after = [line["worker_pid"] for line in keeper.said("worker_replaced")]
    assert all(map(alive, after))
    assert (await crew.ended((await crew.il.submit(errands.jot, 1)).id)).state == "COMPLETED"


async def test_new_code_that_cannot_start_changes_nothing(crew: Crew) -> None:
    module = crew.folder / "fresh.py"
    module.write_text("from interlock import task\n\n@task\nasync def one() -> int:\n    return 1\n")
    keeper = await pool(crew, "--workers", "1", module="fresh.py")
    (pid,) = await spawned(crew, keeper, 1)
    await crew.until(lambda: bool(keeper.said("worker_started")), "it has begun")
    module.write_text("1 / 0\n")
    keeper.ask_to_go(signal.SIGHUP)
    await crew.until(lambda: bool(keeper.said("new_code_cannot_start")), "it is told so")
    assert alive(pid)


async def test_workers_that_cannot_begin_are_reported_and_not_tried_for_ever(crew: Crew) -> None:
    (crew.folder / "broken.py").write_text("1 / 0\n")
    keeper = await pool(crew, "--workers", "2", module="broken.py")
    assert await keeper.gone() == 2
    assert any("ZeroDivisionError" in line for line in keeper.words)
    with contextlib.suppress(IndexError):
        assert not alive(keeper.said("worker_spawned")[0]["worker_pid"])
