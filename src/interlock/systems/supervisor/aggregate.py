"""The record of a worker: its body, the decisions about events, and the effects on its leases. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar

import msgspec

from interlock.engine.aggregate import Aggregate, Columns
from interlock.engine.outbox import outgoing
from interlock.lifecycles import worker
from interlock.lifecycles.couplings import COUPLINGS, Deliverer, Recipient
from interlock.lifecycles.worker import TAKING, WORKER, Worker, WorkerState
from interlock.machine import Deadline, Event
from interlock.machine.cascade import EventRules, Refusal, Root, Wiring, elsewhere, outward
from interlock.store.records import Change, Commit, Record
from interlock.systems.supervisor.settings import SupervisorSettings
from interlock.wire.workers import WorkerBeat, WorkerOrders, WorkerSpec, WorkerView

MISSED_BEATS = 3
"""Number of missing heartbeats after which a worker is silent."""


class WorkerOrderState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The orders of the supervisor beyond the state."""

    number: int = 0
    """Grows with every order, so that the worker can confirm it."""
    drain: bool = False
    give_back: bool = False
    reason: str = ""
    look: int = 0
    """Number of stops of the worker's leases."""


class WorkerBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The body of a worker's record."""

    spec: WorkerSpec
    data: Worker
    runner_id: str
    """Its name in leases."""
    order_state: WorkerOrderState = msgspec.field(default=WorkerOrderState(), name="wishes")
    confirmed: int = msgspec.field(default=0, name="heeded")
    """The newest orders that the worker has carried out."""
    processed: int = 0
    failed: int = 0
    reason: str = ""
    """Reason of its end or of its state."""
    silent: bool = False
    """Whether it was declared lost because of silence."""
    registered_by: str = ""
    """The principal that registered it; only it may act for the worker."""


def runner_id_of(spec: WorkerSpec) -> str:
    """Return the name of a worker in leases."""
    return f"{spec.name}#{spec.incarnation}"


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(WorkerBody)


def encode_body(body: WorkerBody) -> bytes:
    """Return the body, encoded for the record."""
    return _ENCODER.encode(body)


def decode_body(record: Record) -> WorkerBody:
    """Return a decoded copy."""
    return _DECODER.decode(record.body)


def view_of(record: Record) -> WorkerView:
    """Return the view of a worker."""
    body = decode_body(record)
    spec, data, orders = body.spec, body.data, body.order_state
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
        draining=orders.drain,
        give_back=orders.give_back,
        heeded=body.confirmed >= orders.number,
        code_version=spec.version,
        metadata=spec.metadata,
    )


def marked(view: WorkerView, now: datetime, beat_every_s: float) -> WorkerView:
    """Return the view, with whether the worker is silent."""
    last_beat = view.last_heartbeat_at or view.created_at
    late = now - last_beat > timedelta(seconds=MISSED_BEATS * beat_every_s)
    living = WorkerState(view.state) not in WORKER.terminal
    return msgspec.structs.replace(view, silent=True) if late and living else view


def orders_of(state: WorkerState, body: WorkerBody, beat_every_s: float) -> WorkerOrders:
    """Return the orders to a worker, from its record.

    The table decides which states may claim, and which are final.
    """
    orders = body.order_state
    stop = "terminate" if state in WORKER.terminal else "drain" if orders.drain else ""
    return WorkerOrders(
        state=state,
        number=orders.number,
        take=state in TAKING and not stop,
        give_back=orders.give_back or stop == "terminate",
        stop=stop,
        anew=body.silent,
        reason=body.reason or orders.reason,
        beat_every_s=beat_every_s,
        look=orders.look,
    )


LET_GO = "worker.let_go"
"""The topic of messages to end the leases of a worker."""

TROUBLES: dict[str, type[worker.ErrorTransient | worker.ResourcesExhausted | worker.ErrorUnrecoverable]] = {
    "transient": worker.ErrorTransient,
    "exhausted": worker.ResourcesExhausted,
    "unrecoverable": worker.ErrorUnrecoverable,
}


class ReleaseLeases(msgspec.Struct, frozen=True):
    """A message to send an event to every lease of a worker."""

    runner_id: str
    event: str
    worker_id: str
    until: datetime | None = None
    """Later leases belong to another life of it; None if there is no other."""
    reason: str = ""


