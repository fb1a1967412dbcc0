"""Reconcile simulations: decide about messages of workers, handle lost executions and silence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, assert_never

import msgspec

from interlock.engine.unit_of_work import Applied, Decider, Decision, Engine, journalled_once
from interlock.errors import InterlockError, InvalidSimulation
from interlock.lifecycles import lease, simulation
from interlock.lifecycles.job import JOB
from interlock.lifecycles.simulation import SIMULATION
from interlock.machine import Event
from interlock.store import records
from interlock.store.records import Commit, JournalledRefusal, Key, Note, Record, record_after
from interlock.systems.orchestrator.body import decode_body as decode_job
from interlock.systems.orchestrator.notifications import ExecutionLost
from interlock.systems.orchestrator.tokens import read_token
from interlock.systems.simulations.aggregate import SimulationAggregate, is_of_attempt
from interlock.systems.simulations.body import PULSE, decode_body, view_of
from interlock.systems.simulations.settings import SimulationSettings
from interlock.systems.simulations.validation import check_value, unknown
from interlock.wire.simulations import (
    MOST_METRICS,
    MOST_NAME,
    MOST_SAMPLES,
    AnySimulationMessage,
    Beat,
    Begin,
    Completed,
    Failed,
    Paused,
    SimulationOrders,
    SimulationView,
    fault_of,
)


class MessageSender(msgspec.Struct, frozen=True):
    """The sender of a message, from its lease."""

    run_id: str
    execution: int
    attempt: int
    worker_id: str


def decide_message(
    draft: SimulationAggregate,
    sender: MessageSender,
    message: AnySimulationMessage,
    commit_id: str,
    beat_every_s: float,
) -> Decision[SimulationOrders]:
    """Decide about a message, and return the answer to its worker."""
    commit: Commit | None = None
    why = _superseded(draft, sender)
    if not why:
        match message:
            case Begin():
                why, commit = _begin(draft, sender, commit_id)
            case Beat():
                why, commit = _beat(draft, sender, message, commit_id)
            case Paused() | Completed() | Failed():
                why, commit = _end(draft, sender, message, commit_id)
            case _ as never:
                assert_never(never)
    if why and commit is None:
        note = Note(refusal=f"{_name(message)}: {why}", actor=sender.worker_id, request_id=commit_id)
        refused = records.JournalledRefusal(kind=SIMULATION.name, id=draft.id, note=note)
        kind = f"{sender.execution}.{sender.attempt} {_name(message)} {draft.state}"
        commit = journalled_once(refused, kind)
    return Decision(orders_of(draft, why, beat_every_s), commit)


def orders_of(draft: SimulationAggregate, why: str, beat_every_s: float) -> SimulationOrders:
    """Return the orders to the worker, from the state of the simulation."""
    data = draft.body.data
    known = draft.pulse.total_steps
    return SimulationOrders(
        run_id=draft.id,
        status=draft.state,
        go_on=not why,
        reason=why,
        pause=data.pause_requested or data.cancel_requested,
        step=draft.pulse.saved_step,
        total_steps=known if known is not None else draft.body.spec.total_steps,
        checkpoint=draft.pulse.checkpoint,
        danger_count=draft.pulse.dangers,
        sampled=draft.pulse.samples.last_step,
        beat_every_s=beat_every_s,
    )


def _superseded(draft: SimulationAggregate, sender: MessageSender) -> str:
    """Return why messages of this execution are ignored.

    It is empty if they are not.
    """
    current = draft.body.execution.number
    if sender.execution != current:
        return f"it was granted again: execution {current} counts, and this is {sender.execution}"
    return ""


def _begin(draft: SimulationAggregate, sender: MessageSender, commit_id: str) -> tuple[str, Commit | None]:
    """Start the execution, or return why it must not start."""
    execution, running = draft.body.execution, draft.state is simulation.RUNNING
    if running and is_of_attempt(draft.pulse, sender.execution, sender.attempt, sender.worker_id):
        return "", None  # the answer was lost
    if running and sender.attempt > execution.attempt:
        # A later attempt has the lease, so the earlier one has lost it; its message is under way.
        draft.interrupt(simulation.Interrupt(at=draft.now, reason="given back"))
    if draft.state is simulation.INTERRUPTED and draft.body.data.cancel_requested:
        draft.must(simulation.Cancel(at=draft.now))
        return "it was cancelled", draft.commit(commit_id=commit_id, actor="simulator")
    if draft.body.execution.held:
        commit = draft.commit(commit_id=commit_id, actor="simulator") if running else None
        return f"it stands until it is resumed: {draft.body.trouble}", commit
    begins = simulation.Start if draft.state is simulation.PENDING else simulation.Resume
    if refused := draft.send(begins(at=draft.now, worker_id=sender.worker_id)):
        return refused.sentence, None
    draft.begun(sender.attempt)
    return "", draft.commit(commit_id=commit_id, actor=sender.worker_id)


def _beat(
    draft: SimulationAggregate, sender: MessageSender, message: Beat, commit_id: str
) -> tuple[str, Commit | None]:
    if not is_of_attempt(draft.pulse, sender.execution, sender.attempt, sender.worker_id):
        return "another attempt executes it", None
    heartbeat = simulation.Heartbeat(at=draft.now, worker_id=sender.worker_id, step=message.step)
    if refused := draft.send(heartbeat):
        return refused.sentence, None
    draft.beat(message)
    return "", draft.beat_commit(commit_id=commit_id, actor=sender.worker_id)


def _end(
    draft: SimulationAggregate, sender: MessageSender, message: Paused | Completed | Failed, commit_id: str
) -> tuple[str, Commit | None]:
    """End the execution."""
    ending = f"{sender.execution}.{sender.attempt}.{_name(message)}"
    if draft.body.said == ending:
        return "", None
    if not is_of_attempt(draft.pulse, sender.execution, sender.attempt, sender.worker_id):
        return "another attempt executes it", None
    draft.note(message)
    if refused := draft.send(_ending(draft, sender.worker_id, message)):
        return refused.sentence, None
    draft.body.said = ending
    if isinstance(message, Completed):
        draft.body.result = message.result
    return "", draft.commit(commit_id=commit_id, actor=sender.worker_id)


def _ending(draft: SimulationAggregate, worker_id: str, message: Paused | Completed | Failed) -> Event:
    match message:
        case Paused(step=step):
            return simulation.Pause(at=draft.now, worker_id=worker_id, step=step)
        case Completed(step=step):
            return simulation.Complete(at=draft.now, worker_id=worker_id, step=step)
        case Failed(error=error):
            return simulation.Fail(at=draft.now, worker_id=worker_id, error=error)


def _name(message: AnySimulationMessage) -> str:
    return str(type(message).__struct_config__.tag)


CancelJob = Callable[..., Awaitable[Any]]

BEATS_BEFORE_STALE = 6
"""Number of lost heartbeats before a simulation is shown as stale."""


class Written(NamedTuple):
    """The loaded records and the commit, so that written records need not be read again."""

    present: Sequence[Record | None]
    commit: Commit | None = None

    def records(self, at: datetime) -> tuple[Record, Record | None]:
        """Return the simulation and its pulse after the commit."""
        record, beside = self.present
        for change in self.commit.changes if self.commit is not None else ():
            if change.kind == SIMULATION.name:
                record = record_after(change, record, at)
            elif change.kind == PULSE.name:
                beside = record_after(change, beside, at)
        assert record is not None
        return record, beside


class SimulationReconciler:
    """Handles messages and events about simulations."""

    def __init__(
        self, engine: Engine, settings: SimulationSettings, cancel_job: CancelJob | None = None
    ) -> None:
        self.engine = engine
        self.settings = settings
        self._cancel_job = cancel_job

    # Messages of workers

    async def receive(self, token: str, runner_id: str, message: AnySimulationMessage) -> SimulationOrders:
        """Process a message of a worker under the lease of its job."""
        self._check_values(message)
        sender = await self._sender(token, runner_id)
        if isinstance(sender, str):
            return SimulationOrders(run_id="", status="", go_on=False, reason=sender)
        beat_every_s = self.settings.simulation_stale_s / BEATS_BEFORE_STALE

        def decide(present: Sequence[Record | None], now: datetime) -> Decision[SimulationOrders]:
            draft = self._draft(sender.run_id, present, now)
            return decide_message(draft, sender, message, self.engine.commit_id(), beat_every_s)

        applied = await self.engine.apply(self._keys(sender.run_id), decide)
        assert isinstance(applied, Applied)  # there is no request id
        return applied.answer

    async def heartbeat(self, run_id: str, worker_id: str, step: int) -> SimulationView:
        """Record a heartbeat of a simulation that is executed by another program.

        A refusal has the table's message; the first of its kind is journalled.
        """

        def decide(present: Sequence[Record | None], now: datetime) -> Decision[Written | InterlockError]:
            draft, commit_id = self._draft(run_id, present, now), self.engine.commit_id()
            if refused := draft.send(simulation.Heartbeat(at=now, worker_id=worker_id, step=step)):
                error = refused.error()
                note = Note(refusal=f"heartbeat: {error.sentence}", actor=worker_id, request_id=commit_id)
                about = JournalledRefusal(kind=SIMULATION.name, id=run_id, note=note)
                return Decision(error, journalled_once(about, f"heartbeat {draft.state}"))
            draft.beat(Beat(step=step))
            commit = draft.beat_commit(commit_id=commit_id, actor=worker_id)
            return Decision(Written(present, commit), commit)

        applied = await self.engine.apply(self._keys(run_id), decide)
        assert isinstance(applied, Applied)  # nothing has a request id here
        if isinstance(applied.answer, InterlockError):
            raise applied.answer
        return await self._view(*applied.answer.records(applied.at))

    # Losses and silence

    async def end_execution(self, run_id: str, execution: int, reason: str) -> None:
        """End an execution whose worker is certainly gone.

        The simulation can be resumed at once.
        """
        (record,) = await self.engine.load([Key(SIMULATION.name, run_id)])
        known = decode_body(_present(run_id, record)).execution
        if known.number == execution:
            # Before its job is cancelled: that message is only about the job.
            message = ExecutionLost(run_id, execution, known.attempt, False, reason)
            await self.lost(msgspec.json.encode(message))
            await self._stop_job(known.job_id, reason)

    async def lost(self, payload: bytes) -> None:
        """Handle the loss of an execution; idempotent."""
        message = msgspec.json.decode(payload, type=ExecutionLost)

        def decide(present: Sequence[Record | None], now: datetime) -> Decision[str]:
            if present[0] is None:
                return Decision("")
            draft = self._draft(message.run_id, present, now)
            execution = draft.body.execution
            if execution.number != message.execution or execution.attempt > message.attempt:
                return Decision("")  # it is executed elsewhere
            if draft.state in simulation.ENDED:
                return Decision("")
            refused = draft.interrupt(simulation.Interrupt(at=now, reason=message.reason))
            held = draft.body.execution.held
            if refused and not held:
                draft.body.trouble = message.reason
            # The attempt is recorded although it may never have begun, so that later messages of earlier ones
            # are ignored.
            draft.body.execution = msgspec.structs.replace(
                draft.body.execution, attempt=message.attempt, awaited=message.again and not held
            )
            return Decision(
                execution.job_id if held and message.again else "",
                draft.commit(commit_id=self.engine.commit_id(), actor="orchestrator", reason=message.reason),
            )

        applied = await self.engine.apply(self._keys(message.run_id), decide)
        assert isinstance(applied, Applied)  # nothing has a request id here
        if applied.answer:
            await self._stop_job(
                applied.answer, f"the simulation {message.run_id} stands until it is resumed"
            )

    async def sweep(self, *, limit: int = 500) -> int:
        """Interrupt simulations that were silent for too long.

        Return their number. The due ones are read first, without a change: the decision needs both records.
        """
        due: list[str] = []

        def note(records: Sequence[Record], _: datetime) -> list[Commit]:
            due.extend(record.id for record in records)
            return []

        await self.engine.due([PULSE.name], limit, note)
        for run_id in due:
            await self.engine.apply(self._keys(run_id), self._silent(run_id))
        return len(due)

    def _silent(self, run_id: str) -> Decider[None]:
        silence_s = self.settings.simulation_silence_s

        def decide(present: Sequence[Record | None], now: datetime) -> Decision[None]:
            if present[0] is None:
                return Decision(None)
            draft = self._draft(run_id, present, now)
            fired = simulation.HeartbeatLost(at=now, silence_s=silence_s)
            # Its job may be released and claimed again, which costs no loss.
            if draft.interrupt(fired, hold=not draft.body.spec.losses) is not None:
                return Decision(None)
            return Decision(
                None,
                draft.commit(commit_id=self.engine.commit_id(), actor="clock", reason=draft.body.trouble),
            )

        return decide

    # Implementation

    async def _stop_job(self, job_id: str, reason: str) -> None:
        """Cancel a job whose attempts the simulation would refuse."""
        if self._cancel_job is not None:
            with suppress(InterlockError):
                await self._cancel_job(job_id, reason=reason, actor="simulator")

    def _draft(self, run_id: str, present: Sequence[Record | None], now: datetime) -> SimulationAggregate:
        return SimulationAggregate.of(_present(run_id, present[0]), present[1], now, self.settings)

    def _keys(self, run_id: str) -> list[Key]:
        return [Key(SIMULATION.name, run_id), Key(PULSE.name, run_id)]

    async def _view(self, record: Record, beside: Record | None) -> SimulationView:
        stale_s = self.settings.simulation_stale_s
        return view_of(record, beside, await self.engine.clock.now(), stale_s)

    async def _sender(self, token: str, runner_id: str) -> MessageSender | str:
        """Return the sender of a message, or why it is not accepted."""
        read = read_token(token)
        if read is None:
            return "this is not the token of a lease"
        (record,) = await self.engine.load([Key(JOB.name, read.job_id)])
        body = decode_job(record.body) if record else None
        held = [
            one.lease
            for one in (body.attempts if body else ())
            if (one.shard, one.index) == (read.shard, read.index) and one.lease is not None
        ]
        if body is None or not held or not read.opens(held[0].digest):
            return "there is no such lease"
        granted, now = held[0], await self.engine.clock.now()
        if granted.state not in lease.LIVE or granted.data.expires_at <= now:
            return f"the lease is {granted.state if granted.state not in lease.LIVE else lease.EXPIRED}"
        if granted.data.runner_id != runner_id:
            return "the lease belongs to another runner"
        if body.simulation is None:
            return "this job executes no simulation; start one with `interlock simulation start`"
        part = body.simulation
        return MessageSender(part.run_id, part.execution, read.index, runner_id)

    def _check_values(self, message: AnySimulationMessage) -> None:
        sizes = {"checkpoint": (message.checkpoint, self.settings.jobs.max_checkpoints_bytes)}
        if isinstance(message, Completed):
            sizes["result"] = (message.result, self.settings.jobs.max_result_bytes)
        for noun, (raw, most) in sizes.items():
            check_value(noun, raw, most)
        many = f"{len(message.samples)} samples at once" if len(message.samples) > MOST_SAMPLES else ""
        if fault := many or fault_of(message.samples):
            raise InvalidSimulation(
                f"The metrics of a simulation cannot be kept: {fault}.",
                todo=f"Record up to {MOST_METRICS} finite numbers under names of up to {MOST_NAME} letters.",
                facts={"fault": fault},
            )


def _present(run_id: str, record: Record | None) -> Record:
    if record is None:
        raise unknown(run_id)
    return record
