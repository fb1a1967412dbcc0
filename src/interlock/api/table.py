"""All operations, in the order of the OpenAPI document and of the reference."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from interlock.api import (
    access,
    artifacts,
    batches,
    dead_letters,
    jobs,
    journal,
    limits,
    machines,
    records,
    runner,
    runs,
    schedules,
    server,
    simulations,
    waits,
    workers,
    workloads,
)
from interlock.api.operation import Operation

NOUNS = (
    jobs,
    waits,
    batches,
    dead_letters,
    schedules,
    limits,
    artifacts,
    machines,
    journal,
    records,
    runs,
    simulations,
    runner,
    workers,
    workloads,
    access,
    server,
)


def declared_in(noun: ModuleType) -> tuple[Operation[Any, Any], ...]:
    """Return the operations of a noun, in the order of its module."""
    return tuple(value for value in vars(noun).values() if isinstance(value, Operation))


OPERATIONS = tuple(operation for noun in NOUNS for operation in declared_in(noun))
"""All operations, except for the OpenAPI document and the operations of declared kinds."""
