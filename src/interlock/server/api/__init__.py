"""The routes, one file for each noun. Whoever adds a file adds its routes to `ROUTES`."""

from __future__ import annotations

from interlock.server.api import (
    actions,
    artifacts,
    attempts,
    caches,
    events,
    figures,
    health,
    jobs,
    journal,
    machines,
    outcomes,
    quarantine,
    run_actions,
    runner,
    runs,
    sessions,
    simulations,
    submitting,
    tokens,
    trees,
    webhooks,
    worker_actions,
    workers,
    workloads,
)
from interlock.server.declaring import Route

ROUTES: tuple[Route, ...] = (
    *submitting.ROUTES,
    *jobs.ROUTES,
    *trees.ROUTES,
    *actions.ROUTES,
    *attempts.ROUTES,
    *artifacts.ROUTES,
    *caches.ROUTES,
    *machines.ROUTES,
    *journal.ROUTES,
    *events.ROUTES,
    *outcomes.ROUTES,
    *webhooks.ROUTES,
    *runs.ROUTES,
    *run_actions.ROUTES,
    *simulations.ROUTES,
    *runner.ROUTES,
    *workers.ROUTES,
    *workloads.ROUTES,
    *worker_actions.ROUTES,
    *quarantine.ROUTES,
    *figures.ROUTES,
    *tokens.ROUTES,
    *sessions.ROUTES,
    *health.ROUTES,
)
"""Everything that can be asked for, beside the document that says so."""
