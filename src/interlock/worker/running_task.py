"""One leased attempt as this process executes it: the task machine, and its messages.

This module neither waits nor calls other components. The table decides each step (`tell`), its consequences
are in `machines`; the rest builds messages. Two threads use a task: the event loop executes and reports it,
and the renewer sends its heartbeats. Only the event loop sends it events. Other shared data are guarded by a
common lock (`PayloadHandoff`), or are a single value that only one of them writes.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Sequence
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
    TaskData,
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
from interlock.worker.context import NOTHING, Context, UnsentMessages
from interlock.worker.machines import Machines
from interlock.worker.middleware import NO_MIDDLEWARE, Chain, waiting_on
from interlock.worker.outcomes import Outcome, Snoozed, Yielded
from interlock.worker.tasks import Task as HandlerTask
from interlock.worker.telemetry import Observer

AnyTask: TypeAlias = HandlerTask[..., Any]
Ended: TypeAlias = "Callable[[RunningTask, Outcome], None]"
"""Called in the event loop, once, when a handler has ended."""

MAX_REPORT_BYTES = 2 * 1024 * 1024
"""Approximate maximum bytes of one batch of reports."""


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a task, for counting."""

    task_id: str
    final_state: TaskState
    output: object = None
    error: str | None = None
    cost: float | None = None
    duration_s: float | None = None


