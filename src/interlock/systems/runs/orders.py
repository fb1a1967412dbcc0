"""Orders of a run to its jobs: to create, release or stop them.

A run creates and releases a few jobs in its own commit. Its other orders are messages in that commit, so none
is lost: those to stop jobs, those about many jobs, and the creation of jobs after a conflict. Carrying a
message out twice does nothing more, and the sequence does not matter: an order finds its job as it is, and
creates it where it is missing. So after a crash anywhere in between, another process carries it out again.

Why: decision 0176.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from itertools import pairwise
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from interlock.engine.bulk import Item, apply_all, commit_all_with_recovery
from interlock.engine.outbox import outgoing
from interlock.engine.unit_of_work import Applied, Decision, Engine
from interlock.errors import InterlockError
from interlock.lifecycles import job, run
from interlock.lifecycles.job import JOB
from interlock.lifecycles.run import RUN
from interlock.store.records import Batch, Change, Commit, Committed, Key, Record, record_after
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.cancellation import commit_of
from interlock.systems.orchestrator.ids import JobIds
from interlock.systems.orchestrator.planned_approvals import open_gate
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.shapes import (
    ANY_RUN,
    Shape,
    any_job,
    common_change,
    of_run,
    shape_of,
)
from interlock.systems.orchestrator.submission import grouped, release
from interlock.systems.runs.aggregate import RunAggregate
from interlock.systems.runs.body import RunBody, decode_run
from interlock.systems.runs.new_jobs import (
    HOLD,
    RELEASE,
    STOP,
    JobOrder,
    JobSource,
    created_like,
    created_together,
    new_run_jobs,
)
from interlock.systems.runs.plans import PIECE, PlanGraph, PlanPiece, Plans, piece_key, renamed_piece
from interlock.systems.runs.run_cache import HeldJobs, KnownRuns, SharedShape, shared_shape

ORDERS = "run.orders"
"""The topic of orders from runs to their jobs."""
PATIENCE_S = 60.0
"""Time for the committing process to carry out its orders, before others do."""

MOST_WITHIN = 100
"""Number of jobs that a run creates or releases in its own commit; messages order the others."""

CarriedOut: TypeAlias = Mapping["JobOrder", Sequence[Change]]
"""The changes of jobs by the orders that they carry out."""


def orders_of(draft: RunAggregate) -> list[JobOrder]:
    """Return the orders of a draft, in portions of limited size."""
    orders: list[JobOrder] = []
    new = draft.has_entered((run.QUEUED,))
    for what, places in ((HOLD, draft.hold), (RELEASE, draft.release)):
        if places:
            orders += _portions(draft, what, places, new=new)
    if draft.stop:
        for why, places in _by_reason(draft.stop):
            orders += _portions(draft, STOP, places, why=why)
    return orders


def order_change(order: JobOrder, name: str, now: datetime, commit_id: str, *, taken: bool) -> Change:
    """Return the change that stores an order.

    A process that carries it out at once has taken it.
    """
    until = now + timedelta(seconds=PATIENCE_S) if taken else None
    return outgoing(name, ORDERS, msgspec.json.encode(order), now, commit_id=commit_id, taken_until=until)


def _portions(
    draft: RunAggregate, what: str, places: Sequence[int], *, why: str = "", new: bool = False
) -> Iterator[JobOrder]:
    places = sorted(places)
    firsts = range(0, places[-1] + 1, PIECE) if draft.graph is None else draft.graph.firsts
    cuts = [bisect_left(places, first) for first in (*firsts[1:], places[-1] + 1)]
    for start, end in pairwise((0, *cuts)):
        if start < end:
            some = tuple(places[start:end])
            yield JobOrder(
                run_id=draft.id, pieces=draft.body.pieces, what=what, places=some, why=why, new=new
            )


def _by_reason(stop: dict[int, str]) -> Iterator[tuple[str, list[int]]]:
    for why in dict.fromkeys(stop.values()):
        yield why, [place for place, each in stop.items() if each == why]


class JobMatch(Enum):
    """The result of looking up the job of an order."""

    OURS = "ours"
    MISSING = "missing"
    FOREIGN = "foreign"
    """The id belongs to a job outside of the run."""


def _places_of(answers: dict[int, JobMatch], wanted: JobMatch) -> list[int]:
    return [place for place, found in answers.items() if found is wanted]


class Orders:
    """Carries orders out."""

    def __init__(
        self, engine: Engine, plans: Plans, settings: OrchestratorSettings, ids: JobIds, known: KnownRuns
    ) -> None:
        self._engine = engine
        self._ids = ids
        self._plans = plans
        self._settings = settings
        self._known = known

    async def carry_out(self, order: JobOrder, body: RunBody | None = None) -> None:
        """Carry out an order; idempotent.

        `body` is that of the run, if it is known.
        """
        graph = await self._plans.graph(order.run_id, order.pieces)
        if graph is None:
            return  # the run was pruned, and its plan with it
        making = await self._making(order, graph, order.places, body) if order.new else None
        answers = await self._apply(order, graph, order.places, making)
        if missing := _places_of(answers, JobMatch.MISSING):
            making = await self._making(order, graph, missing, body)
            answers |= await self._apply(order, graph, missing, making)
        if taken := _places_of(answers, JobMatch.FOREIGN):
            await self._rename(order.run_id, graph, taken)
            again = replace(order, places=tuple(taken), new=False)
            await self.carry_out(again)

    async def jobs_to_release(
        self, ordered: Iterable[tuple[RunAggregate, Sequence[JobOrder]]], joint: JointDecisions
    ) -> dict[str, Record]:
        """Return the jobs that runs release in their own commits, as they are now.

        Those that are known as they were created are not loaded.
        """
        keys = []
        for draft, orders in ordered:
            if draft.graph is None or not orders:
                continue
            ids, held = draft.graph.ids, self._known.held(draft.id)
            for order in _few_to_release(orders):
                known = joint.known_places(order, held)
                keys += [Key(JOB.name, ids[place]) for place in order.places if place not in known]
        if not keys:
            return {}
        found = await self._engine.load(keys)
        return {record.id: record for record in found if record is not None}

    async def _making(
        self, order: JobOrder, graph: PlanGraph, places: Sequence[int], body: RunBody | None
    ) -> JobSource | None:
        if body is None:
            (record,) = await self._engine.store.load([Key(RUN.name, order.run_id)])
            if record is None:
                return None
            body = decode_run(record.body)
        numbers = graph.pieces_with(places)
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
                partial(decide_one, order, place, making, self._settings),
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
        """Apply the order to jobs that are alike, by one decision.

        Return the places where that was done.
        """
        if len(places) < 2 or order.what == STOP:
            return []
        now, commit_id = await self._engine.clock.now(), self._engine.commit_id()
        if order.new:
            batches = created_together(new_run_jobs(order, places, making), now, commit_id, self._settings)
        elif order.what == RELEASE:
            found = await self._engine.load([Key(JOB.name, graph.ids[place]) for place in places])
            ours = [record for record in found if record is not None and record.parent == order.run_id]
            batches = released_together(ours, order, now, commit_id, self._settings)
        else:
            return []
        outcomes = await commit_all_with_recovery(self._engine, batches)
        ids = [name for batch in batches for name in batch.ids]
        done = {
            name: each.at for name, each in zip(ids, outcomes, strict=True) if isinstance(each, Committed)
        }
        if order.what == HOLD:
            self._remember(order, graph, batches, done)
        return [place for place in places if graph.ids[place] in done]

    def _remember(
        self, order: JobOrder, graph: PlanGraph, batches: Sequence[Batch], done: Mapping[str, datetime]
    ) -> None:
        """Remember the jobs that were created and are held."""
        numbers = {graph.ids[place]: place for place in order.places}
        for batch in batches:
            times = {done.get(name) for name in batch.ids}
            if len(times) == 1 and (at := times.pop()) is not None:
                like = record_after(batch.change, None, at)
                places = [numbers[name] for name in batch.ids]
                self._known.hold(order.run_id, len(graph.ids), like, places)

    async def _rename(self, run_id: str, graph: PlanGraph, places: Sequence[int]) -> None:
        """Draw new ids for jobs whose ids were already used by other jobs.

        No job of the run can exist under such an id, so no job is lost; a process with the old id finds a
        foreign job under it, and comes here for the new one.
        """
        for number in graph.pieces_with(places):
            key = piece_key(run_id, number)

            def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
                if found[0] is None:
                    return Decision(None)
                change = renamed_piece(found[0], graph, places, lambda: self._ids.draw(now))
                return Decision(None, Commit(changes=(change,)) if change is not None else None)

            await self._engine.apply([key], decide)
        self._plans.forget(run_id)


def released_together(
    held: Sequence[Record], order: JobOrder, now: datetime, commit_id: str, settings: OrchestratorSettings
) -> list[Batch]:
    """Return the release of equal jobs as batches, decided once. Pure.

    Jobs of one shape are in one batch.
    """
    shapes: dict[Shape, list[Record]] = {}
    for record in held:
        shapes.setdefault(shape_of(record), []).append(record)
    batches = []
    for some in shapes.values():
        common = _released_like(some[0], order, now, commit_id, settings) if len(some) > 1 else None
        if common is not None:
            ids = tuple([record.id for record in some])
            seen = tuple([record.updated_at for record in some])
            batches.append(Batch(change=common, ids=ids, expected_at=seen))
    return batches


def _released_like(
    like: Record, order: JobOrder, now: datetime, commit_id: str, settings: OrchestratorSettings
) -> Change | None:
    """Return the release of all jobs that are alike.

    Return None if each is released alone.
    """
    draft = JobAggregate.of(any_job(like, now), now, settings)
    if decide_order(order, draft, commit_id) or not draft.taken:
        return None
    return common_change(commit_of(draft, commit_id=commit_id, actor="orchestrator", reason=order.why))


class _KnownPlan(msgspec.Struct, frozen=True):
    """The creation of the jobs of a plan, in any run."""

    terms: tuple[object, ...]
    """All that this depends on."""
    alike: tuple[tuple[Change, tuple[tuple[int, bytes], ...]], ...]
    """The creation of jobs that are alike, with the place and the given part of each."""


MOST_PLANS = 20
"""Number of plans whose creation is remembered during a round."""


class JointDecisions:
    """Decisions about jobs of many runs, at one time and with one commit id: alike jobs are decided once.

    It lasts for one round. Each decision is the one that would be made about the job alone.
    """

    def __init__(self, now: datetime, commit_id: str, settings: OrchestratorSettings) -> None:
        self.now = now
        self.commit_id = commit_id
        self.settings = settings
        self._released: dict[Shape, Change | None] = {}
        self._plans: list[_KnownPlan] = []

    def released(self, order: JobOrder, records: Sequence[Record]) -> dict[str, Change]:
        """Return the release of jobs of a run.

        Those that are decided alone are left out. Pure.
        """
        shapes: dict[Shape, list[Record]] = {}
        for record in records:
            shapes.setdefault(shape_of(record), []).append(record)
        changes: dict[str, Change] = {}
        for some in shapes.values():
            common = self._release_of(order, shared_shape(some[0]))
            if common is not None:
                common = of_run(common, order.run_id)
                changes |= {one.id: replace(common, id=one.id, expected_at=one.updated_at) for one in some}
        return changes

    def released_known(self, order: JobOrder, held: HeldJobs, ids: Sequence[str]) -> dict[str, Change]:
        """Return the release of held jobs that are known. Pure."""
        changes: dict[str, Change] = {}
        for like, places in held.by_shape(order.places):
            common = self._release_of(order, like.shared)
            if common is not None:
                common = replace(of_run(common, order.run_id), expected_at=like.at)
                changes |= {ids[place]: replace(common, id=ids[place]) for place in places}
        return changes

    def known_places(self, order: JobOrder, held: HeldJobs | None) -> set[int]:
        """Return the places of jobs that `released_known` releases. Pure."""
        if held is None:
            return set()
        shapes = held.by_shape(order.places)
        return {
            place
            for like, some in shapes
            if self._release_of(order, like.shared) is not None
            for place in some
        }

    def _release_of(self, order: JobOrder, shape: SharedShape) -> Change | None:
        """Return the release of jobs of a shape, of any run."""
        terms = (order.why, *shape.terms)
        if terms not in self._released:
            self._released[terms] = _released_like(shape.like, order, self.now, self.commit_id, self.settings)
        return self._released[terms]

    def created(self, order: JobOrder, source: JobSource) -> dict[str, Change]:
        """Return the changes that create the jobs of a plan, by id. Pure.

        Jobs for which no joint decision holds are left out; they are decided one by one.
        """
        terms = _terms_of(order, source)
        known = next((each for each in self._plans if each.terms == terms), None)
        if known is None:
            known = self._known_plan(terms, replace(order, run_id=ANY_RUN), source)
            self._plans = [known, *self._plans[: MOST_PLANS - 1]]
        ids, changes = source.graph.ids, dict[str, Change]()
        for common, each in known.alike:
            common = of_run(common, order.run_id)  # noqa: PLW2901 - it is the same, of this run
            changes |= {ids[place]: replace(common, id=ids[place], given=given) for place, given in each}
        return changes

    def _known_plan(self, terms: tuple[object, ...], order: JobOrder, source: JobSource) -> _KnownPlan:
        new = new_run_jobs(order, order.places, source)
        alike = []
        for _, numbers in grouped([each.shape for each in new]):
            common = created_like(new[numbers[0]], self.now, self.commit_id, self.settings)
            if common is not None and common.body.count(ANY_RUN.encode()) == 1:
                some = [new[number] for number in numbers]
                alike.append((common, tuple([(each.plan.place, each.given) for each in some])))
        return _KnownPlan(terms, tuple(alike))


def _terms_of(order: JobOrder, source: JobSource) -> tuple[object, ...]:
    """Return all that the creation of jobs depends on.

    Their ids and the id of their run are left out.
    """
    spec, graph = source.body.spec, source.graph
    of_run_itself = (
        *(spec.source.repository, spec.source.ref, spec.source.pull_request),
        *(spec.priority, spec.trace, source.body.claimed, source.body.fork_terms),
    )
    pieces = [(number, piece.first, piece.jobs) for number, piece in source.pieces.items()]
    return order.what, order.places, of_run_itself, graph.carried, pieces


def decide_one(
    order: JobOrder,
    place: int,
    source: JobSource | None,
    settings: OrchestratorSettings,
    record: Record | None,
    now: datetime,
    commit_id: str,
) -> Decision[JobMatch]:
    """Apply an order to one job, or create it. Pure."""
    if record is not None and record.parent != order.run_id:
        return Decision(JobMatch.FOREIGN)
    if record is not None:
        draft = JobAggregate.of(record, now, settings)
    elif new := new_run_jobs(order, (place,), source):
        draft = new[0].draft(now, settings)
    else:
        return Decision(JobMatch.MISSING)
    gate = decide_order(order, draft, commit_id)
    if not draft.taken and not gate:
        return Decision(JobMatch.OURS)
    commit = commit_of(draft, commit_id=commit_id, actor="orchestrator", reason=order.why)
    return Decision(JobMatch.OURS, replace(commit, changes=(*commit.changes, *gate)))


def created_within(
    draft: RunAggregate, orders: Sequence[JobOrder], pieces: Sequence[PlanPiece], joint: JointDecisions
) -> CarriedOut:
    """Return the creation of a small plan's jobs, within its commit. Pure."""
    graph = draft.graph
    if graph is None or len(graph.ids) > MOST_WITHIN:
        return {}
    orders = [order for order in orders if order.new]
    return _carried_out(draft, orders, {}, dict(enumerate(pieces)), joint)


