"""The reconciler: job changes come in, commits of runs and orders to their jobs go out.

Orders. A run orders jobs to be created, released or stopped. An order is a message in the commit of the run
that gives it, so none is lost. Carrying it out twice does nothing more, and the sequence does not matter: an
order finds its job as it is, and creates it where it is missing. So after a crash anywhere in between,
another process carries the order out again.

Any number of reconcilers may work on one store. A message is taken by one of them, and is counted in the
commit of the run that receives it, so each is counted once. When two decide about the same run, one meets a
version conflict, loads the run and decides again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from itertools import groupby
from typing import TypeAlias

import msgspec

from interlock.engine.bulk import Item, apply_all, commit_all_with_recovery
from interlock.engine.loops import gather_all
from interlock.engine.outbox import message_in, outgoing, returned, sent, take_all
from interlock.engine.recovery import commit_with_recovery
from interlock.engine.unit_of_work import Applied, Decision, Engine, contended, failed
from interlock.errors import InterlockError
from interlock.lifecycles import job, run
from interlock.lifecycles.job import JOB
from interlock.lifecycles.run import RUN
from interlock.store.records import (
    Batch,
    Change,
    Commit,
    Committed,
    Conflict,
    Illegal,
    Key,
    Record,
    Request,
    RequestReused,
    record_after,
)
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import PlanPlace, Provenance, RunPart
from interlock.systems.orchestrator.cancellation import commit_of
from interlock.systems.orchestrator.grants import ANY_JOB, Shape, any_job, common_change, shape_of
from interlock.systems.orchestrator.ids import JobIds
from interlock.systems.orchestrator.notifications import RUN_JOBS, RUN_JOBS_TOGETHER, JobChanged, JobsChanged
from interlock.systems.orchestrator.planned_approvals import open_gate
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.submission import given_by, grouped, new_job, release, without_given
from interlock.systems.runs.aggregate import RunAggregate
from interlock.systems.runs.body import RunBody, decode_run
from interlock.systems.runs.plan_validation import confined, origin_of, spec_of
from interlock.systems.runs.plans import PIECE, PlanGraph, PlanPiece, Plans, piece_key, renamed_piece
from interlock.wire.jobs import JobSpec

ORDERS = "run.orders"
"""The topic of orders from runs to their jobs."""
PATIENCE_S = 60.0
"""Time for the committing process to carry out its orders, before others do."""

Changes: TypeAlias = JobChanged | JobsChanged
HOLD, RELEASE, STOP = "hold", "release", "stop"


class JobOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An order to create, release or stop some jobs of a run."""

    run_id: str
    pieces: int
    what: str
    places: tuple[int, ...]
    why: str = ""
    """The stop reason."""
    new: bool = False
    """Whether the jobs cannot exist yet, unless this is a repeat."""


def orders_of(draft: RunAggregate) -> list[JobOrder]:
    """Return the orders of a draft, in portions of limited size."""
    orders: list[JobOrder] = []
    new = draft.has_entered((run.QUEUED,))
    for what, places in ((HOLD, draft.hold), (RELEASE, draft.release)):
        orders += _portions(draft, what, places, new=new)
    for why, places in _by_reason(draft.stop):
        orders += _portions(draft, STOP, places, why=why)
    return orders


def order_change(order: JobOrder, name: str, now: datetime, mark: str, *, taken: bool) -> Change:
    """Return the change that stores an order; a process that carries it out at once has taken it."""
    until = now + timedelta(seconds=PATIENCE_S) if taken else None
    return outgoing(name, ORDERS, msgspec.json.encode(order), now, mark=mark, taken_until=until)


def _portions(
    draft: RunAggregate, what: str, places: Sequence[int], *, why: str = "", new: bool = False
) -> Iterator[JobOrder]:
    graph = draft.graph
    cut = graph.piece_of if graph is not None else partial(_by_number)
    for _, some in groupby(sorted(places), cut):
        yield JobOrder(
            run_id=draft.id, pieces=draft.body.pieces, what=what, places=tuple(some), why=why, new=new
        )


def _by_number(place: int) -> int:
    return place // PIECE


def _by_reason(stop: dict[int, str]) -> Iterator[tuple[str, list[int]]]:
    for why in dict.fromkeys(stop.values()):
        yield why, [place for place, each in stop.items() if each == why]


class JobSource(msgspec.Struct, frozen=True):
    """The data needed to create jobs of a plan."""

    body: RunBody
    graph: PlanGraph
    pieces: dict[int, PlanPiece]