class RunningTask:
    """A grant, the state of the task that executes it, and its data."""

    __slots__ = (
        "ahead",
        "chain",
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
        self.grant: Grant = grant
        self.runner_id: str = runner_id
        self.machines: Machines = machines
        self.state: TaskState
        self.data: TaskData
        self.claimed_at: float = claimed_at
        self.entered_at: float = claimed_at
        self.renewed_at: float = claimed_at
        """Time of the request of the last answered renewal, by the monotonic clock."""
        self.ttl_s: float = grant.ttl_s
        self.next_number: Callable[[], int] = itertools.count(1).__next__
        self.context: Context | None = None
        self.task: AnyTask | None = None
        """The task of its handler; None before it is looked up."""
        self.chain: Chain = NO_MIDDLEWARE
        """Middleware of its handler."""
        self.handle: Any = None
        """The executor's handle to stop it."""
        self.ahead: bool = False
        """Whether it was claimed before there was room."""
        self.lane: Any = None
        """The lane in which it waits and runs."""
        self.span: Any = None
        self.in_flight: bool = False
        """Whether a heartbeat with a payload is under way."""
        self.lost: bool = False
        self.handler_ended: bool = False
        self.outcome: Outcome | None = None
        self.stop_reason: str = ""
        self.escalated: bool = False
        """Whether stopping it was escalated."""
        self.owed: type[Event] | None = None
        """The message that its lease gets at the end, according to the couplings; None while undecided."""
        self.give_back: bool = False
        """Whether it was abandoned although its lease may be live: then it is released after it has
        stopped.
        """
        self.sent: bool = False
        """Whether the reporter has the report."""
        if begin:
            machines.begin(self)

    def moved(self, watch: Observer, steps: Sequence[Step[Any]]) -> None:
        """Report its steps."""
        self.entered_at = watch.task_moved(self.grant, steps, self.entered_at)

    def send(self, event: Event) -> bool:
        """Let the table decide; return whether it accepted the event."""
        return self.machines.send_to(TASK, self, event, self) is None

    @property
    def timer_at(self) -> datetime | None:
        """None: the renewer watches its lease, by the monotonic clock."""
        return None

    @property
    def begun(self) -> bool:
        """Whether its handler has begun, and may have to be stopped."""
        return self.context is not None

    @property
    def ended(self) -> bool:
        """Whether it has reached an end."""
        return self.state in ENDED

    @property
    def counts_as_failed(self) -> bool:
        """Whether it failed by itself: not for a lost claim or a cancellation."""
        return self.state is FAILED and self.data.error is not None and self.stop_reason != "cancel"

    @property
    def result(self) -> TaskResult:
        """The result of the task."""
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
        """Stop the handler, from any thread.

        Return False if this is not the first time. Losing the lease overrides earlier reasons, because from
        then on no result of the handler is accepted.
        """
        if self.stop_reason == "lost" or (self.stop_reason and reason != "lost"):
            return False
        self.stop_reason = reason
        self.lost = self.lost or reason == "lost"
        if self.context is not None:
            self.context.stop(reason)
        return True

    def invoke(self) -> Any:
        """Call the handler with the arguments of the job."""
        assert self.task is not None
        assert self.context is not None
        return self.task.invoke(self.grant.input, self.context)

    def awaitable(self) -> Any:
        """Return the awaitable of the handler, inside of its middleware."""
        if not self.chain.wraps:
            return self.invoke()
        assert self.context is not None
        return self.chain.drive(self.context, self.invoke)

    def call(self, loop: asyncio.AbstractEventLoop) -> Any:
        """Call the handler in this thread, with the middleware around it.

        Async middleware waits in the loop.
        """
        if not self.chain.wraps:
            return self.invoke()
        assert self.context is not None
        if self.chain.waits:
            return self.chain.call_waiting(self.context, self.invoke, waiting_on(loop))
        return self.chain.call(self.context, self.invoke)

    def lease_ends_at(self) -> float:
        """Return when the lease ends at the earliest, by the monotonic clock."""
        return self.renewed_at + self.ttl_s

    # Messages

    def ack(self) -> Ack:
        """Return the acknowledgement."""
        return Ack(token=self.grant.token, runner_id=self.runner_id, sequence=self.next_number())

    def heartbeat(self, unsent: UnsentMessages | None) -> Heartbeat:
        """Return a heartbeat with unsent messages."""
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

    def complete(self, outcome: Succeeded | Failed, unsent: UnsentMessages | None) -> Complete:
        """Return the completion."""
        return Complete(
            token=self.grant.token,
            runner_id=self.runner_id,
            sequence=self.next_number(),
            outcome=outcome,
            cost=None if self.context is None else self.context.cost,
            log=() if unsent is None else unsent.log,
            log_offset=None if unsent is None else unsent.log_offset,
        )

    def cancel_ack(self, unsent: UnsentMessages | None, *, confirmed_dead: bool = True) -> CancelAck:
        """Return the acknowledgement of a cancellation."""
        return CancelAck(
            token=self.grant.token,
            runner_id=self.runner_id,
            sequence=self.next_number(),
            confirmed_dead=confirmed_dead,
            log=() if unsent is None else unsent.log,
            log_offset=None if unsent is None else unsent.log_offset,
        )

    def release(
        self,
        reason: str,
        unsent: UnsentMessages | None = None,
        *,
        await_children: bool = False,
        await_signal: str = "",
        snoozed: Snoozed | None = None,
    ) -> Release:
        """Return the release, with the saved checkpoint."""
        return Release(
            token=self.grant.token,
            runner_id=self.runner_id,
            sequence=self.next_number(),
            reason=reason,
            checkpoint=_saved(unsent),
            cost=None if self.context is None else self.context.cost,
            await_children=await_children,
            await_signal=await_signal or msgspec.UNSET,
            snooze_s=msgspec.UNSET if snoozed is None or snoozed.after_s is None else snoozed.after_s,
            snooze_until=msgspec.UNSET if snoozed is None or snoozed.until is None else snoozed.until,
            log=() if unsent is None else unsent.log,
            log_offset=None if unsent is None else unsent.log_offset,
        )


def _saved(unsent: UnsentMessages | None) -> msgspec.Raw | msgspec.UnsetType:
    """Return the checkpoint for the wire.

    Null is a value that a handler may have saved.
    """
    return msgspec.UNSET if unsent is None or unsent.checkpoint is None else unsent.checkpoint


class PayloadHandoff:
    """Decides which message carries the payload of a handler: the next heartbeat or the report, exactly one.

    A heartbeat with a payload may fail, and then returns it. A report sent meanwhile would have left without
    it, and no message is accepted under the lease after a report; so the report waits for the heartbeat.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def take_for_heartbeat(self, running: RunningTask) -> UnsentMessages | None:
        """Return the payload for a heartbeat, or None.

        The caller has to call `heartbeat_sent` then.
        """
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

    def heartbeat_sent(self, running: RunningTask, unsent: UnsentMessages | None, *, delivered: bool) -> None:
        """Record whether the heartbeat was delivered; restore its payload if not."""
        if unsent is None:
            return
        with self._lock:
            if not delivered and running.context is not None:
                running.context.put_back(unsent)
            running.in_flight = False

    def take_for_report(self, running: RunningTask) -> tuple[bool, UnsentMessages | None]:
        """Return whether the report may be sent now, and its payload."""
        context = running.context
        if context is None or context.quiet:  # then no heartbeat has a payload either
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
    """Return the event of the table for the outcome of the handler."""
    cost = None if running.context is None else running.context.cost
    if running.stop_reason == "cancel":
        return ProcessingFailed(at=at, cost=cost, error="cancelled on request")
    if isinstance(outcome, Succeeded):
        return ProcessingSucceeded(at=at, cost=cost, output=outcome.result)
    if isinstance(outcome, Yielded | Snoozed):
        return ProcessingYielded(at=at, cost=cost)
    error = outcome.error if isinstance(outcome, Failed) else "stopped"
    return ProcessingFailed(at=at, cost=cost, error=error)


def report_of(running: RunningTask, outcome: Outcome, unsent: UnsentMessages | None) -> list[Message]:
    """Return the messages that end an attempt, in order.

    The couplings decide which message its lease gets. A requested cancellation is acknowledged instead of
    completed. A completion has no fields for progress and checkpoint, so a last heartbeat precedes it.
    """
    if running.owed is None:
        return []
    if running.owed is lease.Release:
        if isinstance(outcome, Snoozed):
            return [running.release("snooze", unsent, snoozed=outcome)]
        if isinstance(outcome, Yielded) and outcome.wait:
            return [running.release("signal", unsent, await_signal=outcome.wait)]
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
    error="The handler was cancelled without a request from the worker.",
    exception="asyncio.exceptions.CancelledError",
)