def released_within(
    draft: RunAggregate,
    orders: Sequence[JobOrder],
    jobs: Mapping[str, Record],
    joint: JointDecisions,
    held: HeldJobs | None = None,
) -> CarriedOut:
    """Return the release of a few jobs, to be committed with their run. Pure.

    `held` are jobs that are known as they were created, which need not be among `jobs`.
    """
    if draft.graph is None or not orders:
        return {}
    return _carried_out(draft, _few_to_release(orders), jobs, {}, joint, held)


def _few_to_release(orders: Sequence[JobOrder]) -> list[JobOrder]:
    """Return the orders to release jobs, if they are few.

    Their run releases so few itself.
    """
    some, number = [], 0
    for order in orders:
        if order.what == RELEASE and not order.new:
            some.append(order)
            number += len(order.places)
    return some if number <= MOST_WITHIN else []


def _carried_out(
    draft: RunAggregate,
    orders: Sequence[JobOrder],
    jobs: Mapping[str, Record],
    pieces: dict[int, PlanPiece],
    joint: JointDecisions,
    held: HeldJobs | None = None,
) -> CarriedOut:
    """Return the changes of jobs by order.

    An order stays a message if one of its jobs is not as expected.
    """
    assert draft.graph is not None
    source = JobSource(draft.body, draft.graph, pieces)
    found = {order: _changes_for(order, source, jobs, joint, held) for order in orders}
    return {order: changes for order, changes in found.items() if changes is not None}


