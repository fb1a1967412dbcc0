"""The catalogue: kinds of record, the machines of their journals, and what a state means to people.

A meaning (waiting, active, good, bad, stopped) is read off the table. A record waits where it begins and
where it rests, and is active elsewhere. The end of the spine is good, unless only time or a stop event
leads there; an end that only stop events lead to is stopped, and all other ends are bad. `NAMED` has what a
table cannot tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import msgspec

from interlock.engine.outbox import MESSAGE
from interlock.lifecycles import (
    MACHINES,
    attempt,
    job,
    lease,
    process,
    run,
    simulation,
    task,
    worker,
    workload,
)
from interlock.machine import Blueprint, Machine
from interlock.store.catalogue import catalogue_of
from interlock.systems.access.authentication import SESSION
from interlock.systems.access.tokens import TOKEN, TokenState
from interlock.systems.figures.series import FIGURES
from interlock.systems.orchestrator.attachments import ARTIFACT, CHILDREN, LOG, RESULT
from interlock.systems.orchestrator.body import TREE
from interlock.systems.orchestrator.queues import QUEUE, QueueState
from interlock.systems.quarantine import STANDING, StandingState
from interlock.systems.runs.caches import CACHE, CacheState
from interlock.systems.runs.job_history import HISTORY, HistoryState
from interlock.systems.runs.plans import PLAN
from interlock.systems.runs.reporting.report import REPORT
from interlock.systems.simulations.body import PULSE
from interlock.systems.simulations.views import SHOWN

JOURNALLED: Mapping[str, Machine[Any, Any]] = MappingProxyType(
    {
        **MACHINES,
        MESSAGE.name: MESSAGE,
        LOG.name: LOG,
        RESULT.name: RESULT,
        ARTIFACT.name: ARTIFACT,
        CACHE.name: CACHE,
        STANDING.name: STANDING,
        CHILDREN.name: CHILDREN,
        TREE.name: TREE,
        PLAN.name: PLAN,
        REPORT.name: REPORT,
        HISTORY.name: HISTORY,
        PULSE.name: PULSE,
        TOKEN.name: TOKEN,
        SESSION.name: SESSION,
        QUEUE.name: QUEUE,
    }
)
"""Every machine that a journal may speak of: attempts and leases live inside the record of a job."""

_KEPT = (
    "run",
    "job",
    "worker",
    "workload",
    "simulation",
    MESSAGE.name,
    LOG.name,
    RESULT.name,
    ARTIFACT.name,
    CACHE.name,
    STANDING.name,
    CHILDREN.name,
    TREE.name,
    PLAN.name,
    REPORT.name,
    HISTORY.name,
    PULSE.name,
    TOKEN.name,
    SESSION.name,
    QUEUE.name,
)

_UNTOLD = (FIGURES,)
"""Machines whose records leave no journal: they are made from it."""

CATALOGUE = {
    name: msgspec.structs.replace(kind, shown=SHOWN.get(name))
    for name, kind in catalogue_of([*(JOURNALLED[name] for name in _KEPT), *_UNTOLD]).items()
}


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
