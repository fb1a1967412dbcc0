"""What a worker has and had: read from jobs, a bounded number of them.

The holder of a lease is in the body of its job, and no index knows it. Jobs that run are as many as there are
slots, so most of the time all of them are looked at; where there are more, the answer says so.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from interlock.lifecycles import attempt, job
from interlock.lifecycles.job import JOB
from interlock.store.contract import Store
from interlock.store.records import Query, Record
from interlock.systems.orchestrator.body import AttemptBody, JobBody, decode_body, given_of
from interlock.wire.workers import WorkerTask, WorkerTasks

RUNNING, ENDED = 500, 200
"""How many jobs that run, and of those that have ended the newest, are looked at."""
FIRST, LIGHT = 5, 65_536
"""The others are looked at when the first ones have no more bytes than this together: inputs may be large."""
LATELY = 50


async def tasks_of(store: Store, runner_id: str) -> WorkerTasks:
    """Return what the worker with this runner id executes now, and what it has executed lately."""
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
