"""The leases of a worker that has ended, or must let go: its work returns to the queue.

Which leases a worker holds is read from the jobs themselves, never counted beside them. Jobs that
run are as many as there is capacity, so looking through them costs little, and is done only when
somebody ends a worker.

A job of several shards may have ended while some of them are still being stopped. Those are left alone:
nothing of them returns to the queue, and their leases end when their time to stop is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial

import msgspec

from interlock.engine.bulk import Item, apply_all
from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import InterlockError
from interlock.lifecycles import job, lease
from interlock.lifecycles.job import JOB
from interlock.machine import Event
from interlock.store.records import Key, Query, Record
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import AttemptBody, decode_body
from interlock.systems.orchestrator.cancellation import commit_of
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.supervisor.aggregate import LetGo

PAGE = 500

_EVENTS: dict[str, Event] = {event.name: event for event in (lease.revoke, lease.holder_lost)}


async def let_go(engine: Engine, settings: OrchestratorSettings, order: LetGo) -> None:
    """End every lease that the worker holds; safe to repeat, since what has ended is passed over."""
    query = Query(kind=JOB.name, states=(job.RUNNING,), limit=PAGE)
    while True:
        page = await engine.store.find(query)
        held = [record for record in page.records if _holds(record, order)]
        decide = partial(_decide, order, settings)
        for result in await apply_all(engine, [Item(Key(JOB.name, each.id), decide) for each in held]):
            if isinstance(result, InterlockError):
                raise result
        if not page.cursor:
            return
        query = msgspec.structs.replace(query, cursor=page.cursor)


def _decide(
    order: LetGo, settings: OrchestratorSettings, record: Record | None, now: datetime, mark: str
) -> Decision[None]:
    if record is None:
        return Decision(None)
    draft = JobAggregate.of(record, now, settings)
    draft.fire_due()
    for one in _held_by(draft.body.attempts, order):
        draft.send_lease(one, _EVENTS[order.event])
    if not draft.taken:
        return Decision(None)
    reason = f"worker {order.worker_id}: {order.reason}" if order.reason else f"worker {order.worker_id}"
    return Decision(None, commit_of(draft, mark=mark, actor="supervisor", reason=reason))


def _holds(record: Record, order: LetGo) -> bool:
    return any(_held_by(decode_body(record.body).attempts, order))


def _held_by(attempts: list[AttemptBody], order: LetGo) -> Iterator[AttemptBody]:
    for one in attempts:
        held = one.lease
        if held is None or held.state not in lease.LIVE or held.data.runner_id != order.runner_id:
            continue
        if order.until is None or held.granted_at <= order.until:
            yield one
