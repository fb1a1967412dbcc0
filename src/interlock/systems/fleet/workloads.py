"""Workloads in the store: one record per agent, which mirrors the events that the controller received.

The recorder writes it in the background and never delays the workload.

Why: decision 0235.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import ClassVar

import msgspec

from interlock.engine.aggregate import Aggregate, Columns
from interlock.engine.loader import every_entry
from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import InterlockError, InvalidWorkload, StoreUnavailable, UnknownWorkload
from interlock.lifecycles import job, workload
from interlock.lifecycles.couplings import COUPLINGS
from interlock.lifecycles.durations import WORKLOAD_BEAT_S, Durations
from interlock.lifecycles.job import JOB
from interlock.lifecycles.workload import WORKLOAD, Status, WorkloadData, WorkloadState
from interlock.machine import Event
from interlock.machine.cascade import RootOf, Wiring
from interlock.store.records import Commit, Committed, Entry, Key, Query, Record
from interlock.systems.fleet.settings import DEFAULT_SETTINGS, FleetSettings
from interlock.systems.fleet.spec import TASK
from interlock.systems.orchestrator.body import decode_body as decode_job
from interlock.systems.orchestrator.tokens import raise_for_answer, read_token
from interlock.wire.runner import Heartbeat, SendMessages
from interlock.wire.workloads import (
    Happened,
    WorkloadFact,
    WorkloadView,
)

CONTROLLER_LOST = "its controller stopped reporting"


class WorkloadBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The body of a workload's record."""

    data: WorkloadData
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

    __slots__ = ("body", "job_id", "settings")
    kind: ClassVar[str] = WORKLOAD.name
    wiring: ClassVar[Wiring] = Wiring(
        (WORKLOAD,),
        COUPLINGS,
        {},
        own_timers=(WORKLOAD,),  # see `deadline_at`
        durations=Durations.__struct_fields__,
    )

    def __init__(
        self, workload_id: str, job_id: str, now: datetime, settings: FleetSettings, record: Record | None
    ) -> None:
        state = WorkloadState(record.state) if record else WORKLOAD.initial
        self.body: WorkloadBody = (
            _DECODER.decode(record.body) if record else WorkloadBody(data=WorkloadData())
        )
        super().__init__(workload_id, RootOf(state, self.body), now, record)
        self.job_id: str = job_id
        self.settings: FleetSettings = settings

    @property
    def over(self) -> bool:
        """Whether it has ended: later events have no effect."""
        return self.body.data.final is not None and self.state is workload.IDLE

    @property
    def deadline_at(self) -> datetime | None:
        """Deadline of the next message of its controller; after its loss, of the agent's stop.

        The timers of the table are the agent's, which runs them. The record waits for its controller: that
        deadline begins anew with every message, also one without a step, and in every state; and the stop
        is waited for only if no controller is left to report it. A timer of the table begins with a step,
        and an agent has no timer for its controller's silence towards the store.
        """
        if self.over:
            return None
        lost = self.body.lost and self.state is workload.ABORTING
        wait_s = self.settings.abort_kill_s if lost else self.settings.workload_silence_s
        return self.now + timedelta(seconds=wait_s)

    def seconds(self, setting: str) -> float:
        """Raise: the agent runs the timers of the table."""
        raise KeyError(setting)

    def columns(self) -> Columns:
        """Return the columns by which the workload is found."""
        return Columns(parent=self.job_id, queue=self.body.agent or None)

    def encoded(self) -> bytes:
        """Return the body, encoded for the record."""
        return _ENCODER.encode(self.body)


def apply_fact(draft: WorkloadAggregate, fact: WorkloadFact) -> None:
    """Apply an event to a workload."""
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


def expire_silent(draft: WorkloadAggregate) -> None:
    """Mark a workload as lost with its silent controller."""
    if not draft.body.lost:
        draft.body.lost, draft.body.why_lost = True, CONTROLLER_LOST
    draft.send(
        {
            workload.ABORTING: workload.Timeout15s(workload_id=draft.id),
            workload.FAILED: workload.ErrorSent(workload_id=draft.id),
        }.get(draft.state, workload.ControllerDisconnect(workload_id=draft.id))
    )


