"""What a workload promises: busy first, one at a time, never idle while something lives, one final word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from interlock.lifecycles import WORKLOAD
from interlock.lifecycles.workload import (
    ABORTING,
    BUSY,
    FAILED,
    IDLE,
    READY,
    RUNNING,
    AbortReceived,
    CancelWorkload,
    ControllerDisconnect,
    DurationElapsed,
    ErrorSent,
    RpcReceived,
    SendStatus,
    SpawnWorkload,
    StartTimeReached,
    Status,
    TaskCancelled,
    Timeout5s,
    Timeout15s,
    WorkloadData,
    WorkloadError,
    WorkloadState,
)
from interlock.machine import Moved, Refusal, Refused

NEW = WorkloadData(workload_id="new")
ALIVE = WorkloadData(workload_id="new", alive=True)
Follow = Callable[..., Moved[Any, Any]]
Refuse = Callable[..., Refused[Any]]

DATA = {
    READY: NEW,
    RUNNING: ALIVE,
    ABORTING: ALIVE,
    FAILED: WorkloadData(workload_id="new", final=Status.ERROR),
}


@pytest.mark.parametrize("state", BUSY)
@pytest.mark.parametrize("fault", [None, "no such file"])
def test_a_busy_agent_refuses_valid_and_invalid_workload_requests_as_busy(
    state: WorkloadState, fault: str | None, refusal: Refuse
) -> None:
    """R37: a bad request is refused for the same reason as a good one."""
    refused = refusal(WORKLOAD, state, DATA[state], RpcReceived(workload_id="other", fault=fault))
    assert refused.kind is Refusal.NOT_ALLOWED
    assert "busy" in refused.why


def test_a_valid_request_is_announced_with_ready(follow: Follow) -> None:
    """S3-7"""
    ready = follow(WORKLOAD, IDLE, WorkloadData(), RpcReceived(workload_id="new"))
    assert (ready.state, ready.data) == (READY, NEW)
    assert ready.effects == (SendStatus(Status.READY),)


def test_an_invalid_request_fails_and_resets_itself(follow: Follow) -> None:
    """S3-6, S3-7, R40: the error stays on the record after the reset."""
    failed = follow(WORKLOAD, IDLE, WorkloadData(), RpcReceived(workload_id="new", fault="no such file"))
    assert failed.state is FAILED
    assert failed.effects == (SendStatus(Status.ERROR, completed=True, error="no such file"),)
    reset = follow(WORKLOAD, FAILED, failed.data, ErrorSent(workload_id="new"))
    assert (reset.state, reset.data.error, reset.effects) == (IDLE, "no such file", ())


def test_an_error_that_is_not_read_within_five_seconds_no_longer_keeps_the_agent_busy(follow: Follow) -> None:
    """S3-7"""
    failed = follow(WORKLOAD, RUNNING, ALIVE, WorkloadError(workload_id="new", error="boom"))
    (unread,) = failed.steps[0].arms
    assert (unread.event, unread.seconds) == (ErrorSent, 5)
    reset = follow(WORKLOAD, FAILED, failed.data, ErrorSent(workload_id="new"))
    assert (reset.state, reset.data.error, reset.effects) == (IDLE, "boom", ())


def test_a_workload_that_fails_is_reported_once_and_its_error_stays_readable(follow: Follow) -> None:
    """S3-6, R40: FAILED, not ABORTING; the record keeps the error after the reset."""
    failed = follow(WORKLOAD, RUNNING, ALIVE, WorkloadError(workload_id="new", error="boom"))
    assert (failed.state, failed.data.alive) == (FAILED, False)
    assert failed.effects == (SendStatus(Status.ERROR, completed=True, error="boom"),)
    reset = follow(WORKLOAD, FAILED, failed.data, ErrorSent(workload_id="new"))
    assert (reset.state, reset.data.error, reset.effects) == (IDLE, "boom", ())


def test_the_common_start_spawns_the_workload(follow: Follow) -> None:
    running = follow(WORKLOAD, READY, NEW, StartTimeReached(workload_id="new"))
    assert (running.state, running.data.alive) == (RUNNING, True)
    assert running.effects == (SpawnWorkload("new"),)


def test_a_workload_without_a_start_does_not_start_by_itself(follow: Follow) -> None:
    """Decision 0227"""
    left = follow(WORKLOAD, READY, NEW, StartTimeReached(workload_id="new", told=False))
    assert (left.state, left.data.alive) == (IDLE, False)
    assert left.effects == (SendStatus(Status.ABORTED, completed=True, error="no start was announced"),)


@pytest.mark.parametrize("abort", [AbortReceived, ControllerDisconnect])
def test_an_abort_while_ready_leaves_at_once(abort: Any, follow: Follow) -> None:
    """S3-3, R39: nothing was started, so nothing is cancelled, and ABORTING is not taken."""
    left = follow(WORKLOAD, READY, NEW, abort(workload_id="new"))
    assert (left.state, [step.target for step in left.steps]) == (IDLE, [IDLE])
    assert left.effects == (SendStatus(Status.ABORTED, completed=True),)
    assert left.steps[0].arms == ()


def test_ready_never_has_anything_alive_that_would_make_it_abort_slowly() -> None:
    """R39: the row to ABORTING stands in the table; an invariant says that it is never taken."""
    (slow,) = [step for step in WORKLOAD.steps_from(READY) if step.target is ABORTING]
    assert slow.event == "ABORT_RECEIVED"
    assert WORKLOAD.broken(READY, ALIVE) != ()


@pytest.mark.parametrize("abort", [AbortReceived, ControllerDisconnect])
def test_an_abort_of_a_running_workload_escalates_from_cancel_to_forced_cancel_to_kill(
    abort: Any, follow: Follow
) -> None:
    """S3-5, R38"""
    aborting = follow(WORKLOAD, RUNNING, ALIVE, abort(workload_id="new"))
    assert (aborting.state, aborting.effects) == (ABORTING, (CancelWorkload("new"),))
    assert {(d.event, d.seconds) for d in aborting.steps[0].arms} == {(Timeout5s, 5), (Timeout15s, 15)}
    warned = follow(WORKLOAD, ABORTING, aborting.data, Timeout5s(workload_id="new"))
    assert (warned.state, warned.effects) == (ABORTING, (CancelWorkload("new", forced=True),))
    assert warned.steps[0].arms == (), "the fifteen seconds count from the abort"
    killed = follow(WORKLOAD, ABORTING, warned.data, Timeout15s(workload_id="new"))
    assert (killed.state, killed.data.alive, killed.data.final) == (IDLE, False, Status.ABORTED)


def test_an_agent_is_not_idle_while_something_has_survived_the_kill(follow: Follow) -> None:
    """R38"""
    still = follow(WORKLOAD, ABORTING, ALIVE, Timeout15s(workload_id="new", survivors=1))
    assert (still.state, still.data.alive) == (ABORTING, True)
    assert [d.event for d in still.steps[0].arms] == [Timeout15s]
    assert follow(WORKLOAD, ABORTING, still.data, Timeout15s(workload_id="new")).state is IDLE


def test_a_workload_that_stops_by_itself_ends_the_abort(follow: Follow) -> None:
    """S3-7"""
    stopped = follow(WORKLOAD, ABORTING, ALIVE, TaskCancelled(workload_id="new"))
    assert (stopped.state, stopped.effects) == (IDLE, (SendStatus(Status.ABORTED, completed=True),))


@pytest.mark.parametrize(
    ("state", "late"),
    [
        (READY, StartTimeReached(workload_id="old")),
        (READY, AbortReceived(workload_id="old")),
        (READY, ControllerDisconnect(workload_id="old")),
        (RUNNING, DurationElapsed(workload_id="old")),
        (RUNNING, WorkloadError(workload_id="old", error="boom")),
        (RUNNING, AbortReceived(workload_id="old")),
        (RUNNING, ControllerDisconnect(workload_id="old")),
        (ABORTING, TaskCancelled(workload_id="old")),
        (ABORTING, Timeout5s(workload_id="old")),
        (ABORTING, Timeout15s(workload_id="old")),
        (ABORTING, Timeout15s(workload_id="old", survivors=1)),
        (FAILED, ErrorSent(workload_id="old")),
    ],
)
def test_a_late_event_of_an_old_workload_does_not_change_a_new_workload(
    state: WorkloadState, late: Any, refusal: Refuse
) -> None:
    """R38"""
    refused = refusal(WORKLOAD, state, DATA[state], late)
    assert refused.kind is Refusal.GUARD
    assert "same_workload" in refused.guards


@pytest.mark.parametrize("state", [IDLE, FAILED, ABORTING])
@pytest.mark.parametrize("abort", [AbortReceived, ControllerDisconnect])
@pytest.mark.parametrize("which", ["new", "old"])
def test_an_abort_with_nothing_to_abort_is_a_no_op(
    state: WorkloadState, abort: Any, which: str, refusal: Refuse
) -> None:
    """R41: deliberately nothing, so that no timer is restarted; not an error of the caller's."""
    assert refusal(WORKLOAD, state, DATA.get(state, NEW), abort(workload_id=which)).kind is Refusal.IGNORED


