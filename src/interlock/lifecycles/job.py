"""A job: a unit of work, on its own, in a run, or in a tree of jobs.

Invariants:

* It completes only when each of its 1 to 10 shards has succeeded; each shard has its own attempts.
* A crash of a worker is not its end: it stays RUNNING while another attempt is made.
* Cancel and timeout stop its active attempts first; it is CANCELED when none is left.
* A job that says by when it must have started fails as expired if no worker has started it before.
* It starts once (started_at is its first RUNNING) and ends once; a retry is a new job.

Why: decisions 0002, 0006 and 0404.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from interlock.lifecycles.durations import Timed, deadline
from interlock.lifecycles.owners import Owner
from interlock.machine import (
    STAY,
    Across,
    Always,
    Deadline,
    Kind,
    Machine,
    Tone,
    end,
    event,
    ignore,
    on,
    refuse,
    state,
)

MAX_DEPTH = 5
MAX_WORKERS = 10


class JobState(StrEnum):
    """States of a job."""

    SUBMITTED = "SUBMITTED"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


SUBMITTED, PENDING, RUNNING = JobState.SUBMITTED, JobState.PENDING, JobState.RUNNING
COMPLETED, FAILED, CANCELED = JobState.COMPLETED, JobState.FAILED, JobState.CANCELED
WAITING = (SUBMITTED, PENDING)
ENDED = (COMPLETED, FAILED, CANCELED)


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Data of a job."""

    created_at: datetime | None = None
    """Creation time of jobs of an earlier version; now a column of the record."""
    depth: int = 0
    worker_count: int = 1
    started_at: datetime | None = None
    completed_at: datetime | None = None
    stop_reason: str | None = None
    """First reason of a stop, from its request on: `cancel`, `timeout`, …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopEvent(Timed):
    """Base of events that stop a job. The sender counts the active attempts in the same commit."""

    still_active: int = 0
    reason: str = "cancel"


@event(Kind.COMMAND, by=Owner.ORCHESTRATOR)
class Validate(Timed):
    """The job is valid."""


@event(Kind.COMMAND, by=Owner.ORCHESTRATOR)
class Reject(Timed):
    """The job was accepted and turns out to be invalid."""


@event(Kind.CONSEQUENCE, by=Owner.ORCHESTRATOR)
class AllocateResources(Timed):
    """A worker has received its first attempt."""


@event(Kind.CONSEQUENCE, by=Owner.ORCHESTRATOR)
class Success(Timed):
    """The last of its shards has succeeded."""


@event(Kind.CONSEQUENCE, by=Owner.ORCHESTRATOR)
class Error(Timed):
    """A shard has failed and no retry is left, or too many attempts were lost."""


@event(Kind.TIMER, by=Owner.CLOCK)
class Expire(Timed):
    """No worker has started the job by the time that it says."""


@event(Kind.CONSEQUENCE, by=Owner.USER)
class Cancel(StopEvent):
    """A user, its parent or its run cancels it; or the last of its active attempts has ended."""


@event(Kind.TIMER, by=Owner.CLOCK)
class Timeout(StopEvent):
    """The job has reached its timeout."""

    reason: str = "timeout"


def nothing_active(job: Job, stop: StopEvent) -> bool:
    """attempts of it are still active; they are asked to stop first"""
    return stop.still_active == 0


def starts(job: Job, allocated: AllocateResources) -> Job:
    """Record the time of the first start."""
    return job if job.started_at else msgspec.structs.replace(job, started_at=allocated.at)


def ends(job: Job, last: Timed) -> Job:
    """Record the time of the end."""
    return msgspec.structs.replace(job, completed_at=last.at)


def ask_to_stop(job: Job, stop: StopEvent) -> Job:
    """Record the first reason of a stop."""
    return msgspec.structs.replace(job, stop_reason=job.stop_reason or stop.reason)


def stops(job: Job, stop: StopEvent) -> Job:
    """Record the time and the first reason of the stop."""
    return ends(ask_to_stop(job, stop), stop)


START_WITHIN = "start_within_s"
LONGEST_START_S = 366 * 86_400.0
"""A job says how long it may wait, up to this; the timer does not run for a job that does not say so."""
START_DEADLINE = Deadline(
    Expire, START_WITHIN, LONGEST_START_S, "the submission, if the job has a start deadline"
)
JOB_TIMEOUT = deadline(Timeout, "job_timeout_s", since="the first attempt")

# fmt: off
JOB = Machine[JobState, Job](
    "job",
    "A unit of work: on its own, in a run, or in a tree of jobs.",
    initial=SUBMITTED,
    spine=(SUBMITTED, PENDING, RUNNING, COMPLETED),
    stop=(Cancel,),
    states=(
        state(SUBMITTED, "Received; not validated yet.", turn=Owner.ORCHESTRATOR),
        state(PENDING, "Valid; waits for a worker.", turn=Owner.ORCHESTRATOR, tone=Tone.WAITING,
              within=START_DEADLINE),
        state(RUNNING, "Attempts are made at its shards.", turn=Owner.ORCHESTRATOR, within=JOB_TIMEOUT),
        end(COMPLETED, "Every shard has succeeded; the result is stored."),
        end(FAILED, "It can no longer succeed."),
        end(CANCELED, "Stopped by a user, its parent, its run, or its timeout.", tone=Tone.STOPPED),
    ),
    rows=(
        on(Validate, SUBMITTED, PENDING, owner=Owner.ORCHESTRATOR, why="Its task, queue and parent exist."),
        on(Reject, SUBMITTED, FAILED, owner=Owner.ORCHESTRATOR, then=ends,
           why="It was accepted but can never run, so it fails instead of waiting forever."),
        on(AllocateResources, PENDING, RUNNING, owner=Owner.ORCHESTRATOR, then=starts,
           why="A worker has taken its first attempt."),
        on(Expire, PENDING, FAILED, owner=Owner.ORCHESTRATOR, then=ends,
           why="No worker started it before its deadline."),
        on(Success, RUNNING, COMPLETED, owner=Owner.ORCHESTRATOR, then=ends, why="All shards are done."),
        on(Error, RUNNING, FAILED, owner=Owner.ORCHESTRATOR, then=ends, why="No try is left."),
        on(Cancel, WAITING, CANCELED, owner=Owner.ORCHESTRATOR, then=stops, why="Nothing has begun."),
        on(Cancel, RUNNING, CANCELED, owner=Owner.ORCHESTRATOR, when=nothing_active, then=stops,
           why="All of its attempts have ended."),
        on(Timeout, RUNNING, CANCELED, owner=Owner.ORCHESTRATOR, when=nothing_active, then=stops,
           why="Its timeout has passed, and nothing is active."),

        on(Cancel, RUNNING, STAY, owner=Owner.ORCHESTRATOR, then=ask_to_stop,
           why="Its attempts are asked to stop; it is CANCELED when the last one has ended."),
        on(Timeout, RUNNING, STAY, owner=Owner.ORCHESTRATOR, then=ask_to_stop,
           why="Its timeout has passed; its attempts are asked to stop."),

        ignore(AllocateResources, RUNNING, why="the job is running already; this is another attempt"),
        refuse(AllocateResources, SUBMITTED, why="it has not been validated"),
        *(refuse(fact, WAITING, why="no attempt was made yet") for fact in (Success, Error)),
        ignore(Timeout, WAITING, why="its timeout has not begun"),
        ignore(Expire, SUBMITTED, why="it does not wait for a worker yet"),
        ignore(Expire, RUNNING, why="a worker has started it in time"),
        *(ignore(fact, ENDED, why="the job has ended; retry it as a new job")
          for fact in (AllocateResources, Success, Error, Timeout, Expire)),
        *(refuse(Cancel, ended, why="the job has ended; there is nothing to cancel") for ended in ENDED),
    ),
    invariants=(
        Always("it is at most 5 deep in its tree", lambda _, job: 0 <= job.depth <= MAX_DEPTH),
        Always("it has 1 to 10 shards", lambda _, job: 1 <= job.worker_count <= MAX_WORKERS),
        Always(
            "completed_at is known exactly when it has ended",
            lambda state, job: (job.completed_at is not None) == (state in ENDED),
        ),
        Always(
            "a running or completed job was started",
            lambda state, job: state not in (RUNNING, COMPLETED) or job.started_at is not None,
        ),
        Always(
            "a CANCELED job has a stop reason",
            lambda state, job: state is not CANCELED or job.stop_reason is not None,
        ),
        Across(
            "started_at is set once, by the first RUNNING",
            lambda _, before, __, after: before.started_at in (None, after.started_at),
        ),
        Across(
            "completed_at is set once",
            lambda _, before, __, after: before.completed_at in (None, after.completed_at),
        ),
    ),
)
# fmt: on
