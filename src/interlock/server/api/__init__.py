"""The handlers, one file for each noun, bound to the operations of `interlock.api`."""

from __future__ import annotations

from interlock.api.table import OPERATIONS
from interlock.server.api import (  # noqa: F401 - each binds its handlers
    access,
    artifacts,
    batches,
    dead_letters,
    jobs,
    journal,
    limits,
    machines,
    queues,
    records,
    runner,
    runs,
    schedules,
    server,
    simulations,
    trees,
    waits,
    webhooks,
    workers,
    workload_jobs,
    workloads,
)
from interlock.server.routes import Route, routes_for

ROUTES: tuple[Route, ...] = routes_for(OPERATIONS)
"""All routes except those of the OpenAPI document and its page."""
