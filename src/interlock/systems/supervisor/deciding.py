"""What an event makes of a worker, and what that means for others. Pure; the table has the rules."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from interlock.engine.outbox import outgoing
from interlock.lifecycles import worker
from interlock.lifecycles.couplings import COUPLINGS
from interlock.lifecycles.durations import Durations
from interlock.lifecycles.lease import LEASE
from interlock.lifecycles.worker import WORKER, Worker, WorkerState
from interlock.machine import Event, Moved, Refused
from interlock.store.records import Change, Commit, Note, Record, StepLine
from interlock.systems.supervisor.body import (
    Wishes,
    WorkerBody,
    decode_body,
    encode_body,
    runner_id_of,
)
from interlock.wire.workers import WorkerBeat, WorkerSpec

LET_GO = "worker.let_go"
"""The topic under which the leases of a worker are ended."""

TROUBLES: dict[str, type[worker.ErrorTransient | worker.ResourcesExhausted | worker.ErrorUnrecoverable]] = {
    "transient": worker.ErrorTransient,
    "exhausted": worker.ResourcesExhausted,
    "unrecoverable": worker.ErrorUnrecoverable,
}


class LetGo(msgspec.Struct, frozen=True):
    """Every lease that this worker holds hears this event."""

    runner_id: str
    event: str
    worker_id: str
    until: datetime | None = None
    """Leases that were granted later belong to another life of it; None when there is no other."""
    reason: str = ""


class Draft:
    """The working copy of one worker."""

    def __init__(
        self,
        worker_id: str,
        state: WorkerState,
        body: WorkerBody,
        now: datetime,
        durations: Durations,
        record: Record | None = None,
    ) -> None:
        self.id = worker_id
        self.state = state
        self.body = body
        self.now = now
        self.record = record
        self.deadline_at = record.deadline_at if record else None
        self._durations = durations
        self._lines: list[StepLine] = []
        self._let_go: list[str] = []

    @classmethod
    def of(cls, record: Record, now: datetime, durations: Durations) -> Draft:
        """A working copy of a worker that is there."""
        return cls(record.id, WorkerState(record.state), decode_body(record), now, durations, record)

    @classmethod
    def new(
        cls,
        worker_id: str,
        spec: WorkerSpec,
        now: datetime,
        durations: Durations,
        *,
        registered_by: str = "",
        runner_id: str = "",
    ) -> Draft:
        """A worker that has just introduced itself; its leases call it by its runner id."""
        named = msgspec.structs.replace(
            spec, name=spec.name or worker_id, incarnation=spec.incarnation or worker_id
        )
        data = Worker(capacity=spec.capacity, last_heartbeat_at=now)
        called = runner_id or runner_id_of(named)
        body = WorkerBody(spec=named, data=data, registered_by=registered_by, runner_id=called)
        draft = cls(worker_id, WORKER.initial, body, now, durations)
        draft._arm(durations.worker_silence_s)
        return draft

    def tell(self, event: Event) -> Refused[WorkerState] | None:
        """Say something to the worker; answers why it is refused, if it is."""
        decided = WORKER.decide(self.state, self.body.data, event)
        if not isinstance(decided, Moved):
            return decided
        self.state, self.body.data = decided.state, decided.data
        for step in decided.steps:
            self._lines.append(
                StepLine(WORKER.name, "", step.event, step.source, step.target, step.owner, step.moves)
            )
            if step.arms:
                self._arm(float(getattr(self._durations, step.arms[0].setting)))
            elif self.state in WORKER.terminal:
                self.deadline_at = None
            self._let_go += [
                coupling.event.name
                for coupling in COUPLINGS.caused_by(step)
                if coupling.effect is LEASE and coupling.event is not None
            ]
        return None

    def must(self, event: Event) -> None:
        """Say something, and raise in the table's words when it is refused."""
        if refused := self.tell(event):
            raise refused.error()

    def wish(self, reason: str, *, drain: bool = False, give_back: bool = False) -> None:
        """Order the worker something; it says back the number of the order when it has done so."""
        number = self.body.wishes.number + 1
        look = self.body.wishes.look
        self.body.wishes = Wishes(number=number, drain=drain, give_back=give_back, reason=reason, look=look)
        self.body.reason = reason

    def look(self) -> None:
        """Have the worker look at its leases, whatever else was ordered."""
        wishes = self.body.wishes
        self.body.wishes = msgspec.structs.replace(wishes, number=wishes.number + 1, look=wishes.look + 1)

    @property
    def is_news(self) -> bool:
        """Whether the journal shall know of it: a sign of life alone is none."""
        beat = worker.Heartbeat.name
        return self.record is None or any(line.moves or line.event != beat for line in self._lines)

    def commit(self, *, mark: str, actor: str, reason: str = "", ordered: bool = False) -> Commit:
        """The worker as it has become, with word to its leases when it has ended."""
        note = None
        if self.is_news or ordered:
            note = Note(steps=tuple(self._lines), actor=actor, reason=reason, request_id=mark)
        change = Change(
            kind=WORKER.name,
            id=self.id,
            expected=self.record.version if self.record else 0,
            state=self.state,
            body=encode_body(self.body),
            parent=self.body.spec.name,
            queue=self.body.spec.workspace_id,
            labels=tuple(sorted(set(self.body.spec.labels))),
            deadline_at=self.deadline_at,
            note=note,
        )
        return Commit(changes=(change, *self._messages(reason)))

    def let_go(self, reason: str) -> list[LetGo]:
        """What every lease of the worker shall hear."""
        until = self.now if self.body.silent or self.state not in WORKER.terminal else None
        return [
            LetGo(self.body.runner_id, event, self.id, until, reason) for event in dict.fromkeys(self._let_go)
        ]

    def _messages(self, reason: str) -> tuple[Change, ...]:
        version = self.record.version if self.record else 0
        return tuple(
            outgoing(f"{self.id}.{order.event}.{version}", LET_GO, msgspec.json.encode(order), self.now)
            for order in self.let_go(reason)
        )

    def _arm(self, seconds: float) -> None:
        self.deadline_at = self.now + timedelta(seconds=seconds)