def _changes_for(
    order: JobOrder,
    source: JobSource,
    jobs: Mapping[str, Record],
    joint: JointDecisions,
    held: HeldJobs | None,
) -> list[Change] | None:
    ids = [source.graph.ids[place] for place in order.places]
    if order.new:
        together = joint.created(order, source)
    else:
        found = [jobs.get(job_id) for job_id in ids] if jobs else []
        ours = [record for record in found if record is not None and record.parent == order.run_id]
        together = joint.released(order, ours) if ours else {}
        if held is not None:
            together = joint.released_known(order, held, source.graph.ids) | together
    if len(together) == len(ids):
        return [together[job_id] for job_id in ids]
    changes: list[Change] = []
    for place, job_id in zip(order.places, ids, strict=True):
        change = together.get(job_id)
        if change is not None:
            changes.append(change)
            continue
        record = jobs.get(job_id)
        decision = decide_one(order, place, source, joint.settings, record, joint.now, joint.commit_id)
        if decision.answer is not JobMatch.OURS:
            return None
        changes += () if decision.commit is None else decision.commit.changes
    return changes


def decide_order(order: JobOrder, draft: JobAggregate, commit_id: str = "") -> tuple[Change, ...]:
    """Apply an order to a job; no effect if it was applied before. Pure.

    A job that needs an approval is not released: it waits. Return the change of that wait.
    """
    if order.what == RELEASE:
        if draft.body.run is not None and draft.body.run.approval is not None:
            return open_gate(draft, commit_id)
        release(draft)
    elif order.what == STOP and draft.root.state not in job.ENDED and draft.root.data.stop_reason is None:
        draft.fire_due()
        draft.stop_reason = order.why
        draft.send(job.Cancel(at=draft.now, still_active=draft.body.active, reason=order.why))
    return ()
