"""The couplings: how transitions of one machine cause events of another.

Intent flows down (run → job → attempt → lease → process → task), facts flow up. Every consequence
that one machine has for another is declared here, and nowhere else. A condition is a fact that the engine
derives from the records of the same commit.

Why: decision 0119.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from interlock.lifecycles import attempt, job, lease, process, run, simulation, task, worker, workload
from interlock.lifecycles.attempt import ATTEMPT
from interlock.lifecycles.job import JOB
from interlock.lifecycles.lease import LEASE
from interlock.lifecycles.process import PROCESS
from interlock.lifecycles.run import RUN
from interlock.lifecycles.simulation import SIMULATION
from interlock.lifecycles.task import TASK
from interlock.lifecycles.worker import WORKER
from interlock.lifecycles.workload import WORKLOAD
from interlock.machine import Blueprint, Couplings, couple, map_of
from interlock.machine.couplings import Fact


class Recipient(StrEnum):
    """Recipient of a coupling's event, relative to the machine that stepped."""

    JOBS_OF_PLAN = "each job of the plan"
    ITSELF = "itself"
    ITS_JOBS = "each of its jobs"
    UNFINISHED_JOBS = "each of its unfinished jobs"
    ITS_AGENTS = "each agent that its job drives"
    FIRST_ATTEMPTS = "the first attempt of each shard"
    ITS_ATTEMPTS = "each of its attempts"
    ITS_CHILDREN = "each of its children"
    DEPENDENTS = "each job that needs it"
    ITS_SIBLINGS = "each of its siblings"
    FOLLOWERS = "each job that comes after it"
    ITS_LEASE = "its lease"
    ITS_ATTEMPT = "its attempt"
    ITS_JOB = "its job"
    NEXT_ATTEMPT = "the next attempt of the shard"
    ITS_SIMULATION = "the simulation it executed"
    ITS_PARENT = "its parent"
    ITS_RUN = "its run"
    HELD_LEASES = "each lease it holds"
    ITS_PROCESS = "its process"
    ITS_TASKS = "each of its tasks"
    WAITING_TASKS = "each task that has not begun"
    ITS_TASK = "the task under it"


class Deliverer(StrEnum):
    """A wiring that delivers couplings of machines elsewhere."""

    RUN = "the run, which knows the dependencies and is notified of each end"
    WORKER = "the worker process, with the answer to its next message"
    DRIVER = "the controller of the fleet, once its worker receives the cancel"


class Facts(Protocol):
    """The facts that decide whether a step has a consequence.

    The engine derives each from the records of the same commit, on demand.
    """

    @property
    def tries_left(self) -> bool:
        """Whether its failure may be retried, and a retry is left."""
        ...

    @property
    def losses_left(self) -> bool:
        """Whether it may be lost once more."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether a stop was requested."""
        ...

    @property
    def every_shard_succeeded(self) -> bool:
        """Whether every shard has succeeded."""
        ...

    @property
    def anything_active(self) -> bool:
        """Whether something of it is waiting or active."""
        ...

    @property
    def required(self) -> bool:
        """Whether its run needs it to succeed."""
        ...

    @property
    def fails_parent(self) -> bool:
        """Whether its parent fails with it, as its specification says."""
        ...

    @property
    def stops_siblings(self) -> bool:
        """Whether its failure stops its siblings, as its specification says."""
        ...

    @property
    def followed(self) -> bool:
        """Whether jobs come after it, and it was not skipped."""
        ...

    @property
    def every_required_job_succeeded(self) -> bool:
        """Whether every required job has succeeded."""
        ...

    @property
    def fail_fast(self) -> bool:
        """Whether jobs that cannot change the outcome are stopped."""
        ...


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """Facts with fixed values."""

    tries_left: bool = False
    losses_left: bool = False
    stopping: bool = False
    every_shard_succeeded: bool = False
    anything_active: bool = False
    required: bool = True
    fails_parent: bool = False
    stops_siblings: bool = False
    followed: bool = False
    every_required_job_succeeded: bool = False
    fail_fast: bool = True