ENDINGS: list[tuple[list[Any], Status]] = [
    ([StartTimeReached(workload_id="new"), DurationElapsed(workload_id="new")], Status.COMPLETED),
    ([StartTimeReached(workload_id="new"), WorkloadError(workload_id="new", error="boom")], Status.ERROR),
    ([AbortReceived(workload_id="new")], Status.ABORTED),
    ([ControllerDisconnect(workload_id="new")], Status.ABORTED),
    (
        [
            StartTimeReached(workload_id="new"),
            AbortReceived(workload_id="new"),
            TaskCancelled(workload_id="new"),
        ],
        Status.ABORTED,
    ),
]


@pytest.mark.parametrize(("events", "final"), ENDINGS)
def test_a_workload_sends_exactly_one_final_status_whatever_events_arrive_late(
    events: list[Any], final: Status, each_event: Callable[[str], list[Any]]
) -> None:
    """R41"""
    late = [
        type(occurrence)(**{**_fields(occurrence), "workload_id": "new"})
        for occurrence in each_event("workload")
        if not isinstance(occurrence, RpcReceived)
    ]
    state: Any = READY
    data, statuses = NEW, []
    for event in (*events, *late, *late):
        answer = WORKLOAD.decide(state, data, event)
        if isinstance(answer, Moved):
            state, data = answer.state, answer.data
            statuses += [e.status for e in answer.effects if isinstance(e, SendStatus) and e.completed]
    assert (state, statuses, data.final) == (IDLE, [final], final)


def _fields(occurrence: Any) -> dict[str, Any]:
    return {name: getattr(occurrence, name) for name in type(occurrence).__dataclass_fields__}


def test_a_new_workload_inherits_nothing_from_the_last(follow: Follow) -> None:
    """R40, R41"""
    last = WorkloadData(workload_id="old", error="boom", final=Status.ERROR)
    assert follow(WORKLOAD, IDLE, last, RpcReceived(workload_id="new")).data == NEW
