"""One leased attempt as this process executes it: the task machine, and what it has to say.

Nothing here waits or calls anybody. The table decides each step (`tell`), and what follows from it is in
`machines`; the rest knows how to put into a message what has happened. Two threads touch a task: the event
loop executes and reports it, and the renewer sends its heartbeats. Only the event loop tells it events.
What else both need is guarded by the lock they share (`Parcels`), or is a single value that only one of
them writes.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from interlock.lifecycles import TASK, lease
from interlock.lifecycles.task import (
    ENDED,
    FAILED,
    ProcessingFailed,
    ProcessingSucceeded,
    ProcessingYielded,
    Task,
    TaskState,
)
from interlock.machine import Event, Step
from interlock.wire.runner import (
    Ack,
    CancelAck,
    Complete,
    Failed,
    Grant,
    Heartbeat,
    Message,
    Release,
    Succeeded,
)
from interlock.worker.context import NOTHING, Context, Unsent
from interlock.worker.machines import Machines
from interlock.worker.outcomes import Outcome, Yielded
from interlock.worker.tasks import Task as HandlerTask
from interlock.worker.telemetry import Observer

AnyTask: TypeAlias = HandlerTask[..., Any]

MAX_REPORT_BYTES = 2 * 1024 * 1024
"""How much is reported in one go, about."""


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a task ended, for whoever counts."""

    task_id: str
    final_state: TaskState
    output: object = None
    error: str | None = None
    cost: float | None = None
    duration_s: float | None = None


class RunningTask:
    """A grant, the state of the task that executes it, and everything that belongs to it."""

    __slots__ = (
        "ahead",
        "claimed_at",
        "context",
        "data",
        "entered_at",
        "escalated",
        "give_back",
        "grant",
        "handle",
        "handler_ended",
        "in_flight",
        "lane",
        "lost",
        "machines",
        "next_number",
        "outcome",
        "owed",
        "renewed_at",
        "runner_id",
        "sent",
        "span",
        "state",
        "stop_reason",
        "task",
        "ttl_s",
    )

    count = 1

    def __init__(
        self, grant: Grant, runner_id: str, claimed_at: float, machines: Machines, *, begin: bool = True
    ) -> None:
        self.grant = grant
        self.runner_id = runner_id
        self.machines = machines
        self.state: TaskState
        self.data: Task
        self.claimed_at = claimed_at
        self.entered_at = claimed_at
        self.renewed_at = claimed_at
        """By the monotonic clock, when the last renewal that was answered had been asked for."""
        self.ttl_s = grant.ttl_s
        self.next_number = itertools.count(1).__next__
        self.context: Context | None = None
        self.task: AnyTask | None = None
        """Whose handler it is; None while nobody has looked."""
        self.handle: Any = None
        """What the executor needs to stop it."""
        self.ahead = False
        """It was asked for before there was room for it."""
        self.lane: Any = None
        """Where it waits and runs."""
        self.span: Any = None
        self.in_flight = False
        """A heartbeat is under way whose contents may yet come back."""
        self.lost = False
        self.handler_ended = False
        self.outcome: Outcome | None = None
        self.stop_reason = ""
        self.escalated = False
        """Somebody sees to it that it stops."""
        self.owed: type[Event] | None = None
        """What its lease is to be sent in the end, as the couplings say; None while they do not."""
        self.give_back = False
        """It was abandoned although its lease may live: whoever has stopped gives it back."""
        self.sent = False
        """The report is with the reporter."""
        if begin:
            machines.begin(self)

    def moved(self, watch: Observer, steps: Sequence[Step[Any]]) -> None:
        """Report its steps."""
        self.entered_at = watch.task_moved(self.grant, steps, self.entered_at)

    def tell(self, event: Event) -> bool:
        """Let the table decide; answers whether it has accepted the event."""
        return self.machines.take(TASK, self, event, self) is None

    @property
    def timer_at(self) -> datetime | None:
        """The renewer watches its lease, by the monotonic clock."""
        return None

    @property
    def begun(self) -> bool:
        """Whether its handler has begun: from then on there is something to be stopped."""
        return self.context is not None

    @property
    def ended(self) -> bool:
        """Whether it has reached an end."""
        return self.state in ENDED

    @property
    def counts_as_failed(self) -> bool:
        """A claim that was lost and a cancel that was asked for are nobody's failure."""
        return self.state is FAILED and self.data.error is not None and self.stop_reason != "cancel"

    @property
    def result(self) -> TaskResult:
        """How it ended."""
        data = self.data
        began, over = data.processing_started_at, data.processing_ended_at
        return TaskResult(
            task_id=self.grant.job_id,
            final_state=self.state,
            output=None if data.output is msgspec.UNSET else data.output,
            error=data.error,
            cost=data.cost,
            duration_s=(over - began).total_seconds() if began and over else None,
        )

    def stop(self, reason: str) -> bool:
        """Tell the handler to stop; from any thread. False when it was told so before.

        To lose the lease outweighs everything that was said before it, because from then on nothing
        that the handler does may be believed.
        """
        if self.stop_reason == "lost" or (self.stop_reason and reason != "lost"):
            return False
        self.stop_reason = reason
        self.lost = self.lost or reason == "lost"
        if self.context is not None:
            self.context.stop(reason)
        return True

    def invoke(self) -> Any:
        """Call the handler, whatever it is, with the arguments of the job."""
        assert self.task is not None
        assert self.context is not None
        return self.task.invoke(self.grant.input, self.context)

    def lease_ends_at(self) -> float:
        """When the lease ends by the monotonic clock, as far as we know: at this moment or later."""
        return self.renewed_at + self.ttl_s

    # What it says

    def ack(self) -> Ack:
        """It begins."""
        return Ack(token=self.grant.token, runner_id=self.runner_id, sequence=self.next_number())

    def heartbeat(self, unsent: Unsent | None) -> Heartbeat:
        """It is still at it, and this is what has gathered."""
        token, number = self.grant.token, self.next_number()
        if unsent is None:
            return Heartbeat(token=token, runner_id=self.runner_id, sequence=number)
        return Heartbeat(
            token=token,
            runner_id=self.runner_id,
            sequence=number,
            log=unsent.log,
            log_offset=unsent.log_offset,
            progress=unsent.progress,
            checkpoint=_saved(unsent),
            uploading=unsent.uploading,
        )

    def complete(self, outcome: Succeeded | Failed, unsent: Unsent | None) -> Complete:
        """How it ended."""
        return Complete(
            token=self.grant.token,
            runner_id=self.runner_id,
            sequence=self.next_number(),
            outcome=outcome,
            cost=None if self.context is None else self.context.cost,
            log=() if unsent is None else unsent.log,
            log_offset=None if unsent is None else unsent.log_offset,
        )

    def cancel_ack(self, unsent: Unsent | None, *, confirmed_dead: bool = True) -> CancelAck:
        """It has stopped, as it was asked to."""
        return CancelAck(
            token=self.grant.token,
            runner_id=self.runner_id,
            sequence=self.next_number(),
            confirmed_dead=confirmed_dead,
            log=() if unsent is None else unsent.log,
            log_offset=None if unsent is None else unsent.log_offset,
        )

    def release(self, reason: str, unsent: Unsent | None = None, *, await_children: bool = False) -> Release:
        """It gives the work back, with what it has saved."""
        return Release(
            token=self.grant.token,
            runner_id=self.runner_id,
            sequence=self.next_number(),
            reason=reason,
            checkpoint=_saved(unsent),
            cost=None if self.context is None else self.context.cost,
            await_children=await_children,
            log=() if unsent is None else unsent.log,
            log_offset=None if unsent is None else unsent.log_offset,
        )


