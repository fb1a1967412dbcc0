"""What a run promises: one outcome, kept beside its state and reported once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from interlock.lifecycles import RUN
from interlock.lifecycles.run import (
    AWAITING_APPROVAL,
    CANCEL_REQUESTED,
    CANCELED,
    CREATED,
    FAILED,
    OUTCOMES,
    PLAN_FAILED,
    PLANNED,
    PLANNING,
    QUEUED,
    REPORTED,
    RUNNING,
    SUCCESS,
    TIMEOUT,
    UNPLANNED,
    Run,
    RunState,
    all_stopped,
    begin,
    cancel,
    finalize,
    force_cancel,
    planned,
    planner_timeout,
    planning_failed,
    reported,
    required_job_failed,
    required_jobs_succeeded,
    start_planning,
    time_out,
)
from interlock.machine import Moved, Refusal, Refused, entries_of

Follow = Callable[..., Moved[Any, Any]]
Refuse = Callable[..., Refused[Any]]


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ((planned, begin, required_jobs_succeeded), SUCCESS),
        ((planned, begin, required_job_failed), FAILED),
        ((planning_failed, finalize), FAILED),
        ((planner_timeout, finalize), FAILED),
        ((planned, time_out), TIMEOUT),
        ((planned, begin, time_out), TIMEOUT),
        ((cancel, all_stopped), CANCELED),
        ((planned, begin, cancel, force_cancel), CANCELED),
    ],
)
def test_the_outcome_stays_readable_after_the_report(
    events: tuple[Any, ...], outcome: RunState, follow: Follow
) -> None:
    """R27"""
    settled = follow(RUN, CREATED, Run(), start_planning, *events)
    assert (settled.state, settled.data.outcome) == (outcome, outcome)
    done = follow(RUN, settled.state, settled.data, reported)
    assert (done.state, done.data.outcome) == (REPORTED, outcome)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_late_event_does_not_change_the_outcome_of_a_run(
    outcome: RunState, each_event: Callable[[str], list[Any]]
) -> None:
    """R22, R27: what is still active can no longer change the run."""
    settled = Run(outcome=outcome, cancel_requested=outcome is CANCELED)
    for late in each_event("run"):
        answer = RUN.decide(outcome, settled, late)
        if isinstance(answer, Moved):
            assert (answer.state, answer.data) == (REPORTED, settled)


def test_a_run_is_reported_once(refusal: Refuse) -> None:
    """R33"""
    assert refusal(RUN, REPORTED, Run(outcome=SUCCESS), reported).kind is Refusal.IGNORED


@pytest.mark.parametrize("state", UNPLANNED)
def test_a_run_can_be_canceled_before_it_has_a_plan(state: RunState, follow: Follow) -> None:
    """R23"""
    assert follow(RUN, state, Run(), cancel, all_stopped).state is CANCELED


@pytest.mark.parametrize("state", [CANCEL_REQUESTED, CANCELED, REPORTED])
@pytest.mark.parametrize("late", [planned, planning_failed, planner_timeout])
def test_a_plan_that_arrives_after_a_cancel_creates_nothing(
    state: RunState, late: Any, refusal: Refuse
) -> None:
    """R23"""
    assert refusal(RUN, state, Run(cancel_requested=True), late).kind is Refusal.IGNORED


@pytest.mark.parametrize("state", [*UNPLANNED, *PLANNED])
def test_a_cancel_is_only_final_when_everything_stopped_or_had_long_enough(
    state: RunState, follow: Follow, refusal: Refuse
) -> None:
    """S2-11, S2-14"""
    refusal(RUN, state, Run(), all_stopped)
    refusal(RUN, state, Run(), force_cancel)
    canceling = follow(RUN, state, Run(), cancel)
    assert (canceling.state, canceling.data.outcome) == (CANCEL_REQUESTED, None)
    assert [d.setting for d in canceling.steps[0].arms] == ["cancel_deadline_s"]


@pytest.mark.parametrize("fact", [required_jobs_succeeded, required_job_failed, begin, time_out])
def test_how_its_jobs_end_changes_nothing_once_it_is_being_canceled(fact: Any, refusal: Refuse) -> None:
    """S2-14"""
    assert refusal(RUN, CANCEL_REQUESTED, Run(cancel_requested=True), fact).kind is Refusal.IGNORED


@pytest.mark.parametrize(
    ("fact", "outcome"), [(required_jobs_succeeded, SUCCESS), (required_job_failed, FAILED)]
)
def test_a_run_that_is_decided_while_queued_passes_through_running(
    fact: Any, outcome: RunState, follow: Follow
) -> None:
    """S2-7 to S2-9 are the only ways out, so the journal shows both steps."""
    done = follow(RUN, QUEUED, Run(), fact)
    entries = entries_of(done, entity="run_1", at=datetime(2026, 1, 1, tzinfo=UTC))
    assert [(entry.source, entry.target) for entry in entries] == [(QUEUED, RUNNING), (RUNNING, outcome)]


def test_a_planner_that_is_silent_fails_the_plan_and_not_the_clock(follow: Follow) -> None:
    """R22"""
    failed = follow(RUN, PLANNING, Run(), planner_timeout)
    assert (failed.state, failed.data.outcome) == (PLAN_FAILED, None)
    assert follow(RUN, PLAN_FAILED, failed.data, finalize).state is FAILED


def test_waiting_and_running_share_one_deadline(follow: Follow) -> None:
    """R22: beginning does not give a run its time anew."""
    queued = follow(RUN, PLANNING, Run(), planned)
    assert [d.setting for d in queued.steps[0].arms] == ["run_timeout_s"]
    assert follow(RUN, QUEUED, queued.data, begin).steps[0].arms == ()


def test_asking_twice_for_a_cancel_moves_no_deadline(refusal: Refuse) -> None:
    assert refusal(RUN, CANCEL_REQUESTED, Run(cancel_requested=True), cancel).kind in (
        Refusal.IGNORED,
        Refusal.ALREADY_THERE,
    )


def test_a_run_that_has_to_be_approved_leaves_that_state_for_its_beginning_or_its_end_only() -> None:
    left = {step.event: step.target for step in RUN.steps_from(AWAITING_APPROVAL)}
    assert left == {
        "approve": CREATED,
        "decline": CANCEL_REQUESTED,
        "cancel": CANCEL_REQUESTED,
        "approval_timeout": FAILED,
    }


@pytest.mark.parametrize("late", [planned, planning_failed])
def test_a_plan_that_arrives_before_the_approval_creates_nothing(late: Any, refusal: Refuse) -> None:
    assert refusal(RUN, AWAITING_APPROVAL, Run(), late).kind is Refusal.IGNORED
