"""Finding workers by a filter, and those with which something can be done at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import msgspec

from interlock.lifecycles import worker
from interlock.lifecycles.worker import WORKER
from interlock.store.records import Query
from interlock.wire.worker_filters import WorkerFilter
from interlock.wire.workers import WorkerView

PAGE = 500
MAX_SCANNED = 10_000

LIVING = tuple(str(state) for state in worker.LIVING)
"""The states of workers that are still there."""

ORDERS = {"pause": worker.Pause, "resume": worker.Resume, "terminate": worker.Terminate, "drain": None}
"""What can be ordered, and the event that it is; draining is a wish, which the worker grants by leaving."""


class FindsWorkers(Protocol):
    """Whoever has workers: a store, or a server before one."""

    async def find(self, query: Query) -> tuple[list[WorkerView], str]:
        """A page of workers, newest first, and the cursor of the next one."""
        ...


@dataclass(slots=True)
class FoundWorkers:
    """Workers that match, newest first."""

    views: list[WorkerView] = field(default_factory=list)
    more: bool = False
    """There are others, or there was too much to look through."""


async def found_workers(
    workers: FindsWorkers, wanted: WorkerFilter, now: datetime, *, limit: int = MAX_SCANNED
) -> FoundWorkers:
    """Up to `limit` workers that match."""
    found, scanned = FoundWorkers(), 0
    selection = wanted.selection(now, limit=PAGE)
    query = selection.query
    while wanted.wanted_states:
        views, cursor = await workers.find(query)
        found.views += [view for view in views if selection.keeps(view)]
        scanned += len(views)
        if len(found.views) > limit or not cursor or scanned >= MAX_SCANNED:
            found.more = bool(cursor) or len(found.views) > limit
            del found.views[limit:]
            break
        query = msgspec.structs.replace(query, cursor=cursor)
    return found


def meant(wanted: WorkerFilter, order: str) -> WorkerFilter:
    """Those of them with which it can be done; of those that are gone only whoever names their state."""
    event = ORDERS[order]
    accepting = LIVING if event is None else [s for s in map(str, WORKER.states) if _accepts(s, event.name)]
    return wanted.among(state for state in accepting if wanted.states or state in LIVING)


def _accepts(state: str, event: str) -> bool:
    return event in WORKER.accepts(WORKER.state(state))
