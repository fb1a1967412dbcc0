"""The way of one job from submit to done, and what each step leaves behind."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.clocks import AskingClock
from tests.systems.orchestrator.house import (
    ACK_WINDOW_S,
    RUNNER,
    TTL_S,
    House,
    ack,
    beat,
    done,
    failed,
    moves,
    release,
    steps,
)
from tests.waiting import PATIENCE_S

from interlock.engine.clock import StoreClock
from interlock.wire.runner import LogLine, Progress


async def test_a_submitted_job_is_pending_with_one_queued_attempt(house: House) -> None:
    job_id = await house.submit(description="what it is for")
    view = await house.view(job_id)
    assert (view.state, [one.state for one in view.attempts]) == ("PENDING", ["QUEUED"])
    assert (view.depth, view.worker_count, view.parent_job_id) == (0, 1, None)
    assert view.description == "what it is for"
    assert view.created_at == view.ready_at == house.clock()
    assert (view.started_at, view.completed_at, view.deadline_at) == (None, None, None)
    (entry,) = await house.history(job_id)
    assert moves(entry) == [("SUBMITTED", "PENDING"), ("CREATED", "QUEUED")]


async def test_granting_makes_a_lease_and_the_job_run(house: House) -> None:
    job_id = await house.submit()
    house.clock.jump(5)
    grant = await house.grant(acknowledge=False)
    assert (grant.job_id, grant.task, grant.shard, grant.shards, grant.attempt) == (job_id, "build", 1, 1, 1)
    assert not grant.acknowledged
    assert await house.states(job_id) == ("RUNNING", ["LEASED"])
    assert await house.leases(job_id) == ["GRANTED"]
    view = await house.view(job_id)
    assert view.started_at == house.clock()
    assert view.ready_at is None
    assert view.deadline_at == house.clock() + timedelta(seconds=ACK_WINDOW_S)


async def test_nothing_is_given_twice(house: House) -> None:
    await house.started()
    assert await house.claim() == []
    assert await house.claim("another") == []


async def test_the_acknowledgement_makes_the_attempt_start_and_the_lease_live(house: House) -> None:
    job_id = await house.submit()
    grant = await house.grant(acknowledge=False)
    house.clock.jump(10)
    answer = await house.heard(ack(grant))
    assert answer.state == "STARTING"
    assert answer.expires_at == house.clock() + timedelta(seconds=TTL_S)
    assert await house.leases(job_id) == ["ACTIVE"]
    assert (await house.last(job_id)).started_at == house.clock()


async def test_grant_and_acknowledgement_may_be_one_step(house: House) -> None:
    job_id = await house.submit()
    grant = await house.grant()
    assert grant.acknowledged
    assert grant.expires_at == house.clock() + timedelta(seconds=TTL_S)
    assert await house.states(job_id) == ("RUNNING", ["STARTING"])
    assert await house.leases(job_id) == ["ACTIVE"]
    assert [entry.version for entry in await house.history(job_id)] == [1, 2]


async def test_the_first_heartbeat_makes_it_running_and_each_one_renews_the_lease(house: House) -> None:
    grant = await house.started()
    for number in range(1, 6):
        house.clock.jump(TTL_S - 1)
        answer = await house.heard(beat(grant, number))
        assert answer.state == "RUNNING"
        assert answer.expires_at == house.clock() + timedelta(seconds=TTL_S)
        assert await house.recover() == 0
    assert await house.states(grant.job_id) == ("RUNNING", ["RUNNING"])


async def test_renewals_alone_leave_no_entry(house: House) -> None:
    grant = await house.started()
    await house.heard(beat(grant, 1))
    before = len(await house.history(grant.job_id))
    for number in range(2, 9):
        house.clock.jump(1)
        await house.heard(beat(grant, number))
    assert len(await house.history(grant.job_id)) == before


async def test_a_job_completes_with_its_result(house: House) -> None:
    grant = await house.started()
    await house.heard(beat(grant))
    house.clock.jump(3)
    assert (await house.heard(done(grant, b'{"answer":42}'))).state == "SUCCEEDED"
    view = await house.view(grant.job_id)
    assert (view.state, [one.state for one in view.attempts]) == ("COMPLETED", ["SUCCEEDED"])
    assert view.result == msgspec.Raw(b'{"answer":42}')
    assert view.completed_at == house.clock()
    assert (view.ready_at, view.deadline_at) == (None, None)
    assert await house.leases(grant.job_id) == ["COMPLETED"]
    assert await house.faults() == []


async def test_complete_from_starting_walks_the_three_steps_in_one_commit(house: House) -> None:
    grant = await house.started()
    await house.heard(done(grant))
    *_, entry = await house.history(grant.job_id)
    assert moves(entry, "attempt") == [
        ("STARTING", "RUNNING"),
        ("RUNNING", "UPLOADING"),
        ("UPLOADING", "SUCCEEDED"),
    ]
    assert moves(entry, "lease") == [("ACTIVE", "COMPLETED")]
    assert moves(entry, "job") == [("RUNNING", "COMPLETED")]


async def test_complete_from_running_walks_by_uploading(house: House) -> None:
    grant = await house.started()
    await house.heard(beat(grant))
    await house.heard(failed(grant))
    *_, entry = await house.history(grant.job_id)
    assert moves(entry, "attempt") == [("RUNNING", "UPLOADING"), ("UPLOADING", "FAILED")]
    assert moves(entry, "job") == [("RUNNING", "FAILED")]


async def test_the_journal_records_the_actor_of_each_step(house: House) -> None:
    job_id = await house.submit()
    grant = await house.grant()
    await house.heard(done(grant))
    assert [entry.note.actor for entry in await house.history(job_id)] == ["", RUNNER, RUNNER]


async def test_each_step_is_journalled_once(house: House) -> None:
    grant = await house.started()
    await house.heard(beat(grant))
    await house.heard(done(grant))
    journal = [(step.machine, step.source, step.target) for step in steps(await house.history(grant.job_id))]
    assert len(journal) == len(set(journal)) == 12


async def test_started_at_is_the_first_running_only(house: House) -> None:
    grant = await house.started()
    begun = house.clock()
    house.clock.jump(7)
    await house.heard(release(grant))
    house.clock.jump(7)
    again = await house.grant()
    await house.heard(done(again))
    view = await house.view(grant.job_id)
    assert view.started_at == begun
    assert view.completed_at == house.clock()


# Shards


@pytest.mark.parametrize("count", [1, 2, 10])
async def test_a_job_completes_when_every_shard_has_succeeded(house: House, count: int) -> None:
    job_id = await house.submit(worker_count=count)
    grants = [await house.grant(f"runner#{n}") for n in range(count)]
    assert sorted(grant.shard for grant in grants) == list(range(1, count + 1))
    assert {grant.shards for grant in grants} == {count}
    assert await house.claim() == []
    for n, grant in reversed(list(enumerate(grants))):
        assert (await house.view(job_id)).state == "RUNNING"
        await house.heard(done(grant, b"%d" % grant.shard, runner_id=f"runner#{n}"))
    view = await house.view(job_id)
    assert view.state == "COMPLETED"
    wanted: object = 1 if count == 1 else list(range(1, count + 1))
    assert isinstance(view.result, msgspec.Raw)
    assert msgspec.json.decode(view.result) == wanted
    assert await house.faults() == []


async def test_each_shard_has_its_own_attempts(house: House) -> None:
    job_id = await house.submit(worker_count=2, retries=1)
    first, second = await house.grant(), await house.grant()
    await house.heard(failed(first))
    house.clock.jump(10)
    again = await house.grant()
    assert (again.shard, again.attempt) == (first.shard, 2)
    await house.heard(done(second))
    await house.heard(done(again))
    view = await house.view(job_id)
    assert view.state == "COMPLETED"
    assert [(one.shard, one.index, one.state) for one in view.attempts] == [
        (1, 1, "FAILED"),
        (2, 1, "SUCCEEDED"),
        (1, 2, "SUCCEEDED"),
    ]


async def test_the_other_shards_are_cancelled_when_one_shard_fails_permanently(house: House) -> None:
    job_id = await house.submit(worker_count=3)
    first, second = await house.grant(), await house.grant()
    await house.heard(failed(first))
    state, attempts = await house.states(job_id)
    assert state == "FAILED"
    assert attempts == ["FAILED", "CANCEL_REQUESTED", "CANCELED"]
    assert (await house.heard(beat(second))).cancel_requested
    assert await house.claim() == []
    await house.later(31)
    assert (await house.states(job_id))[1] == ["FAILED", "CANCELED", "CANCELED"]
    record = await house.record(job_id)
    assert (record.ready_at, record.deadline_at) == (None, None)
    assert await house.faults() == []


# Who gets what, and when


async def test_a_delayed_job_is_not_given_out_before_its_time(house: House) -> None:
    job_id = await house.submit(delay_s=60.0)
    assert await house.states(job_id) == ("PENDING", ["CREATED"])
    house.clock.jump(59.999)
    assert await house.claim() == []
    house.clock.jump(0.001)
    grant = await house.grant()
    assert grant.job_id == job_id
    *_, entry = await house.history(job_id)
    assert moves(entry, "attempt") == [("CREATED", "QUEUED"), ("QUEUED", "LEASED"), ("LEASED", "STARTING")]


async def test_a_job_of_higher_priority_is_granted_first(house: House) -> None:
    ids = {priority: await house.submit(priority=priority) for priority in (0, -100, 100, 5)}
    given = [(await house.grant()).job_id for _ in ids]
    assert given == [ids[100], ids[5], ids[0], ids[-100]]


async def test_jobs_of_the_same_priority_are_granted_oldest_first(house: House) -> None:
    ids = []
    for _ in range(4):
        ids.append(await house.submit())
        house.clock.jump(1)
    assert [(await house.grant()).job_id for _ in ids] == ids


async def test_a_runner_is_granted_a_job_only_if_it_has_all_labels_of_the_job(house: House) -> None:
    job_id = await house.submit(labels=("linux", "gpu", "gpu"))
    assert (await house.view(job_id)).labels == ("gpu", "linux")
    assert await house.claim(labels=("linux",)) == []
    assert (await house.grant(labels=("arm", "gpu", "linux"))).job_id == job_id


async def test_a_runner_is_granted_jobs_only_from_the_queues_that_it_claims_from(house: House) -> None:
    job_id = await house.submit(queue="slow")
    assert await house.claim() == []
    grant = await house.grant(queues=("default", "slow"))
    assert (grant.job_id, grant.queue) == (job_id, "slow")


async def test_the_grant_carries_all_that_is_needed(house: House) -> None:
    parent = await house.submit()
    await house.grant()
    await house.submit(
        input=msgspec.Raw(b'{"x":[1,2]}'), parent_job_id=parent, timeout_s=7.5, trace={"traceparent": "00-1"}
    )
    grant = await house.grant()
    assert grant.input == msgspec.Raw(b'{"x":[1,2]}')
    assert (grant.parent_job_id, grant.depth, grant.timeout_s) == (parent, 1, 7.5)
    assert (grant.ttl_s, grant.heartbeat_every_s) == (TTL_S, 20.0)
    assert grant.trace == {"traceparent": "00-1"}
    assert not isinstance(grant.checkpoint, msgspec.Raw)


async def test_the_fence_grows_with_every_grant(house: House) -> None:
    await house.submit(retries=3)
    fences = []
    for _ in range(4):
        grant = await house.grant()
        fences.append(grant.fence)
        await house.heard(failed(grant))
        house.clock.jump(60)
    assert fences == sorted(set(fences))
    assert fences[-1] < 2**53


# What an attempt says on its way


async def test_progress_is_shown_and_survives_heartbeats_without_any(house: House) -> None:
    grant = await house.started()
    await house.heard(beat(grant, 1, progress=Progress(done=3, total=10, message="three")))
    await house.heard(beat(grant, 2))
    (one,) = (await house.view(grant.job_id)).attempts
    assert one.progress == Progress(done=3, total=10, message="three")


@pytest.mark.parametrize("how", ["released", "lost", "failed"])
async def test_a_checkpoint_survives_the_attempt(house: House, how: str) -> None:
    grant = await house.started(retries=1)
    await house.heard(beat(grant, checkpoint=msgspec.Raw(b'{"page":7}')))
    if how == "released":
        await house.heard(release(grant))
    elif how == "failed":
        await house.heard(failed(grant))
        house.clock.jump(10)
    else:
        await house.later(TTL_S)
    again = await house.grant()
    assert again.attempt == 2
    assert again.checkpoint == msgspec.Raw(b'{"page":7}')


async def test_a_checkpoint_may_come_with_the_release(house: House) -> None:
    grant = await house.started()
    await house.heard(beat(grant, checkpoint=msgspec.Raw(b"1")))
    await house.heard(release(grant, checkpoint=msgspec.Raw(b"2")))
    assert (await house.grant()).checkpoint == msgspec.Raw(b"2")


async def test_the_checkpoint_of_one_shard_is_not_given_to_another(house: House) -> None:
    await house.submit(worker_count=2)
    first = await house.grant()
    await house.heard(beat(first, checkpoint=msgspec.Raw(b"1")))
    await house.heard(release(first))
    grants = [await house.grant() for _ in range(2)]
    saved = {grant.shard: grant.checkpoint for grant in grants if isinstance(grant.checkpoint, msgspec.Raw)}
    assert len(grants) == 2
    assert saved == {1: msgspec.Raw(b"1")}


async def test_log_lines_are_stored_in_the_order_in_which_they_were_reported(house: House) -> None:
    grant = await house.started()
    for number in range(1, 4):
        house.clock.jump(1)
        line = LogLine(house.clock(), "info", f"line {number}")
        await house.heard(beat(grant, number, log=(line,)))
    house.clock.jump(1)
    await house.heard(done(grant, sequence=4, log=(LogLine(house.clock(), "info", "the end"),)))
    chunks = await house.chunks(grant.job_id)
    assert [line.text for chunk in chunks for line in chunk.lines] == [
        "line 1",
        "line 2",
        "line 3",
        "the end",
    ]
    assert {(chunk.shard, chunk.attempt) for chunk in chunks} == {(1, 1)}
    assert await house.faults() == []


async def test_a_waiting_client_learns_of_the_end(house: House) -> None:
    grant = await house.started()
    waiting = [asyncio.create_task(house.port.services.waiting.ended(grant.job_id)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    await house.heard(done(grant))
    records = await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S)
    assert {record.state for record in records} == {"COMPLETED"}
    assert (await house.port.services.waiting.ended(grant.job_id)).state == "COMPLETED"


async def test_a_job_that_has_ended_is_done_again_as_a_new_one(house: House) -> None:
    grant = await house.started(
        labels=("gpu",), priority=3, retries=2, timeout_s=5.0, input=msgspec.Raw(b"[1]"), losses=1
    )
    await house.heard(done(grant))
    again = await house.jobs.retry(grant.job_id, actor="me")
    old, new = await house.view(grant.job_id), await house.view(again)
    assert (old.state, new.state, new.origin_job_id) == ("COMPLETED", "PENDING", grant.job_id)
    assert (new.labels, new.priority, new.input) == (("gpu",), 3, msgspec.Raw(b"[1]"))
    body = await house.body(again)
    assert (body.retries, body.timeout_s, body.losses_allowed) == (2, 5.0, 1)


async def test_a_submitted_job_is_ready_at_once_even_if_reading_the_store_clock_is_slow(house: House) -> None:
    """The clock of an engine is an estimate; one that runs ahead would hide new work from who is woken."""
    passed = [0.0]

    class SlowLine(AskingClock):
        async def now(self) -> datetime:
            passed[0] += 1.0  # all of the way is the way there: the answer is of the moment it arrives
            house.clock.jump(1)
            return await super().now()

    slow: Any = SlowLine(house.store)
    house.port.services.engine.clock = StoreClock(slow, monotonic=lambda: passed[0])
    job_id = await house.submit()
    assert [grant.job_id for grant in await house.claim()] == [job_id]
