"""What a job promises: its times, its reasons, and refusals that are told apart."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from interlock.lifecycles import JOB
from interlock.lifecycles.job import (
    CANCELED,
    COMPLETED,
    ENDED,
    FAILED,
    PENDING,
    RUNNING,
    SUBMITTED,
    AllocateResources,
    Cancel,
    Error,
    Job,
    JobState,
    Reject,
    Success,
    Timeout,
    Validate,
)
from interlock.machine import Moved, Refusal, Refused

AT = datetime(2026, 1, 1, tzinfo=UTC)
LATER, LAST = AT + timedelta(minutes=1), AT + timedelta(minutes=2)
NEW = Job(created_at=AT)
STARTED = Job(created_at=AT, started_at=AT)
Follow = Callable[..., Moved[Any, Any]]
Refuse = Callable[..., Refused[Any]]


def test_a_job_goes_from_submitted_to_completed(follow: Follow) -> None:
    events = (Validate(at=AT), AllocateResources(at=LATER), Success(at=LAST))
    done = follow(JOB, SUBMITTED, NEW, *events)
    assert done.state is COMPLETED
    assert (done.data.started_at, done.data.completed_at) == (LATER, LAST)


def test_a_job_notes_its_start_only_once(follow: Follow, refusal: Refuse) -> None:
    """S0-24: another attempt of a running job is no second start."""
    assert follow(JOB, PENDING, NEW, AllocateResources(at=LATER)).data.started_at == LATER
    assert follow(JOB, PENDING, STARTED, AllocateResources(at=LATER)).data.started_at == AT
    assert refusal(JOB, RUNNING, STARTED, AllocateResources(at=LATER)).kind is Refusal.IGNORED


@pytest.mark.parametrize(
    ("state", "last", "ending"),
    [
        (RUNNING, Success(at=LATER), COMPLETED),
        (RUNNING, Error(at=LATER), FAILED),
        (RUNNING, Cancel(at=LATER), CANCELED),
        (RUNNING, Timeout(at=LATER), CANCELED),
        (SUBMITTED, Reject(at=LATER), FAILED),
        (SUBMITTED, Cancel(at=LATER), CANCELED),
        (PENDING, Cancel(at=LATER), CANCELED),
    ],
)
def test_a_job_notes_its_end_whichever_way_it_ends(
    state: JobState, last: Any, ending: JobState, follow: Follow
) -> None:
    """S0-24"""
    ended = follow(JOB, state, STARTED, last)
    assert (ended.state, ended.data.completed_at) == (ending, LATER)


def test_a_job_that_ended_before_it_ran_was_never_started(follow: Follow) -> None:
    """S0-24, R2"""
    assert follow(JOB, SUBMITTED, NEW, Reject(at=LATER)).data.started_at is None


@pytest.mark.parametrize("stop", [Cancel, Timeout])
def test_a_running_job_is_canceled_only_after_its_active_attempts_have_stopped(
    stop: type[Cancel | Timeout], follow: Follow
) -> None:
    """S0-19, S2-32"""
    stopping = follow(JOB, RUNNING, STARTED, stop(at=LATER, still_active=2, reason="because"))
    assert (stopping.state, stopping.data.completed_at) == (RUNNING, None)
    done = follow(JOB, RUNNING, stopping.data, Cancel(at=LAST))
    assert (done.state, done.data.completed_at, done.data.stop_reason) == (CANCELED, LAST, "because")


def test_a_job_that_timed_out_is_canceled_with_that_reason(follow: Follow) -> None:
    """R6: the first reason stays, however it is finalized."""
    stopping = follow(JOB, RUNNING, STARTED, Timeout(at=LATER, still_active=1, reason="timeout"))
    assert follow(JOB, RUNNING, stopping.data, Cancel(at=LAST)).data.stop_reason == "timeout"


def test_a_timeout_sets_the_stop_reason_timeout_by_default(follow: Follow) -> None:
    """R6: the reason of a timeout is `timeout`, whoever builds the event."""
    assert follow(JOB, RUNNING, STARTED, Timeout(at=LATER)).data.stop_reason == "timeout"


def test_a_job_canceled_because_of_a_failed_dependency_has_the_stop_reason_upstream(follow: Follow) -> None:
    """R32"""
    ended = follow(JOB, PENDING, NEW, Cancel(at=LATER, reason="upstream"))
    assert (ended.state, ended.data.stop_reason) == (CANCELED, "upstream")


def test_waiting_for_a_worker_uses_up_no_time(refusal: Refuse) -> None:
    """S0-30: no resources means that it stays PENDING."""
    assert refusal(JOB, PENDING, NEW, Timeout(at=LATER)).kind is Refusal.IGNORED


@pytest.mark.parametrize(
    ("state", "occurrence", "kind"),
    [
        (PENDING, Validate(at=AT), Refusal.ALREADY_THERE),
        (CANCELED, Cancel(at=AT), Refusal.ALREADY_THERE),  # already there comes before terminal
        (FAILED, Reject(at=AT), Refusal.ALREADY_THERE),
        (COMPLETED, Cancel(at=AT), Refusal.TERMINAL),
        (FAILED, Cancel(at=AT), Refusal.TERMINAL),
        (CANCELED, Validate(at=AT), Refusal.TERMINAL),
        (RUNNING, Validate(at=AT), Refusal.NOT_ALLOWED),
        (PENDING, Reject(at=AT), Refusal.NOT_ALLOWED),
        (SUBMITTED, AllocateResources(at=AT), Refusal.NOT_ALLOWED),
    ],
)
def test_refusals_of_a_job_are_distinguished_in_order(
    state: JobState, occurrence: Any, kind: Refusal, refusal: Refuse
) -> None:
    """S0-12, S0-21, R51"""
    assert refusal(JOB, state, STARTED, occurrence).kind is kind


@pytest.mark.parametrize("ended", ENDED)
def test_a_job_that_has_ended_never_moves(
    ended: JobState, each_event: Callable[[str], list[Any]], refusal: Refuse
) -> None:
    """S0-21"""
    for occurrence in each_event("job"):
        refusal(JOB, ended, STARTED, occurrence)


def test_the_refusal_of_a_job_transition_names_the_allowed_states() -> None:
    """S0-12"""
    refused = JOB.toward(SUBMITTED, RUNNING)
    assert isinstance(refused, Refused)
    assert set(refused.allowed) == {"PENDING", "FAILED", "CANCELED"}