class JobMatch(Enum):
    """The result of looking up the job of an order."""

    OURS = "ours"
    MISSING = "missing"
    FOREIGN = "foreign"
    """The id belongs to a job outside of the run."""


def _those(answers: dict[int, JobMatch], wanted: JobMatch) -> list[int]:
    return [place for place, found in answers.items() if found is wanted]


class Orders:
    """Carries orders out."""

    def __init__(self, engine: Engine, plans: Plans, settings: OrchestratorSettings, ids: JobIds) -> None:
        self._engine = engine
        self._ids = ids
        self._plans = plans
        self._settings = settings

    async def carry_out(self, order: JobOrder, body: RunBody | None = None) -> None:
        """Carry out an order; idempotent. `body` is that of the run, if it is known."""
        graph = await self._plans.graph(order.run_id, order.pieces)
        if graph is None:
            return  # the run was pruned, and its plan with it
        making = await self._making(order, graph, order.places, body) if order.new else None
        answers = await self._apply(order, graph, order.places, making)
        if missing := _those(answers, JobMatch.MISSING):
            making = await self._making(order, graph, missing, body)
            answers |= await self._apply(order, graph, missing, making)
        if taken := _those(answers, JobMatch.FOREIGN):
            await self._rename(order.run_id, graph, taken)
            again = msgspec.structs.replace(order, places=tuple(taken), new=False)
            await self.carry_out(again)

    async def _making(
        self, order: JobOrder, graph: PlanGraph, places: Sequence[int], body: RunBody | None
    ) -> JobSource | None:
        if body is None:
            (record,) = await self._engine.store.load([Key(RUN.name, order.run_id)])
            if record is None:
                return None
            body = decode_run(record.body)
        numbers = sorted({graph.piece_of(place) for place in places})
        return JobSource(body, graph, await self._plans.some(order.run_id, numbers))

    async def _apply(
        self, order: JobOrder, graph: PlanGraph, places: Sequence[int], making: JobSource | None
    ) -> dict[int, JobMatch]:
        """Apply the order to each job; return the lookup result by place."""
        done = await self._apply_together(order, graph, places, making)
        answers = dict.fromkeys(done, JobMatch.OURS)
        places = [place for place in places if place not in answers]
        items = [
            Item(
                Key(JOB.name, graph.ids[place]),
                partial(self._decide, order, place, making),
                fresh=order.new and making is not None,
            )
            for place in places
        ]
        for place, result in zip(places, await apply_all(self._engine, items), strict=True):
            if isinstance(result, InterlockError):
                raise result
            answers[place] = result.answer if isinstance(result, Applied) else JobMatch.OURS
        return answers

    async def _apply_together(
        self, order: JobOrder, graph: PlanGraph, places: Sequence[int], making: JobSource | None
    ) -> list[int]:
        """Apply the order to jobs that are alike, by one decision; return the places where that was done."""
        if len(places) < 2 or order.what == STOP:
            return []
        now, mark = await self._engine.clock.now(), self._engine.mark()
        if order.new:
            new = [self._new(order, place, making) for place in places]
            batches = created_together([each for each in new if each], now, mark, self._settings)
        elif order.what == RELEASE:
            found = await self._engine.load([Key(JOB.name, graph.ids[place]) for place in places])
            ours = [record for record in found if record is not None and record.parent == order.run_id]
            batches = released_together(ours, order, now, mark, self._settings)
        else:
            return []
        outcomes = await commit_all_with_recovery(self._engine, batches)
        ids = [name for batch in batches for name in batch.ids]
        done = {name for name, each in zip(ids, outcomes, strict=True) if isinstance(each, Committed)}
        return [place for place in places if graph.ids[place] in done]

    def _decide(
        self,
        order: JobOrder,
        place: int,
        making: JobSource | None,
        record: Record | None,
        now: datetime,
        mark: str,
    ) -> Decision[JobMatch]:
        if record is not None and record.parent != order.run_id:
            return Decision(JobMatch.FOREIGN)
        if record is not None:
            draft = JobAggregate.of(record, now, self._settings)
        elif (new := self._new(order, place, making)) is not None:
            draft = new.draft(now, self._settings)
        else:
            return Decision(JobMatch.MISSING)
        gate = decide_order(order, draft, mark)
        if not draft.taken and not gate:
            return Decision(JobMatch.OURS)
        commit = commit_of(draft, mark=mark, actor="orchestrator", reason=order.why)
        return Decision(JobMatch.OURS, msgspec.structs.replace(commit, changes=(*commit.changes, *gate)))

    async def _rename(self, run_id: str, graph: PlanGraph, places: Sequence[int]) -> None:
        """Draw new ids for jobs whose ids were already used by other jobs.

        No job of the run can exist under such an id, so no job is lost; a process with the old id finds a
        foreign job under it, and comes here for the new one.
        """
        for number in sorted({graph.piece_of(place) for place in places}):
            key = piece_key(run_id, number)

            def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
                if found[0] is None:
                    return Decision(None)
                change = renamed_piece(found[0], graph, places, lambda: self._ids.draw(now))
                return Decision(None, Commit(changes=(change,)) if change is not None else None)

            await self._engine.apply([key], decide)
        self._plans.forget(run_id)

    def _new(self, order: JobOrder, place: int, making: JobSource | None) -> NewRunJob | None:
        piece = making.pieces.get(making.graph.piece_of(place)) if making is not None else None
        if making is None or piece is None:
            return None
        body, spec = making.body, making.body.spec
        planned = confined(piece.jobs[place - piece.first], body)
        return NewRunJob(
            id=making.graph.ids[place],
            spec=spec_of(planned, priority=spec.priority, trace=spec.trace, from_fork=spec.source.from_fork),
            plan=PlanPlace(place, planned.name),
            part=RunPart(
                run_id=order.run_id,
                required=planned.required,
                root=making.graph.carried.issuperset(making.graph.needs[place]),
                approval=planned.approval,
            ),
            origin=origin_of(body, planned),
            held=order.what != RELEASE or planned.approval is not None,
        )


