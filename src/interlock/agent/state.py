"""The state of an agent: its one workload, and the table that decides about every event.

Each occurrence becomes an event with the workload's id and is sent to the machine, which lives in memory like
those of a worker (`machine/cascade.py`). Nothing else here knows which state allows which event: a late
timer, a second abort, the end of a process that was replaced are all sent to the table, and it ignores those
that no longer apply.

The outbox holds the messages about one workload that the controller has not read, never more than one of each
kind. A slow reader slows nothing down and costs no memory: samples are merged into the waiting message.
READY comes first and the final message last.

Why: decision 0605.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, ParamSpec

import msgspec
from structlog.typing import FilteringBoundLogger

from interlock.agent.execution import KILLED_S, ProcessFamily, Spawn, WorkloadExecution
from interlock.agent.port import KindLocation
from interlock.agent.protocol import LoadSample, Order, Started
from interlock.agent.settings import AgentSettings
from interlock.agent.validation import RequestedWorkload, ValidRequest, look_at, too_far
from interlock.errors import InvalidWorkload
from interlock.lifecycles.couplings import COUPLINGS
from interlock.lifecycles.durations import DURATIONS
from interlock.lifecycles.workload import (
    ABORT_KILL,
    DURATION,
    READY,
    WORKLOAD,
    AbortReceived,
    CancelWorkload,
    ControllerDisconnect,
    DurationElapsed,
    ErrorSent,
    OfWorkload,
    RpcReceived,
    SendStatus,
    SpawnWorkload,
    StartTimeReached,
    Status,
    TaskCancelled,
    Timeout5s,
    Timeout15s,
    WorkloadData,
    WorkloadError,
    WorkloadState,
)
from interlock.machine import Deadline, Refused
from interlock.machine.cascade import Cascade, EventRules, Root, StepEffects, Timers, Wiring
from interlock.machine.couplings import AnyMachine


class Clocks(msgspec.Struct, frozen=True, kw_only=True):
    """The clocks of an agent; a simulated machine passes its own."""

    wall_ns: Callable[[], int] = time.time_ns
    """Nanoseconds since 1970 by the clock of this host; start times refer to it."""
    monotonic_ns: Callable[[], int] = time.monotonic_ns
    """Monotonic clock, which a change of the wall clock does not affect; all waits use it."""


THIS_MACHINE = Clocks()


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message to the controller: a status, and the measurements since the previous message."""

    sequence: int
    report: SendStatus
    started: Started | None
    totals: LoadSample
    since: LoadSample
    interval_ns: int


class Outbox:
    """Merges the messages about a workload, and returns them in order."""

    def __init__(self, quiet_s: float, on_last: Callable[[], None] = lambda: None) -> None:
        self._quiet_s = quiet_s
        """Time without a sample after which a message reports only that the workload runs."""
        self._on_last = on_last
        """Callback after the last message was taken."""
        self._statuses: list[SendStatus] = []
        self._running = False
        self._started: Started | None = None
        self._since = LoadSample(samples=0)
        self._totals = LoadSample(samples=0)
        self._sent_ns = 0
        self._sequence = 0
        self._news = asyncio.Event()
        self._ended = False

    def run(self) -> None:
        """Mark the workload as running, which is a message by itself."""
        self._running = True
        self._news.set()

    def add_status(self, status: SendStatus) -> None:
        """Add READY or the final status, which are never merged."""
        self._statuses.append(status)
        self._running = self._running and not status.completed
        self._news.set()

    def add_message(self, message: Started | LoadSample) -> None:
        """Add a message of the workload while it runs."""
        if isinstance(message, Started):
            self._started = message
        else:
            self._since.absorb(message)
        self._news.set()

    async def next(self) -> Message | None:
        """Return the next message as soon as there is one; None after the last."""
        if self._ended:
            return None
        if not self._statuses and not self._news.is_set():
            await self._until_news()
        self._news.clear()
        status = self._statuses.pop(0) if self._statuses else SendStatus(Status.RUNNING)
        if self._statuses:
            self._news.set()
        message = self._message(status)
        if status.completed:
            self._ended = True
            self._on_last()
        return message

    async def _until_news(self) -> None:
        if not self._running:
            await self._news.wait()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._quiet_s):
                await self._news.wait()

    def _message(self, status: SendStatus) -> Message:
        since = LoadSample(samples=0)
        if status.status is not Status.READY:  # READY may be read late, and must not carry later measurements
            since, self._since = self._since, since
        since.elapsed_ns = max(since.elapsed_ns, self._sent_ns)
        interval_ns, self._sent_ns = since.elapsed_ns - self._sent_ns, since.elapsed_ns
        totals = self._totals
        totals.elapsed_ns = since.elapsed_ns
        totals.backlog = since.backlog if since.samples else totals.backlog
        totals.operations += since.operations
        totals.errors += since.errors
        totals.size += since.size
        self._sequence += 1
        return Message(
            sequence=self._sequence,
            report=status,
            started=self._started,
            totals=msgspec.structs.replace(totals),
            since=since,
            interval_ns=interval_ns,
        )