def view_of(record: Record) -> WorkloadView:
    """Return the view of a workload."""
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
    """Return the events of the table up to the agent's state.

    Some may have been applied before.
    """
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


MOST_FACTS = 200
"""Maximum events in one commit."""


def workload_id_of(job_id: str, fence: int, number: int) -> str:
    """Return the id of the workload of one agent, unique for each attempt."""
    return f"{job_id}_{fence}_{number}"


class Workloads:
    """The workloads in a store."""

    def __init__(
        self,
        engine: Engine,
        send_messages: SendMessages,
        *,
        settings: FleetSettings = DEFAULT_SETTINGS,
    ) -> None:
        self.engine = engine
        self._send = send_messages
        self.settings = settings

    async def apply(self, facts: Sequence[WorkloadFact], *, actor: str = "") -> None:
        """Apply events that a controller received; idempotent."""
        for first in range(0, len(facts), MOST_FACTS):
            await self._apply(facts[first : first + MOST_FACTS], actor)

    async def apply_under(self, token: str, runner_id: str, facts: Sequence[WorkloadFact]) -> None:
        """Apply events under the live lease of the driving job."""
        (answer,) = await self._send([Heartbeat(token=token, runner_id=runner_id)])
        raise_for_answer(answer)
        about = read_token(token)
        assert about is not None  # the heartbeat was accepted
        strange = [fact.workload_id for fact in facts if fact.job_id != about.job_id]
        if strange:
            raise unknown_workload(strange[0])
        await self.apply(facts, actor=runner_id)

    async def get(self, workload_id: str) -> WorkloadView:
        """Return the workload."""
        return view_of(await self._load(workload_id))

    async def find(self, query: Query) -> tuple[list[WorkloadView], str]:
        """Return a page of workloads, and the cursor of the next one."""
        page = await self.engine.store.find(query)
        return [view_of(record) for record in page.records], page.cursor

    async def history(self, workload_id: str) -> list[Entry]:
        """Return its history, oldest first."""
        record = await self._load(workload_id)
        return [entry async for entry in every_entry(self.engine.store, record.key)]

    async def sweep(self, *, limit: int = 500) -> int:
        """Handle workloads whose controller was silent for too long.

        Return their number.
        """

        def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
            commit_id = self.engine.commit_id()
            return [self._written_off(record, now, commit_id) for record in records]

        outcomes = await self.engine.due([WORKLOAD.name], limit, decide)
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    async def _apply(self, facts: Sequence[WorkloadFact], actor: str) -> None:
        by_id = {fact.workload_id: fact for fact in facts}
        if len(by_id) < len(facts):
            raise InvalidWorkload(
                "A workload is there twice.",
                todo="Send one report for each workload; the latest is enough.",
                facts={"workloads": len(facts)},
            )
        jobs = sorted({fact.job_id for fact in facts})
        keys = [Key(JOB.name, each) for each in jobs] + [Key(WORKLOAD.name, each) for each in by_id]

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
            commit_id = self.engine.commit_id()
            known = dict(zip(jobs, found, strict=False))
            changes = []
            for fact, record in zip(facts, found[len(jobs) :], strict=True):
                _check(fact, known[fact.job_id], record)
                draft = WorkloadAggregate(fact.workload_id, fact.job_id, now, self.settings, record)
                if draft.over:
                    continue
                apply_fact(draft, fact)
                changes.append(draft.change(commit_id=commit_id, actor=actor, reason=fact.error))
            return Decision(None, Commit(changes=tuple(changes)) if changes else None)

        await self.engine.apply(keys, decide)

    def _written_off(self, record: Record, now: datetime, commit_id: str) -> Commit:
        draft = WorkloadAggregate(record.id, record.parent or "", now, self.settings, record)
        expire_silent(draft)
        why = draft.body.why_lost
        return Commit(changes=(draft.change(commit_id=commit_id, actor="clock", reason=why),))

    async def _load(self, workload_id: str) -> Record:
        (record,) = await self.engine.store.load([Key(WORKLOAD.name, workload_id)])
        if record is None:
            raise unknown_workload(workload_id)
        return record


