"""What a state means for whoever looks at it: waiting, active, good, bad or stopped.

Read it off the table: the last state of the spine is good, ends that only a stop event leads to are
stopped, and all other ends are bad. A record waits where it begins and where it rests; elsewhere it is
active. What the tables cannot tell is said here, once for every screen.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from interlock.lifecycles import attempt, job, lease, process, run, simulation, task, worker, workload
from interlock.machine import Blueprint


class Meaning(StrEnum):
    """How a state looks to people."""

    WAITING = "waiting"
    ACTIVE = "active"
    GOOD = "good"
    BAD = "bad"
    STOPPED = "stopped"


WAITING, ACTIVE, GOOD = Meaning.WAITING, Meaning.ACTIVE, Meaning.GOOD
BAD, STOPPED = Meaning.BAD, Meaning.STOPPED

_SAID: Mapping[str, Mapping[str, Meaning]] = {
    "job": {job.PENDING: WAITING, job.CANCELED: STOPPED},
    "attempt": {attempt.QUEUED: WAITING, attempt.CANCELED: STOPPED, attempt.STALE: STOPPED},
    "lease": {lease.EXPIRED: BAD, lease.CANCELED: STOPPED, lease.REVOKED: STOPPED},
    "worker": {worker.PAUSED: WAITING, worker.TERMINATED: STOPPED},
    "process": {process.BACKING_OFF: WAITING, process.STOPPED: STOPPED},
    "task": {task.ABANDONED: STOPPED},
    "workload": {workload.READY: WAITING, workload.FAILED: BAD},
    "simulation": {
        simulation.PAUSED: WAITING,
        simulation.INTERRUPTED: BAD,
        simulation.CANCELLED: STOPPED,
    },
    "run": {
        run.AWAITING_APPROVAL: WAITING,
        run.QUEUED: WAITING,
        run.PLAN_FAILED: BAD,
        run.SUCCESS: GOOD,
        run.FAILED: BAD,
        run.TIMEOUT: BAD,
        run.CANCELED: STOPPED,
        run.REPORTED: STOPPED,  # how it ended is its outcome
    },
    # Kinds that belong to systems, which are above this layer.
    "token": {"active": ACTIVE, "expired": STOPPED},
    "session": {"open": ACTIVE, "expired": STOPPED},
    "standing": {"quarantined": BAD},
    "history": {"flaky": BAD, "forgotten": STOPPED},
    "cache": {"expired": STOPPED, "evicted": STOPPED},
}


def meanings_of(blueprint: Blueprint) -> dict[str, Meaning]:
    """Return what each state of a table means."""
    said = _SAID.get(blueprint.machine, {})
    return {
        state.name: said.get(state.name) or _read_off(blueprint, state.name) for state in blueprint.states
    }


def _read_off(blueprint: Blueprint, name: str) -> Meaning:
    state = next(state for state in blueprint.states if state.name == name)
    if not state.terminal:
        return WAITING if state.resting or name == blueprint.initial else ACTIVE
    if blueprint.spine and name == blueprint.spine[-1]:
        return GOOD
    leads = {row.event for row in blueprint.transitions if row.target == name}
    return STOPPED if leads <= set(blueprint.stop) else BAD
