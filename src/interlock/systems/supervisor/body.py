"""What the record of a worker keeps, and how it is shown."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from interlock.lifecycles.worker import TAKING, WORKER, Worker, WorkerState
from interlock.store.records import Record
from interlock.wire.workers import WorkerOrders, WorkerSpec, WorkerView

MISSED_BEATS = 3
"""A worker is silent when so many heartbeats are missing."""


class Wishes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the supervisor wants of the worker beyond its state."""

    number: int = 0
    """Grows with every order, so that the worker can say which it has carried out."""
    drain: bool = False
    give_back: bool = False
    reason: str = ""
    look: int = 0
    """How often something was stopped that the worker held."""


class WorkerBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Everything about a worker that is not a column of its record."""

    spec: WorkerSpec
    data: Worker
    runner_id: str
    """What its leases call it."""
    wishes: Wishes = Wishes()
    heeded: int = 0
    """The newest orders that the worker has carried out."""
    processed: int = 0
    failed: int = 0
    reason: str = ""
    """Why it ended, or is where it is."""
    silent: bool = False
    """It was written off because nothing was heard of it."""
    registered_by: str = ""
    """Who has introduced it; only they speak for it."""


def runner_id_of(spec: WorkerSpec) -> str:
    """What the leases of a worker call it."""
    return f"{spec.name}#{spec.incarnation}"


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(WorkerBody)


def encode_body(body: WorkerBody) -> bytes:
    """The body as the record keeps it."""
    return _ENCODER.encode(body)


def decode_body(record: Record) -> WorkerBody:
    """A working copy."""
    return _DECODER.decode(record.body)


def view_of(record: Record) -> WorkerView:
    """The worker as it stands."""
    body = decode_body(record)
    spec, data, wishes = body.spec, body.data, body.wishes
    return WorkerView(
        id=record.id,
        state=record.state,
        version=record.version,
        name=spec.name,
        created_at=record.created_at,
        updated_at=record.updated_at,
        workspace_id=spec.workspace_id,
        incarnation=spec.incarnation,
        host=spec.host,
        pid=spec.pid,
        queues=spec.queues,
        labels=record.labels,
        tasks=spec.tasks,
        capacity=data.capacity,
        active=data.active,
        processed=body.processed,
        failed=body.failed,
        transient_errors=data.transient_errors,
        started_at=data.started_at,
        completed_at=data.completed_at,
        last_heartbeat_at=data.last_heartbeat_at,
        deadline_at=record.deadline_at,
        outcome=data.outcome,
        reason=body.reason,
        draining=wishes.drain,
        give_back=wishes.give_back,
        heeded=body.heeded >= wishes.number,
        code_version=spec.version,
        metadata=spec.metadata,
    )


def marked(view: WorkerView, now: datetime, beat_every_s: float) -> WorkerView:
    """Return the view with whether the worker is silent."""
    heard = view.last_heartbeat_at or view.created_at
    late = now - heard > timedelta(seconds=MISSED_BEATS * beat_every_s)
    living = WorkerState(view.state) not in WORKER.terminal
    return msgspec.structs.replace(view, silent=True) if late and living else view


def orders_of(state: WorkerState, body: WorkerBody, beat_every_s: float) -> WorkerOrders:
    """What a worker shall do, from where its record stands. The table says who takes, and what is over."""
    wishes = body.wishes
    stop = "terminate" if state in WORKER.terminal else "drain" if wishes.drain else ""
    return WorkerOrders(
        state=state,
        number=wishes.number,
        take=state in TAKING and not stop,
        give_back=wishes.give_back or stop == "terminate",
        stop=stop,
        anew=body.silent,
        reason=body.reason or wishes.reason,
        beat_every_s=beat_every_s,
        look=wishes.look,
    )
