"""Claims about each machine alone, explored in every order of its events.

They restate the tables on purpose: they are the oracle for mutants of the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from interlock.lifecycles import (
    attempt,
    job,
    lease,
    process,
    schedule,
    simulation,
    task,
    worker,
)
from interlock.lifecycles import workload as load
from interlock.lifecycles.job import Job
from interlock.lifecycles.lease import Lease
from interlock.machine import STAY
from interlock.testing.lifecycles import Answer, Here, Lifecycle, must

AT = datetime(2030, 1, 1, tzinfo=UTC)
SOON, LATER = AT + timedelta(seconds=1), AT + timedelta(seconds=600)
ALIVE = worker.LIVING


def _timed(*kinds: Any) -> tuple[Any, ...]:
    return tuple(kind(at=AT) for kind in kinds)


def _after_error(data: worker.Worker) -> worker.WorkerState:
    return worker.RUNNING if data.transient_errors < 3 else worker.FAILED


WORKER_ALONE = Lifecycle(
    data=worker.Worker(capacity=1),
    events=(
        *_timed(worker.StartTask, worker.Pause, worker.Resume, worker.CompleteTasks, worker.Heartbeat),
        *_timed(
            worker.ErrorTransient,
            worker.ErrorUnrecoverable,
            worker.ResourcesExhausted,
            worker.Terminate,
            worker.ProcessDied,
        ),
        worker.SupervisorTimeout(at=SOON),
        worker.SupervisorTimeout(at=LATER),
    ),
    starts=(worker.Worker(capacity=1, active=1), worker.Worker(capacity=2, pending=1)),
    answers=(
        Answer(
            "it starts with its first task, if it has room",
            must(worker.StartTask, (worker.IDLE,), worker.RUNNING, when=lambda w, _: w.active < w.capacity),
        ),
        Answer("it is paused on request", must(worker.Pause, (worker.RUNNING,), worker.PAUSED)),
        Answer(
            "it is paused when exhausted", must(worker.ResourcesExhausted, (worker.RUNNING,), worker.PAUSED)
        ),
        Answer("it resumes on request", must(worker.Resume, (worker.PAUSED,), worker.RUNNING)),
        Answer(
            "it is done when nothing is left to do",
            must(
                worker.CompleteTasks,
                (worker.RUNNING,),
                worker.COMPLETED,
                when=lambda w, _: not w.pending and not w.active,
            ),
        ),
        Answer("other errors fail it", must(worker.ErrorUnrecoverable, (worker.RUNNING,), worker.FAILED)),
        Answer(
            "transient errors are retried three times",
            lambda before, event, after: (
                not isinstance(event, worker.ErrorTransient)
                or before.state is not worker.RUNNING
                or (after is not None and after.state is _after_error(before.data))
            ),
        ),
        Answer(
            "the supervisor's decision is final",
            must(worker.Terminate, (*ALIVE, *worker.ENDED[:2]), worker.TERMINATED),
        ),
        Answer(
            "a worker without heartbeats is given up, and no other",
            must(
                worker.SupervisorTimeout,
                ALIVE,
                worker.TERMINATED,
                when=lambda w, event: w.last_heartbeat_at is None or event.at == LATER,
            ),
        ),
        Answer("a dead worker is given up", must(worker.ProcessDied, ALIVE, worker.TERMINATED)),
        Answer("a heartbeat keeps it alive", must(worker.Heartbeat, ALIVE, STAY)),
    ),
)

_UP = process.UP

PROCESS_ALONE = Lifecycle(
    data=process.Process(slots=1),
    events=(
        process.RecoveryComplete(at=AT),
        *(process.PollCycleComplete(started=started) for started in (0, 1)),
        process.TaskEnded(succeeded=True),
        process.TaskEnded(failed=True),
        process.ShutdownComplete(),
    ),
    only=lambda p: p.backoff_count < 2 and p.processed + p.failed < 2,
    answers=(
        Answer("it is initialized", must(process.initialized, (process.STARTING,), process.CONNECTING)),
        Answer("it connects", must(process.connected, (process.CONNECTING,), process.RECOVERING)),
        Answer(
            "it tries to connect again",
            must(process.connection_failed, (process.CONNECTING,), process.CONNECTING),
        ),
        Answer("it recovers first", must(process.RecoveryComplete, (process.RECOVERING,), process.RUNNING)),
        Answer(
            "it takes only tasks that it has room for",
            must(
                process.PollCycleComplete,
                (process.RUNNING,),
                process.RUNNING,
                when=lambda p, event: event.started <= p.free_slots,
            ),
        ),
        Answer("it backs off", must(process.no_tasks_available, (process.RUNNING,), process.BACKING_OFF)),
        Answer("and comes back", must(process.backoff_complete, (process.BACKING_OFF,), process.RECOVERING)),
        Answer(
            "it connects anew",
            must(process.error, (process.RECOVERING, process.RUNNING), process.CONNECTING),
        ),
        Answer("it shuts down on request", must(process.shutdown_requested, _UP, process.SHUTTING_DOWN)),
        Answer(
            "it stops after its last task",
            must(
                process.ShutdownComplete,
                (process.SHUTTING_DOWN,),
                process.STOPPED,
                when=lambda p, _: p.active_tasks == 0,
            ),
        ),
        Answer(
            "it stops by its deadline",
            must(process.shutdown_deadline, (process.SHUTTING_DOWN,), process.STOPPED),
        ),
        Answer("its tasks are asked in time", must(process.soft_deadline, (process.SHUTTING_DOWN,), STAY)),
        Answer("its handlers are killed", must(process.saving_deadline, (process.SHUTTING_DOWN,), STAY)),
        Answer(
            "a task that ends makes room",
            must(
                process.TaskEnded,
                (*_UP[1:], process.SHUTTING_DOWN),
                STAY,
                when=lambda p, _: p.active_tasks > 0,
            ),
        ),
    ),
)

TASK_ALONE = Lifecycle(
    data=task.TaskData(),
    events=(
        task.ClaimSucceeded(at=AT, ttl_s=30),
        task.ProcessingSucceeded(at=AT, output="done"),
        task.ProcessingFailed(at=AT, error="boom"),
        task.ProcessingYielded(at=AT),
        task.ShutdownRequested(at=AT),
        task.LeaseRenewed(at=SOON, ttl_s=30),
        task.LeaseExpired(),
    ),
    answers=(
        Answer("it is claimed", must(task.claim_requested, (task.PENDING,), task.CLAIMING)),
        Answer("it is worked on under a lease", must(task.ClaimSucceeded, (task.CLAIMING,), task.PROCESSING)),
        Answer("a lost claim changes nothing", must(task.claim_failed, (task.CLAIMING,), task.FAILED)),
        Answer("a result is reported", must(task.ProcessingSucceeded, (task.PROCESSING,), task.REPORTING)),
        Answer("a failure is reported", must(task.ProcessingFailed, (task.PROCESSING,), task.REPORTING)),
        Answer(
            "a task that waits for children releases its lease",
            must(task.ProcessingYielded, (task.PROCESSING,), task.REPORTING),
        ),
        Answer(
            "it ends as it reported",
            lambda before, event, after: (
                event.name != "report_succeeded"
                or before.state is not task.REPORTING
                or (after is not None and after.state is _reported(before.data))
            ),
        ),
        Answer("a report that fails is a failure", must(task.report_failed, (task.REPORTING,), task.FAILED)),
        Answer("without a lease it stops", must(task.LeaseExpired, (task.PROCESSING,), task.ABANDONED)),
        Answer(
            "on shutdown it releases its work",
            must(task.ShutdownRequested, (task.PROCESSING,), task.REPORTING),
        ),
        Answer(
            "on shutdown it begins nothing",
            must(task.ShutdownRequested, (task.PENDING, task.CLAIMING), task.ABANDONED),
        ),
        Answer("its lease is renewed", must(task.LeaseRenewed, (task.PROCESSING,), STAY)),
    ),
)


def _reported(data: task.TaskData) -> task.TaskState:
    if data.interrupted:
        return task.ABANDONED
    return task.FAILED if data.error is not None else task.COMPLETED


_MINE, _OTHER = "mine", "other"


def _both(kind: Any, **more: Any) -> tuple[Any, ...]:
    return tuple(kind(workload_id=name, **more) for name in (_MINE, _OTHER))


def _mine(data: load.WorkloadData, event: Any) -> bool:
    return bool(event.workload_id == data.workload_id)


_PLAIN = (
    load.StartTimeReached,
    load.DurationElapsed,
    load.AbortReceived,
    load.ControllerDisconnect,
    load.TaskCancelled,
    load.Timeout5s,
    load.ErrorSent,
)


def _starts_at_the_start_time(before: Here, event: Any, after: Here | None) -> bool:
    if not isinstance(event, load.StartTimeReached) or before.state is not load.READY:
        return True
    if not _mine(before.data, event):
        return after is None
    return after is not None and after.state is (load.RUNNING if event.told else load.IDLE)


WORKLOAD_ALONE = Lifecycle(
    data=load.WorkloadData(),
    events=(
        *_both(load.RpcReceived),
        load.RpcReceived(workload_id=_MINE, fault="no such thing"),
        *(event for kind in _PLAIN for event in _both(kind)),
        load.StartTimeReached(workload_id=_MINE, told=False),
        *_both(load.WorkloadError, error="boom"),
        *_both(load.Timeout15s),
        load.Timeout15s(workload_id=_MINE, survivors=1),
    ),
    answers=(
        Answer(
            "an idle agent answers a request with READY or an error",
            lambda before, event, after: (
                not isinstance(event, load.RpcReceived)
                or before.state is not load.IDLE
                or (after is not None and after.state is (load.FAILED if event.fault else load.READY))
            ),
        ),
        Answer("it starts on time, and never by itself", _starts_at_the_start_time),
        Answer("it ends on time", must(load.DurationElapsed, (load.RUNNING,), load.IDLE, when=_mine)),
        Answer("a failure is reported", must(load.WorkloadError, (load.RUNNING,), load.FAILED, when=_mine)),
        Answer("it resets itself", must(load.ErrorSent, (load.FAILED,), load.IDLE, when=_mine)),
        Answer(
            "an early abort ends it at once", must(load.AbortReceived, (load.READY,), load.IDLE, when=_mine)
        ),
        Answer("it stops on request", must(load.AbortReceived, (load.RUNNING,), load.ABORTING, when=_mine)),
        Answer(
            "it begins only with a controller",
            must(load.ControllerDisconnect, (load.READY,), load.IDLE, when=_mine),
        ),
        Answer(
            "without a controller it stops",
            must(load.ControllerDisconnect, (load.RUNNING,), load.ABORTING, when=_mine),
        ),
        Answer("it has stopped", must(load.TaskCancelled, (load.ABORTING,), load.IDLE, when=_mine)),
        Answer("it is warned", must(load.Timeout5s, (load.ABORTING,), STAY, when=_mine)),
        Answer(
            "it is IDLE when everything of it is dead, and not before",
            lambda before, event, after: (
                not isinstance(event, load.Timeout15s)
                or before.state is not load.ABORTING
                or (
                    (_mine(before.data, event) is (after is not None))
                    and (after is None or (after.state is load.IDLE) == (event.survivors == 0))
                )
            ),
        ),
    ),
)


def _his(data: simulation.SimulationData, event: Any) -> bool:
    return bool(event.worker_id == data.worker_id)


def _workers(kind: Any, **more: Any) -> tuple[Any, ...]:
    return tuple(kind(at=AT, worker_id=name, **more) for name in (_MINE, _OTHER))


_SIM = simulation

SIMULATION_ALONE = Lifecycle(
    data=_SIM.SimulationData(created_at=AT),
    events=(
        _SIM.Start(at=AT, worker_id=_MINE),
        _SIM.Resume(at=AT, worker_id=_MINE),
        *(event for kind in (_SIM.Heartbeat, _SIM.Pause, _SIM.Complete) for event in _workers(kind, step=1)),
        *_workers(_SIM.Fail, error="boom"),
        *_timed(_SIM.RequestPause, _SIM.Cancel, _SIM.Interrupt),
        _SIM.HeartbeatLost(at=SOON),
        _SIM.HeartbeatLost(at=LATER),
    ),
    answers=(
        Answer("a worker begins it", must(_SIM.Start, (_SIM.PENDING,), _SIM.RUNNING)),
        Answer("its worker has done it", must(_SIM.Complete, (_SIM.RUNNING,), _SIM.COMPLETED, when=_his)),
        Answer("its worker has failed", must(_SIM.Fail, (_SIM.RUNNING,), _SIM.FAILED, when=_his)),
        Answer(
            "its worker stops after the current step",
            must(
                _SIM.Pause,
                (_SIM.RUNNING,),
                _SIM.PAUSED,
                when=lambda s, event: _his(s, event) and (s.pause_requested or s.cancel_requested),
            ),
        ),
        Answer("it can be resumed", must(_SIM.Resume, (_SIM.PAUSED, _SIM.INTERRUPTED), _SIM.RUNNING)),
        Answer(
            "a silent worker interrupts it",
            must(
                _SIM.HeartbeatLost,
                (_SIM.RUNNING,),
                _SIM.INTERRUPTED,
                when=lambda _, event: event.at == LATER,
            ),
        ),
        Answer(
            "the memory of its worker is lost",
            must(_SIM.Interrupt, (_SIM.RUNNING, _SIM.PAUSED), _SIM.INTERRUPTED),
        ),
        Answer("without a worker it ends at once", must(_SIM.Cancel, _SIM.STANDING, _SIM.CANCELLED)),
        Answer("a cancel is remembered", must(_SIM.Cancel, (_SIM.RUNNING,), STAY)),
        Answer("a pause is remembered", must(_SIM.RequestPause, (_SIM.RUNNING,), STAY)),
        Answer("a heartbeat is recorded", must(_SIM.Heartbeat, (_SIM.RUNNING,), STAY, when=_his)),
    ),
)

_SCHEDULE = schedule
_NEXT = _SCHEDULE.Schedule(next_at=SOON, due_at=SOON)


def _goes_on(_: Any, event: Any) -> bool:
    return event.due_at is not None


def _state_after(event: Any) -> schedule.ScheduleState:
    return _SCHEDULE.ACTIVE if _goes_on(None, event) else _SCHEDULE.ENDED


def _fires_in_time(before: Here, event: Any, after: Here | None) -> bool:
    if not isinstance(event, _SCHEDULE.Due):
        return True
    if before.state is not _SCHEDULE.ACTIVE or event.at < before.data.due_at:
        return after is None
    return after is not None and after.state is _state_after(event)


SCHEDULE_ALONE = Lifecycle(
    data=_NEXT,
    starts=(msgspec.structs.replace(_NEXT, waiting=(AT,)),),
    events=(
        _SCHEDULE.Due(at=AT, due_at=LATER, next_at=LATER, last_at=SOON, submitted=1),
        _SCHEDULE.Due(at=LATER, due_at=LATER, next_at=LATER, last_at=SOON, submitted=1),
        _SCHEDULE.Due(at=LATER, last_at=SOON, skipped=1),
        *(kind(at=AT, next_at=SOON, due_at=SOON) for kind in (_SCHEDULE.Resume, _SCHEDULE.Edit)),
        *_timed(_SCHEDULE.Resume, _SCHEDULE.Edit),
        _SCHEDULE.RunNow(at=AT, live=("j_1",)),
        _SCHEDULE.Backfill(at=AT, submitted=2, waiting=(AT,), due_at=SOON),
        *_timed(_SCHEDULE.Pause, _SCHEDULE.Delete),
    ),
    only=lambda data: data.submitted < 4 and data.skipped < 2,
    answers=(
        Answer("it fires when it is due, and continues or ends", _fires_in_time),
        Answer(
            "it is resumed to continue, or to end",
            lambda before, event, after: (
                not isinstance(event, _SCHEDULE.Resume)
                or before.state is not _SCHEDULE.PAUSED
                or (after is not None and after.state is _state_after(event))
            ),
        ),
        Answer("it fires by its new times", must(_SCHEDULE.Edit, (_SCHEDULE.ACTIVE,), STAY, when=_goes_on)),
        Answer("a pause holds it", must(_SCHEDULE.Pause, (_SCHEDULE.ACTIVE,), _SCHEDULE.PAUSED)),
        Answer("a deleted schedule has ended", must(_SCHEDULE.Delete, _SCHEDULE.OPEN, _SCHEDULE.ENDED)),
        Answer("another job moves nothing", must(_SCHEDULE.RunNow, _SCHEDULE.OPEN, STAY)),
        Answer("a backfill moves nothing", must(_SCHEDULE.Backfill, _SCHEDULE.OPEN, STAY)),
        Answer("it begins anew", must(_SCHEDULE.Edit, (_SCHEDULE.ENDED,), _SCHEDULE.ACTIVE, when=_goes_on)),
        Answer("an edit keeps a pause", must(_SCHEDULE.Edit, (_SCHEDULE.PAUSED,), STAY)),
    ),
)

ALONE_ELSEWHERE: Mapping[str, Lifecycle] = {
    "worker": WORKER_ALONE,
    "process": PROCESS_ALONE,
    "task": TASK_ALONE,
    "workload": WORKLOAD_ALONE,
    "simulation": SIMULATION_ALONE,
    "schedule": SCHEDULE_ALONE,
}


END = AT + timedelta(seconds=30)
MINE, OTHER = "mine", "other"


# Lease


def _sent(name: str) -> tuple[lease.LeaseMessage, ...]:
    kind: Any = getattr(lease, name)
    more = {"ttl_s": 30.0} if name in ("Ack", "Heartbeat") else {}
    return tuple(kind(at=at, runner_id=who, **more) for who in (MINE, OTHER) for at in (AT, END))


def _own_and_in_time(before: Here, event: Any) -> bool:
    return bool(event.runner_id == before.data.runner_id and event.at < before.data.expires_at)


def _stranger_or_late(before: Here, event: Any, after: Here | None) -> bool:
    if not isinstance(event, lease.LeaseMessage):
        return True
    return after is None or _own_and_in_time(before, event)


def _accepts(kind: Any, sources: tuple[Any, ...], target: Any) -> Any:
    def holds(before: Here, event: Any, after: Here | None) -> bool:
        if type(event) is not kind or before.state not in sources or not _own_and_in_time(before, event):
            return True
        return after is not None and after.state is target

    return holds


def _expires_in_time(before: Here, event: Any, after: Here | None) -> bool:
    if not isinstance(event, lease.Expire) or before.state not in lease.LIVE:
        return True
    if event.at < before.data.expires_at:
        return after is None
    return after is not None and after.state is lease.EXPIRED


def _never_shortened(before: Here, _: Any, after: Here | None) -> bool:
    return after is None or after.data.expires_at >= before.data.expires_at


def _stops_on_request(before: Here, event: Any, after: Here | None) -> bool:
    if not isinstance(event, lease.CancelAck) or before.state is not lease.ACTIVE:
        return True
    if not before.data.cancel_requested:
        return after is None
    return after is None or after.state is lease.CANCELED


LEASE_ALONE = Lifecycle(
    data=Lease(runner_id=MINE, expires_at=END),
    events=(
        *(each for name in ("Ack", "Heartbeat", "Complete", "CancelAck", "Release") for each in _sent(name)),
        lease.Expire(at=AT),
        lease.Expire(at=END),
        lease.Expire(at=END + timedelta(seconds=60)),
    ),
    answers=(
        Answer("only its runner may report, and only in time", _stranger_or_late),
        Answer("its runner may report: acknowledged", _accepts(lease.Ack, (lease.GRANTED,), lease.ACTIVE)),
        Answer("its runner may report: at work", _accepts(lease.Heartbeat, (lease.ACTIVE,), lease.ACTIVE)),
        Answer("its runner may report: done", _accepts(lease.Complete, (lease.ACTIVE,), lease.COMPLETED)),
        Answer("its runner may report: given back", _accepts(lease.Release, lease.LIVE, lease.REVOKED)),
        Answer("it expires when its time is up, and not before", _expires_in_time),
        Answer("it is never shortened", _never_shortened),
        Answer("a cancel is acknowledged only after a request", _stops_on_request),
        Answer("a dead runner loses it at once", must(lease.holder_lost, lease.LIVE, lease.EXPIRED)),
        Answer("it can be revoked", must(lease.revoke, lease.LIVE, lease.REVOKED)),
        Answer("a cancel is passed on", must(lease.request_cancel, (lease.ACTIVE,), lease.ACTIVE)),
    ),
)


# Attempt

_HELD = (*attempt.HELD, attempt.CANCEL_REQUESTED)
_OPEN = (*attempt.UNLEASED, *attempt.HELD)
_ENDINGS = (attempt.withdraw, attempt.cancel_acknowledged, attempt.force_cancel)


def _lost(before: Here, event: Any, after: Here | None) -> bool:
    if event.name not in ("lease_expired", "lease_revoked") or before.state not in _HELD:
        return True
    wanted = attempt.CANCELED if before.data.cancel_requested else attempt.STALE
    return after is not None and after.state is wanted


def _as_reported(before: Here, event: Any, after: Here | None) -> bool:
    if not isinstance(event, attempt.Completed):
        return True
    if before.state not in (*attempt.EXECUTING, attempt.CANCEL_REQUESTED):
        return after is None
    wanted = attempt.SUCCEEDED if event.succeeded else attempt.FAILED
    wanted = attempt.CANCELED if before.data.cancel_requested else wanted
    return after is not None and (after.state, after.data.accepted) == (wanted, event.succeeded)


def _life_ends_nothing(_: Here, event: Any, after: Here | None) -> bool:
    if event.name not in ("heartbeat", "upload", "acknowledged"):
        return True
    return after is None or after.state not in attempt.ENDED


ATTEMPT_ALONE = Lifecycle(
    data=attempt.Attempt(),
    events=(attempt.Completed(succeeded=True), attempt.Completed(succeeded=False)),
    answers=(
        Answer("without its lease it is STALE, or under a cancel CANCELED", _lost),
        Answer("it ends as reported, or under a cancel CANCELED", _as_reported),
        Answer("a heartbeat ends nothing", _life_ends_nothing),
        Answer(
            "a heartbeat is recorded",
            must(attempt.heartbeat, (attempt.STARTING, attempt.RUNNING), attempt.RUNNING),
        ),
        Answer("the upload is recorded", must(attempt.upload, attempt.EXECUTING[:2], attempt.UPLOADING)),
        Answer(
            "an upload or a stop counts as a heartbeat",
            lambda before, event, after: (
                event.name != "heartbeat"
                or before.state not in (attempt.UPLOADING, attempt.CANCEL_REQUESTED)
                or (after is not None and after.state is before.state)
            ),
        ),
        Answer("it ends at its timeout", must(attempt.time_out, attempt.EXECUTING, attempt.TIMED_OUT)),
        Answer("a cancel is accepted", must(attempt.cancel, _OPEN, attempt.CANCEL_REQUESTED)),
        *(
            Answer(
                f"a cancel ends by {event.name}", must(event, (attempt.CANCEL_REQUESTED,), attempt.CANCELED)
            )
            for event in _ENDINGS
        ),
    ),
)


# Job


def _stopped(before: Here, event: Any, after: Here | None) -> bool:
    """Return whether a stop takes effect, at once or as recorded."""
    if not isinstance(event, job.StopEvent) or before.state in job.ENDED:
        return True
    waiting = before.state in job.WAITING
    if isinstance(event, job.Timeout) and waiting:
        return after is None
    if after is None or not after.data.stop_reason:
        return False
    return after.state is (job.CANCELED if waiting or not event.still_active else job.RUNNING)


JOB_ALONE = Lifecycle(
    data=Job(created_at=AT),
    events=(
        job.Validate(at=AT),
        job.Reject(at=AT),
        job.AllocateResources(at=AT),
        job.Success(at=AT),
        job.Error(at=AT),
        job.Expire(at=AT),
        *(stop(at=AT, still_active=active) for stop in (job.Cancel, job.Timeout) for active in (0, 1)),
    ),
    answers=(
        Answer("a cancel ends it at once, or with its last attempt", _stopped),
        Answer("an invalid job fails", must(job.Reject, (job.SUBMITTED,), job.FAILED)),
        Answer("a valid job waits", must(job.Validate, (job.SUBMITTED,), job.PENDING)),
        Answer("it starts with its first attempt", must(job.AllocateResources, (job.PENDING,), job.RUNNING)),
        Answer("it completes", must(job.Success, (job.RUNNING,), job.COMPLETED)),
        Answer("it fails", must(job.Error, (job.RUNNING,), job.FAILED)),
        Answer("a job not started in time fails", must(job.Expire, (job.PENDING,), job.FAILED)),
    ),
)

ALONE: Mapping[str, Lifecycle] = {
    "job": JOB_ALONE,
    "attempt": ATTEMPT_ALONE,
    "lease": LEASE_ALONE,
    **ALONE_ELSEWHERE,
}
