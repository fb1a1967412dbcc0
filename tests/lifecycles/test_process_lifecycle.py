"""What a worker process promises: the named tests of 001 on the process and on its invariants."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from interlock.errors import TransitionNotAllowed
from interlock.lifecycles import PROCESS
from interlock.lifecycles.process import (
    BACKING_OFF,
    CONNECTING,
    RECOVERING,
    RUNNING,
    SHUTTING_DOWN,
    STARTING,
    STOPPED,
    KillHandlers,
    PollCycleComplete,
    Process,
    ProcessState,
    RecoveryComplete,
    ReportShutdown,
    ShutdownComplete,
    TaskEnded,
    accepts_tasks,
    backoff_complete,
    connected,
    connection_failed,
    error,
    initialized,
    no_tasks_available,
    saving_deadline,
    shutdown_deadline,
    shutdown_requested,
    soft_deadline,
)
from interlock.machine import Moved, Refusal, Refused

AT = datetime(2026, 1, 1, tzinfo=UTC)
UP = Process(connected=True)
BUSY = Process(connected=True, active_tasks=1)
Follow = Callable[..., Moved[Any, Any]]
Refuse = Callable[..., Refused[Any]]


def test_a_process_that_is_set_up_connects(follow: Follow) -> None:
    assert follow(PROCESS, STARTING, Process(), initialized).state is CONNECTING


def test_a_process_that_has_connected_recovers_first(follow: Follow) -> None:
    moved = follow(PROCESS, CONNECTING, Process(), connected)
    assert (moved.state, moved.data.connected) == (RECOVERING, True)


def test_a_process_that_cannot_connect_tries_again(follow: Follow) -> None:
    moved = follow(PROCESS, CONNECTING, Process(), connection_failed, connection_failed)
    assert moved.state is CONNECTING
    assert moved.data.backoff_count == 2
    assert moved.steps[0].moves, "trying again is a loop of the table, not a refusal"
    assert follow(PROCESS, CONNECTING, moved.data, connected).state is RECOVERING


def test_a_process_that_has_recovered_runs(follow: Follow) -> None:
    moved = follow(PROCESS, RECOVERING, UP, RecoveryComplete(at=AT))
    assert (moved.state, moved.data.last_recovery_at) == (RUNNING, AT)


def test_a_process_that_finds_nothing_backs_off(follow: Follow) -> None:
    moved = follow(PROCESS, RUNNING, UP, no_tasks_available)
    assert (moved.state, moved.data.backoff_count) == (BACKING_OFF, 1)


def test_a_process_that_has_backed_off_recovers_again(follow: Follow) -> None:
    assert follow(PROCESS, BACKING_OFF, UP, backoff_complete).state is RECOVERING


def test_a_running_process_can_be_shut_down(follow: Follow) -> None:
    moved = follow(PROCESS, RUNNING, UP, shutdown_requested)
    assert (moved.state, moved.data.shutdown_requested) == (SHUTTING_DOWN, True)


def test_a_process_that_backs_off_can_be_shut_down(follow: Follow) -> None:
    assert follow(PROCESS, BACKING_OFF, UP, shutdown_requested).state is SHUTTING_DOWN


def test_a_shutdown_waits_for_the_task_that_is_active(follow: Follow, refusal: Refuse) -> None:
    leaving = follow(PROCESS, RUNNING, BUSY, shutdown_requested)
    held = refusal(PROCESS, SHUTTING_DOWN, leaving.data, ShutdownComplete())
    assert (held.kind, held.guards) == (Refusal.GUARD, ("no_task_active",))
    gone = follow(PROCESS, SHUTTING_DOWN, leaving.data, TaskEnded(succeeded=True), ShutdownComplete())
    assert gone.state is STOPPED


def test_an_event_that_a_process_does_not_allow_becomes_an_error(refusal: Refuse) -> None:
    refused = refusal(PROCESS, STARTING, Process(), connected)
    assert isinstance(refused.error(), TransitionNotAllowed)
    assert "initialized" in refused.error().allowed


# Its invariants


def test_a_running_process_has_a_connection(follow: Follow) -> None:
    running = follow(PROCESS, STARTING, Process(), initialized, connected, RecoveryComplete(at=AT))
    assert running.data.connected
    assert PROCESS.broken(RUNNING, running.data) == ()
    assert PROCESS.broken(RUNNING, Process(connected=False)) != ()


def test_a_process_that_is_shutting_down_takes_no_task(follow: Follow, refusal: Refuse) -> None:
    leaving = follow(PROCESS, RUNNING, UP, shutdown_requested)
    assert not accepts_tasks(leaving.state, leaving.data)
    refusal(PROCESS, leaving.state, leaving.data, PollCycleComplete(started=1))


def test_a_shutdown_that_takes_too_long_is_forced(follow: Follow) -> None:
    leaving = follow(PROCESS, RUNNING, BUSY, shutdown_requested)
    armed = {deadline.event: deadline.seconds for deadline in leaving.steps[0].arms}
    assert armed[shutdown_deadline] == 30
    forced = follow(PROCESS, SHUTTING_DOWN, leaving.data, shutdown_deadline)
    assert forced.state is STOPPED
    assert forced.effects == (ReportShutdown(processed=0, failed=0, forced=True),)


@pytest.mark.parametrize("last", [ShutdownComplete(), shutdown_deadline])
def test_a_stopped_process_has_released_its_connection(last: Any, follow: Follow) -> None:
    stopped = follow(PROCESS, RUNNING, UP, shutdown_requested, last)
    assert not stopped.data.connected
    assert PROCESS.broken(STOPPED, UP) != ()


def test_a_process_has_one_active_task_per_slot(follow: Follow, refusal: Refuse) -> None:
    taken = follow(PROCESS, RUNNING, UP, PollCycleComplete(started=1))
    assert not accepts_tasks(RUNNING, taken.data)
    assert refusal(PROCESS, RUNNING, taken.data, PollCycleComplete(started=1)).kind is Refusal.GUARD
    assert accepts_tasks(RUNNING, Process(connected=True, slots=2, active_tasks=1))


# What the resolutions add


@pytest.mark.parametrize("state", list(ProcessState))
def test_a_process_accepts_tasks_only_while_running(
    state: ProcessState,
) -> None:
    """S1-5"""
    assert accepts_tasks(state, UP) is (state is RUNNING)


def test_a_running_process_with_a_shutdown_request_accepts_no_tasks() -> None:
    """R12: the flag alone is enough."""
    assert not accepts_tasks(RUNNING, Process(connected=True, shutdown_requested=True))


def test_a_process_can_be_shut_down_while_it_starts(follow: Follow) -> None:
    """R12"""
    gone = follow(PROCESS, STARTING, Process(), shutdown_requested, ShutdownComplete())
    assert gone.state is STOPPED


def test_a_second_signal_is_harmless(refusal: Refuse) -> None:
    """R12"""
    for state in (SHUTTING_DOWN, STOPPED):
        assert refusal(PROCESS, state, UP, shutdown_requested).kind is Refusal.IGNORED


def test_a_shutdown_has_a_soft_deadline_before_the_hard_one(follow: Follow) -> None:
    """R13"""
    leaving = follow(PROCESS, RUNNING, BUSY, shutdown_requested)
    armed = {deadline.event: deadline.seconds for deadline in leaving.steps[0].arms}
    assert set(armed) == {soft_deadline, shutdown_deadline}
    assert armed[soft_deadline] < armed[shutdown_deadline]
    warned = follow(PROCESS, SHUTTING_DOWN, leaving.data, soft_deadline)
    assert warned.state is SHUTTING_DOWN
    (saving,) = warned.steps[0].arms  # the hard deadline is not moved
    assert saving.event is saving_deadline
    assert armed[soft_deadline] < saving.seconds < armed[shutdown_deadline]


def test_handlers_that_still_save_their_work_are_killed_before_the_hard_deadline(follow: Follow) -> None:
    """R13, S1-7"""
    leaving = follow(PROCESS, RUNNING, BUSY, shutdown_requested, soft_deadline)
    killed = follow(PROCESS, SHUTTING_DOWN, leaving.data, saving_deadline)
    assert (killed.state, killed.effects, killed.steps[0].arms) == (SHUTTING_DOWN, (KillHandlers(),), ())


@pytest.mark.parametrize("state", [RECOVERING, RUNNING])
def test_a_broken_connection_is_released_before_connecting_anew(state: ProcessState, follow: Follow) -> None:
    """R14"""
    moved = follow(PROCESS, state, BUSY, error)
    assert (moved.state, moved.data.connected) == (CONNECTING, False)


def test_the_backoff_is_reset_only_by_finding_work(follow: Follow) -> None:
    """R16"""
    waited = Process(connected=True, backoff_count=4)
    assert follow(PROCESS, BACKING_OFF, waited, backoff_complete).data.backoff_count == 4
    assert follow(PROCESS, CONNECTING, waited, connected).data.backoff_count == 4
    assert follow(PROCESS, RUNNING, waited, PollCycleComplete()).data.backoff_count == 4
    assert follow(PROCESS, RUNNING, waited, no_tasks_available).data.backoff_count == 5
    assert follow(PROCESS, RUNNING, waited, PollCycleComplete(started=1)).data.backoff_count == 0


def test_a_process_reports_its_processed_and_failed_tasks_when_it_shuts_down(follow: Follow) -> None:
    """S1-6, S1-7; R10: what neither succeeded nor failed is not counted."""
    three = Process(connected=True, slots=3, active_tasks=3)
    ends = (TaskEnded(succeeded=True), TaskEnded(failed=True), TaskEnded())
    gone = follow(PROCESS, RUNNING, three, *ends, shutdown_requested, ShutdownComplete())
    assert gone.effects == (ReportShutdown(processed=1, failed=1, forced=False),)