class WorkerAggregate(Aggregate):
    """The working copy of one worker."""

    __slots__ = ("body", "settings")
    kind: ClassVar[str] = WORKER.name
    wiring: ClassVar[Wiring] = Wiring(
        (WORKER,),
        COUPLINGS,
        {
            Recipient.HELD_LEASES: outward(),
            Recipient.ITS_PROCESS: elsewhere(Deliverer.WORKER),
        },
        events=EventRules(quiet=(worker.Heartbeat,)),
        durations=SupervisorSettings.__struct_fields__,
    )

    def __init__(
        self,
        worker_id: str,
        body: WorkerBody,
        now: datetime,
        settings: SupervisorSettings,
        record: Record | None = None,
    ) -> None:
        state = WORKER.initial if record is None else WorkerState(record.state)
        deadline_at = None if record is None else record.deadline_at
        super().__init__(worker_id, Root(state, body.data, deadline_at), now, record)
        self.body: WorkerBody = body
        self.settings: SupervisorSettings = settings

    @classmethod
    def of(cls, record: Record, now: datetime, settings: SupervisorSettings) -> WorkerAggregate:
        """Return the working copy of a record."""
        return cls(record.id, decode_body(record), now, settings, record)

    @classmethod
    def new(
        cls,
        worker_id: str,
        spec: WorkerSpec,
        now: datetime,
        settings: SupervisorSettings,
        *,
        registered_by: str = "",
        runner_id: str = "",
    ) -> WorkerAggregate:
        """Return a newly registered worker."""
        named = msgspec.structs.replace(
            spec, name=spec.name or worker_id, incarnation=spec.incarnation or worker_id
        )
        data = Worker(capacity=spec.capacity, last_heartbeat_at=now)
        called = runner_id or runner_id_of(named)
        body = WorkerBody(spec=named, data=data, registered_by=registered_by, runner_id=called)
        made = cls(worker_id, body, now, settings)
        made.arm(WORKER, made.root)
        return made

    def seconds(self, setting: str) -> float:
        """Return how long a timer runs."""
        return float(getattr(self.settings, setting))

    def timer_event(self, within: Deadline, _: None) -> Event:
        """Return the event of a silence that was too long."""
        return worker.SupervisorTimeout(at=self.now, silence_s=self.seconds(within.setting))

    def columns(self) -> Columns:
        """Return the columns by which the worker is found."""
        spec = self.body.spec
        return Columns(parent=spec.name, queue=spec.workspace_id, labels=tuple(sorted(set(spec.labels))))

    def encoded(self) -> bytes:
        """Return the body, encoded for the record."""
        self.body.data = self.root.data
        return encode_body(self.body)

    def order(self, reason: str, *, drain: bool = False, give_back: bool = False) -> None:
        """Order the worker something; it confirms the number of the order."""
        number = self.body.order_state.number + 1
        look = self.body.order_state.look
        self.body.order_state = WorkerOrderState(
            number=number, drain=drain, give_back=give_back, reason=reason, look=look
        )
        self.body.reason = reason

    def look(self) -> None:
        """Order the worker to renew its leases, besides other orders."""
        orders = self.body.order_state
        self.body.order_state = msgspec.structs.replace(
            orders, number=orders.number + 1, look=orders.look + 1
        )

    def commit(self, *, commit_id: str, actor: str, reason: str = "", ordered: bool = False) -> Commit:
        """Return the commit of the worker.

        It has a message to its leases if the worker has ended.
        """
        change = self.change(commit_id=commit_id, actor=actor, reason=reason, note=ordered)
        return Commit(changes=(change, *self._messages(reason)))

    def releases(self, reason: str) -> list[ReleaseLeases]:
        """Return the messages to the leases of the worker."""
        until = self.now if self.body.silent or self.state not in WORKER.terminal else None
        events = [c.event.name for c, _ in self.outward if c.event is not None]
        return [
            ReleaseLeases(self.body.runner_id, event, self.id, until, reason)
            for event in dict.fromkeys(events)
        ]

    def _messages(self, reason: str) -> tuple[Change, ...]:
        return tuple(
            outgoing(f"{self.id}.{order.event}.{self.version}", LET_GO, msgspec.json.encode(order), self.now)
            for order in self.releases(reason)
        )


def decide_heartbeat(draft: WorkerAggregate, beat: WorkerBeat) -> Refusal:
    """Apply a heartbeat; refuse it if the worker has ended: then it must exit."""
    if refused := draft.send(worker.Heartbeat(at=draft.now)):
        return refused
    body = draft.body
    if beat.begun and draft.state is worker.IDLE:
        draft.send(worker.StartTask(at=draft.now))
    draft.root.data = msgspec.structs.replace(draft.root.data, active=beat.active)
    body.processed, body.failed = max(body.processed, beat.processed), max(body.failed, beat.failed)
    body.confirmed = max(body.confirmed, min(beat.heeded, body.order_state.number))
    if beat.trouble and draft.send(TROUBLES[beat.trouble](at=draft.now)) is None:
        body.reason = beat.reason or beat.trouble
        if draft.state is worker.PAUSED:
            draft.order(body.reason, give_back=True)
    return None


def decide_leave(draft: WorkerAggregate, reason: str) -> None:
    """Apply that the worker leaves, without remaining tasks.

    One that never had a task started without one. A paused one did not complete: it was not resumed, and is
    terminated.
    """
    draft.root.data = msgspec.structs.replace(draft.root.data, active=0, pending=0)
    draft.body.reason = reason
    if draft.state is worker.PAUSED:
        draft.must(worker.Terminate(at=draft.now))
        return
    if draft.state is worker.IDLE:
        draft.must(worker.StartTask(at=draft.now))
    draft.must(worker.CompleteTasks(at=draft.now))


def decide_death(draft: WorkerAggregate, reason: str) -> None:
    """Apply the death of a worker's process; its jobs are lost."""
    draft.body.reason = reason
    draft.must(worker.ProcessDied(at=draft.now))


def decide_silence(record: Record, now: datetime, settings: SupervisorSettings) -> WorkerAggregate:
    """Return a worker that was silent for too long.

    A stale timer has no effect.
    """
    draft = WorkerAggregate.of(record, now, settings)
    draft.fire_due()
    if draft.state is worker.TERMINATED:
        draft.body.silent = True
        draft.body.reason = f"no heartbeat for {settings.worker_silence_s:g} s"
    elif draft.state not in WORKER.terminal and draft.root.data.last_heartbeat_at is not None:
        # The timer was stale: the last heartbeat counts.
        draft.arm(WORKER, draft.root, since=draft.root.data.last_heartbeat_at)
    return draft