# Conditions: each says that one of the facts holds, or that it does not.
a_try_is_left: Fact = Fact("a_try_is_left", "its failure may be retried and a try is left", "tries_left")
no_try_is_left: Fact = Fact(
    "no_try_is_left", "its failure may not be retried or no try is left", "tries_left", holds=False
)
a_loss_is_left: Fact = Fact("a_loss_is_left", "its losses are within their own budget", "losses_left")
no_loss_is_left: Fact = Fact("no_loss_is_left", "it was lost too often", "losses_left", holds=False)
going_on: Fact = Fact("going_on", "no stop was requested", "stopping", holds=False)
stopping: Fact = Fact("stopping", "it was asked to stop", "stopping")
nothing_active: Fact = Fact(
    "nothing_active", "nothing of it is active any more", "anything_active", holds=False
)
every_shard_succeeded: Fact = Fact("every_shard_succeeded", "it was the last shard", "every_shard_succeeded")
required: Fact = Fact("required", "the job is required", "required")
fails_parent: Fact = Fact("fails_parent", "its submitter said that its parent fails with it", "fails_parent")
stops_siblings: Fact = Fact(
    "stops_siblings", "its submitter said that its siblings are stopped then", "stops_siblings"
)
followed: Fact = Fact("followed", "jobs come after it and it was not skipped", "followed")
every_required_job_succeeded: Fact = Fact(
    "every_required_job_succeeded", "every required job has succeeded", "every_required_job_succeeded"
)
fail_fast: Fact = Fact("fail_fast", "fail-fast is on", "fail_fast")


