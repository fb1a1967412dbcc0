"""The ten lifecycles, one module each, and the couplings between them.

Each module starts with the invariants of its machine, then defines its data and its events, and ends with
the transition table, which alone decides. `couplings` defines which transition of one machine is an event of
another; `durations` holds every deadline; `owners` names the parties.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from interlock.errors import UnknownMachine
from interlock.lifecycles.attempt import ATTEMPT
from interlock.lifecycles.couplings import COUPLINGS, Circumstances, interlocking
from interlock.lifecycles.durations import Durations
from interlock.lifecycles.job import JOB
from interlock.lifecycles.lease import LEASE
from interlock.lifecycles.owners import Owner
from interlock.lifecycles.process import PROCESS
from interlock.lifecycles.run import RUN
from interlock.lifecycles.schedule import SCHEDULE
from interlock.lifecycles.simulation import SIMULATION
from interlock.lifecycles.task import TASK
from interlock.lifecycles.worker import WORKER
from interlock.lifecycles.workload import WORKLOAD
from interlock.machine import Machine

MACHINES: Mapping[str, Machine[Any, Any]] = MappingProxyType(
    {
        machine.name: machine
        for machine in (RUN, JOB, ATTEMPT, LEASE, WORKER, PROCESS, TASK, WORKLOAD, SIMULATION, SCHEDULE)
    }
)


def machine_named(name: str) -> Machine[Any, Any]:
    """Return the lifecycle of a name; raise if it is unknown.

    The error lists the valid names.
    """
    try:
        return MACHINES[name.casefold()]
    except KeyError:
        raise UnknownMachine(name, tuple(MACHINES)) from None


__all__ = [
    "ATTEMPT",
    "COUPLINGS",
    "JOB",
    "LEASE",
    "MACHINES",
    "PROCESS",
    "RUN",
    "SCHEDULE",
    "SIMULATION",
    "TASK",
    "WORKER",
    "WORKLOAD",
    "Circumstances",
    "Durations",
    "Owner",
    "interlocking",
    "machine_named",
]