class NewRunJob(msgspec.Struct, frozen=True):
    """A job of a run that is to be created."""

    id: str
    spec: JobSpec
    plan: PlanPlace
    part: RunPart
    origin: Provenance | None
    held: bool

    @property
    def shape(self) -> tuple[object, ...]:
        """All that decisions about it depend on."""
        return without_given(self.spec), self.part, self.origin, self.held

    def draft(self, now: datetime, settings: OrchestratorSettings, job_id: str = "") -> JobAggregate:
        """Return the new job, or under another id."""
        return new_job(
            self.spec,
            job_id or self.id,
            now,
            settings,
            run=self.part,
            plan=self.plan,
            origin=self.origin,
            held=self.held,
        )


def created_together(
    new: Sequence[NewRunJob], now: datetime, mark: str, settings: OrchestratorSettings
) -> list[Batch]:
    """Return the jobs that are alike as batches, decided once; the others are decided one by one. Pure."""
    batches = []
    for _, places in grouped(each.shape for each in new):
        some = [new[place] for place in places]
        if len(some) == 1 or some[0].part.approval is not None:
            continue
        commit = commit_of(some[0].draft(now, settings, ANY_JOB), mark=mark, actor="orchestrator")
        if (common := common_change(commit)) is not None:
            batches.append(
                Batch(
                    change=msgspec.structs.replace(common, given=None),
                    ids=tuple([each.id for each in some]),
                    given=tuple([given_by(each.spec, plan=each.plan) for each in some]),
                )
            )
    return batches


def released_together(
    held: Sequence[Record], order: JobOrder, now: datetime, mark: str, settings: OrchestratorSettings
) -> list[Batch]:
    """Return the release of jobs that are alike as batches, decided once. Pure."""
    shapes: dict[Shape, list[Record]] = {}
    for record in held:
        shapes.setdefault(shape_of(record), []).append(record)
    batches = []
    for some in shapes.values():
        if len(some) == 1:
            continue
        draft = JobAggregate.of(any_job(some[0], now), now, settings)
        if decide_order(order, draft, mark) or not draft.taken:
            continue
        common = common_change(commit_of(draft, mark=mark, actor="orchestrator", reason=order.why))
        if common is not None:
            ids = tuple([record.id for record in some])
            seen = tuple([record.updated_at for record in some])
            batches.append(Batch(change=common, ids=ids, expected_at=seen))
    return batches


def decide_order(order: JobOrder, draft: JobAggregate, mark: str = "") -> tuple[Change, ...]:
    """Apply an order to a job; no effect if it was applied before. Pure.

    A job that needs an approval is not released: it waits. Return the change of that wait.
    """
    if order.what == RELEASE:
        if draft.body.run is not None and draft.body.run.approval is not None:
            return open_gate(draft, mark)
        release(draft)
    elif order.what == STOP and draft.root.state not in job.ENDED and draft.root.data.stop_reason is None:
        draft.fire_due()
        draft.stop_reason = order.why
        draft.send(job.Cancel(at=draft.now, still_active=draft.body.active, reason=order.why))
    return ()


