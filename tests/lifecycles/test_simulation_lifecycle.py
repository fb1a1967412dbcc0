"""What a simulation promises: the transition tests of 004, and resolutions 44 to 48."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from interlock.lifecycles import SIMULATION
from interlock.lifecycles.simulation import (
    CANCELLED,
    COMPLETED,
    ENDED,
    FAILED,
    INTERRUPTED,
    PAUSED,
    PENDING,
    RUNNING,
    STANDING,
    Cancel,
    Complete,
    Fail,
    Heartbeat,
    HeartbeatLost,
    Interrupt,
    Pause,
    RequestPause,
    Resume,
    SimulationData,
    SimulationState,
    Start,
)
from interlock.machine import Moved, Refusal, Refused

AT = datetime(2026, 1, 1, tzinfo=UTC)
NEW = SimulationData(created_at=AT)
RUNS = SimulationData(created_at=AT, worker_id="mine", started_at=AT, last_heartbeat=AT, current_step=2)
Follow = Callable[..., Moved[Any, Any]]
Refuse = Callable[..., Refused[Any]]


def after(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def paused(follow: Follow) -> SimulationData:
    ask, stop = RequestPause(at=after(1)), Pause(at=after(2), worker_id="mine", step=3)
    data = follow(SIMULATION, RUNNING, RUNS, ask, stop).data
    assert isinstance(data, SimulationData)
    return data


def test_a_pending_simulation_is_started_by_a_worker(follow: Follow) -> None:
    begun = follow(SIMULATION, PENDING, NEW, Start(at=after(1), worker_id="mine"))
    assert begun.state is RUNNING
    assert (begun.data.worker_id, begun.data.started_at) == ("mine", after(1))


def test_a_running_simulation_is_paused_by_its_worker(follow: Follow) -> None:
    data = paused(follow)
    assert (data.paused_at, data.current_step, data.worker_id) == (after(2), 3, None)


def test_a_paused_simulation_continues_where_it_stood(follow: Follow) -> None:
    resumed = follow(SIMULATION, PAUSED, paused(follow), Resume(at=after(9), worker_id="other"))
    assert (resumed.state, resumed.data.worker_id, resumed.data.current_step) == (RUNNING, "other", 3)
    assert (resumed.data.started_at, resumed.data.paused_at) == (AT, None)


def test_a_running_simulation_completes(follow: Follow) -> None:
    done = follow(SIMULATION, RUNNING, RUNS, Complete(at=after(5), worker_id="mine", step=9))
    assert (done.state, done.data.completed_at, done.data.current_step) == (COMPLETED, after(5), 9)


def test_a_running_simulation_fails_with_its_error(follow: Follow) -> None:
    failed = follow(SIMULATION, RUNNING, RUNS, Fail(at=after(5), worker_id="mine", error="boom"))
    assert (failed.state, failed.data.error, failed.data.completed_at) == (FAILED, "boom", after(5))


@pytest.mark.parametrize("lost", [HeartbeatLost(at=after(60)), Interrupt(at=after(5))])
def test_a_running_simulation_survives_its_worker(lost: Any, follow: Follow) -> None:
    """R44: resumable, so it has not ended."""
    gone = follow(SIMULATION, RUNNING, RUNS, lost)
    assert (gone.state, gone.data.completed_at, gone.data.worker_id) == (INTERRUPTED, None, None)
    assert follow(SIMULATION, INTERRUPTED, gone.data, Resume(at=after(99), worker_id="x")).state is RUNNING


@pytest.mark.parametrize("ended", ENDED)
def test_a_simulation_that_has_ended_never_moves(
    ended: SimulationState, each_event: Callable[[str], list[Any]], refusal: Refuse
) -> None:
    for occurrence in each_event("simulation"):
        refusal(SIMULATION, ended, RUNS, occurrence)


@pytest.mark.parametrize("state", STANDING)
def test_an_idle_simulation_is_cancelled_at_once(state: SimulationState, follow: Follow) -> None:
    """S4-2, R44"""
    ended = follow(SIMULATION, state, NEW, Cancel(at=after(5)))
    assert (ended.state, ended.data.completed_at) == (CANCELLED, after(5))


def test_a_cancel_while_running_is_honoured_at_the_next_step(follow: Follow) -> None:
    """R45: running, paused, cancelled."""
    cancelling = follow(SIMULATION, RUNNING, RUNS, Cancel(at=after(1)))
    assert (cancelling.state, cancelling.data.cancel_requested, cancelling.data.completed_at) == (
        RUNNING,
        True,
        None,
    )
    stopped = follow(SIMULATION, RUNNING, cancelling.data, Pause(at=after(2), worker_id="mine", step=3))
    assert stopped.state is PAUSED
    assert follow(SIMULATION, PAUSED, stopped.data, Cancel(at=after(2))).state is CANCELLED


def test_a_cancel_of_a_dead_worker_leaves_it_interrupted(follow: Follow) -> None:
    """R45"""
    cancelling = follow(SIMULATION, RUNNING, RUNS, Cancel(at=after(1)))
    assert follow(SIMULATION, RUNNING, cancelling.data, HeartbeatLost(at=after(60))).state is INTERRUPTED


def test_the_sweep_interrupts_after_sixty_seconds_of_silence_and_not_before(
    follow: Follow, refusal: Refuse
) -> None:
    """R46: counted from the last heartbeat. A heartbeat does not bump the version (R47), so nothing but
    the moment on the timer tells a stale one from a real one."""
    beating = follow(SIMULATION, RUNNING, RUNS, Heartbeat(at=after(50), worker_id="mine", step=4)).data
    assert refusal(SIMULATION, RUNNING, beating, HeartbeatLost(at=after(60))).kind is Refusal.GUARD
    assert follow(SIMULATION, RUNNING, beating, HeartbeatLost(at=after(110))).state is INTERRUPTED


def test_silence_counts_from_the_start_when_there_was_no_heartbeat(follow: Follow) -> None:
    """R46"""
    begun = follow(SIMULATION, PENDING, NEW, Start(at=after(10), worker_id="mine"))
    assert [(d.event, d.seconds) for d in begun.steps[0].arms] == [(HeartbeatLost, 60)]
    assert follow(SIMULATION, RUNNING, begun.data, HeartbeatLost(at=after(70))).state is INTERRUPTED


def test_a_heartbeat_records_the_current_step_and_keeps_the_state(follow: Follow) -> None:
    """S4-5, R47"""
    beat = follow(SIMULATION, RUNNING, RUNS, Heartbeat(at=after(7), worker_id="mine", step=4))
    assert (beat.state, beat.steps[0].moves) == (RUNNING, False)
    assert beat.data == msgspec.structs.replace(RUNS, last_heartbeat=after(7), current_step=4)
    assert [d.event for d in beat.steps[0].arms] == [HeartbeatLost]


@pytest.mark.parametrize(
    "event",
    [
        Heartbeat(at=after(7), worker_id="other", step=9),
        Pause(at=after(7), worker_id="other", step=9),
        Complete(at=after(7), worker_id="other", step=9),
        Fail(at=after(7), worker_id="other", error="boom"),
    ],
)
def test_only_its_own_worker_may_report(event: Any, refusal: Refuse) -> None:
    """R47"""
    pausing = msgspec.structs.replace(RUNS, pause_requested=True)
    assert refusal(SIMULATION, RUNNING, pausing, event).guards == ("from_its_worker",)


@pytest.mark.parametrize("state", [state for state in SimulationState if state is not RUNNING])
def test_a_heartbeat_counts_only_while_running(state: SimulationState, refusal: Refuse) -> None:
    """R47"""
    refusal(SIMULATION, state, RUNS, Heartbeat(at=after(7), worker_id="mine", step=9))


@pytest.mark.parametrize("state", [state for state in SimulationState if state is not RUNNING])
def test_a_simulation_that_is_not_running_refuses_a_pause_with_its_state_and_status_409(
    state: SimulationState, refusal: Refuse
) -> None:
    """S4-9"""
    refused = refusal(SIMULATION, state, RUNS, RequestPause(at=after(1)))
    assert refused.error().status == 409
    assert str(state) in refused.sentence


def test_a_pause_is_only_requested_and_its_worker_makes_the_transition(
    follow: Follow, refusal: Refuse
) -> None:
    """S4-9, R48"""
    refused = refusal(SIMULATION, RUNNING, RUNS, Pause(at=after(2), worker_id="mine", step=3))
    assert refused.guards == ("asked_for",)
    pausing = follow(SIMULATION, RUNNING, RUNS, RequestPause(at=after(1)))
    assert (pausing.state, pausing.data.pause_requested) == (RUNNING, True)


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (RUNNING, Pause(at=after(2), worker_id="mine", step=3)),
        (RUNNING, Complete(at=after(2), worker_id="mine", step=3)),
        (RUNNING, Fail(at=after(2), worker_id="mine", error="boom")),
        (RUNNING, HeartbeatLost(at=after(60))),
        (RUNNING, Interrupt(at=after(2))),
        (PAUSED, Resume(at=after(2), worker_id="mine")),
        (PAUSED, Cancel(at=after(2))),
        (PENDING, Start(at=after(2), worker_id="mine")),
    ],
)
def test_any_transition_answers_a_request_to_pause(
    state: SimulationState, event: Any, follow: Follow
) -> None:
    """R48"""
    pausing = msgspec.structs.replace(RUNS, pause_requested=True)
    assert not follow(SIMULATION, state, pausing, event).data.pause_requested


@pytest.mark.parametrize("state", [PAUSED, INTERRUPTED])
def test_two_resumes_give_one_execution(state: SimulationState, follow: Follow, refusal: Refuse) -> None:
    """R48: whoever is refused does not execute; R51: refused because it is already there."""
    first = follow(SIMULATION, state, NEW, Resume(at=after(1), worker_id="one"))
    second = refusal(SIMULATION, first.state, first.data, Resume(at=after(1), worker_id="two"))
    assert second.kind is Refusal.ALREADY_THERE


def test_a_simulation_is_started_once(refusal: Refuse) -> None:
    """R48"""
    assert refusal(SIMULATION, RUNNING, RUNS, Start(at=after(1), worker_id="two")).kind is (
        Refusal.ALREADY_THERE
    )


def test_a_late_heartbeat_takes_no_step_back(follow: Follow) -> None:
    late = follow(SIMULATION, RUNNING, RUNS, Heartbeat(at=after(7), worker_id="mine", step=1))
    assert late.data.current_step == 2