REMEMBERED = 1_000
"""Number of past workload ids that are refused, so that late messages about them have no effect."""
LEAVE_S = 4.0
"""Time that the answer to an abort waits for a killed preparation; milliseconds are usual."""
QUIET = 1.5
"""Number of intervals without a sample after which the controller is notified that there was none."""

P = ParamSpec("P")


class CurrentWorkload:
    """The present workload of an agent, and its resources."""

    def __init__(self, request: RequestedWorkload, checked: ValidRequest | None, outbox: Outbox) -> None:
        self.request = request
        self.checked = checked
        self.outbox = outbox
        self.start_at_ns: int | None = None
        self.told_unix_ns: int | None = None
        """Start time as requested, by the wall clock."""
        self.execution: WorkloadExecution | None = None
        self.leaving: OfWorkload | None = None
        """The event that aborts it during preparation; sent to the table when no process is left."""
        self.timers: list[asyncio.TimerHandle] = []

    @property
    def workload_id(self) -> str:
        """The id of the workload."""
        return self.request.workload_id


class AgentState(Cascade):
    """The state of an agent: its machine, whose owner is the present workload."""

    in_memory = True
    wiring: ClassVar[Wiring] = Wiring(
        (WORKLOAD,),
        COUPLINGS,
        {},
        events=EventRules(
            made={
                StartTimeReached: lambda _, present: StartTimeReached(
                    workload_id=present.workload_id, told=False
                ),
                Timeout5s: lambda _, present: Timeout5s(workload_id=present.workload_id),
                ErrorSent: lambda _, present: ErrorSent(workload_id=present.workload_id),
            }
        ),
        durations=DURATIONS,
    )

    def __init__(
        self,
        settings: AgentSettings,
        kinds: Mapping[str, KindLocation],
        log: FilteringBoundLogger,
        spawn: Spawn = ProcessFamily,
        clocks: Clocks = THIS_MACHINE,
    ) -> None:
        super().__init__(datetime.fromtimestamp(clocks.wall_ns() / 1e9, UTC))
        self.machine: Root = Root(WORKLOAD.initial, WorkloadData())
        self.present: CurrentWorkload | None = None
        self.kinds = kinds
        self.clocks = clocks
        self._settings = settings
        self._durations = settings.durations
        self._log = log
        self._spawn = spawn
        self._since_ns = self.clocks.monotonic_ns()
        self._used: deque[str] = deque(maxlen=REMEMBERED)
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def state(self) -> WorkloadState:
        """The state, by the table."""
        state: WorkloadState = self.machine.state
        return state

    @property
    def record(self) -> WorkloadData:
        """The data of the present or last workload."""
        record: WorkloadData = self.machine.data
        return record

    @property
    def since_s(self) -> float:
        """The time since the last transition."""
        return (self.clocks.monotonic_ns() - self._since_ns) / 1e9

    @property
    def sample_every_s(self) -> float:
        """The interval of reports while a workload runs."""
        return self._settings.sample_every_s

    # Requests of the controller

    def request(self, request: RequestedWorkload) -> Outbox:
        """Accept a workload and return its outbox. Raise when the agent is busy."""
        refused = WORKLOAD.decide(self.state, self.record, RpcReceived(workload_id=request.workload_id))
        if isinstance(refused, Refused):  # before the request itself is validated
            error = refused.error()
            error.facts |= {"workload_id": self.record.workload_id, "controller": self.controller}
            raise error
        fault, checked = None, None
        try:
            checked = self._look_at(request)
        except InvalidWorkload as error:
            fault = error.sentence
        on_last = partial(self._error_sent, request.workload_id)
        outbox = Outbox(QUIET * self._settings.sample_every_s, on_last)
        self.present = CurrentWorkload(request, checked, outbox)
        self._used.append(request.workload_id)
        self._send(RpcReceived(workload_id=request.workload_id, fault=fault))
        if fault is None and request.start_at_unix_ns is not None:
            self._schedule(self.present, request.start_at_unix_ns)
        return outbox

    def start(self, workload_id: str, start_at_unix_ns: int) -> int:
        """Set the start time; return its age in nanoseconds. Raise if too late."""
        refused = WORKLOAD.decide(self.state, self.record, StartTimeReached(workload_id=workload_id))
        if isinstance(refused, Refused):
            raise refused.error()
        if fault := too_far(start_at_unix_ns, self.clocks.wall_ns(), self._durations):
            raise InvalidWorkload(f"{fault[0].upper()}{fault[1:]}.", todo="Choose another start.")
        present = self.present
        assert present is not None
        if present.leaving is not None:
            raise InvalidWorkload(f"The workload {workload_id} was aborted.", todo="Request another one.")
        if present.execution is None:
            return self._schedule(present, start_at_unix_ns)
        if start_at_unix_ns != present.told_unix_ns:
            raise InvalidWorkload(
                f"The workload {workload_id} is already preparing for an announced start.",
                todo="Announce another start before that one, or abort it.",
            )
        return 0

    def abort(self, workload_id: str, reason: str = "") -> bool:
        """Abort the workload; return whether there was one to abort."""
        self._log.info("workload_abort_asked", workload_id=workload_id, reason=reason)
        return self._leave(AbortReceived(workload_id=workload_id))

    def disconnected(self, workload_id: str) -> None:
        """Abort the workload whose controller has disconnected."""
        self._leave(ControllerDisconnect(workload_id=workload_id))

    async def until_left(self) -> None:
        """Wait for the end of a preparation that was killed."""
        if self.present is not None and self.present.leaving is not None:
            await self.until_idle(LEAVE_S)

    async def until_idle(self, seconds: float) -> None:
        """Wait until the agent is idle, up to a limit."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            pass

    async def close(self) -> None:
        """Stop the workload, by force if necessary."""
        if self.present is not None and not self._idle.is_set():
            self.abort(self.present.workload_id, "the agent is stopped")
        await self.until_idle(self._durations.abort_kill_s + KILLED_S)
        if not self._idle.is_set() and self.present is not None and self.present.execution is not None:
            await self.present.execution.abandon()

    @property
    def controller(self) -> str:
        """The controller of the present or last workload."""
        return self.present.request.controller if self.present is not None else ""

    def _look_at(self, request: RequestedWorkload) -> ValidRequest:
        if request.workload_id in self._used:
            raise InvalidWorkload(f"There was a workload {request.workload_id!r} here before.")
        return look_at(request, self.kinds, self._durations, self.clocks.wall_ns())

    def _schedule(self, present: CurrentWorkload, start_at_unix_ns: int) -> int:
        """Schedule the start by the monotonic clock.

        Later changes of the wall clock do not matter.
        """
        ahead_ns = start_at_unix_ns - self.clocks.wall_ns()
        present.start_at_ns = self.clocks.monotonic_ns() + ahead_ns
        present.told_unix_ns = start_at_unix_ns
        prepare_s = present.checked.prepare_s if present.checked is not None else 0.0
        self._disarm(present)
        if prepare_s > 0 and ahead_ns > 0:
            self._call_later(present, max(0.0, ahead_ns / 1e9 - prepare_s), self._begin, present)
        reached = StartTimeReached(workload_id=present.workload_id)
        self._call_later(present, max(0.0, ahead_ns / 1e9), self._send, reached)
        return max(0, -ahead_ns)

    # During preparation it is READY: the table knows its process only from the start on

    def _leave(self, event: OfWorkload) -> bool:
        """Abort the workload.

        A preparation is killed first, so that IDLE means that no process is left.
        """
        present = self.present
        if (
            present is None
            or present.execution is None
            or self.state is not READY
            or present.workload_id != event.workload_id
        ):
            return self._send(event)
        if present.leaving is not None:
            return False
        present.leaving = event
        self._disarm(present)
        present.execution.kill()
        return True

    def _handle(self, present: CurrentWorkload, message: Started | LoadSample) -> None:
        """Handle a message of its process.

        The process starts by itself, perhaps before the timer here.
        """
        if isinstance(message, Started) and present.leaving is None:
            self._send(StartTimeReached(workload_id=present.workload_id))
        present.outbox.add_message(message)

    def _of_execution(self, present: CurrentWorkload, event: OfWorkload) -> None:
        """Handle an event of its process.

        One that ends while READY ends the wait for the start.
        """
        if self.state is not READY or self.present is not present:
            self._send(event)
        elif present.leaving is None:
            if isinstance(event, DurationElapsed | WorkloadError):
                self._send(StartTimeReached(workload_id=present.workload_id))
            self._send(event)
        elif isinstance(event, Timeout15s) and event.survivors:
            assert present.execution is not None
            present.execution.kill()
        elif isinstance(event, Timeout15s | TaskCancelled):
            self._send(present.leaving)

    # Decisions of the table

    def _send(self, event: OfWorkload) -> bool:
        """Let the table decide; return whether it accepted the event."""
        refused = self.send_to(WORKLOAD, self.machine, event, self.present)
        if self.state in WORKLOAD.resting:
            self._idle.set()
        else:
            self._idle.clear()
        return refused is None

    def parts(self) -> tuple[tuple[AnyMachine, Root, CurrentWorkload | None]]:
        """Return the workload."""
        return ((WORKLOAD, self.machine, self.present),)

    def report_refusal(self, refused: Refused[Any], _: CurrentWorkload | None) -> None:
        """Log an event that has no effect."""
        self._log.debug("workload_event_ignored", _event=refused.asked, sentence=refused.sentence)

    def report(self, effects: StepEffects, present: CurrentWorkload) -> None:
        """Log transitions."""
        for step in effects.steps:
            if step.moves:
                self._since_ns = self.clocks.monotonic_ns()
                self._log.info(
                    "workload_state_transition",
                    workload_id=present.workload_id,
                    from_state=str(step.source),
                    to_state=str(step.target),
                    _event=step.event,
                    error=self.record.error,
                )

    def carry_out(self, effect: object, present: CurrentWorkload) -> None:
        """Notify the controller, or start or stop the workload."""
        match effect:
            case SendStatus():
                present.outbox.add_status(effect)
            case SpawnWorkload():
                if present.execution is None:  # otherwise it has prepared, and starts by itself
                    self._begin(present)
                present.outbox.run()
            case CancelWorkload(forced=False) if present.execution is not None:
                present.execution.request_stop()
            case CancelWorkload() if present.execution is not None:
                self._log.warning("workload_does_not_stop", workload_id=present.workload_id)
                present.execution.terminate()
            case _:
                raise AssertionError(f"no handler for the effect {effect!r}")

    def _error_sent(self, workload_id: str) -> None:
        self._send(ErrorSent(workload_id=workload_id))

    def _begin(self, present: CurrentWorkload) -> None:
        """Start its process, which prepares and waits for the start.

        Its messages go into the outbox.
        """
        checked, request = present.checked, present.request
        assert checked is not None
        assert present.start_at_ns is not None
        order = Order(
            home=checked.home,
            spec=checked.spec,
            start_at_ns=present.start_at_ns,
            duration_s=checked.duration_s,
            rate=request.rate,
            concurrency=request.concurrency or 1,
            max_operations=request.max_operations,
            sample_every_s=self._settings.sample_every_s,
            drain_s=self._settings.drain_s,
            path=list(sys.path),
        )
        line = partial(self._log_line, present.workload_id)
        family = self._spawn(order, partial(self._handle, present), line)
        say = partial(self._of_execution, present)
        present.execution = WorkloadExecution(present.workload_id, family, say, self._durations)

    def _log_line(self, workload_id: str, line: str, stream: str) -> None:
        self._log.info("workload_output", workload_id=workload_id, line=line, stream=stream)

    # Timers: each belongs to one workload, and is ignored for another

    def set_timers(self, ended: Timers, started: Timers, present: CurrentWorkload) -> None:
        """Stop and start the timers of the present workload."""
        if ended:
            self._disarm(present)
        for deadline in started:
            self._call_later(present, self.seconds(deadline.setting), self._expire, present, deadline)

    def seconds(self, setting: str) -> float:
        """Return how long a timer runs."""
        if setting == DURATION.setting:
            assert self.present is not None
            return self._longest_s(self.present)
        return float(getattr(self._durations, setting))

    def _expire(self, present: CurrentWorkload, deadline: Deadline) -> None:
        """Stop processes on an expired timer, or else send its event."""
        if deadline == DURATION:
            self._is_over_time(present)
        elif deadline == ABORT_KILL:
            self._kill(present)
        else:
            event = self.timer_event(deadline, present)
            assert isinstance(event, OfWorkload)
            self._send(event)

    def _longest_s(self, present: CurrentWorkload) -> float:
        """Return the time until it must have ended.

        Normally its process ends long before.
        """
        assert present.checked is not None
        assert present.start_at_ns is not None
        ahead_s = max(0.0, (present.start_at_ns - self.clocks.monotonic_ns()) / 1e9)
        slack_s = self._settings.drain_s + self._durations.abort_warning_s + self._durations.start_wait_s
        return ahead_s + present.checked.duration_s + slack_s

    def _is_over_time(self, present: CurrentWorkload) -> None:
        if present.execution is not None:
            self._log.warning("workload_is_over_time", workload_id=present.workload_id)
            present.execution.is_over_time()

    def _kill(self, present: CurrentWorkload) -> None:
        if present.execution is not None:
            self._log.warning("workload_is_killed", workload_id=present.workload_id)
            present.execution.kill()

    def _call_later(
        self,
        present: CurrentWorkload,
        seconds: float,
        act: Callable[P, object],
        *args: P.args,
        **more: P.kwargs,
    ) -> None:
        call = partial(act, *args, **more)
        present.timers.append(asyncio.get_running_loop().call_later(seconds, call))

    def _disarm(self, present: CurrentWorkload) -> None:
        for timer in present.timers:
            timer.cancel()
        present.timers.clear()
