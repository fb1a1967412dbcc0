"""How a state looks to people: waiting, active, good, bad or stopped.

It is read off the table. A record waits where it begins and where it rests, and is active elsewhere; a record
that has only one state before it ends is active there. The end of the spine is good, unless only time or a
stop event leads there. An end that only stop events lead to is stopped, and all other ends are bad. What a
table cannot tell is named here, once for every screen.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from interlock.lifecycles import attempt, job, lease, process, run, simulation, task, worker, workload
from interlock.machine import Blueprint
from interlock.systems.access.lifecycle import TokenState
from interlock.systems.orchestrator.queues import QueueState
from interlock.systems.quarantine.lifecycle import StandingState
from interlock.systems.runs.analysis.history import HistoryState
from interlock.systems.runs.caching.lifecycle import CacheState


class Meaning(StrEnum):
    """How a state looks to people."""

    WAITING = "waiting"
    ACTIVE = "active"
    GOOD = "good"
    BAD = "bad"
    STOPPED = "stopped"


WAITING, ACTIVE, GOOD = Meaning.WAITING, Meaning.ACTIVE, Meaning.GOOD
BAD, STOPPED = Meaning.BAD, Meaning.STOPPED

NAMED: Mapping[str, Mapping[str, Meaning]] = {
    "job": {job.PENDING: WAITING, job.CANCELED: STOPPED},
    "attempt": {attempt.QUEUED: WAITING, attempt.CANCELED: STOPPED, attempt.STALE: STOPPED},
    "lease": {lease.CANCELED: STOPPED, lease.REVOKED: STOPPED},
    "worker": {worker.PAUSED: WAITING},
    "process": {process.BACKING_OFF: WAITING, process.STOPPED: STOPPED},
    "task": {task.ABANDONED: STOPPED},
    "workload": {workload.READY: WAITING, workload.FAILED: BAD},
    "simulation": {simulation.PAUSED: WAITING, simulation.INTERRUPTED: BAD},
    "run": {
        run.AWAITING_APPROVAL: WAITING,
        run.QUEUED: WAITING,
        run.PLAN_FAILED: BAD,
        run.SUCCESS: GOOD,
        run.FAILED: BAD,
        run.TIMEOUT: BAD,
        run.CANCELED: STOPPED,
        run.REPORTED: STOPPED,  # its outcome says more
    },
    "token": {TokenState.ACTIVE: ACTIVE},
    "standing": {StandingState.WATCHED: ACTIVE, StandingState.QUARANTINED: BAD},
    "queue": {QueueState.OPEN: ACTIVE, QueueState.PAUSED: WAITING},
    "history": {HistoryState.STEADY: GOOD, HistoryState.FLAKY: BAD},
    "cache": {CacheState.SAVING: ACTIVE, CacheState.EVICTED: STOPPED},
}
"""By machine: the states whose meaning its table does not tell."""


def meanings_of(
    blueprint: Blueprint, named: Mapping[str, Mapping[str, Meaning]] = NAMED
) -> dict[str, Meaning]:
    """Return what each state of a table means."""
    own = named.get(blueprint.machine, {})
    return {state.name: own.get(state.name) or _read_off(blueprint, state.name) for state in blueprint.states}


def _read_off(blueprint: Blueprint, name: str) -> Meaning:
    if not blueprint.state(name).terminal:
        return _of_live(blueprint, name)
    leads = {row.event for row in blueprint.transitions if row.target == name}
    timers = {event.name for event in blueprint.events if event.kind == "timer"}
    if blueprint.spine and name == blueprint.spine[-1]:
        return STOPPED if leads <= timers | set(blueprint.stop) else GOOD
    return STOPPED if leads <= set(blueprint.stop) else BAD


def _of_live(blueprint: Blueprint, name: str) -> Meaning:
    begins = name == blueprint.initial and len(blueprint.spine) != 2
    return WAITING if begins or blueprint.state(name).resting else ACTIVE
