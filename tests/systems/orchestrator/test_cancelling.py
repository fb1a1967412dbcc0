"""A cancel has two phases, and in whichever state it comes it is never undone."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from tests.systems.orchestrator.house import (
    ACK_WINDOW_S,
    CANCEL_DEADLINE_S,
    TTL_S,
    House,
    ack,
    beat,
    done,
    failed,
    moves,
    release,
    stopped,
)

from interlock.errors import AlreadyThere, TerminalState, TransitionRefused, UnknownJob
from interlock.wire.runner import LogLine, NotHeard, StaleCode


async def test_a_job_that_waits_is_canceled_at_once(house: House) -> None:
    job_id = await house.submit(worker_count=3)
    view = await house.jobs.cancel(job_id, reason="not needed", actor="me")
    assert (view.state, view.stop_reason) == ("CANCELED", "cancel")
    assert [one.state for one in view.attempts] == ["CANCELED"] * 3
    assert (view.started_at, view.completed_at) == (None, house.clock())
    assert (view.ready_at, view.deadline_at) == (None, None)
    *_, entry = await house.history(job_id)
    assert (entry.note.actor, entry.note.reason) == ("me", "not needed")
    assert await house.claim() == []
    assert await house.faults() == []


async def test_a_canceled_job_shows_the_reason_of_the_first_cancel(house: House) -> None:
    waits, runs, quiet, all_of = [await house.submit(queue=name) for name in ("a", "b", "c", "d")]
    await house.claim(queues=("b",))
    assert (await house.jobs.cancel(waits, reason="wrong branch")).cancel_reason == "wrong branch"
    assert (await house.jobs.cancel(runs, reason="too slow")).cancel_reason == "too slow"
    assert (await house.jobs.cancel(runs, reason="much too slow")).cancel_reason == "too slow"
    assert (await house.jobs.cancel(quiet)).cancel_reason is None
    await house.jobs.cancel_all([all_of], reason="x" * 5_000)
    assert (await house.jobs.get(all_of)).cancel_reason == "x" * 1_000


async def test_a_delayed_job_is_canceled_at_once(house: House) -> None:
    job_id = await house.submit(delay_s=60.0)
    assert (await house.jobs.cancel(job_id)).state == "CANCELED"
    house.clock.jump(60)
    assert await house.claim() == []


async def test_a_lease_that_was_only_granted_is_revoked_at_once_and_a_late_ack_is_stale(house: House) -> None:
    job_id = await house.submit()
    grant = await house.grant(acknowledge=False)
    view = await house.jobs.cancel(job_id)
    assert (view.state, [one.state for one in view.attempts]) == ("CANCELED", ["CANCELED"])
    assert await house.leases(job_id) == ["REVOKED"]
    version = view.version
    assert (await house.stale(ack(grant))).code is StaleCode.LEASE_REVOKED
    assert (await house.view(job_id)).version == version
    assert len(await house.refusals(job_id)) == 1


@pytest.mark.parametrize("running", [False, True])
async def test_an_active_attempt_receives_a_cancel_request_before_it_is_canceled(
    house: House, running: bool
) -> None:
    grant = await house.started()
    if running:
        await house.heard(beat(grant, 1))
    view = await house.jobs.cancel(grant.job_id)
    assert (view.state, [one.state for one in view.attempts]) == ("RUNNING", ["CANCEL_REQUESTED"])
    assert (view.stop_reason, view.completed_at) == ("cancel", None)
    deadline = house.clock() + timedelta(seconds=CANCEL_DEADLINE_S)
    assert view.deadline_at == deadline
    house.clock.jump(5)
    answer = await house.heard(beat(grant, 2))
    assert (answer.cancel_requested, answer.cancel_deadline_at) == (True, deadline)
    assert answer.state == "CANCEL_REQUESTED"
    answer = await house.heard(stopped(grant))
    assert answer.state == "CANCELED"
    view = await house.view(grant.job_id)
    assert (view.state, view.completed_at, view.deadline_at) == ("CANCELED", house.clock(), None)
    assert not view.attempts[0].forced
    assert await house.leases(grant.job_id) == ["CANCELED"]
    assert await house.faults() == []


async def test_a_runner_that_does_not_answer_is_canceled_by_force(house: House) -> None:
    grant = await house.started()
    await house.heard(beat(grant, 1, log=(LogLine(house.clock(), "info", "so far"),)))
    await house.jobs.cancel(grant.job_id)
    await house.later(CANCEL_DEADLINE_S - 0.001)
    assert (await house.view(grant.job_id)).state == "RUNNING"
    await house.heard(beat(grant, 2))
    await house.later(0.001)
    view = await house.view(grant.job_id)
    assert (view.state, [one.state for one in view.attempts]) == ("CANCELED", ["CANCELED"])
    assert view.attempts[0].forced
    assert await house.leases(grant.job_id) == ["REVOKED"]
    assert view.deadline_at is None
    assert (await house.stale(done(grant))).code is StaleCode.LEASE_REVOKED
    assert (await house.stale(stopped(grant))).code is StaleCode.LEASE_REVOKED
    assert [line.text for chunk in await house.chunks(grant.job_id) for line in chunk.lines] == ["so far"]
    assert not (await house.last(grant.job_id)).result


async def test_heartbeats_do_not_move_the_deadline_of_a_cancel(house: House) -> None:
    grant = await house.started()
    await house.jobs.cancel(grant.job_id)
    for number in range(1, 7):
        house.clock.jump(CANCEL_DEADLINE_S / 6 - 0.001)
        await house.heard(beat(grant, number))
    await house.later(0.01)
    assert (await house.view(grant.job_id)).state == "CANCELED"


async def test_asking_twice_does_not_move_the_deadline_nor_the_reason(house: House) -> None:
    grant = await house.started()
    first = await house.jobs.cancel(grant.job_id, why="superseded")
    house.clock.jump(10)
    second = await house.jobs.cancel(grant.job_id)
    assert second.deadline_at == first.deadline_at
    assert (second.state, second.stop_reason) == ("RUNNING", "superseded")


async def test_an_attempt_whose_runner_does_not_confirm_that_it_is_dead_is_marked_as_forced(
    house: House,
) -> None:
    grant = await house.started()
    await house.jobs.cancel(grant.job_id)
    await house.heard(stopped(grant, confirmed_dead=False))
    assert (await house.view(grant.job_id)).attempts[0].forced


@pytest.mark.parametrize("how", ["succeeded", "failed"])
async def test_a_completion_after_the_cancel_request_keeps_its_result_and_the_job_ends_canceled(
    house: House, how: str
) -> None:
    grant = await house.started(retries=5)
    await house.jobs.cancel(grant.job_id)
    message = done(grant, b'"late"') if how == "succeeded" else failed(grant, error="late")
    line = LogLine(house.clock(), "info", "last words")
    assert (await house.heard(msgspec.structs.replace(message, log=(line,)))).state == "CANCELED"
    assert await house.states(grant.job_id) == ("CANCELED", ["CANCELED"])
    assert await house.leases(grant.job_id) == ["COMPLETED"]
    one = await house.last(grant.job_id)
    if how == "succeeded":
        assert one.result == msgspec.Raw(b'"late"')
    else:
        assert one.failure is not None
        assert one.failure.error == "late"
    assert (await house.view(grant.job_id)).result is msgspec.UNSET
    assert len(await house.chunks(grant.job_id)) == 1
    assert await house.faults() == []


async def test_a_lease_that_expires_under_cancel_is_never_requeued() -> None:
    house = await House().open()
    grant = await house.started()
    house.clock.jump(TTL_S - 5)
    await house.jobs.cancel(grant.job_id)
    await house.later(5)
    assert await house.states(grant.job_id) == ("CANCELED", ["CANCELED"])
    assert (await house.leases(grant.job_id)) == ["EXPIRED"]
    assert (await house.view(grant.job_id)).losses == 0
    assert await house.claim() == []
    await house.close()


async def test_an_attempt_released_under_cancel_is_never_requeued(house: House) -> None:
    grant = await house.started()
    await house.jobs.cancel(grant.job_id)
    assert (await house.heard(release(grant))).state == "CANCELED"
    assert await house.states(grant.job_id) == ("CANCELED", ["CANCELED"])
    assert await house.claim() == []


async def test_an_attempt_in_its_pause_is_canceled_at_once(house: House) -> None:
    grant = await house.started(retries=1)
    await house.heard(failed(grant))
    view = await house.jobs.cancel(grant.job_id)
    assert (view.state, [one.state for one in view.attempts]) == ("CANCELED", ["FAILED", "CANCELED"])
    assert (view.ready_at, view.deadline_at) == (None, None)


async def test_a_job_is_canceled_when_the_last_of_its_shards_has_stopped(house: House) -> None:
    job_id = await house.submit(worker_count=5)
    finished, running, given = await house.grant(), await house.grant(), await house.grant(acknowledge=False)
    also_running = await house.grant()
    await house.heard(done(finished))
    await house.heard(beat(running, 1))
    view = await house.jobs.cancel(job_id)
    states = {one.shard: one.state for one in view.attempts}
    assert states == {
        finished.shard: "SUCCEEDED",
        running.shard: "CANCEL_REQUESTED",
        given.shard: "CANCELED",
        also_running.shard: "CANCEL_REQUESTED",
        5: "CANCELED",
    }
    await house.heard(stopped(running))
    assert (await house.view(job_id)).state == "RUNNING"
    await house.heard(done(also_running))
    assert (await house.view(job_id)).state == "CANCELED"
    assert await house.faults() == []


async def test_the_last_shard_completing_after_the_request_still_ends_canceled(house: House) -> None:
    job_id = await house.submit(worker_count=2)
    first, second = await house.grant(), await house.grant()
    await house.heard(done(first))
    await house.jobs.cancel(job_id)
    await house.heard(done(second))
    assert await house.states(job_id) == ("CANCELED", ["SUCCEEDED", "CANCELED"])


@pytest.mark.parametrize("how", ["completed", "failed", "canceled"])
async def test_a_cancel_of_an_ended_job_is_refused_and_changes_nothing(house: House, how: str) -> None:
    grant = await house.started()
    if how == "canceled":
        await house.jobs.cancel(grant.job_id)
        await house.heard(stopped(grant))
    else:
        await house.heard(done(grant) if how == "completed" else failed(grant))
    before = await house.record(grant.job_id)
    with pytest.raises(TransitionRefused) as refused:
        await house.jobs.cancel(grant.job_id)
    assert isinstance(refused.value, TerminalState | AlreadyThere)
    assert refused.value.facts["state"] == how.upper()
    assert await house.record(grant.job_id) == before


async def test_a_job_that_is_not_there_cannot_be_canceled(house: House) -> None:
    with pytest.raises(UnknownJob):
        await house.jobs.cancel("j_000000000000")


async def test_a_cancel_ack_without_a_cancel_is_refused_and_the_lease_lives_on(house: House) -> None:
    grant = await house.started()
    answer = await house.refused(stopped(grant))
    assert isinstance(answer, NotHeard)
    assert answer.error
    assert await house.states(grant.job_id) == ("RUNNING", ["STARTING"])
    assert len(await house.refusals(grant.job_id)) == 1
    assert (await house.heard(done(grant))).state == "SUCCEEDED"


async def test_a_cancel_of_an_expired_but_unswept_attempt_is_final_at_once(house: House) -> None:
    grant = await house.started()
    house.clock.jump(TTL_S)
    view = await house.jobs.cancel(grant.job_id)
    assert view.state == "CANCELED"
    assert [one.state for one in view.attempts] == ["STALE", "CANCELED"]
    assert (await house.stale(done(grant))).code is StaleCode.LEASE_EXPIRED


async def test_an_expired_lease_that_was_not_swept_is_no_reason_to_wait(house: House) -> None:
    job_id = await house.submit()
    await house.grant(acknowledge=False)
    house.clock.jump(ACK_WINDOW_S + 1)
    assert (await house.jobs.cancel(job_id)).state == "CANCELED"


async def test_the_attempt_timeout_does_not_end_an_attempt_that_is_being_canceled(house: House) -> None:
    grant = await house.started(timeout_s=40.0)
    house.clock.jump(35)
    await house.jobs.cancel(grant.job_id)
    await house.later(10)
    assert await house.states(grant.job_id) == ("RUNNING", ["CANCEL_REQUESTED"])
    await house.later(CANCEL_DEADLINE_S - 10)
    assert await house.states(grant.job_id) == ("CANCELED", ["CANCELED"])


async def test_a_job_that_is_being_canceled_and_runs_out_of_time_keeps_its_reason(house: House) -> None:
    grant = await house.started(job_timeout_s=40.0)
    house.clock.jump(35)
    await house.jobs.cancel(grant.job_id)
    await house.later(10)
    await house.later(CANCEL_DEADLINE_S)
    view = await house.view(grant.job_id)
    assert (view.state, view.stop_reason) == ("CANCELED", "cancel")


async def test_each_phase_of_a_cancel_is_journalled(house: House) -> None:
    grant = await house.started()
    await house.jobs.cancel(grant.job_id, actor="me")
    await house.heard(stopped(grant))
    *_, requested, final = await house.history(grant.job_id)
    assert moves(requested) == [("STARTING", "CANCEL_REQUESTED")]
    assert [(step.machine, step.event) for step in requested.note.steps if not step.moves] == [
        ("job", "cancel"),
        ("lease", "request_cancel"),
    ]
    assert moves(final) == [
        ("ACTIVE", "CANCELED"),
        ("CANCEL_REQUESTED", "CANCELED"),
        ("RUNNING", "CANCELED"),
    ]


async def test_a_completion_after_the_runner_acknowledged_the_cancel_is_stale(house: House) -> None:
    """No completion was accepted before, so there is none that it could contradict."""
    grant = await house.started()
    await house.jobs.cancel(grant.job_id)
    await house.heard(beat(grant))
    await house.heard(stopped(grant))
    before = await house.record(grant.job_id)
    await house.stale(done(grant))
    assert await house.record(grant.job_id) == before
