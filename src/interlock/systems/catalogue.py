"""Which kinds of record the systems keep, and which machines their journals speak of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from interlock.engine.outbox import MESSAGE
from interlock.lifecycles import MACHINES
from interlock.machine import Machine
from interlock.store.catalogue import Catalogue, catalogue_of
from interlock.systems.access.lifecycle import TOKEN
from interlock.systems.access.sessions import SESSION
from interlock.systems.figures.lifecycle import FIGURES
from interlock.systems.orchestrator.attachments import ARTIFACT, CHILDREN, LOG, RESULT
from interlock.systems.orchestrator.queues import QUEUE
from interlock.systems.orchestrator.trees.body import TREE
from interlock.systems.quarantine.lifecycle import STANDING
from interlock.systems.runs.analysis.history import HISTORY
from interlock.systems.runs.caching.lifecycle import CACHE
from interlock.systems.runs.plans import PLAN
from interlock.systems.runs.reporting.lifecycle import REPORT
from interlock.systems.simulations.pulse import PULSE
from interlock.systems.simulations.shown import SHOWN

if TYPE_CHECKING:
    from interlock.systems.kinds import DeclaredKind

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


class Lifecycles(NamedTuple):
    """What a server knows: machines by name, and the kinds of record that its store keeps."""

    machines: Mapping[str, Machine[Any, Any]]
    kinds: Catalogue
    own: tuple[DeclaredKind[Any], ...] = ()
    """Kinds that users have declared, with what is needed to create records and to send events."""


OURS = Lifecycles(JOURNALLED, CATALOGUE)


def lifecycles_with(
    own: Iterable[Machine[Any, Any]] = (), *, declared: Iterable[DeclaredKind[Any]] = ()
) -> Lifecycles:
    """Return our lifecycles and these, whose records the store shall keep as well."""
    machines, kinds, declared = dict(JOURNALLED), dict(CATALOGUE), tuple(declared)
    for machine in (*own, *(each.machine for each in declared)):
        if machine.name in machines or machine.name in kinds:
            raise ValueError(f"There is a lifecycle {machine.name!r} already.")
        machines[machine.name] = machine
        kinds |= catalogue_of([machine])
    return Lifecycles(machines, kinds, declared)
