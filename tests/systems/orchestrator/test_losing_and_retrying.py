"""Lost, given back, failed, timed out: who tries again, how often, and after which pause."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

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

from interlock.lifecycles.durations import Durations
from interlock.systems.orchestrator.failures import (
    DEFAULT_RETRIES,
    DEFAULT_RULES,
    FailureClass,
    FailureRule,
    classify,
    pause_before,
)
from interlock.systems.settings import Settings
from interlock.wire.jobs import RetryRule
from interlock.wire.runner import Failed, StaleCode

# Lost


async def test_an_unacknowledged_lease_ends_with_the_ack_window(house: House) -> None:
    job_id = await house.submit()
    await house.grant(acknowledge=False)
    await house.later(ACK_WINDOW_S - 0.001)
    assert await house.leases(job_id) == ["GRANTED"]
    await house.later(0.001)
    assert await house.leases(job_id) == ["EXPIRED"]
    assert await house.states(job_id) == ("RUNNING", ["STALE", "QUEUED"])


async def test_a_lost_attempt_is_stale_another_one_waits_and_the_job_stays_running(house: House) -> None:
    grant = await house.started()
    await house.heard(beat(grant))
    await house.later(TTL_S)
    assert await house.states(grant.job_id) == ("RUNNING", ["STALE", "QUEUED"])
    view = await house.view(grant.job_id)
    assert view.losses == 1
    assert view.attempts[0].failure is not None
    assert view.attempts[0].failure.failure_class == "lost"
    assert [(one.index, one.shard) for one in view.attempts] == [(1, 1), (2, 1)]
    *_, entry = await house.history(grant.job_id)
    assert moves(entry, "job") == []
    assert moves(entry, "lease") == [("ACTIVE", "EXPIRED")]
    assert entry.note.actor == "clock"
    again = await house.grant("runner#2")
    assert again.attempt == 2
    assert again.token != grant.token
    assert await house.faults() == []


async def test_a_lease_lives_to_its_last_moment_and_no_longer(house: House) -> None:
    grant = await house.started()
    await house.later(TTL_S - 0.000001)
    assert await house.leases(grant.job_id) == ["ACTIVE"]
    await house.later(0.000001)
    assert (await house.leases(grant.job_id))[0] == "EXPIRED"


@pytest.mark.parametrize("budget", [None, 0, 1, 5])
async def test_a_job_whose_budget_of_losses_is_used_up_fails(house: House, budget: int | None) -> None:
    job_id = await house.submit(losses=budget, retries=100)
    allowed = 3 if budget is None else budget
    for _ in range(allowed):
        await house.grant()
        await house.later(TTL_S)
        assert (await house.view(job_id)).state == "RUNNING"
    await house.grant()
    await house.later(TTL_S)
    view = await house.view(job_id)
    assert view.state == "FAILED"
    assert view.failure is not None
    assert view.failure.failure_class == "lost"
    assert view.losses == allowed + 1
    assert [one.state for one in view.attempts] == ["STALE"] * (allowed + 1)
    assert (view.ready_at, view.deadline_at) == (None, None)
    assert await house.claim() == []


async def test_the_losses_of_all_shards_are_counted_together(house: House) -> None:
    job_id = await house.submit(worker_count=4)
    for _ in range(4):
        await house.grant()
    await house.later(TTL_S)
    state, attempts = await house.states(job_id)
    assert state == "FAILED"
    assert set(attempts) <= {"STALE", "CANCELED"}
    record = await house.record(job_id)
    assert (record.ready_at, record.deadline_at) == (None, None)


async def test_losses_do_not_burn_the_users_retries(house: House) -> None:
    grant = await house.started(retries=1)
    for _ in range(3):
        await house.later(TTL_S)
        grant = await house.grant()
    await house.heard(failed(grant))
    assert (await house.view(grant.job_id)).state == "RUNNING"
    house.clock.jump(10)
    await house.heard(failed(await house.grant()))
    view = await house.view(grant.job_id)
    assert view.state == "FAILED"
    assert view.failure is not None
    assert view.failure.failure_class == "user"


async def test_failures_do_not_burn_the_losses(house: House) -> None:
    grant = await house.started(retries=3, losses=1)
    for _ in range(3):
        await house.heard(failed(grant))
        house.clock.jump(60)
        grant = await house.grant()
    await house.later(TTL_S)
    assert (await house.view(grant.job_id)).state == "RUNNING"


# Given back


async def test_giving_back_costs_nothing_however_often(house: House) -> None:
    job_id = await house.submit(retries=0, losses=0)
    for turn in range(1, 30):
        grant = await house.grant()
        assert grant.attempt == turn
        assert (await house.heard(release(grant))).state == "STALE"
    view = await house.view(job_id)
    assert view.losses == 0
    assert view.state == "RUNNING"
    await house.heard(done(await house.grant()))
    assert (await house.view(job_id)).state == "COMPLETED"
    assert await house.faults() == []


async def test_a_released_job_is_ready_at_once_and_its_lease_is_revoked(house: House) -> None:
    grant = await house.started()
    await house.heard(beat(grant))
    await house.heard(release(grant, reason="deploy"))
    assert await house.leases(grant.job_id) == ["REVOKED"]
    assert await house.states(grant.job_id) == ("RUNNING", ["STALE", "QUEUED"])
    assert (await house.record(grant.job_id)).ready_at == house.clock()
    *_, entry = await house.history(grant.job_id)
    assert entry.note.reason == "deploy"
    assert (await house.stale(beat(grant, 200))).code is StaleCode.LEASE_REVOKED


async def test_an_attempt_that_was_only_granted_can_be_given_back(house: House) -> None:
    job_id = await house.submit()
    grant = await house.grant(acknowledge=False)
    await house.heard(release(grant))
    assert await house.states(job_id) == ("RUNNING", ["STALE", "QUEUED"])
    assert (await house.view(job_id)).losses == 0


# Failed


async def test_by_default_a_failure_of_the_user_is_not_tried_again(house: House) -> None:
    grant = await house.started()
    await house.heard(failed(grant, "", exception="ValueError", error="no such column"))
    view = await house.view(grant.job_id)
    assert view.state == "FAILED"
    assert view.failure is not None
    assert (view.failure.failure_class, view.failure.error) == ("user", "no such column")
    assert view.completed_at == house.clock()


@pytest.mark.parametrize("failure_class", ["user", "timeout", "flaky", "tooling", "infra"])
async def test_each_failure_class_is_retried_as_often_as_its_rule_allows(
    house: House, failure_class: str
) -> None:
    allowed = DEFAULT_RETRIES[FailureClass(failure_class)].retries
    job_id = await house.submit()
    for _ in range(allowed):
        await house.heard(failed(await house.grant(), failure_class))
        assert (await house.view(job_id)).state == "RUNNING"
        house.clock.jump(600)
    await house.heard(failed(await house.grant(), failure_class))
    view = await house.view(job_id)
    assert view.state == "FAILED"
    assert [one.state for one in view.attempts] == ["FAILED"] * (allowed + 1)
    assert view.failure is not None
    assert view.failure.failure_class == failure_class


async def test_each_class_counts_only_its_own_failures(house: House) -> None:
    own = {"user": RetryRule(retries=1), "flaky": RetryRule(retries=1)}
    job_id = await house.submit(retry=own)
    for failure_class in ("user", "flaky"):
        await house.heard(failed(await house.grant(), failure_class))
        house.clock.jump(600)
    assert (await house.view(job_id)).state == "RUNNING"
    await house.heard(failed(await house.grant(), "user"))
    assert (await house.view(job_id)).state == "FAILED"


async def test_each_shard_has_the_retries_for_itself(house: House) -> None:
    job_id = await house.submit(worker_count=2, retries=2)
    for _ in range(2):
        for grant in [await house.grant() for _ in range(2)]:
            await house.heard(failed(grant))
        house.clock.jump(60)
    for grant in [await house.grant() for _ in range(2)]:
        assert grant.attempt == 3
        await house.heard(done(grant))
    assert (await house.view(job_id)).state == "COMPLETED"


async def test_the_retries_option_does_not_apply_to_flaky_failures(house: House) -> None:
    job_id = await house.submit(retries=7)
    for failure_class in ("flaky", "flaky", "flaky"):
        await house.heard(failed(await house.grant(), failure_class))
        house.clock.jump(600)
    assert (await house.view(job_id)).state == "FAILED"


async def test_a_retry_waits_for_its_pause(house: House) -> None:
    rule = RetryRule(retries=3, first_pause_s=10.0, factor=3.0, longest_pause_s=50.0, jitter=0.0)
    job_id = await house.submit(retry={"user": rule})
    for pause_s in (10.0, 30.0, 50.0):
        await house.heard(failed(await house.grant()))
        assert (await house.states(job_id))[1][-1] == "CREATED"
        assert (await house.record(job_id)).ready_at == house.clock() + timedelta(seconds=pause_s)
        house.clock.jump(pause_s - 0.001)
        assert await house.claim() == []
        house.clock.jump(0.001)


def test_a_pause_is_bounded_deterministic_and_different_for_different_jobs() -> None:
    rule = RetryRule(retries=9, first_pause_s=1.0, factor=2.0, longest_pause_s=20.0, jitter=0.5)
    pauses = {job: [pause_before(rule, n, f"{job}.1") for n in range(1, 10)] for job in ("a", "b", "c")}
    for job, waits in pauses.items():
        assert waits == [pause_before(rule, n, f"{job}.1") for n in range(1, 10)]
        for n, pause in enumerate(waits):
            plain_s = min(2.0**n, 20.0)
            assert plain_s <= pause.total_seconds() <= 1.5 * plain_s
    assert len({tuple(waits) for waits in pauses.values()}) == 3
    assert all(len(set(column)) == 3 for column in zip(*pauses.values(), strict=True))


async def test_the_pause_of_a_retry_is_the_same_on_every_orchestrator(house: House) -> None:
    grant = await house.started(retries=1)
    record = await house.record(grant.job_id)
    await house.heard(failed(grant))
    ready = (await house.record(grant.job_id)).ready_at
    rule = DEFAULT_RETRIES[FailureClass.USER]
    assert ready == house.clock() + pause_before(rule, 1, f"{record.id}.1")


@pytest.mark.parametrize(
    ("failure", "found"),
    [
        (Failed(error="boom", exception="builtins.ValueError builtins.Exception"), "user"),
        (Failed(error="gone", exception="builtins.ConnectionResetError builtins.ConnectionError"), "infra"),
        (Failed(error="x", exception="my.Own my.FlakyError"), "flaky"),
        (Failed(error="exit", exit_code=137), "infra"),
        (Failed(error="exit", exit_code=127), "tooling"),
        (Failed(error="exit", exit_code=1), "user"),
        (Failed(error="x", details="curl: Connection refused"), "infra"),
        (Failed(error="HTTP 503 Service Unavailable"), "infra"),
        (Failed(error="429 Too Many Requests"), "tooling"),
        (Failed(error="no space left on device"), "infra"),
        (Failed(error="compilation failed", exit_code=2), "user"),
        (Failed(error="boom", exception="builtins.ConnectionError", failure_class="user"), "user"),
    ],
)
def test_the_class_of_a_failure_is_found(failure: Failed, found: str) -> None:
    assert classify(failure) == found


async def test_custom_failure_rules_listed_first_take_precedence_over_the_default_rules() -> None:
    mine = FailureRule(failure_class=FailureClass.FLAKY, patterns=("element not found",))
    settings = Settings(failure_rules=(mine, *DEFAULT_RULES))
    house = await House(settings).open()
    grant = await house.started()
    await house.heard(failed(grant, "", error="element not found, connection refused"))
    view = await house.view(grant.job_id)
    assert view.attempts[0].failure is not None
    assert view.attempts[0].failure.failure_class == "flaky"
    assert view.state == "RUNNING"
    await house.close()


async def test_an_unknown_failure_class_is_found_by_the_rules(house: House) -> None:
    grant = await house.started()
    await house.heard(failed(grant, "sunspots", error="Connection reset by peer"))
    one = await house.last(grant.job_id)
    assert one.state == "CREATED"
    (first, _) = (await house.body(grant.job_id)).attempts
    assert first.failure is not None
    assert first.failure.failure_class is FailureClass.INFRA


# Timed out


async def test_an_attempt_that_takes_too_long_is_timed_out_and_its_lease_is_revoked(house: House) -> None:
    grant = await house.started(timeout_s=300.0)
    for number, _ in enumerate(range(5), 1):
        house.clock.jump(59)
        await house.heard(beat(grant, number))
    await house.later(5)
    assert await house.states(grant.job_id) == ("FAILED", ["TIMED_OUT"])
    assert await house.leases(grant.job_id) == ["REVOKED"]
    view = await house.view(grant.job_id)
    assert view.failure is not None
    assert view.failure.failure_class == "timeout"
    assert (view.ready_at, view.deadline_at) == (None, None)
    assert (await house.stale(done(grant))).code is StaleCode.LEASE_REVOKED
    assert (await house.view(grant.job_id)).state == "FAILED"


async def test_a_timed_out_attempt_is_retried_until_its_retries_are_used_up(house: House) -> None:
    grant = await house.started(timeout_s=50.0, retries=1)
    await house.later(50)
    assert await house.states(grant.job_id) == ("RUNNING", ["TIMED_OUT", "CREATED"])
    assert (await house.view(grant.job_id)).losses == 0
    house.clock.jump(10)
    await house.grant()
    await house.later(50)
    assert await house.states(grant.job_id) == ("FAILED", ["TIMED_OUT", "TIMED_OUT"])


async def test_the_time_of_an_attempt_begins_with_its_acknowledgement(house: House) -> None:
    job_id = await house.submit(timeout_s=50.0)
    grant = await house.grant(acknowledge=False)
    house.clock.jump(20)
    await house.heard(ack(grant))
    house.clock.jump(20)
    await house.heard(beat(grant, 1))
    await house.later(29.999)
    assert (await house.states(job_id))[1] == ["RUNNING"]
    await house.later(0.001)
    assert (await house.states(job_id))[1] == ["TIMED_OUT"]


async def test_the_default_time_of_an_attempt_is_a_setting() -> None:
    house = await House(Settings(durations=Durations(attempt_timeout_s=40.0))).open()
    grant = await house.started()
    assert grant.timeout_s == 40.0
    await house.later(40)
    assert await house.states(grant.job_id) == ("FAILED", ["TIMED_OUT"])
    await house.close()


async def test_a_job_past_its_timeout_gets_a_cancel_request_and_is_canceled(house: House) -> None:
    grant = await house.started(job_timeout_s=60.0)
    await house.later(60)
    assert await house.states(grant.job_id) == ("RUNNING", ["CANCEL_REQUESTED"])
    answer = await house.heard(beat(grant))
    assert answer.cancel_requested
    assert answer.cancel_deadline_at == house.clock() + timedelta(seconds=CANCEL_DEADLINE_S)
    await house.heard(stopped(grant))
    view = await house.view(grant.job_id)
    assert (view.state, view.stop_reason) == ("CANCELED", "timeout")
    assert await house.leases(grant.job_id) == ["CANCELED"]
    assert await house.faults() == []


async def test_the_time_of_a_job_includes_all_its_attempts_and_pauses(house: House) -> None:
    rule = RetryRule(retries=9, first_pause_s=40.0, factor=1.0, jitter=0.0)
    grant = await house.started(job_timeout_s=60.0, retry={"user": rule})
    house.clock.jump(10)
    await house.heard(failed(grant))
    await house.later(49.999)
    assert (await house.view(grant.job_id)).state == "RUNNING"
    await house.later(0.001)
    view = await house.view(grant.job_id)
    assert (view.state, view.stop_reason) == ("CANCELED", "timeout")
    assert [one.state for one in view.attempts] == ["FAILED", "CANCELED"]
    assert await house.claim() == []


async def test_the_time_of_a_job_does_not_begin_before_its_first_attempt(house: House) -> None:
    job_id = await house.submit(job_timeout_s=60.0)
    await house.later(1_000)
    assert (await house.view(job_id)).state == "PENDING"
    await house.grant()
    assert (await house.record(job_id)).deadline_at == house.clock() + timedelta(seconds=60)


async def test_after_a_long_sleep_of_the_sweep_the_job_times_out_and_is_not_requeued(house: House) -> None:
    grant = await house.started(job_timeout_s=60.0)
    await house.later(10_000)
    view = await house.view(grant.job_id)
    assert (view.state, view.stop_reason) == ("CANCELED", "timeout")
    assert [one.state for one in view.attempts] == ["CANCELED"]


async def test_a_sweep_that_is_run_twice_does_nothing_the_second_time(house: House) -> None:
    grants = [await house.started() for _ in range(5)]
    house.clock.jump(TTL_S)
    assert await house.port.services.sweep() == 5
    versions = [(await house.record(grant.job_id)).version for grant in grants]
    assert await house.port.services.sweep() == 0
    assert [(await house.record(grant.job_id)).version for grant in grants] == versions


async def test_two_that_sweep_at_once_lose_nothing_and_count_nothing_twice(house: House) -> None:
    grants = [await house.started() for _ in range(5)]
    other = await house.neighbour()
    house.clock.jump(TTL_S)
    assert await house.port.services.sweep() + await other.port.services.sweep() == 5
    for grant in grants:
        assert await house.states(grant.job_id) == ("RUNNING", ["STALE", "QUEUED"])


async def test_attempts_are_numbered_without_gaps_whatever_ends_them(house: House) -> None:
    job_id = await house.submit(retries=5, timeout_s=50.0)
    await house.heard(failed(await house.grant()))
    house.clock.jump(60)
    await house.heard(release(await house.grant()))
    await house.grant()
    await house.later(50)
    house.clock.jump(60)
    await house.grant(acknowledge=False)
    await house.later(ACK_WINDOW_S)
    await house.heard(done(await house.grant()))
    attempts = (await house.view(job_id)).attempts
    assert [one.index for one in attempts] == [1, 2, 3, 4, 5]
    assert [one.state for one in attempts] == ["FAILED", "STALE", "TIMED_OUT", "STALE", "SUCCEEDED"]
    assert all(later.created_at >= earlier.created_at for earlier, later in pairwise(attempts))
    assert await house.faults() == []


async def test_the_cost_and_the_failure_details_of_a_failed_attempt_are_kept(house: House) -> None:
    grant = await house.started(retries=1)
    message = failed(
        grant, "", error="boom", exception="a.B builtins.Exception", exit_code=3, details="trace"
    )
    await house.heard(msgspec.structs.replace(message, cost=1.5))
    first, _ = (await house.view(grant.job_id)).attempts
    assert first.cost == 1.5
    assert first.failure is not None
    assert (first.failure.error, first.failure.exception) == ("boom", "a.B")
    assert (first.failure.exit_code, first.failure.details) == (3, "trace")


# Its place in the queue


async def test_a_job_that_lost_its_worker_keeps_its_place_in_the_queue(house: House) -> None:
    first = await house.started()
    house.clock.jump(5)
    others = [await house.submit() for _ in range(3)]
    await house.later(TTL_S)
    assert [grant.job_id for grant in await house.claim("runner#2")] == [first.job_id, *others]


async def test_a_job_that_is_given_back_keeps_its_place_in_the_queue(house: House) -> None:
    first = await house.started()
    house.clock.jump(5)
    others = [await house.submit() for _ in range(3)]
    house.clock.jump(5)
    await house.heard(release(first))
    again, *rest = await house.claim("runner#2")
    assert (again.job_id, again.attempt) == (first.job_id, 2)
    assert [grant.job_id for grant in rest] == others
    await house.heard(release(again, runner_id="runner#2"))
    assert (await house.grant()).job_id == first.job_id, "It is not pushed back by being unlucky twice."


async def test_a_shard_that_is_lost_keeps_its_own_place(house: House) -> None:
    job_id = await house.submit(worker_count=2, delay_s=10)
    house.clock.jump(11)
    before = (await house.record(job_id)).ready_at
    grant = await house.grant()
    await house.grant("runner#2")
    house.clock.jump(5)
    await house.heard(release(grant))
    assert (await house.record(job_id)).ready_at == before


async def test_a_failed_attempt_is_in_the_queue_from_when_it_is_due(house: House) -> None:
    first = await house.started(retries=3)
    other = await house.submit()
    await house.heard(failed(first, "infra"))
    due_at = (await house.last(first.job_id)).ready_at
    assert due_at is not None
    assert due_at > house.clock()
    house.clock.jump((due_at - house.clock()).total_seconds())
    assert [grant.job_id for grant in await house.claim("runner#2")] == [other, first.job_id]
