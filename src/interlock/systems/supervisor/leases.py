"""The jobs that a worker holds: list them, release their leases when it has ended, and notify it of stops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from operator import attrgetter

import msgspec

from interlock.engine.bulk import Item, apply_all
from interlock.engine.debounce import Debouncer
from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import InterlockError
from interlock.lifecycles import attempt, job, lease
from interlock.lifecycles.job import JOB
from interlock.lifecycles.lease import LEASE
from interlock.machine import Event
from interlock.store.contract import Store
from interlock.store.records import (
    Batch,
    Change,
    Committed,
    Key,
    Outcome,
    Query,
    Record,
    Work,
)
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import AttemptBody, JobBody, decode_body, given_of
from interlock.systems.orchestrator.cancellation import commit_of
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.supervisor.aggregate import ReleaseLeases
from interlock.wire.workers import WorkerTask, WorkerTasks

RUNNING, ENDED = 500, 200
"""Number of running jobs, and of the newest ended ones, to examine."""
FIRST, LIGHT = 5, 65_536
"""Byte limit of the first jobs below which the others are read too: inputs may be large."""
LATELY = 50


async def tasks_of(store: Store, runner_id: str) -> WorkerTasks:
    """Return the current and the latest tasks of a runner."""
    running, more = await _some(store, (job.RUNNING,), RUNNING)
    ended, _ = await _some(store, job.ENDED, ENDED)
    held = [task for record in running for task in _tasks(record, runner_id)]
    had = [task for record in ended for task in _tasks(record, runner_id)]
    over = [task for task in (*held, *had) if task.ended_at is not None]
    return WorkerTasks(
        now=tuple(sorted((task for task in held if task.ended_at is None), key=lambda task: task.granted_at)),
        lately=tuple(sorted(over, key=lambda task: task.granted_at, reverse=True)[:LATELY]),
        more=more,
    )


async def _some(store: Store, states: tuple[str, ...], most: int) -> tuple[tuple[Record, ...], bool]:
    """Return the newest jobs in some states, and whether there are more."""
    query = Query(kind=JOB.name, states=states, limit=FIRST)
    first = await store.find(query)
    if not first.cursor or sum(record.size for record in first.records) > LIGHT:
        return first.records, bool(first.cursor)
    rest = await store.find(msgspec.structs.replace(query, cursor=first.cursor, limit=most - FIRST))
    return (*first.records, *rest.records), bool(rest.cursor)


def _tasks(record: Record, runner_id: str) -> Iterator[WorkerTask]:
    body = decode_body(record.body)
    for one in body.attempts:
        if one.lease is not None and one.lease.data.runner_id == runner_id:
            yield _task(record, body, one)


def _task(record: Record, body: JobBody, one: AttemptBody) -> WorkerTask:
    assert one.lease is not None
    over = one.state in attempt.ENDED
    return WorkerTask(
        job_id=record.id,
        attempt=one.name,
        task=body.task,
        queue=record.queue or "",
        description=given_of(record).description,
        state=one.state,
        granted_at=one.lease.granted_at,
        started_at=one.started_at,
        ended_at=one.ended_at or (record.updated_at if over else None),
        expires_at=None if over else one.lease.data.expires_at,
        deadline_at=None if over else one.timer_at,
        progress=None if over else one.progress,
        error=one.failure.error if one.failure else "",
    )


PAGE = 500

_EVENTS: dict[str, Event] = {event.name: event for event in (lease.revoke, lease.holder_lost)}


async def release_leases(engine: Engine, settings: OrchestratorSettings, order: ReleaseLeases) -> None:
    """End every lease of the worker; idempotent, since ended ones are skipped."""
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
    order: ReleaseLeases, settings: OrchestratorSettings, record: Record | None, now: datetime, commit_id: str
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
    return Decision(None, commit_of(draft, commit_id=commit_id, actor="supervisor", reason=reason))


def _holds(record: Record, order: ReleaseLeases) -> bool:
    return any(_held_by(decode_body(record.body).attempts, order))


def _held_by(attempts: list[AttemptBody], order: ReleaseLeases) -> Iterator[AttemptBody]:
    for one in attempts:
        held = one.lease
        if held is None or held.state not in lease.LIVE or held.data.runner_id != order.runner_id:
            continue
        if order.until is None or held.granted_at <= order.until:
            yield one


STOPS = frozenset((lease.request_cancel.name, lease.revoke.name))
_event_of = attrgetter("event")

Notify = Callable[[Sequence[str]], Awaitable[None]]
"""Notifies the workers of these runner ids."""


class StopNotices:
    """Notifies workers when commits have stopped their leases."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._stopped: dict[str, None] = {}
        self._debouncer = Debouncer("workers are notified of stops", self._answer)

    def notice(self, work: Sequence[Work], outcomes: Sequence[Outcome]) -> None:
        """Notify workers whose leases were stopped by these commits."""
        remaining = iter(outcomes)
        for item in work:
            changes = (item.change,) if isinstance(item, Batch) else item.changes
            some = list(islice(remaining, len(item.ids) if isinstance(item, Batch) else 1))
            for change in changes:
                if change.kind != JOB.name or change.note is None:
                    continue
                stops = not STOPS.isdisjoint(map(_event_of, change.note.steps))
                if stops and any(isinstance(o, Committed) for o in some):
                    self._stopped |= dict.fromkeys(_holders(change))
        if self._stopped:
            self._debouncer.trigger()

    async def close(self) -> None:
        """Send pending notifications, within a short time."""
        await self._debouncer.close()

    async def _answer(self) -> int:
        stopped, self._stopped = self._stopped, {}
        await self._notify(tuple(stopped))
        return 0


def _holders(change: Change) -> Iterator[str]:
    """Yield the runners whose leases were stopped by this change."""
    assert change.note is not None
    stopped = {
        step.entity for step in change.note.steps if step.machine == LEASE.name and step.event in STOPS
    }
    for one in decode_body(change.body).attempts:
        if one.name in stopped and one.lease is not None:
            yield one.lease.data.runner_id
