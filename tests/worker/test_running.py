"""One leased attempt, step by step: the named tests of 001 on the task and its invariants (S1-25, S1-26)."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from structlog.contextvars import bound_contextvars

from interlock.lifecycles import PROCESS, TASK, lease, process
from interlock.lifecycles.couplings import COUPLINGS
from interlock.lifecycles.task import (
    ABANDONED,
    CLAIMING,
    COMPLETED,
    ENDED,
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
    claim_failed,
    claim_requested,
    report_failed,
    report_succeeded,
)
from interlock.machine import Event, Step
from interlock.wire.runner import Failed, Grant, Succeeded
from interlock.worker.context import UnsentMessages
from interlock.worker.machines import Machines, TaskActions
from interlock.worker.outcomes import Interrupted
from interlock.worker.running_task import RunningTask, report_of
from interlock.worker.telemetry import Log, Observer, make_log

AT = datetime(2026, 1, 1, tzinfo=UTC)
CLAIMED = ClaimSucceeded(at=AT, ttl_s=120.0)
SUCCEEDED = ProcessingSucceeded(at=AT + timedelta(seconds=2), output=None)
BROKEN = ProcessingFailed(at=AT + timedelta(seconds=2), error="ValueError: no")
STOPPED = ShutdownRequested(at=AT)


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def running(log: io.StringIO) -> RunningTask:
    grant = Grant(
        token="j_000000000001.1.1.0123456789abcdef",
        job_id="j_000000000001",
        task="resize",
        input=msgspec.Raw(b"{}"),
        fence=1,
        granted_at=AT,
        expires_at=AT + timedelta(seconds=120),
        ttl_s=120.0,
        heartbeat_every_s=20.0,
        timeout_s=60.0,
    )
    return RunningTask(grant, "w#1", 0.0, machines_of(make_log("info", "json", log)))


class Nobody:
    """Does nothing about what tasks do."""

    def acknowledge(self, running: RunningTask) -> None: ...

    def interrupted(self, running: RunningTask) -> None: ...

    def ended(self, running: RunningTask, step: Step[Any]) -> None: ...

    def kill(self) -> None: ...

    def dissolve_cohorts(self) -> None: ...


def machines_of(log: Log, actions: TaskActions | None = None) -> Machines:
    watch = Observer("w#1", log, None)
    return Machines(1, watch=watch, clock=lambda: AT, actions=actions or Nobody())


def test_the_timers_of_a_shutdown_are_those_that_the_table_starts(log: io.StringIO) -> None:
    """R13: tasks are asked, then killed, then left."""
    done: list[str] = []

    class Killer(Nobody):
        def kill(self) -> None:
            done.append("killed")

    machines = machines_of(make_log("debug", "json", log), Killer())
    for event in (process.initialized, process.connected, process.RecoveryComplete(at=AT)):
        machines.send_to(PROCESS, machines.process, event)
    assert not machines.timers
    machines.send_to(PROCESS, machines.process, process.no_tasks_available)
    assert set(machines.timers) == {process.BACKOFF}
    machines.send_to(PROCESS, machines.process, process.shutdown_requested)
    assert set(machines.timers) == {process.SOFT_DEADLINE, process.SHUTDOWN_DEADLINE}
    machines.expire(process.SOFT_DEADLINE)
    assert set(machines.timers) == {process.SAVING_DEADLINE, process.SHUTDOWN_DEADLINE}
    assert not done
    machines.expire(process.SAVING_DEADLINE)
    assert done == ["killed"]
    machines.expire(process.SHUTDOWN_DEADLINE)
    assert (machines.process.state, machines.timers) == (process.STOPPED, {})
    assert machines.taken == [], "it lives too long to keep its steps"


def told(running: RunningTask, *events: Event) -> RunningTask:
    for event in events:
        assert running.send(event), f"{event} in {running.state}"
    return running


def test_a_task_begins_by_being_claimed(running: RunningTask, log: io.StringIO) -> None:
    """S1-25: pending to claiming."""
    assert running.state is CLAIMING
    line = msgspec.json.decode(log.getvalue().splitlines()[0])
    assert (line["from_state"], line["to_state"], line["event"]) == ("pending", "claiming", "claim_requested")


def test_transitions_of_tasks_are_logged_as_any_other_line(running: RunningTask, log: io.StringIO) -> None:
    """They are written without the processors of the log, many together; bound values need these."""
    written = log.getvalue().splitlines()
    with bound_contextvars(deployment="blue"):
        RunningTask(running.grant, "w#1", 0.0, machines_of(make_log("info", "json", log)))
    with_processors = log.getvalue().splitlines()[len(written) :]
    plain, bound = (
        [[*msgspec.json.decode(line).items()] for line in lines] for lines in (written, with_processors)
    )
    assert ("deployment", "blue") in bound[0]
    for line, other in zip(plain, bound, strict=True):
        assert undated(line) == undated(other)
        assert len(dict(line)["timestamp"]) >= len("2026-01-31T12:00:00Z")


def undated(line: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in line if name not in {"timestamp", "deployment"}]


def test_a_lease_token_in_the_name_of_a_task_is_not_logged(running: RunningTask) -> None:
    log = io.StringIO()
    grant = msgspec.structs.replace(running.grant, task=f"about {running.grant.token}")
    RunningTask(grant, "w#1", 0.0, machines_of(make_log("info", "json", log)))
    assert "0123456789abcdef" not in log.getvalue()
    assert f"about {running.grant.job_id}.1.1.***" in log.getvalue()


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ((CLAIMED,), PROCESSING),
        ((claim_failed,), FAILED),
        ((CLAIMED, SUCCEEDED), REPORTING),
        ((CLAIMED, BROKEN), REPORTING),
        ((CLAIMED, SUCCEEDED, report_succeeded), COMPLETED),
        ((CLAIMED, BROKEN, report_succeeded), FAILED),
        ((CLAIMED, SUCCEEDED, report_failed), FAILED),
        ((CLAIMED, LeaseExpired()), ABANDONED),
        ((CLAIMED, STOPPED), REPORTING),
        ((CLAIMED, STOPPED, report_succeeded), ABANDONED),
        ((STOPPED,), ABANDONED),
    ],
)
def test_a_task_reaches_the_state_that_the_table_defines(
    running: RunningTask, events: tuple[Event, ...], state: Any
) -> None:
    """S1-25: claim success and failure, processing and reporting success and failure, lease and shutdown."""
    assert told(running, *events).state is state
    assert running.ended is (state in ENDED)
    assert TASK.broken(running.state, running.data) == ()


@pytest.mark.parametrize("last", [report_succeeded, report_failed])
def test_a_task_that_has_ended_never_moves(running: RunningTask, last: Event) -> None:
    """S1-26: terminal state, no transitions."""
    told(running, CLAIMED, SUCCEEDED, last)
    before = (running.state, running.data)
    for event in (claim_requested, CLAIMED, SUCCEEDED, BROKEN, report_failed, LeaseExpired(), STOPPED):
        assert not running.send(event)
    assert (running.state, running.data) == before


def test_an_event_that_the_table_does_not_allow_changes_nothing_and_is_logged(
    running: RunningTask, log: io.StringIO
) -> None:
    """S1-25: invalid transition; S1-26: transitions are atomic."""
    before = (running.state, running.data)
    assert not running.send(report_succeeded)
    assert (running.state, running.data) == before
    line = msgspec.json.decode(log.getvalue().splitlines()[-1])
    assert line["message"] == "invalid_transition_attempted"
    assert (line["machine"], line["current_state"], line["task_id"]) == ("task", "claiming", "j_000000000001")


def test_a_processing_task_has_an_unexpired_lease_and_the_time_it_was_acquired(
    running: RunningTask,
) -> None:
    """S1-26: valid lease, lease acquired time."""
    told(running, CLAIMED)
    assert running.data.lease_acquired_at == AT
    assert running.data.lease_timeout == AT + timedelta(seconds=120)
    told(running, LeaseRenewed(at=AT + timedelta(seconds=60), ttl_s=120.0))
    assert running.data.lease_timeout == AT + timedelta(seconds=180)


@pytest.mark.parametrize("ended", [SUCCEEDED, BROKEN, STOPPED])
def test_a_task_that_is_reporting_has_an_output_or_an_error(running: RunningTask, ended: Event) -> None:
    """S1-26"""
    told(running, CLAIMED, ended)
    assert running.data.output is not msgspec.UNSET or running.data.error is not None


def test_how_a_task_ended_is_reported_with_how_long_it_took(running: RunningTask) -> None:
    """S1-12"""
    result = told(running, CLAIMED, BROKEN, report_succeeded).result
    assert (result.final_state, result.error, result.duration_s) == (FAILED, "ValueError: no", 2.0)
    assert result.task_id == "j_000000000001"


def test_a_claim_that_was_lost_is_not_counted_as_a_failure(running: RunningTask) -> None:
    """R10"""
    assert not told(running, claim_failed).counts_as_failed


def test_a_lost_lease_takes_precedence_over_any_other_stop_reason(running: RunningTask) -> None:
    assert running.stop("cancel")
    assert not running.stop("shutdown")
    assert running.stop_reason == "cancel"
    assert running.stop("lost")
    assert not running.stop("cancel")
    assert running.stop_reason == "lost"


def test_every_message_has_a_number_of_its_own_that_grows(running: RunningTask) -> None:
    messages = [
        running.ack(),
        running.heartbeat(None),
        running.heartbeat(UnsentMessages()),
        running.release("x"),
    ]
    numbers = [message.sequence for message in messages]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize(
    ("stop", "outcome", "kind"),
    [
        ("", Succeeded(), "Complete"),
        ("", Failed(error="no"), "Complete"),
        ("", Interrupted(), "Complete"),
        ("cancel", Interrupted(), "CancelAck"),
        ("cancel", Succeeded(), "CancelAck"),
        ("cancel", Failed(error="no"), "CancelAck"),
    ],
)
def test_a_task_reports_a_cancel_ack_after_a_cancel_and_a_completion_otherwise(
    running: RunningTask, stop: str, outcome: Any, kind: str
) -> None:
    told(running, CLAIMED, SUCCEEDED)
    if stop:
        running.stop(stop)
    assert [type(message).__name__ for message in report_of(running, outcome, None)] == [kind]


def test_an_interrupted_task_is_released_with_its_unsent_checkpoint(running: RunningTask) -> None:
    told(running, CLAIMED, STOPPED)
    unsent = UnsentMessages(checkpoint=msgspec.Raw(b"[7]"))
    (message,) = report_of(running, Succeeded(), unsent)
    assert bytes(getattr(message, "checkpoint", b"")) == b"[7]"


@pytest.mark.parametrize(("holds", "owed"), [(True, lease.Complete), (False, None)])
def test_a_coupling_inside_a_worker_is_delivered_only_under_its_condition(
    running: RunningTask, *, holds: bool, owed: type[Event] | None
) -> None:
    def it_holds(_: object) -> bool:
        """it holds"""
        return holds

    everything = COUPLINGS.all
    try:
        COUPLINGS.exchange(
            tuple(replace(c, when=(it_holds,)) if c.event is lease.Complete else c for c in everything)
        )
        assert told(running, CLAIMED, SUCCEEDED).owed is owed
    finally:
        COUPLINGS.exchange(everything)


def test_a_transition_costs_less_than_a_tenth_of_a_millisecond(running: RunningTask) -> None:
    """S1-17: that is 200 calls on a slow machine. Calls are counted, which no busy machine changes."""
    running.machines = machines_of(make_log("warning", "json", io.StringIO()))
    told(running, CLAIMED)
    renewed = LeaseRenewed(at=AT, ttl_s=120.0)
    running.send(renewed)  # what is worked out once is not counted
    calls = []
    sys.setprofile(lambda frame, what, _: calls.append((frame.f_code.co_name, what)))
    try:
        running.send(renewed)
    finally:
        sys.setprofile(None)
    begun = [name for name, what in calls if what in ("call", "c_call")]
    assert len(begun) <= 30, begun


def test_pending_is_where_every_task_starts() -> None:
    assert TASK.initial is PENDING
