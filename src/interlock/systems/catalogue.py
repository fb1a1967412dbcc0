"""The catalogue: kinds of record, the machines of their journals, and the meaning of states for people.

A meaning (waiting, active, good, bad, stopped) is derived from the table. A record waits in its initial and
resting states, and is active elsewhere. The end of the spine is good, unless only time or a stop event leads
there; an end that only stop events lead to is stopped, and all other ends are bad. `NAMED` has the
exceptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from interlock.engine.outbox import MESSAGE
from interlock.lifecycles import (
    MACHINES,
)
from interlock.machine import Machine
from interlock.store.catalogue import catalogue_of
from interlock.systems.access.authentication import SESSION
from interlock.systems.access.tokens import TOKEN
from interlock.systems.figures.series import FIGURES
from interlock.systems.orchestrator.attachments import ARTIFACT, CHILDREN, LOG, RESULT
from interlock.systems.orchestrator.batches import BATCH, PART
from interlock.systems.orchestrator.body import TREE
from interlock.systems.orchestrator.dead_letters import DEAD_LETTER
from interlock.systems.orchestrator.gates import GATE, TICKET
from interlock.systems.orchestrator.limits import LIMIT
from interlock.systems.orchestrator.queues import QUEUE
from interlock.systems.orchestrator.uniqueness import UNIQUE_KEY
from interlock.systems.orchestrator.wait_records import JOB_WAIT
from interlock.systems.quarantine import STANDING
from interlock.systems.runs.caches import CACHE
from interlock.systems.runs.job_history import HISTORY
from interlock.systems.runs.plans import PLAN
from interlock.systems.runs.reports.report import REPORT
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
        DEAD_LETTER.name: DEAD_LETTER,
        LIMIT.name: LIMIT,
        GATE.name: GATE,
        TICKET.name: TICKET,
        JOB_WAIT.name: JOB_WAIT,
        BATCH.name: BATCH,
        PART.name: PART,
    }
)
"""Every machine of a journal: attempts and leases live inside the record of a job."""

_KEPT = (
    "run",
    "job",
    "worker",
    "workload",
    "simulation",
    "schedule",
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
    DEAD_LETTER.name,
    LIMIT.name,
    GATE.name,
    TICKET.name,
    JOB_WAIT.name,
    BATCH.name,
    PART.name,
)

_UNTOLD = (FIGURES, UNIQUE_KEY)
"""Machines whose records are not journalled: they are derived from the journal, or from their jobs."""

CATALOGUE = {
    name: msgspec.structs.replace(kind, shown=SHOWN.get(name))
    for name, kind in catalogue_of([*(JOURNALLED[name] for name in _KEPT), *_UNTOLD]).items()
}
