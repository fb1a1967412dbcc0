"""Pools: the supervisors of hosts, as the workers that they keep alive tell of them. Pure.

`interlock supervisor` is no record of its own. Each of its workers says at registration which pool has
started it, so the pools are known from the workers: those that live, and those that have ended lately.
"""

from __future__ import annotations

from collections.abc import Iterable

from interlock.lifecycles import worker
from interlock.lifecycles.worker import WorkerState
from interlock.wire.workers import POOL, POOL_LEAST, POOL_MOST, POOL_PID, PoolView, WorkerView

DEATHS = 5
"""How many of the latest ends are shown."""


def pools_of(workers: Iterable[WorkerView]) -> list[PoolView]:
    """Return the pools that these workers are of, by host and name."""
    members: dict[tuple[str, str, str], list[WorkerView]] = {}
    for view in sorted(workers, key=lambda each: each.created_at):
        known = view.metadata
        if POOL in known:
            key = (view.host, known[POOL], known.get(POOL_PID, ""))
            members.setdefault(key, []).append(view)
    return [_pool(key, members[key]) for key in sorted(members)]


def _pool(key: tuple[str, str, str], views: list[WorkerView]) -> PoolView:
    host, name, pid = key
    newest = views[-1].metadata
    living = [view for view in views if WorkerState(view.state) in worker.LIVING]
    died = [view for view in views if WorkerState(view.state) in (worker.FAILED, worker.TERMINATED)]
    names = [view.name for view in views]
    return PoolView(
        host=host,
        name=name,
        pid=_number(pid),
        least=_number(newest.get(POOL_LEAST, "")),
        most=_number(newest.get(POOL_MOST, "")),
        workers=tuple(living),
        restarts=len(names) - len(set(names)),
        died=tuple(sorted(died, key=lambda view: view.updated_at, reverse=True)[:DEATHS]),
    )


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
