"""What a controller has heard of an agent makes of the record of its workload. Pure; the table has the rules.

The record mirrors what the agent's own machine has done, as far as it was heard. A fact names where the
agent is now; the events that lead there are told to the table one after the other, and those that it has
no use for, because they were heard before, do nothing. What is over stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from interlock.lifecycles import workload
from interlock.lifecycles.durations import Durations
from interlock.lifecycles.workload import WORKLOAD, Status, Workload, WorkloadState
from interlock.machine import Event, Moved
from interlock.store.records import Change, Note, Record, StepLine
from interlock.wire.workloads import Happened, WorkloadFact, WorkloadView

CONTROLLER_LOST = "its controller was not heard of any more"
ALIVE_EVERY_S = 15.0
"""How often a controller that has nothing to tell says that it is there."""
SILENT_S = 3 * ALIVE_EVERY_S
"""It is not written off sooner, however little silence is put up with of others."""


class WorkloadBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Everything about a workload that is not a column of its record."""

    data: Workload
    agent: str = ""
    kind: str = ""
    lost: bool = False
    why_lost: str = ""
    operations: int = 0
    errors: int = 0
    rate: float = 0.0
    offset_ms: float | None = None
    uncertainty_ms: float | None = None
    began_ms: float | None = None


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(WorkloadBody)


class Draft:
    """The working copy of one workload."""

    def __init__(self, workload_id: str, job_id: str, now: datetime, record: Record | None) -> None:
        self.id = workload_id
        self.job_id = job_id
        self.now = now
        self.record = record
        self.state = WorkloadState(record.state) if record else WORKLOAD.initial
        self.body = _DECODER.decode(record.body) if record else WorkloadBody(data=Workload())
        self._lines: list[StepLine] = []

    @property
    def over(self) -> bool:
        """Whether it has ended: then nothing that is heard of it changes anything."""
        return self.body.data.final is not None and self.state is workload.IDLE

    def tell(self, event: Event) -> None:
        """Say something to it; what the table has no use for was heard before."""
        decided = WORKLOAD.decide(self.state, self.body.data, event)
        if not isinstance(decided, Moved):
            return
        self.state, self.body.data = decided.state, decided.data
        self._lines += [
            StepLine(WORKLOAD.name, "", step.event, step.source, step.target, step.owner, step.moves)
            for step in decided.steps
        ]

    def change(self, durations: Durations, *, mark: str, actor: str, reason: str = "") -> Change:
        """The record as it has become. That the controller is still there is no news."""
        note = None
        if self._lines or self.record is None:
            note = Note(steps=tuple(self._lines), actor=actor, reason=reason, request_id=mark)
        return Change(
            kind=WORKLOAD.name,
            id=self.id,
            expected=self.record.version if self.record else 0,
            state=self.state,
            body=_ENCODER.encode(self.body),
            parent=self.job_id,
            queue=self.body.agent or None,
            deadline_at=None if self.over else self.now + timedelta(seconds=self._within_s(durations)),
            note=note,
        )

    def _within_s(self, durations: Durations) -> float:
        if self.body.lost and self.state is workload.ABORTING:
            return durations.abort_kill_s
        return max(durations.worker_silence_s, SILENT_S)


def heard(draft: Draft, fact: WorkloadFact) -> None:
    """What a fact makes of a workload."""
    if draft.over:
        return
    body = draft.body
    body.agent, body.kind = fact.agent or body.agent, fact.kind or body.kind
    body.operations = max(body.operations, fact.operations)
    body.errors = max(body.errors, fact.errors)
    body.rate = fact.rate
    if fact.offset_ms is not None:
        body.offset_ms, body.uncertainty_ms = fact.offset_ms, fact.uncertainty_ms
    body.began_ms = body.began_ms if fact.began_ms is None else fact.began_ms
    for event in _events(draft, fact):
        draft.tell(event)
    if fact.happened is Happened.LOST:
        body.lost, body.why_lost = True, fact.error


def silent(draft: Draft) -> None:
    """Nobody has told anything for too long, so the controller is gone, and its agents have noticed."""
    if not draft.body.lost:
        draft.body.lost, draft.body.why_lost = True, CONTROLLER_LOST
    draft.tell(
        {
            workload.ABORTING: workload.Timeout15s(workload_id=draft.id),
            workload.FAILED: workload.ErrorSent(workload_id=draft.id),
        }.get(draft.state, workload.ControllerDisconnect(workload_id=draft.id))
    )


def view_of(record: Record) -> WorkloadView:
    """The workload as it stands."""
    body = _DECODER.decode(record.body)
    final = body.data.final
    return WorkloadView(
        id=record.id,
        state=record.state,
        version=record.version,
        job_id=record.parent or "",
        agent=body.agent,
        created_at=record.created_at,
        updated_at=record.updated_at,
        kind=body.kind,
        final="" if final is None else Status(final).name,
        error=body.data.error or body.why_lost,
        lost=body.lost,
        operations=body.operations,
        errors=body.errors,
        rate=body.rate,
        offset_ms=body.offset_ms,
        uncertainty_ms=body.uncertainty_ms,
        began_ms=body.began_ms,
        deadline_at=record.deadline_at,
    )


def _events(draft: Draft, fact: WorkloadFact) -> Sequence[Event]:
    """The way of the table to where the agent says it is; its beginning may have been heard before."""
    mine = draft.id
    taken: tuple[Event, ...] = () if draft.record else (workload.RpcReceived(workload_id=mine),)
    started = (*taken, workload.StartTimeReached(workload_id=mine))
    aborted = workload.AbortReceived(workload_id=mine)
    match fact.happened:
        case Happened.READY | Happened.ALIVE:
            return taken
        case Happened.REFUSED:
            refused = workload.RpcReceived(workload_id=mine, fault=fact.error or "refused")
            return (refused, workload.ErrorSent(workload_id=mine)) if draft.record is None else ()
        case Happened.RUNNING:
            return started
        case Happened.COMPLETED:
            return (*started, workload.DurationElapsed(workload_id=mine))
        case Happened.ERROR:
            error = workload.WorkloadError(workload_id=mine, error=fact.error or "it failed")
            return (*started, error, workload.ErrorSent(workload_id=mine))
        case Happened.ABORTING:
            return (*taken, aborted)
        case Happened.ABORTED:
            return (*taken, aborted, workload.TaskCancelled(workload_id=mine))
        case Happened.LOST:
            return (*taken, workload.ControllerDisconnect(workload_id=mine))
