"""Run at, not after, snooze and retry at: when a job begins, and what becomes of one that nobody began."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from tests.systems.orchestrator.house import House, done, failed, moves, release

from interlock.errors import InvalidJob, TerminalState
from interlock.lifecycles.durations import Durations
from interlock.systems.settings import Settings
from interlock.wire.jobs import JobSpec, RetryRule
from interlock.wire.runner import Grant, Release

MINUTE = timedelta(minutes=1)
INDIA = timezone(timedelta(hours=5, minutes=30))


# Run at


async def test_a_job_starts_at_its_time_regardless_of_the_time_zone_of_that_time(house: House) -> None:
    at = (await house.jobs.now() + MINUTE).astimezone(INDIA)
    job_id = await house.submit(at=at)
    await house.later(59.999999)
    assert await house.claim() == []
    await house.later(0.000001)
    assert (await house.grant()).job_id == job_id


async def test_a_time_that_has_passed_is_now(house: House) -> None:
    job_id = await house.submit(at=await house.jobs.now() - MINUTE)
    assert (await house.grant()).job_id == job_id


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (
            {"at": datetime(2030, 1, 1, 14)},  # noqa: DTZ001 - that is what is refused
            "at is 2030-01-01T14:00:00, which has no time zone; write 2030-01-01T14:00:00Z for UTC",
        ),
        (
            {"not_after": datetime(2030, 1, 1, 14)},  # noqa: DTZ001 - likewise
            "not_after is 2030-01-01T14:00:00, which has no time zone",
        ),
        ({"at": datetime(2300, 1, 1, tzinfo=UTC)}, "must be in the years 1970 to 2199"),
        ({"at": datetime(2030, 1, 1, tzinfo=UTC), "delay_s": 1.0}, "at and delay_s exclude each other"),
        (
            {"not_after": datetime(2030, 1, 1, tzinfo=UTC), "start_within_s": 1.0},
            "not_after and start_within_s exclude each other",
        ),
        ({"start_within_s": 0.0}, "start_within_s is 0 and must be more than 0"),
        ({"start_within_s": float("nan")}, "start_within_s is nan and must be more than 0"),
    ],
)
async def test_start_times_that_are_ambiguous_contradictory_or_out_of_range_are_refused(
    house: House, spec: dict[str, Any], fault: str
) -> None:
    with pytest.raises(InvalidJob) as error:
        await house.submit(**spec)
    assert fault in error.value.sentence


# Not after


async def test_a_job_that_no_worker_has_started_in_time_fails_as_expired(house: House) -> None:
    job_id = await house.submit(start_within_s=60)
    view = await house.view(job_id)
    assert view.not_after == view.deadline_at == view.created_at + MINUTE
    await house.later(59.999999)
    assert (await house.view(job_id)).state == "PENDING"
    await house.later(0.000001)
    view = await house.view(job_id)
    assert (view.state, view.started_at, [one.state for one in view.attempts]) == (
        "FAILED",
        None,
        ["CANCELED"],
    )
    assert view.failure is not None
    at = (view.created_at + MINUTE).isoformat(timespec="seconds").replace("+00:00", "Z")
    assert (view.failure.failure_class, view.failure.error) == (
        "expired",
        f"No worker started it before {at}.",
    )
    explanation = await house.jobs.explain(job_id)
    assert explanation.sentence == f"It has expired: No worker started it before {at}."
    assert explanation.todo == f"interlock job retry {job_id}"
    *_, entry = await house.history(job_id)
    assert (moves(entry, "job"), entry.note.actor) == ([("PENDING", "FAILED")], "clock")
    assert await house.faults() == []


async def test_a_job_that_was_started_in_time_does_not_expire(house: House) -> None:
    grant = await house.started(start_within_s=60)
    await house.later(100)
    assert (await house.view(grant.job_id)).state == "RUNNING"
    await house.heard(done(grant))


async def test_a_claim_fails_an_expired_job_and_does_not_grant_it_even_before_a_sweep(house: House) -> None:
    job_id = await house.submit(start_within_s=60)
    other = await house.submit()
    house.clock.jump(60)
    assert [grant.job_id for grant in await house.claim()] == [other]
    assert (await house.view(job_id)).state == "FAILED", "the claim has found it"


async def test_alike_jobs_that_have_expired_are_not_given_out_either(house: House) -> None:
    ids = await house.jobs.submit_many([JobSpec(task="build", start_within_s=60)] * 3)
    house.clock.jump(60)
    assert await house.claim() == []
    assert {(await house.view(job_id)).state for job_id in ids} == {"FAILED"}


async def test_a_delay_takes_precedence_over_the_time_to_start(house: House) -> None:
    job_id = await house.submit(delay_s=600, start_within_s=60)
    await house.later(659)
    assert (await house.view(job_id)).state == "PENDING"
    await house.later(1)
    assert (await house.view(job_id)).state == "FAILED"


async def test_a_time_in_the_past_expires_at_once(house: House) -> None:
    job_id = await house.submit(not_after=await house.jobs.now() - MINUTE)
    assert await house.claim() == []
    await house.recover()
    assert (await house.view(job_id)).state == "FAILED"


async def test_a_job_that_has_expired_is_not_cancelled_any_more(house: House) -> None:
    job_id = await house.submit(start_within_s=60)
    house.clock.jump(60)
    with pytest.raises(TerminalState):
        await house.jobs.cancel(job_id)


async def test_a_parent_fails_with_its_expired_child_and_shows_the_reason(house: House) -> None:
    parent = await house.started(task="parent", queue="p")
    child = await house.submit(parent_job_id=parent.job_id, if_fails="fail_parent", start_within_s=60)
    await house.later(60)
    await house.recover(3)
    view = await house.view(parent.job_id)
    assert view.failure is not None
    assert (view.state, view.failure.failure_class) == ("FAILED", "expired")
    assert view.failure.error.startswith(f"Its child {child} failed: No worker started it before")


async def test_jobs_that_have_expired_have_no_retries_of_their_own(house: House) -> None:
    with pytest.raises(InvalidJob, match="no class of failure 'expired' to retry"):
        await house.submit(retry={"expired": RetryRule(retries=1)})


# Snooze


async def snoozed(house: House, grant: Grant, **how: Any) -> None:
    await house.heard(release(grant, reason="snooze", **how))


async def test_a_snoozed_job_waits_and_costs_no_retry_no_loss_and_no_failure(house: House) -> None:
    grant = await house.started(retries=0, losses=0)
    for index in range(1, 4):
        await snoozed(house, grant, snooze_s=600.0, checkpoint=msgspec.Raw(b"%d" % index))
        await house.later(599)
        assert await house.claim() == []
        view = await house.view(grant.job_id)
        assert (view.state, view.losses, view.failure) == ("RUNNING", 0, None)
        before, after = view.attempts[-2:]
        assert (before.state, before.snoozed_until, before.failure) == ("STALE", after.ready_at, None)
        await house.later(1)
        grant = await house.grant()
        assert (grant.attempt, grant.checkpoint) == (index + 1, msgspec.Raw(b"%d" % index))
    await house.heard(done(grant))
    view = await house.view(grant.job_id)
    assert [one.state for one in view.attempts] == ["STALE", "STALE", "STALE", "SUCCEEDED"]
    assert view.state == "COMPLETED"
    assert await house.faults() == []


async def test_why_a_snoozed_job_waits_is_explained_and_journalled(house: House) -> None:
    grant = await house.started()
    until = await house.jobs.now() + MINUTE
    await snoozed(house, grant, snooze_until=until)
    explanation = await house.jobs.explain(grant.job_id)
    assert explanation.sentence == f"It waits until {until.isoformat()}, because attempt 1 snoozed."
    *_, entry = await house.history(grant.job_id)
    assert entry.note.reason == f"snoozed until {until.isoformat()}"


async def test_time_that_is_snoozed_does_not_count_as_time_of_the_job() -> None:
    house = await House(Settings(durations=Durations(job_timeout_s=3_600))).open()
    grant = await house.started()
    await snoozed(house, grant, snooze_s=86_400.0)
    await house.later(86_400)
    again = await house.grant()
    await house.later(60)
    assert (await house.view(grant.job_id)).state == "RUNNING"
    await house.heard(done(again))
    await house.close()


async def test_a_snooze_in_the_past_or_without_sense_is_at_once(house: House) -> None:
    grant = await house.started()
    await snoozed(house, grant, snooze_until=await house.jobs.now() - MINUTE)
    grant = await house.grant()
    await snoozed(house, grant, snooze_s=float("nan"))
    grant = await house.grant()
    assert grant.attempt == 3


async def test_a_snooze_that_is_sent_twice_is_accepted_once(house: House) -> None:
    grant = await house.started()
    message: Release = release(grant, reason="snooze", snooze_s=60.0)
    assert await house.heard(message) == await house.heard(message)
    assert [one.state for one in (await house.view(grant.job_id)).attempts] == ["STALE", "CREATED"]


async def test_a_job_that_snoozes_while_it_is_cancelled_is_canceled(house: House) -> None:
    grant = await house.started()
    await house.jobs.cancel(grant.job_id)
    await snoozed(house, grant, snooze_s=60.0)
    assert (await house.view(grant.job_id)).state == "CANCELED"


# Retry at


async def test_a_handler_can_set_the_time_of_its_retry_and_the_retry_counts(house: House) -> None:
    grant = await house.started()
    for _ in range(2):
        at = await house.jobs.now() + MINUTE
        await house.heard(failed(grant, "flaky", retry_at=at, retry_after_s=1.0))
        await house.later(59)
        assert await house.claim() == []
        await house.later(1)
        grant = await house.grant()
    await house.heard(failed(grant, "flaky", retry_after_s=1.0))
    assert (await house.view(grant.job_id)).state == "FAILED", "the class flaky has two retries"


async def test_the_retries_of_the_job_apply_if_the_handler_sets_the_retry_delay(house: House) -> None:
    grant = await house.started(retries=4)
    for _ in range(4):
        await house.heard(failed(grant, "flaky", retry_after_s=1.0))
        await house.later(1)
        grant = await house.grant()
    await house.heard(failed(grant, "flaky", retry_after_s=1.0))
    assert (await house.view(grant.job_id)).state == "FAILED"


async def test_time_until_a_retry_that_the_handler_chose_does_not_count_as_time_of_the_job() -> None:
    house = await House(Settings(durations=Durations(job_timeout_s=3_600))).open()
    grant = await house.started()
    await house.heard(failed(grant, "flaky", retry_after_s=7_200.0))
    await house.later(7_200)
    assert (await house.grant()).job_id == grant.job_id
    await house.close()