def beaten(draft: Draft, beat: WorkerBeat) -> Refused[WorkerState] | None:
    """What a sign of life makes of a worker. Refused when its life is over: then it must go."""
    if refused := draft.tell(worker.Heartbeat(at=draft.now)):
        return refused
    body = draft.body
    if beat.begun and draft.state is worker.IDLE:
        draft.tell(worker.StartTask(at=draft.now))
    body.data = msgspec.structs.replace(body.data, active=beat.active)
    body.processed, body.failed = max(body.processed, beat.processed), max(body.failed, beat.failed)
    body.heeded = max(body.heeded, min(beat.heeded, body.wishes.number))
    if beat.trouble and draft.tell(TROUBLES[beat.trouble](at=draft.now)) is None:
        body.reason = beat.reason or beat.trouble
        if draft.state is worker.PAUSED:
            draft.wish(body.reason, give_back=True)
    return None


def gone(draft: Draft, reason: str) -> None:
    """The worker says that it goes, with nothing left to do.

    One that never had a task began without one. One that is held did not complete what it was for:
    nobody resumed it, and it is terminated.
    """
    draft.body.data = msgspec.structs.replace(draft.body.data, active=0, pending=0)
    draft.body.reason = reason
    if draft.state is worker.PAUSED:
        draft.must(worker.Terminate(at=draft.now))
        return
    if draft.state is worker.IDLE:
        draft.must(worker.StartTask(at=draft.now))
    draft.must(worker.CompleteTasks(at=draft.now))


def died(draft: Draft, reason: str) -> None:
    """The process of the worker was seen to have ended; what it held counts as lost, as after a silence."""
    draft.body.reason = reason
    draft.must(worker.ProcessDied(at=draft.now))


def silent(record: Record, now: datetime, durations: Durations) -> Draft:
    """A worker that was not heard for too long; a timer that is stale moves nothing."""
    draft = Draft.of(record, now, durations)
    draft.deadline_at = None
    timeout = worker.SupervisorTimeout(at=now, silence_s=durations.worker_silence_s)
    if draft.tell(timeout) is None and draft.state is worker.TERMINATED:
        draft.body.silent = True
        draft.body.reason = f"not heard of for {durations.worker_silence_s:g} s"
    elif draft.body.data.last_heartbeat_at is not None and draft.state not in WORKER.terminal:
        draft.deadline_at = draft.body.data.last_heartbeat_at + timedelta(seconds=durations.worker_silence_s)
    return draft
