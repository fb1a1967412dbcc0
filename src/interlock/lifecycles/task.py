"""A task: one leased attempt as a worker process executes it.

Invariants:

* It executes only under a lease that it holds, and its messages are refused once the lease is lost.
* A lost claim is not a failed job: nothing was held, so nothing is written, counted or notified.
* Its report is true: it ends completed when it reported a success, failed when it reported a failure or
  could not report, abandoned when it was interrupted.
* It ends once, and each step is atomic: a refused event leaves everything as it was.

Why: decisions 0010 and 0011.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from interlock.lifecycles.durations import Timed, deadline
from interlock.lifecycles.owners import Owner
from interlock.machine import (
    STAY,
    Across,
    Always,
    Event,
    Kind,
    Machine,
    Tone,
    command,
    end,
    event,
    ignore,
    on,
    state,
)


class TaskState(StrEnum):
    """States of a task."""

    PENDING = "pending"
    CLAIMING = "claiming"
    PROCESSING = "processing"
    REPORTING = "reporting"
    COMPLETED = "completed"
    FAILED = "failed"
    ABANDONED = "abandoned"


PENDING, CLAIMING = TaskState.PENDING, TaskState.CLAIMING
PROCESSING, REPORTING = TaskState.PROCESSING, TaskState.REPORTING
COMPLETED, FAILED, ABANDONED = TaskState.COMPLETED, TaskState.FAILED, TaskState.ABANDONED
ENDED = (COMPLETED, FAILED, ABANDONED)


class TaskData(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Data of a task."""

    lease_acquired_at: datetime | None = None
    lease_timeout: datetime | None = None
    output: object = msgspec.UNSET
    """Return value of the handler, None included; UNSET while there is none."""
    error: str | None = None
    interrupted: bool = False
    cost: float | None = None
    processing_started_at: datetime | None = None
    processing_ended_at: datetime | None = None


@event(Kind.COMMAND, by=Owner.TASK)
class ClaimSucceeded(Timed):
    """The lease is held."""

    ttl_s: float


@event(Kind.COMMAND, by=Owner.TASK)
class ProcessingSucceeded(Timed):
    """The handler returned."""

    output: object
    cost: float | None = None


@event(Kind.COMMAND, by=Owner.TASK)
class ProcessingFailed(Timed):
    """The handler raised."""

    error: str
    cost: float | None = None


@event(Kind.COMMAND, by=Owner.TASK)
class ProcessingYielded(Timed):
    """The handler returns its slot until the children of its job have ended."""

    cost: float | None = None


@event(Kind.CONSEQUENCE, by=Owner.PROCESS)
class ShutdownRequested(Timed):
    """The process shuts down, and interrupts this task."""

    partial: object = msgspec.UNSET


@event(Kind.MESSAGE, by=Owner.ORCHESTRATOR)
class LeaseRenewed(Timed):
    """The lease was renewed."""

    ttl_s: float


@event(Kind.TIMER, by=Owner.CLOCK)
class LeaseExpired(Event):
    """The lease could not be renewed in time, or belongs to another worker."""


claim_requested: Event = command("claim_requested", "The process wants to execute it.", by=Owner.PROCESS)
claim_failed: Event = command(
    "claim_failed", "Another worker has it, or its claim is not allowed.", by=Owner.TASK
)
report_succeeded: Event = command("report_succeeded", "The report was accepted.", by=Owner.TASK)
report_failed: Event = command(
    "report_failed", "The report was refused or could not be delivered.", by=Owner.TASK
)


def was_interrupted(task: TaskData, reported: Event) -> bool:
    """it was not interrupted"""
    return task.interrupted


def has_failed(task: TaskData, reported: Event) -> bool:
    """it has not failed"""
    return task.error is not None


def acquires(task: TaskData, claimed: ClaimSucceeded) -> TaskData:
    """Record the lease and the start of the work."""
    return msgspec.structs.replace(
        task,
        lease_acquired_at=claimed.at,
        lease_timeout=claimed.at + timedelta(seconds=claimed.ttl_s),
        processing_started_at=claimed.at,
    )


def renews(task: TaskData, renewed: LeaseRenewed) -> TaskData:
    """Extend the lease; a late answer does not shorten it."""
    until = renewed.at + timedelta(seconds=renewed.ttl_s)
    return msgspec.structs.replace(task, lease_timeout=max(until, task.lease_timeout or until))


def succeeds(task: TaskData, ended: ProcessingSucceeded) -> TaskData:
    """Keep the output for the report."""
    return msgspec.structs.replace(task, output=ended.output, cost=ended.cost, processing_ended_at=ended.at)


def fails(task: TaskData, ended: ProcessingFailed) -> TaskData:
    """Keep the error for the report."""
    return msgspec.structs.replace(task, error=ended.error, cost=ended.cost, processing_ended_at=ended.at)


