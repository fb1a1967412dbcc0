"""The routes, one file for each noun. Whoever adds a file adds its routes to `ROUTES`."""

from __future__ import annotations

from interlock.server.api import (
    access,
    artifacts,
    jobs,
    journal,
    machines,
    queues,
    records,
    runner,
    runs,
    schedules,
    server,
    simulations,
    trees,
    webhooks,
    workers,
    workload_jobs,
    workloads,
)
from interlock.server.routes import Route

ROUTES: tuple[Route, ...] = (
    *jobs.SUBMISSION_ROUTES,
    *jobs.ROUTES,
    *queues.ROUTES,
    *schedules.ROUTES,
    *trees.ROUTES,
    *jobs.SIMILAR_FAILURE_ROUTES,
    *jobs.BULK_ROUTES,
    *jobs.ATTEMPT_ROUTES,
    *artifacts.ROUTES,
    *artifacts.CACHE_ROUTES,
    *machines.ROUTES,
    *journal.ROUTES,
    *records.ROUTES,
    *records.KIND_ROUTES,
    *journal.EVENT_ROUTES,
    *runs.OUTCOME_ROUTES,
    *webhooks.ROUTES,
    *runs.ROUTES,
    *runs.BULK_ROUTES,
    *simulations.ROUTES,
    *runner.ROUTES,
    *workers.ROUTES,
    *workload_jobs.ROUTES,
    *workloads.ROUTES,
    *workers.BULK_ROUTES,
    *workers.QUARANTINE_ROUTES,
    *server.FIGURE_ROUTES,
    *access.TOKEN_ROUTES,
    *access.SESSION_ROUTES,
    *server.ADMIN_ROUTES,
    *server.HEALTH_ROUTES,
)
"""Everything that can be asked for, beside the document that says so."""