# fmt: off
COUPLINGS = Couplings[Facts]((
    # Down: events that a run sends to its jobs.
    couple(RUN, run.QUEUED, JOB, None, to=Recipient.JOBS_OF_PLAN, why="The plan lists the jobs."),
    couple(RUN, run.QUEUED, RUN, run.required_jobs_succeeded, to=Recipient.ITSELF,
           when=every_required_job_succeeded,
           why="A plan without required jobs has succeeded at once; no job will report that."),
    couple(RUN, run.CANCEL_REQUESTED, JOB, job.Cancel, to=Recipient.ITS_JOBS,
           why="A run is cancelled with its jobs."),
    couple(RUN, run.CANCEL_REQUESTED, RUN, run.all_stopped, to=Recipient.ITSELF, when=nothing_active,
           why="Nothing is active, so there is nothing to wait for."),
    couple(RUN, (run.FAILED, run.TIMEOUT), JOB, job.Cancel, to=Recipient.UNFINISHED_JOBS, when=fail_fast,
           why="The outcome is decided, so remaining jobs must not occupy runners."),

    # Down: events that a job sends to its attempts.
    couple(JOB, job.PENDING, ATTEMPT, None, to=Recipient.FIRST_ATTEMPTS,
           why="A valid job needs an attempt for each shard."),
    couple(JOB, job.RUNNING, ATTEMPT, attempt.cancel, to=Recipient.ITS_ATTEMPTS, holding=True,
           by=(job.Cancel, job.Timeout), why="Active attempts are asked to stop first."),
    couple(JOB, (job.CANCELED, job.FAILED), ATTEMPT, attempt.cancel, to=Recipient.ITS_ATTEMPTS,
           why="A job that has ended has nothing waiting or active."),
    couple(JOB, job.CANCELED, JOB, job.Cancel, to=Recipient.ITS_CHILDREN,
           why="A tree is cancelled as a whole."),
    couple(JOB, job.RUNNING, JOB, job.Cancel, to=Recipient.ITS_CHILDREN, holding=True,
           by=(job.Cancel, job.Timeout), why="A tree is stopped as a whole, from the request on."),
    couple(JOB, (job.FAILED, job.CANCELED), JOB, job.Cancel, to=Recipient.DEPENDENTS, when=required,
           why="Dependents of a required job cannot run; an optional job blocks none."),
    couple(JOB, (job.FAILED, job.CANCELED), JOB, job.Cancel, to=Recipient.ITS_SIBLINGS, when=stops_siblings,
           why="Siblings succeed together or not at all; completed ones stay."),
    couple(JOB, (job.FAILED, job.CANCELED), JOB, job.Cancel, to=Recipient.FOLLOWERS, when=followed,
           why="A job that waits for a success which can no longer come would wait forever."),

    # Down: events that an attempt sends to its lease.
    couple(ATTEMPT, attempt.LEASED, LEASE, None, to=Recipient.ITS_LEASE,
           why="A runner may execute it only under a lease."),
    couple(ATTEMPT, attempt.CANCEL_REQUESTED, ATTEMPT, attempt.withdraw, to=Recipient.ITSELF,
           out_of=attempt.UNLEASED, why="Without a lease no runner has to be asked."),
    couple(ATTEMPT, attempt.CANCEL_REQUESTED, LEASE, lease.revoke, to=Recipient.ITS_LEASE,
           out_of=attempt.LEASED, why="No runner has begun; a late acknowledgement is stale."),
    couple(ATTEMPT, attempt.CANCEL_REQUESTED, LEASE, lease.request_cancel, to=Recipient.ITS_LEASE,
           out_of=attempt.EXECUTING, why="The runner learns of it with its next heartbeat."),
    couple(ATTEMPT, attempt.TIMED_OUT, LEASE, lease.revoke, to=Recipient.ITS_LEASE,
           why="Later reports of its runner must be refused."),
    couple(ATTEMPT, attempt.CANCELED, LEASE, lease.revoke, to=Recipient.ITS_LEASE, by=attempt.force_cancel,
           why="After a forced cancel no completion is accepted."),

    # Down: events that a lease sends to the workloads that are driven under it.
    couple(LEASE, lease.ACTIVE, WORKLOAD, workload.AbortReceived, to=Recipient.ITS_AGENTS, holding=True,
           by=lease.request_cancel, why="A stopped job or run must leave no load running."),

    # Up: events that a lease sends to its attempt.
    couple(LEASE, lease.ACTIVE, ATTEMPT, attempt.acknowledged, to=Recipient.ITS_ATTEMPT,
           why="A runner has accepted the work."),
    couple(LEASE, lease.ACTIVE, ATTEMPT, attempt.heartbeat, to=Recipient.ITS_ATTEMPT, holding=True,
           by=lease.Heartbeat, why="The first heartbeat makes it RUNNING."),
    couple(LEASE, lease.COMPLETED, ATTEMPT, attempt.Completed, to=Recipient.ITS_ATTEMPT,
           why="There is a result."),
    couple(LEASE, lease.CANCELED, ATTEMPT, attempt.cancel_acknowledged, to=Recipient.ITS_ATTEMPT,
           why="The runner has stopped."),
    couple(LEASE, lease.EXPIRED, ATTEMPT, attempt.lease_expired, to=Recipient.ITS_ATTEMPT,
           why="Its runner is lost."),
    couple(LEASE, lease.REVOKED, ATTEMPT, attempt.lease_revoked, to=Recipient.ITS_ATTEMPT,
           why="Its runner no longer holds the lease."),

    # Up: events that an attempt sends to its job.
    couple(ATTEMPT, attempt.LEASED, JOB, job.AllocateResources, to=Recipient.ITS_JOB,
           why="A worker is allocated."),
    couple(ATTEMPT, attempt.SUCCEEDED, JOB, job.Success, to=Recipient.ITS_JOB,
           when=(going_on, every_shard_succeeded), why="A job has succeeded when each shard has."),
    couple(ATTEMPT, (attempt.FAILED, attempt.TIMED_OUT), ATTEMPT, None, to=Recipient.NEXT_ATTEMPT,
           when=(going_on, a_try_is_left), why="A retry is a new attempt; the old one stays as it ended."),
    couple(ATTEMPT, (attempt.FAILED, attempt.TIMED_OUT), JOB, job.Error, to=Recipient.ITS_JOB,
           when=(going_on, no_try_is_left), why="It can no longer succeed."),
    couple(ATTEMPT, attempt.STALE, ATTEMPT, None, to=Recipient.NEXT_ATTEMPT,
           by=attempt.lease_expired, when=(going_on, a_loss_is_left),
           why="Losses have their own budget and do not count as retries."),
    couple(ATTEMPT, attempt.STALE, JOB, job.Error, to=Recipient.ITS_JOB, by=attempt.lease_expired,
           when=(going_on, no_loss_is_left), why="A job that kills its workers must fail after some losses."),
    couple(ATTEMPT, attempt.STALE, ATTEMPT, None, to=Recipient.NEXT_ATTEMPT,
           by=attempt.lease_revoked, when=going_on,
           why="It was returned to the queue; that counts as no try and no loss."),
    couple(ATTEMPT, attempt.ENDED, JOB, job.Cancel, to=Recipient.ITS_JOB, when=(stopping, nothing_active),
           why="The cancel is complete when the last one has ended."),
    couple(ATTEMPT, attempt.STALE, SIMULATION, simulation.Interrupt, to=Recipient.ITS_SIMULATION,
           why="Its worker is gone; it can be resumed elsewhere."),
    couple(JOB, (job.FAILED, job.CANCELED), SIMULATION, simulation.Interrupt, to=Recipient.ITS_SIMULATION,
           why="No worker executes it any more; it can be resumed."),
    couple(SIMULATION, simulation.PAUSED, SIMULATION, simulation.Cancel, to=Recipient.ITSELF, when=stopping,
           why="An accepted cancel must not leave it paused."),

    # Up: events that a job sends to its parent and its run.
    couple(JOB, (job.FAILED, job.CANCELED), JOB, job.Error, to=Recipient.ITS_PARENT, when=fails_parent,
           why="The parent cannot succeed without it; a parent that has not begun is left alone."),
    couple(JOB, job.RUNNING, RUN, run.begin, to=Recipient.ITS_RUN, why="Its first attempt is active."),
    couple(JOB, job.COMPLETED, RUN, run.required_jobs_succeeded, to=Recipient.ITS_RUN,
           when=every_required_job_succeeded, why="The last required job decides."),
    couple(JOB, (job.FAILED, job.CANCELED), RUN, run.required_job_failed, to=Recipient.ITS_RUN, when=required,
           why="Without a required job the run cannot succeed."),
    couple(JOB, job.ENDED, RUN, run.all_stopped, to=Recipient.ITS_RUN, when=(stopping, nothing_active),
           why="The cancel is complete when the last one has ended."),

    # The supervisor, and the machines inside a worker.
    couple(WORKER, worker.TERMINATED, LEASE, lease.revoke, to=Recipient.HELD_LEASES, by=worker.Terminate,
           why="An operator terminated it; its attempts return to the queue without costing a try."),
    couple(WORKER, (worker.FAILED, worker.TERMINATED), LEASE, lease.holder_lost, to=Recipient.HELD_LEASES,
           by=(worker.ErrorUnrecoverable, worker.ErrorTransient, worker.SupervisorTimeout,
               worker.ProcessDied),
           why="A job that kills its workers must use up its loss budget."),
    couple(WORKER, worker.PAUSED, LEASE, lease.holder_lost, to=Recipient.HELD_LEASES,
           by=worker.ResourcesExhausted, why="It releases its leases; one of these jobs may be the cause."),
    couple(WORKER, worker.TERMINATED, PROCESS, process.shutdown_requested, to=Recipient.ITS_PROCESS,
           why="A terminated worker must not continue, on any host."),
    couple(PROCESS, process.CONNECTING, TASK, task.LeaseExpired, to=Recipient.ITS_TASKS, by=process.error,
           why="Without a connection no lease can be kept."),
    couple(PROCESS, process.SHUTTING_DOWN, TASK, task.ShutdownRequested, to=Recipient.WAITING_TASKS,
           why="Tasks that have not begun are left to other workers at once."),
    couple(PROCESS, process.SHUTTING_DOWN, TASK, task.ShutdownRequested, to=Recipient.ITS_TASKS, holding=True,
           by=process.soft_deadline, why="The grace period is over; tasks save a checkpoint and stop."),
    couple(TASK, task.PROCESSING, LEASE, lease.Ack, to=Recipient.ITS_LEASE, why="The runner takes the work."),
    couple(TASK, task.REPORTING, LEASE, lease.Complete, to=Recipient.ITS_LEASE,
           by=(task.ProcessingSucceeded, task.ProcessingFailed), why="A failure is reported like a result."),
    couple(TASK, task.REPORTING, LEASE, lease.Release, to=Recipient.ITS_LEASE,
           by=(task.ShutdownRequested, task.ProcessingYielded),
           why="Interrupted work is returned to the queue with its checkpoint."),
    couple(TASK, task.ENDED, PROCESS, process.TaskEnded, to=Recipient.ITS_PROCESS,
           why="A slot is free again."),
    couple(LEASE, (lease.EXPIRED, lease.REVOKED), TASK, task.LeaseExpired, to=Recipient.ITS_TASK,
           why="The task learns of it with its next renewal, and stops."),
), delivered_by={
    (JOB, Recipient.DEPENDENTS): Deliverer.RUN,
    (JOB, Recipient.ITS_RUN): Deliverer.RUN,
    (LEASE, Recipient.ITS_AGENTS): Deliverer.DRIVER,
    (LEASE, Recipient.ITS_TASK): Deliverer.WORKER,
    (WORKER, Recipient.ITS_PROCESS): Deliverer.WORKER,
})
# fmt: on


def interlocking() -> Blueprint:
    """Return the couplings as a graph to draw."""
    return map_of(
        COUPLINGS,
        name="interlocking",
        doc="How the machines depend on one another: intent flows down, facts flow up.",
        spine=(RUN, JOB, ATTEMPT, LEASE),
    )
