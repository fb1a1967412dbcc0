"""What a task promises: the named tests of 001 on the task and on its invariants."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from interlock.errors import TransitionNotAllowed
from interlock.lifecycles import TASK
from interlock.lifecycles.task import (
    ABANDONED,
    CLAIMING,
    COMPLETED,
    FAILED,
    PENDING,
    PROCESSING,
    REPORTING,
    ClaimSucceeded,
    LeaseExpired,
    LeaseRenewed,
    ProcessingFailed,
    ProcessingSucceeded,
    ShutdownRequested,
    TaskData,
    TaskState,
    claim_failed,
    claim_requested,
    report_failed,
    report_succeeded,
)
from interlock.machine import Moved, Refusal, Refused

AT = datetime(2026, 1, 1, tzinfo=UTC)
SOON = AT + timedelta(seconds=60)
LEASED = TaskData(lease_acquired_at=AT, lease_timeout=AT + timedelta(seconds=120), processing_started_at=AT)
Follow = Callable[..., Moved[Any, Any]]
Refuse = Callable[..., Refused[Any]]


def test_a_pending_task_is_claimed(follow: Follow) -> None:
    assert follow(TASK, PENDING, TaskData(), claim_requested).state is CLAIMING


def test_a_claimed_task_is_processed(follow: Follow) -> None:
    moved = follow(TASK, CLAIMING, TaskData(), ClaimSucceeded(at=AT, ttl_s=120))
    assert (moved.state, moved.data.processing_started_at) == (PROCESSING, AT)


def test_a_lost_claim_fails_the_task_and_leaves_no_trace_on_it(follow: Follow) -> None:
    """R10"""
    moved = follow(TASK, CLAIMING, TaskData(), claim_failed)
    assert (moved.state, moved.data, moved.effects) == (FAILED, TaskData(), ())


def test_a_task_that_succeeded_reports_its_output(follow: Follow) -> None:
    moved = follow(TASK, PROCESSING, LEASED, ProcessingSucceeded(at=SOON, output=42, cost=0.5))
    assert (moved.state, moved.data.output, moved.data.cost) == (REPORTING, 42, 0.5)
    assert moved.data.processing_ended_at == SOON


def test_a_task_that_failed_reports_its_error(follow: Follow) -> None:
    moved = follow(TASK, PROCESSING, LEASED, ProcessingFailed(at=SOON, error="boom", cost=0.5))
    assert (moved.state, moved.data.error, moved.data.cost) == (REPORTING, "boom", 0.5)


def test_a_reported_success_completes_the_task(follow: Follow) -> None:
    moved = follow(TASK, PROCESSING, LEASED, ProcessingSucceeded(at=SOON, output=42), report_succeeded)
    assert moved.state is COMPLETED


def test_a_task_whose_report_fails_has_failed(follow: Follow) -> None:
    moved = follow(TASK, PROCESSING, LEASED, ProcessingSucceeded(at=SOON, output=42), report_failed)
    assert moved.state is FAILED


def test_a_task_that_loses_its_lease_is_abandoned(follow: Follow) -> None:
    assert follow(TASK, PROCESSING, LEASED, LeaseExpired()).state is ABANDONED


def test_a_shutdown_during_processing_reports_the_partial_output(follow: Follow) -> None:
    moved = follow(TASK, PROCESSING, LEASED, ShutdownRequested(at=SOON, partial={"half": True}))
    assert moved.state is REPORTING
    assert moved.data.interrupted
    assert moved.data.output == {"half": True}


def test_a_shutdown_during_claiming_abandons_the_task(follow: Follow) -> None:
    assert follow(TASK, CLAIMING, TaskData(), ShutdownRequested(at=AT)).state is ABANDONED


def test_a_completed_task_is_at_its_end() -> None:
    assert TASK.terminal == {COMPLETED, FAILED, ABANDONED}


def test_an_event_that_a_task_does_not_allow_becomes_an_error(refusal: Refuse) -> None:
    refused = refusal(TASK, PENDING, TaskData(), report_succeeded)
    assert isinstance(refused.error(), TransitionNotAllowed)
    assert "claim_requested" in refused.error().allowed


# Its invariants


def test_a_task_that_is_processed_holds_a_lease_that_reaches_into_the_future(follow: Follow) -> None:
    data = follow(TASK, CLAIMING, TaskData(), ClaimSucceeded(at=AT, ttl_s=120)).data
    assert data.lease_timeout == AT + timedelta(seconds=120)
    assert TaskData().lease_timeout is None
    assert TASK.broken(PROCESSING, msgspec.structs.replace(data, lease_timeout=None)) != ()


def test_a_task_in_processing_has_the_time_at_which_its_lease_was_acquired(follow: Follow) -> None:
    data = follow(TASK, CLAIMING, TaskData(), ClaimSucceeded(at=AT, ttl_s=120)).data
    assert data.lease_acquired_at == AT
    assert TASK.broken(PROCESSING, msgspec.structs.replace(data, lease_acquired_at=None)) != ()


@pytest.mark.parametrize("ended", [COMPLETED, FAILED, ABANDONED])
def test_a_task_that_has_ended_never_moves(
    ended: TaskState, each_event: Callable[[str], list[Any]], refusal: Refuse
) -> None:
    for occurrence in each_event("task"):
        refusal(TASK, ended, LEASED, occurrence)


@pytest.mark.parametrize(
    "last",
    [
        ProcessingSucceeded(at=SOON, output=None),
        ProcessingFailed(at=SOON, error="boom"),
        ShutdownRequested(at=SOON),
    ],
)
def test_a_task_that_reports_has_an_output_or_an_error(last: Any, follow: Follow) -> None:
    reporting = follow(TASK, PROCESSING, LEASED, last)
    assert reporting.data.output is not msgspec.UNSET or reporting.data.error is not None
    assert TASK.broken(REPORTING, reporting.data) == ()
    assert TASK.broken(REPORTING, LEASED) != ()


def test_each_step_of_a_task_is_taken_whole_or_not_at_all(
    each_event: Callable[[str], list[Any]],
) -> None:
    """Data is never changed in place, and a move comes with its state, data and journal together."""
    for state in TaskState:
        for occurrence in each_event("task"):
            before = msgspec.structs.replace(LEASED, error=None)
            answer = TASK.decide(state, before, occurrence)
            assert before == LEASED
            if isinstance(answer, Moved):
                assert answer.steps[-1].target is answer.state
                assert TASK.broken_across(state, before, answer.state, answer.data) == ()


# What the resolutions add


@pytest.mark.parametrize(
    ("last", "ending"),
    [
        (ProcessingSucceeded(at=SOON, output=None), COMPLETED),
        (ProcessingFailed(at=SOON, error=""), FAILED),
        (ShutdownRequested(at=SOON, partial="half"), ABANDONED),
        (ShutdownRequested(at=SOON), ABANDONED),
    ],
)
def test_a_task_ends_in_the_state_that_matches_its_report(
    last: Any, ending: TaskState, follow: Follow
) -> None:
    """R11: also when the output is None, or the error has no words."""
    assert follow(TASK, PROCESSING, LEASED, last, report_succeeded).state is ending


def test_an_interrupted_task_whose_report_fails_has_failed(follow: Follow) -> None:
    assert follow(TASK, PROCESSING, LEASED, ShutdownRequested(at=SOON), report_failed).state is FAILED


def test_a_renewal_prolongs_the_lease_and_its_timer(follow: Follow) -> None:
    """S1-14"""
    renewed = follow(TASK, PROCESSING, LEASED, LeaseRenewed(at=SOON, ttl_s=120))
    assert renewed.data.lease_timeout == SOON + timedelta(seconds=120)
    assert [deadline.setting for deadline in renewed.steps[0].arms] == ["lease_ttl_s"]
    assert not renewed.steps[0].moves


def test_a_report_on_its_way_is_not_disturbed(refusal: Refuse) -> None:
    """R13: by a shutdown or by the lease, which speaks through the report's own answer."""
    for late in (ShutdownRequested(at=SOON), LeaseExpired(), LeaseRenewed(at=SOON, ttl_s=120)):
        assert refusal(TASK, REPORTING, LEASED, late).kind is Refusal.IGNORED


def test_a_task_that_was_never_claimed_is_abandoned_by_a_shutdown(follow: Follow) -> None:
    assert follow(TASK, PENDING, TaskData(), ShutdownRequested(at=AT)).state is ABANDONED