def unknown_workload(workload_id: str) -> UnknownWorkload:
    """Return the error of an unknown workload."""
    return UnknownWorkload(
        f"There is no workload {workload_id}.",
        todo="Look for it with `interlock workload list`.",
        facts={"workload_id": workload_id},
    )


def _check(fact: WorkloadFact, driver: Record | None, record: Record | None) -> None:
    """Raise unless the workload belongs to the job.

    A new workload needs the job of an unfinished driver.
    """
    if record is not None:
        if record.parent == fact.job_id:
            return
        raise unknown_workload(fact.workload_id)
    drives = driver is not None and decode_job(driver.body).task == TASK
    if driver is None or not drives or driver.state in job.ENDED:
        raise InvalidWorkload(
            f"The job {fact.job_id} does not drive a fleet now, so it has no workload {fact.workload_id}.",
            todo=f"Workloads are created by jobs of the task {TASK} while they run.",
            facts={"job_id": fact.job_id, "workload_id": fact.workload_id},
        )


StoreFacts = Callable[[Sequence[WorkloadFact]], Awaitable[None]]
PAUSE_S = 0.5
"""Pause before an unavailable store is retried."""
NUMBERS_EVERY_S = 2.0
"""Interval in which the figures of a small fleet are stored."""
WRITES_A_SECOND = 20.0
"""Maximum rate of writes for figures; a larger fleet is stored less often."""
LAST_WORDS_S = 11.0
"""With the time that agents have to stop (`driver.STOP_S`), less than the cancel deadline."""


class WorkloadRecorder:
    """Stores events as soon as possible."""

    def __init__(self, store_facts: StoreFacts, warn: Callable[[str], None]) -> None:
        self._store = store_facts
        self._warn = warn
        self._unsent: dict[str, WorkloadFact] = {}
        self._known: dict[str, WorkloadFact] = {}
        self._news = asyncio.Event()
        self._closing = False
        self._task = asyncio.create_task(self._run(), name="record workloads")

    def record(self, fact: WorkloadFact) -> None:
        """Store an event as soon as possible, unless it was stored before."""
        known = self._known.get(fact.workload_id)
        self._known[fact.workload_id] = fact
        if known is None or known.happened is not fact.happened:
            self._unsent[fact.workload_id] = fact
            self._news.set()

    async def close(self) -> None:
        """Store the rest, within a few seconds."""
        self._closing = True
        self._news.set()
        await asyncio.wait([self._task], timeout=LAST_WORDS_S)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while self._unsent or not self._closing:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._news.wait()
            self._news.clear()
            await self._flush()

    async def _flush(self) -> None:
        facts = self._unsent or self._signs_of_life()
        self._unsent = {}
        if not facts:
            return
        try:
            await self._store(list(facts.values()))
        except StoreUnavailable:
            self._unsent = facts | self._unsent
            self._news.set()
            await asyncio.sleep(PAUSE_S)
        except InterlockError as error:
            self._warn(f"The store refused the reports of the agents: {error.sentence}")

    @property
    def _every_s(self) -> float:
        return min(WORKLOAD_BEAT_S, max(NUMBERS_EVERY_S, len(self._known) / WRITES_A_SECOND))

    def _signs_of_life(self) -> dict[str, WorkloadFact]:
        living = (fact for fact in self._known.values() if fact.happened in _LIVING)
        return {
            fact.workload_id: msgspec.structs.replace(fact, happened=Happened.ALIVE, error="")
            for fact in living
        }


_LIVING = (Happened.READY, Happened.RUNNING, Happened.ABORTING)