def is_interrupted(task: TaskData, request: ShutdownRequested) -> TaskData:
    """Keep the partial output; the report gives the work back."""
    return msgspec.structs.replace(
        task,
        interrupted=True,
        output=request.partial,
        error="interrupted by shutdown",
        processing_ended_at=request.at,
    )


def yields(task: TaskData, ended: ProcessingYielded) -> TaskData:
    """Mark it as interrupted.

    The report gives the work back, and another attempt continues it.
    """
    return msgspec.structs.replace(
        task,
        interrupted=True,
        error="waits for the children of its job",
        cost=ended.cost,
        processing_ended_at=ended.at,
    )


LEASE_TTL = deadline(LeaseExpired, "lease_ttl_s", since="the last renewal")

_OVER = "the task has ended"

# fmt: off
TASK = Machine[TaskState, TaskData](
    "task",
    "One leased attempt as a worker process executes it.",
    initial=PENDING,
    spine=(PENDING, CLAIMING, PROCESSING, REPORTING, COMPLETED),
    stop=(ShutdownRequested,),
    states=(
        state(PENDING, "Identified; not claimed yet.", turn=Owner.PROCESS),
        state(CLAIMING, "Its lease is being requested.", turn=Owner.TASK),
        state(PROCESSING, "The handler runs under the lease.", turn=Owner.TASK, within=LEASE_TTL),
        state(REPORTING, "The result or the error is being written.", turn=Owner.TASK),
        end(COMPLETED, "A success was reported."),
        end(FAILED, "A failure was reported, the report failed, or it was never claimed."),
        end(ABANDONED, "Interrupted, or its lease was lost; another worker executes it.", tone=Tone.STOPPED),
    ),
    rows=(
        on(claim_requested, PENDING, CLAIMING, owner=Owner.TASK, why="There is a free slot."),
        on(ClaimSucceeded, CLAIMING, PROCESSING, owner=Owner.TASK, then=acquires,
           why="The lease was granted."),
        on(claim_failed, CLAIMING, FAILED, owner=Owner.TASK,
           why="A lost claim is local to the task: nothing is written, counted or notified."),
        on(ProcessingSucceeded, PROCESSING, REPORTING, owner=Owner.TASK, then=succeeds, why="It is done."),
        on(ProcessingFailed, PROCESSING, REPORTING, owner=Owner.TASK, then=fails, why="It is reported."),
        on(report_succeeded, REPORTING, ABANDONED, owner=Owner.TASK, when=was_interrupted,
           why="The report returned the work to the queue."),
        on(report_succeeded, REPORTING, FAILED, owner=Owner.TASK, when=has_failed,
           why="The report was a failure."),
        on(report_succeeded, REPORTING, COMPLETED, owner=Owner.TASK, why="The report was a success."),
        on(report_failed, REPORTING, FAILED, owner=Owner.TASK,
           why="The report was not delivered; the lease expires and the orchestrator decides."),
        on(LeaseExpired, PROCESSING, ABANDONED, owner=Owner.TASK,
           why="Another worker may execute it; reports of this one are refused."),
        on(ShutdownRequested, PROCESSING, REPORTING, owner=Owner.TASK, then=is_interrupted,
           why="The checkpoint is saved and the lease released."),
        on(ProcessingYielded, PROCESSING, REPORTING, owner=Owner.TASK, then=yields,
           why="A task that waits for children needs no slot; its lease is released."),
        on(ShutdownRequested, (PENDING, CLAIMING), ABANDONED, owner=Owner.TASK,
           why="It has not begun; a lease granted meanwhile expires unacknowledged."),

        on(LeaseRenewed, PROCESSING, STAY, owner=Owner.TASK, then=renews, arms=LEASE_TTL,
           why="The work may continue."),

        ignore(LeaseRenewed, (PENDING, CLAIMING), why="there is no lease yet"),
        ignore(LeaseRenewed, REPORTING, why="the work is done; the report needs no more time"),
        ignore(LeaseExpired, (PENDING, CLAIMING), why="there is no lease yet"),
        ignore(LeaseExpired, REPORTING, why="the report itself will be refused"),
        ignore(ShutdownRequested, REPORTING, why="the report is on its way and is finished first"),
        *(ignore(late, ENDED, why=_OVER) for late in (LeaseRenewed, LeaseExpired, ShutdownRequested)),
    ),
    invariants=(
        Always(
            "a processing task holds a lease with a known start and end",
            lambda state, task: state is not PROCESSING
            or (task.lease_acquired_at is not None and task.lease_timeout is not None
                and task.lease_timeout > task.lease_acquired_at),
        ),
        Always(
            "a reporting task has an output or an error",
            lambda state, task: state is not REPORTING
            or task.output is not msgspec.UNSET or task.error is not None,
        ),
        Always(
            "a completed task has no error",
            lambda state, task: state is not COMPLETED or (task.error is None and not task.interrupted),
        ),
        Across(
            "an ended task never changes",
            lambda state, before, new_state, after: state not in ENDED
            or (new_state is state and after == before),
        ),
    ),
)
# fmt: on
