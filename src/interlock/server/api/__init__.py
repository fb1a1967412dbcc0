"""The handlers, in a file of the name of that in `interlock.api` which declares their operations."""

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
from interlock.server.routes import Route, routes_for

ROUTES: tuple[Route, ...] = routes_for(OPERATIONS)
"""All routes except those of the OpenAPI document and its page."""
