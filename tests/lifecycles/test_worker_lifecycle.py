"""What a worker promises: the named tests of 000, the supervisor's rights, and recovery."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from interlock.lifecycles import WORKER
from interlock.lifecycles.worker import (
    COMPLETED,
    FAILED,
    IDLE,
    PAUSED,
    RUNNING,
    TERMINATED,
    CompleteTasks,
    ErrorTransient,
    ErrorUnrecoverable,
    Heartbeat,
    Pause,
    ResourcesExhausted,
    Resume,
    StartTask,
    SupervisorTimeout,
    Terminate,
    Worker,
    WorkerState,
)
from interlock.machine import Moved, Refusal, Refused, entries_of

AT = datetime(2026, 1, 1, tzinfo=UTC)
LATER = AT + timedelta(hours=1)
Follow = Callable[..., Moved[Any, Any]]
Refuse = Callable[..., Refused[Any]]


def allows(source: WorkerState, target: WorkerState) -> bool:
    return not isinstance(WORKER.toward(source, target), Refused)


def test_an_idle_worker_may_start() -> None:
    assert allows(IDLE, RUNNING)


def test_an_idle_worker_cannot_be_paused() -> None:
    assert not allows(IDLE, PAUSED)


def test_a_completed_worker_is_at_its_end_and_does_not_run_again() -> None:
    assert COMPLETED in WORKER.terminal
    assert not allows(COMPLETED, RUNNING)


@pytest.mark.parametrize("state", [state for state in WorkerState if state is not TERMINATED])
def test_a_worker_can_be_terminated_from_every_other_state(state: WorkerState, follow: Follow) -> None:
    assert allows(state, TERMINATED)
    assert follow(WORKER, state, Worker(), Terminate(at=AT)).state is TERMINATED


def test_a_terminated_worker_is_left_by_nothing(each_event: Any, refusal: Refuse) -> None:
    """S0-9, R1"""
    for occurrence in each_event("worker"):
        refusal(WORKER, TERMINATED, Worker(), occurrence)


def test_a_worker_starts_without_a_task_in_the_request(follow: Follow) -> None:
    """R4: the command has no body beyond its moment."""
    assert follow(WORKER, IDLE, Worker(), StartTask(at=AT)).data.started_at == AT


def test_a_worker_without_a_free_slot_does_not_start(refusal: Refuse) -> None:
    """S0-3"""
    refused = refusal(WORKER, IDLE, Worker(capacity=2, active=2), StartTask(at=AT))
    assert (refused.kind, refused.guards) == (Refusal.GUARD, ("has_capacity",))


def test_pausing_and_resuming_brings_a_worker_back_to_running(follow: Follow) -> None:
    """S0-4, S0-5"""
    paused = follow(WORKER, IDLE, Worker(), StartTask(at=AT), Pause(at=AT))
    assert paused.state is PAUSED
    assert follow(WORKER, PAUSED, paused.data, Resume(at=AT)).state is RUNNING


@pytest.mark.parametrize("busy", [Worker(active=1), Worker(pending=1), Worker(active=1, pending=1)])
def test_a_worker_with_tasks_left_does_not_complete(busy: Worker, refusal: Refuse) -> None:
    """S0-6"""
    assert refusal(WORKER, RUNNING, busy, CompleteTasks(at=AT)).guards == ("nothing_pending",)


def test_a_worker_with_nothing_left_completes(follow: Follow) -> None:
    done = follow(WORKER, RUNNING, Worker(started_at=AT), CompleteTasks(at=LATER))
    assert (done.state, done.data.outcome, done.data.completed_at) == (COMPLETED, COMPLETED, LATER)


@pytest.mark.parametrize(
    ("last", "outcome"), [(CompleteTasks(at=AT), COMPLETED), (ErrorUnrecoverable(at=AT), FAILED)]
)
def test_terminating_an_ended_worker_leaves_its_outcome_readable(
    last: Any, outcome: WorkerState, follow: Follow
) -> None:
    """R1"""
    ended = follow(WORKER, RUNNING, Worker(started_at=AT), last, Terminate(at=LATER))
    assert ended.state is TERMINATED
    assert (ended.data.outcome, ended.data.completed_at) == (outcome, AT)


def test_terminating_a_living_worker_is_its_outcome(follow: Follow) -> None:
    ended = follow(WORKER, PAUSED, Worker(started_at=AT), Terminate(at=LATER))
    assert (ended.data.outcome, ended.data.completed_at) == (TERMINATED, LATER)


def test_a_transient_error_is_an_audit_event_and_no_transition(follow: Follow) -> None:
    """S0-29, R5: tried again three times while the worker stays RUNNING, and each is on record."""
    data = Worker(started_at=AT)
    for tried in (1, 2, 3):
        kept = follow(WORKER, RUNNING, data, ErrorTransient(at=AT))
        assert (kept.state, [step.moves for step in kept.steps]) == (RUNNING, [False])
        assert [entry.event for entry in entries_of(kept, entity="w_1", at=AT)] == ["error_transient"]
        data = kept.data
        assert data.transient_errors == tried
    assert follow(WORKER, RUNNING, data, ErrorTransient(at=AT)).state is FAILED


def test_errors_that_are_far_apart_are_not_counted_together(follow: Follow) -> None:
    data = Worker(started_at=AT)
    for hour in range(10):
        kept = follow(WORKER, RUNNING, data, ErrorTransient(at=AT + timedelta(hours=hour)))
        assert (kept.state, kept.data.transient_errors) == (RUNNING, 1)
        data = kept.data


def test_a_timeout_that_was_set_before_the_last_heartbeat_terminates_no_worker(
    follow: Follow, refusal: Refuse
) -> None:
    beating = follow(WORKER, RUNNING, Worker(started_at=AT), Heartbeat(at=AT + timedelta(seconds=50))).data
    stale = SupervisorTimeout(at=AT + timedelta(seconds=120))
    assert refusal(WORKER, RUNNING, beating, stale).kind is Refusal.GUARD
    late = SupervisorTimeout(at=AT + timedelta(seconds=170))
    assert follow(WORKER, RUNNING, beating, late).state is TERMINATED


def test_an_exhausted_worker_is_paused_and_can_be_resumed(follow: Follow) -> None:
    """S0-29"""
    paused = follow(WORKER, RUNNING, Worker(started_at=AT), ResourcesExhausted(at=AT))
    assert paused.state is PAUSED
    assert follow(WORKER, PAUSED, paused.data, Resume(at=AT)).state is RUNNING


@pytest.mark.parametrize("state", [IDLE, RUNNING, PAUSED])
def test_a_silent_worker_is_terminated(state: WorkerState, follow: Follow) -> None:
    """S0-29"""
    assert follow(WORKER, state, Worker(started_at=AT), SupervisorTimeout(at=AT)).state is TERMINATED
    assert WORKER.table.entry(state).within is not None


def test_a_heartbeat_starts_the_supervisors_timeout_anew(follow: Follow) -> None:
    (step,) = follow(WORKER, RUNNING, Worker(started_at=AT), Heartbeat(at=AT)).steps
    assert [deadline.setting for deadline in step.arms] == ["worker_silence_s"]


@pytest.mark.parametrize(
    ("state", "occurrence", "kind"),
    [
        (PAUSED, Pause(at=AT), Refusal.ALREADY_THERE),
        (RUNNING, Resume(at=AT), Refusal.ALREADY_THERE),
        (COMPLETED, CompleteTasks(at=AT), Refusal.ALREADY_THERE),  # already there comes before terminal
        (TERMINATED, Terminate(at=AT), Refusal.ALREADY_THERE),
        (COMPLETED, Pause(at=AT), Refusal.TERMINAL),
        (FAILED, StartTask(at=AT), Refusal.TERMINAL),
        (TERMINATED, Resume(at=AT), Refusal.TERMINAL),
        (IDLE, Pause(at=AT), Refusal.NOT_ALLOWED),
        (IDLE, CompleteTasks(at=AT), Refusal.NOT_ALLOWED),
    ],
)
def test_refusals_of_a_worker_are_distinguished_in_order(
    state: WorkerState, occurrence: Any, kind: Refusal, refusal: Refuse
) -> None:
    """S0-12, R51"""
    assert refusal(WORKER, state, Worker(), occurrence).kind is kind


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [
        (TERMINATED, TERMINATED, Refusal.ALREADY_THERE),
        (RUNNING, RUNNING, Refusal.ALREADY_THERE),
        (TERMINATED, RUNNING, Refusal.TERMINAL),
        (COMPLETED, PAUSED, Refusal.TERMINAL),
        (IDLE, COMPLETED, Refusal.NOT_ALLOWED),
    ],
)
def test_a_requested_state_is_refused_as_already_there_before_terminal_and_not_allowed(
    source: WorkerState, target: WorkerState, kind: Refusal
) -> None:
    """S0-10, S0-12"""
    refused = WORKER.toward(source, target)
    assert isinstance(refused, Refused)
    assert refused.kind is kind


def test_the_refusal_of_a_worker_transition_names_the_allowed_states() -> None:
    """S0-12; R9: plain names, as users know them."""
    refused = WORKER.toward(IDLE, PAUSED)
    assert isinstance(refused, Refused)
    assert set(refused.allowed) == {"RUNNING", "TERMINATED"}
    assert "WorkerState" not in refused.sentence + refused.error().todo