PLANS = "run.plan"
"""The topic of planning requests."""
REPORTS = "run.report"
"""The topic of outcomes to report."""


class RunMessage(msgspec.Struct, frozen=True):
    """A message that only names a run."""

    run_id: str


class RunCommit(msgspec.Struct, frozen=True):
    """A commit, and the orders in it that the committing process carries out at once."""

    commit: Commit
    orders: tuple[tuple[JobOrder, Change], ...] = ()
    mentioned: str = ""
    """The id of the run, if its state is reported."""
    decided: bool = False
    """Whether its outcome is decided."""
    body: RunBody | None = None
    """The run, for its orders."""


def run_commit_of(
    draft: RunAggregate,
    *,
    mark: str,
    actor: str,
    reason: str = "",
    more: Iterable[Change] = (),
    request: Request | None = None,
    taken: bool = True,
) -> RunCommit:
    """Return the commit of the run, its orders, and the message about its outcome once decided."""
    change = draft.change(mark=mark, actor=actor, reason=reason)
    orders = [
        (order, order_change(order, f"{draft.id}.{change.expected}.{n}", draft.now, mark, taken=taken))
        for n, order in enumerate(orders_of(draft))
    ]
    changes = [change, *(each for _, each in orders), *more]
    if draft.is_decided:
        changes.append(run_message(draft, REPORTS, "report", mark))
    commit = Commit(changes=tuple(changes), request=request)
    lines = draft.lines
    on_its_way = lines and lines[-1].target in (run.AWAITING_APPROVAL, *run.PLANNED)
    mentioned = draft.id if on_its_way else ""
    return RunCommit(commit, tuple(orders) if taken else (), mentioned, draft.is_decided, draft.body)


def run_message(draft: RunAggregate, topic: str, change: str, mark: str) -> Change:
    """Return the change that stores a message about the run."""
    return outgoing(
        f"{draft.id}.{change}", topic, msgspec.json.encode(RunMessage(draft.id)), draft.now, mark=mark
    )


MANY = 500
"""Number of job changes processed in one round."""
FEW = 20
"""Number of orders processed in one round."""
GIVE_BACK_S = 5.0
"""Deadline for a stopping process to give an order back."""


class RunProgressed(msgspec.Struct, frozen=True):
    """Published when a run has reached a reported state."""

    run_id: str


class RunDecided(msgspec.Struct, frozen=True):
    """Published when the outcome of a run is decided."""


