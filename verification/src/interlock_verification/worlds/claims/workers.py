"""Claims about the supervisor's records of workers, and about grants to held or quarantined workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from interlock.lifecycles import worker
from interlock.lifecycles.worker import WORKER, WorkerState
from interlock.systems.supervisor.aggregate import WorkerBody
from interlock_verification.claims import FactClaim


class WorkerWritten(NamedTuple):
    """A written worker."""

    worker_id: str
    state: WorkerState
    body: WorkerBody

    def __str__(self) -> str:
        return f"{self.worker_id} is {self.state}: {self.body.data}"


class WorkerTransition(NamedTuple):
    """Two successive values of a worker."""

    worker_id: str
    before: WorkerState
    body_before: WorkerBody
    after: WorkerState
    body_after: WorkerBody

    def __str__(self) -> str:
        return f"{self.worker_id}: {self.before} → {self.after}"


class GrantsToRunner(NamedTuple):
    """A response that has grants, by a server that has read the quarantines."""

    runner_id: str
    grants: int
    quarantined_since: datetime
    read_at: datetime

    def __str__(self) -> str:
        return f"{self.runner_id} is quarantined since {self.quarantined_since}, and got {self.grants} jobs"


class GrantToHeldWorker(NamedTuple):
    """A grant to a worker that the supervisor has paused or ended."""

    worker_id: str
    state: WorkerState
    held_since: datetime
    granted_at: datetime

    def __str__(self) -> str:
        held = f"{self.worker_id} is {self.state} since {self.held_since}"
        return f"{held}, and was given work at {self.granted_at}"


class ReleasedLeases(NamedTuple):
    """The leases that a runner still has after the order to release them."""

    runner_id: str
    left: Sequence[str]

    def __str__(self) -> str:
        return f"{self.runner_id} still has {list(self.left)}"


class LiveRecord(NamedTuple):
    """A worker that is recorded as live at the end of an episode."""

    worker_id: str
    runner_id: str
    alive: bool

    def __str__(self) -> str:
        return f"{self.worker_id}, {self.runner_id}, is {'alive' if self.alive else 'dead'}"


WORKER_CLAIMS: Sequence[FactClaim[Any]] = (
    FactClaim(
        "worker.invariants",
        "the invariants of the worker table hold",
        WorkerWritten,
        lambda written: not WORKER.broken(written.state, written.body.data),
    ),
    FactClaim(
        "worker.step_invariants",
        "the invariants of the worker table about each step hold",
        WorkerTransition,
        lambda step: (
            not WORKER.broken_across(step.before, step.body_before.data, step.after, step.body_after.data)
        ),
    ),
    FactClaim(
        "worker.end_is_final",
        "an ended worker never changes",
        WorkerTransition,
        lambda step: step.before not in worker.ENDED or step.after in (step.before, worker.TERMINATED),
    ),
    FactClaim(
        "worker.quarantine",
        "a quarantined runner is granted nothing once that is known",
        GrantsToRunner,
        lambda given: not given.grants or given.quarantined_since >= given.read_at,
    ),
    FactClaim(
        "worker.held",
        "a paused worker is granted nothing new",
        GrantToHeldWorker,
        lambda grant: grant.granted_at <= grant.held_since,
    ),
    FactClaim(
        "worker.leases_are_released",
        "after the order to release a worker's leases none of them is left",
        ReleasedLeases,
        lambda released: not released.left,
    ),
    FactClaim(
        "worker.dead_is_recorded",
        "a worker recorded as live is alive",
        LiveRecord,
        lambda record: record.alive,
    ),
)
