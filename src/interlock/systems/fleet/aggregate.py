"""The record of a workload: what its controller has heard of the agent. Pure; the table has the rules.

The record mirrors what the agent's own machine has done, as far as it was heard. A fact names where the
agent is now; the events that lead there are told to the table one after the other, and those that it has
no use for, because they were heard before, do nothing. What is over stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from interlock.engine.aggregate import Aggregate, Columns
from interlock.lifecycles import workload
from interlock.lifecycles.couplings import COUPLINGS
from interlock.lifecycles.durations import Durations
from interlock.lifecycles.workload import WORKLOAD, Status, Workload, WorkloadState
from interlock.machine import Event
from interlock.machine.cascade import RootOf, Wiring, later
from interlock.store.records import Record
from interlock.wire.workloads import Happened, WorkloadFact, WorkloadView

CONTROLLER_LOST = "its controller was not heard of any more"


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


class WorkloadAggregate(Aggregate):
    """The working copy of one workload."""

    __slots__ = ("body", "durations", "job_id")
    kind = WORKLOAD.name
    wiring = Wiring(
        WORKLOAD.name,
        (WORKLOAD,),
        COUPLINGS,
        {},
        own_timers=(
            WORKLOAD,
        ),  # the timers of the table are the agent's; the record waits for its controller
        durations=Durations.__struct_fields__,
    )

    def __init__(
        self, workload_id: str, job_id: str, now: datetime, durations: Durations, record: Record | None
    ) -> None:
        state = WorkloadState(record.state) if record else WORKLOAD.initial
        self.body = _DECODER.decode(record.body) if record else WorkloadBody(data=Workload())
        super().__init__(workload_id, RootOf(state, self.body), now, record)
        self.job_id = job_id
        self.durations = durations

    @property
    def over(self) -> bool:
        """Whether it has ended: then nothing that is heard of it changes anything."""
        return self.body.data.final is not None and self.state is workload.IDLE

    @property
    def deadline_at(self) -> datetime | None:
        """When its controller has to be heard next; once that is lost, when its agent has surely stopped."""
        if self.over:
            return None
        lost = self.body.lost and self.state is workload.ABORTING
        return later(self.now, self.durations.abort_kill_s if lost else self.durations.workload_silence_s)

    def seconds(self, setting: str) -> float:
        """Return how long a timer runs."""
        return float(getattr(self.durations, setting))

    def columns(self) -> Columns:
        """Return what the workload is found by."""
        return Columns(parent=self.job_id, queue=self.body.agent or None)

    def encoded(self) -> bytes:
        """Return the body as the record keeps it."""
        return _ENCODER.encode(self.body)


def heard(draft: WorkloadAggregate, fact: WorkloadFact) -> None:
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
        draft.send(event)
    if fact.happened is Happened.LOST:
        body.lost, body.why_lost = True, fact.error


def silent(draft: WorkloadAggregate) -> None:
    """Nobody has told anything for too long, so the controller is gone, and its agents have noticed."""
    if not draft.body.lost:
        draft.body.lost, draft.body.why_lost = True, CONTROLLER_LOST
    draft.send(
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


def _events(draft: WorkloadAggregate, fact: WorkloadFact) -> Sequence[Event]:
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