def _saved(unsent: Unsent | None) -> msgspec.Raw | msgspec.UnsetType:
    """What goes on the wire; there, null is something that a handler may have saved."""
    return msgspec.UNSET if unsent is None or unsent.checkpoint is None else unsent.checkpoint


class PayloadHandoff:
    """Who carries what a handler wants sent: the next heartbeat or the report, never both or neither.

    A heartbeat that takes something along may fail, and then brings it back. A report that was sent
    meanwhile would have left without it, and nothing is heard under the lease after a report; so the
    report waits for the heartbeat.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def take_for_heartbeat(self, running: RunningTask) -> Unsent | None:
        """What the heartbeat shall carry; None for nothing. Whoever took something brings it home."""
        context = running.context
        if context is None:
            return None
        with self._lock:
            if running.sent:
                return None
            unsent = context.take()
            if unsent is NOTHING:
                return None
            running.in_flight = True
            return unsent

    def bring_home(self, running: RunningTask, unsent: Unsent | None, *, delivered: bool) -> None:
        """The heartbeat was answered, or not."""
        if unsent is None:
            return
        with self._lock:
            if not delivered and running.context is not None:
                running.context.put_back(unsent)
            running.in_flight = False

    def take_for_report(self, running: RunningTask) -> tuple[bool, Unsent | None]:
        """Whether the report may be sent now, and what it shall carry."""
        context = running.context
        if context is None or context.quiet:  # then no heartbeat has taken anything along either
            running.sent = True
            return True, None
        with self._lock:
            if running.in_flight:
                return False, None
            running.sent = True
            unsent = context.take()
        return True, None if unsent is NOTHING else unsent


def outcome_event(
    running: RunningTask, outcome: Outcome, at: datetime
) -> ProcessingSucceeded | ProcessingFailed | ProcessingYielded:
    """How the handler ended, as the table knows it."""
    cost = None if running.context is None else running.context.cost
    if running.stop_reason == "cancel":
        return ProcessingFailed(at=at, cost=cost, error="cancelled, as it was asked to")
    if isinstance(outcome, Succeeded):
        return ProcessingSucceeded(at=at, cost=cost, output=outcome.result)
    if isinstance(outcome, Yielded):
        return ProcessingYielded(at=at, cost=cost)
    error = outcome.error if isinstance(outcome, Failed) else "stopped"
    return ProcessingFailed(at=at, cost=cost, error=error)


def report_of(running: RunningTask, outcome: Outcome, unsent: Unsent | None) -> list[Message]:
    """The messages that end an attempt, in order.

    The couplings say what its lease is owed. A cancel that was asked for is acknowledged instead of
    completed. A completion has no room for progress and checkpoint, so a last heartbeat goes ahead of it.
    """
    if running.owed is None:
        return []
    if running.owed is lease.Release:
        waits = isinstance(outcome, Yielded)
        return [running.release("children" if waits else "shutdown", unsent, await_children=waits)]
    ahead: list[Message] = []
    if unsent is not None and (unsent.progress is not None or unsent.checkpoint is not None):
        ahead.append(running.heartbeat(unsent))
        unsent = None
    match outcome:
        case _ if running.stop_reason == "cancel":
            confirmed = getattr(outcome, "confirmed_dead", True)
            return [*ahead, running.cancel_ack(unsent, confirmed_dead=confirmed)]
        case Succeeded() | Failed():
            return [*ahead, running.complete(outcome, unsent)]
        case _:
            return [*ahead, running.complete(STOPPED_ITSELF, unsent)]


STOPPED_ITSELF = Failed(
    error="The handler was stopped although nobody had asked it to stop.",
    exception="asyncio.exceptions.CancelledError",
)