class RunReconciler:
    """Processes job changes, orders and deadlines of the runs in a store."""

    def __init__(self, engine: Engine, plans: Plans, settings: OrchestratorSettings, ids: JobIds) -> None:
        self._engine = engine
        self._plans = plans
        self._settings = settings
        self._orders = Orders(engine, plans, settings, ids)

    async def apply_changes(self, *, limit: int = MANY) -> int:
        """Apply reported job changes to their runs; return their number."""
        topics = (RUN_JOBS, RUN_JOBS_TOGETHER)
        taken = await take_all(self._engine.store, topics, timedelta(seconds=PATIENCE_S), limit=limit)
        by_run: dict[str, list[tuple[Changes, Record]]] = {}
        for record in taken:
            change: Changes = (
                message_in(record.body, JobsChanged)
                if record.queue == RUN_JOBS_TOGETHER
                else message_in(record.body, JobChanged)
            )
            by_run.setdefault(change.run_id, []).append((change, record))
        found = await self._engine.store.load([Key(RUN.name, run_id) for run_id in by_run])
        pairs = zip(by_run.values(), found, strict=True)
        await gather_all(self.bring(changes, known) for changes, known in pairs)
        return len(taken)

    async def bring(self, changes: Sequence[tuple[Changes, Record]], known: Record | None) -> None:
        """Commit all changes reported to one run."""
        conflict: Conflict | None = None
        for _ in range(self._engine.max_tries):
            if conflict is not None:
                known, changes = await self._again(changes)
            if not changes:
                return
            prepared = await self._commit_of(changes, known)
            outcome = await self._commit(prepared, known)
            if not isinstance(outcome, Conflict):
                await self.carry_out(prepared, outcome.at)
                return
            conflict = outcome
        raise contended([Key(RUN.name, changes[0][0].run_id)], conflict, self._engine.max_tries)

    async def _again(
        self, changes: Sequence[tuple[Changes, Record]]
    ) -> tuple[Record | None, list[tuple[Changes, Record]]]:
        """Return the current run, and the changes that no other process has applied meanwhile."""
        run_key = Key(RUN.name, changes[0][0].run_id)
        known, *messages = await self._engine.store.load([run_key, *(record.key for _, record in changes)])
        ours = [
            (change, record)
            for (change, record), now in zip(changes, messages, strict=True)
            if now is not None and now.version == record.version
        ]
        return known, ours

    async def _commit_of(self, changes: Sequence[tuple[Changes, Record]], known: Record | None) -> RunCommit:
        mark = self._engine.mark()
        messages = [sent(record, mark) for _, record in changes]
        draft = await self._draft(known)
        if draft is None:
            return RunCommit(Commit(changes=tuple(messages)))  # the run was pruned
        apply_job_changes(draft, [each for change, _ in changes for each in change.each])
        return run_commit_of(draft, mark=mark, actor="orchestrator", more=messages)

    async def _draft(self, record: Record | None) -> RunAggregate | None:
        if record is None:
            return None
        now = await self._engine.clock.now()
        draft = RunAggregate.of(record, now, self._settings.durations)
        draft.graph = await self._plans.graph(record.id, draft.body.pieces)
        return draft if draft.graph is not None else None

    async def _commit(self, prepared: RunCommit, known: Record | None) -> Committed | Conflict:
        engine = self._engine
        sealed = engine.sealed(prepared.commit, [known])
        outcome = await commit_with_recovery(engine.store, engine.committer, sealed)
        if isinstance(outcome, Illegal | RequestReused):
            raise failed(outcome)
        assert isinstance(outcome, Committed | Conflict)
        return outcome

    # Orders

    async def follow_orders(self, *, limit: int = FEW) -> int:
        """Carry out pending orders; return their number."""
        taken = await take_all(self._engine.store, (ORDERS,), timedelta(seconds=PATIENCE_S), limit=limit)
        await self._follow([(message_in(record.body, JobOrder), record) for record in taken])
        return len(taken)

    async def carry_out(self, prepared: RunCommit, at: datetime) -> None:
        """Carry out the orders of a commit; after a crash another process does."""
        if prepared.mentioned:
            self._engine.bus.publish(RunProgressed(prepared.mentioned))
        if prepared.decided:
            self._engine.bus.publish(RunDecided())
        orders = [(order, record_after(change, None, at)) for order, change in prepared.orders]
        await self._follow(orders, prepared.body)

    async def _follow(self, orders: Sequence[tuple[JobOrder, Record]], body: RunBody | None = None) -> None:
        """Carry out orders at the same time; `body` is that of their run, if they are of one."""
        if not orders:
            return
        try:
            await gather_all(self._orders.carry_out(order, body) for order, _ in orders)
        except asyncio.CancelledError:
            await self._give_back([record for _, record in orders])
            raise
        mark = self._engine.mark()
        done = Commit(changes=tuple(sent(record, mark) for _, record in orders))
        await commit_with_recovery(self._engine.store, self._engine.committer, done)

    async def _give_back(self, records: Sequence[Record]) -> None:
        """Give orders back, so that another process can carry them out before the timeout."""
        with contextlib.suppress(TimeoutError, InterlockError):
            async with asyncio.timeout(GIVE_BACK_S):
                now, mark = await self._engine.clock.now(), self._engine.mark()
                back = Commit(changes=tuple(returned(record, now, mark) for record in records))
                await commit_with_recovery(self._engine.store, self._engine.committer, back)

    # Deadlines

    async def sweep(self, *, limit: int = MANY) -> int:
        """Handle expired deadlines of runs; return their number."""
        mark = self._engine.mark()

        def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
            return [fire_deadlines(record, now, mark, self._settings) for record in records]

        outcomes = await self._engine.due([RUN.name], limit, decide)
        return sum(isinstance(outcome, Committed) for outcome in outcomes)


def apply_job_changes(draft: RunAggregate, changes: Sequence[JobChanged]) -> None:
    """Apply job changes to a run, after an expired deadline. Pure."""
    draft.fire_due()
    draft.apply_jobs(changes)


def fire_deadlines(record: Record, now: datetime, mark: str, settings: OrchestratorSettings) -> Commit:
    """Return the commit of a run whose deadline has passed; an unattended one is requested again."""
    draft = RunAggregate.of(record, now, settings.durations)
    draft.fire_due()
    unattended = draft.state is run.CREATED or draft.is_planned_already
    more = (run_message(draft, PLANS, f"plan.{record.version}", mark),) if unattended else ()
    return run_commit_of(draft, mark=mark, actor="clock", more=more, taken=False).commit
