"""From CREATED to QUEUED: supersede older runs of the group, call the planner, and accept its plan.

Any process may do this, and repeat it after a crash: a run that is being planned is still in PLANNING,
and a second plan has no effect.

Reruns. A rerun has the plan of the earlier run: all of it, the failed jobs, or from one job on. A job that
is not repeated has succeeded, and counts as completed from the beginning, under its id in the old run. Jobs
that have not succeeded are always repeated, so a rerun cannot hide a failure.

Why: decision 0290.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from interlock.engine.aggregate import rewritten
from interlock.engine.bulk import commit_all_with_recovery
from interlock.engine.loops import gather_all
from interlock.engine.outbox import message_in, sent
from interlock.engine.unit_of_work import Applied, Decision, Engine
from interlock.errors import (
    InterlockError,
    InvalidLimit,
    InvalidRun,
    PlanRefused,
    StoreUnavailable,
    TransitionNotAllowed,
    UnknownLimit,
)
from interlock.lifecycles import run
from interlock.lifecycles.durations import Durations
from interlock.lifecycles.run import RUN, RunState
from interlock.store.records import Change, Commit, Committed, Key, Record, record_after
from interlock.systems.orchestrator.ids import JobIds
from interlock.systems.orchestrator.limits import Limits
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.runs import body as letters
from interlock.systems.runs.aggregate import RunAggregate
from interlock.systems.runs.body import RunBody, decode_run, encode_run, group_key, labels_of
from interlock.systems.runs.cancellation import RunCancellation
from interlock.systems.runs.new_jobs import HOLD
from interlock.systems.runs.orders import (
    CarriedOut,
    JointDecisions,
    created_within,
    orders_of,
)
from interlock.systems.runs.plan_validation import (
    MOST_FAULTS,
    awaited,
    awaited_first,
    check_admitted,
    check_plan,
    seconds_for_approvals,
    spec_of,
)
from interlock.systems.runs.plans import PlanGraph, PlanPiece, Plans, piece_changes, pieces_of
from interlock.systems.runs.reconciler import RunCommit, RunMessage, RunReconciler, run_commit_of
from interlock.systems.runs.workflows import Planner, PlanRequest
from interlock.wire.runs import AwaitedApproval, Plan, PlannedJob, RerunPreview, Which


def check_settled(record: Record) -> None:
    """Raise unless the outcome of the run is decided."""
    if RunState(record.state) not in run.SETTLED:
        raise TransitionNotAllowed(
            f"The run {record.id} is {record.state}; only a run whose outcome is decided can be rerun.",
            allowed=["cancel"],
            todo="Wait for its end, or cancel it first.",
            facts={"run_id": record.id, "machine": RUN.name, "state": record.state},
        )


def carried_over(run_id: str, body: RunBody, graph: PlanGraph, which: Which, job: str = "") -> frozenset[int]:
    """Return the places of jobs that are carried over."""
    done = {place for place, letter in enumerate(body.states) if letter in letters.SUCCEEDED}
    if which == "all":
        return frozenset()
    if which == "from":
        place = graph.place_of(job)
        if place is None:
            raise InvalidRun(
                f"The run {run_id} has no job {job!r}.",
                allowed=graph.names[:100],
                todo="Name one of its jobs; `interlock run show` lists them.",
                facts={"run_id": run_id, "job": job},
            )
        return frozenset(done - graph.downstream(place))
    if len(done) == len(graph.ids):
        raise InvalidRun(
            f"Every job of the run {run_id} has succeeded, so there is nothing to rerun.",
            todo="Rerun all of it, or from one of its jobs on.",
            facts={"run_id": run_id},
        )
    return frozenset(done)


def preview_of(run_id: str, graph: PlanGraph, kept: frozenset[int]) -> RerunPreview:
    """Return the names of the jobs that a rerun repeats or keeps."""
    return RerunPreview(
        run_id=run_id,
        again=tuple(name for place, name in enumerate(graph.names) if place not in kept),
        kept=tuple(name for place, name in enumerate(graph.names) if place in kept),
    )


def plan_of(pieces: Sequence[PlanPiece], body: RunBody) -> Plan:
    """Return the plan of a run from its pieces."""
    return Plan(
        jobs=tuple(job for piece in pieces for job in piece.jobs),
        skipped=tuple(job for piece in pieces for job in piece.skipped),
        fail_fast=body.fail_fast,
        timeout_s=body.timeout_s,
    )


MAX_ERROR = 4_000
WORKFLOW = "workflow"
"""The planner of workflow files, which name the concurrency group themselves."""
ASKED_AT_ONCE = 8
"""Number of concurrent planners in one process."""


class _StoredPlan(NamedTuple):
    """A plan to be accepted."""

    pieces: Sequence[PlanPiece]
    graph: PlanGraph
    awaits: AwaitedApproval | None
    message: Record | None
    """The message that asked for it, to be committed as sent."""


class _AcceptedRun(NamedTuple):
    """The commit that accepts a plan, and the jobs that it creates."""

    run_id: str
    ready: RunCommit
    created: CarriedOut
    stored: _StoredPlan


class RunPreparation:
    """Plans runs."""

    def __init__(
        self,
        engine: Engine,
        plans: Plans,
        reconciler: RunReconciler,
        cancellation: RunCancellation,
        settings: OrchestratorSettings,
        planners: Mapping[str, Planner],
        ids: JobIds,
        limits: Limits | None = None,
    ) -> None:
        self._limits = limits
        self._engine = engine
        self._plans = plans
        self._reconciler = reconciler
        self._cancellation = cancellation
        self._settings = settings
        self.planners: dict[str, Planner] = dict(planners)
        self._ids = ids
        self._known = reconciler.known
        self._asking = asyncio.Semaphore(ASKED_AT_ONCE)
        """A run that waits for it is not yet in PLANNING, so that its planning timer does not run."""

    async def joint_decisions(self) -> JointDecisions:
        """Return where decisions of this moment about several runs are shared."""
        return JointDecisions(await self._engine.clock.now(), self._engine.commit_id(), self._settings)

    async def prepare(
        self, run_id: str, message: Record | None = None, joint: JointDecisions | None = None
    ) -> bool:
        """Advance a run as far as its plan allows; idempotent.

        Return whether the message that asked for it was committed as sent. Runs that are prepared together
        share their decisions.
        """
        (found,) = await self._engine.load([Key(RUN.name, run_id)])
        if found is None:
            return False
        if _looks_around(found):
            await self._cancellation.make_room(found)
        if decode_run(found.body).pieces:
            return await self._take_up(found, message, joint)
        async with self._asking:
            await self._plan(run_id)
        return False

    async def _plan(self, run_id: str) -> None:
        record = await self._begin(run_id)
        if record is None or record.state != run.PLANNING:
            return
        body = decode_run(record.body)
        try:
            plan = await self._call_planner(record)
            check_plan(plan, self._settings)
            await self.check_limits(plan)
            check_admitted(body, plan.jobs, self._settings.secrets)
        except StoreUnavailable:
            raise
        except TimeoutError:
            seconds = self._settings.durations.planner_timeout_s
            await self._fail(run_id, f"The planner took longer than {seconds:g} s.", "planner_timeout")
        except Exception as error:  # noqa: BLE001 - a planner is other people's code
            await self._fail(run_id, _message_of(error), "plan_failed")
        else:
            awaits = awaited(body, plan.jobs, self._settings.secrets)
            if _group_is_open(record):
                await self._join(run_id, plan.concurrency_group, looks_around=awaits is None)
            await self._accept_plan(run_id, plan, awaits)

    async def check_limits(self, plan: Plan) -> None:
        """Raise for limits of a plan that are not declared or never fit.

        The error has all of them. A limit never fits if a job could never have its slots.
        """
        if self._limits is None or not [None for planned in plan.jobs if planned.limits]:
            return
        found: dict[str, str] = {}
        for planned in plan.jobs:
            try:
                await self._limits.check(spec_of(planned))
            except (UnknownLimit, InvalidLimit) as error:
                line = f" (line {planned.line})" if planned.line else ""
                found.setdefault(f"{planned.name}{line}: {error.sentence.rstrip('.')}", error.todo)
        if found:
            raise PlanRefused(
                "The plan cannot be carried out: " + "; ".join([*found][:MOST_FAULTS]) + ".",
                todo=next(iter(found.values())),
                facts={"faults": [*found][:MOST_FAULTS], "number": len(found)},
            )

    async def _take_up(self, record: Record, message: Record | None, joint: JointDecisions | None) -> bool:
        """Continue with the stored plan.

        It was submitted with the run, taken over, or held. Return whether the message was committed as sent.
        """
        body = decode_run(record.body)
        stored = await self._plans.some(record.id, range(body.pieces))
        if len(stored) < body.pieces:
            return False
        pieces = [stored[number] for number in range(body.pieces)]
        jobs = _repeated_jobs(pieces)
        try:
            check_admitted(body, jobs, self._settings.secrets)
        except PlanRefused as error:
            await self._begin(record.id, record)
            await self._fail(record.id, _message_of(error), "plan_failed")
            return False
        awaits = awaited(body, jobs, self._settings.secrets)
        return await self._accept(
            record.id, pieces, awaits=awaits, known=(record,), message=message, joint=joint
        )

    async def _join(self, run_id: str, group: str | None, *, looks_around: bool) -> None:
        """Put the run into the group of its workflow file.

        Then it supersedes older runs of that group. A run that needs an approval supersedes none before it is
        approved.
        """

        def decide(found: Sequence[Record | None], _: datetime) -> Decision[None]:
            if group is None or found[0] is None or found[0].state != run.PLANNING:
                return Decision(None)
            return Decision(None, Commit(changes=(in_group(found[0], group),)))

        await self._engine.apply([Key(RUN.name, run_id)], decide)
        (record,) = await self._engine.store.load([Key(RUN.name, run_id)])
        if looks_around and record is not None and record.state == run.PLANNING:
            await self._cancellation.make_room(record)

    async def _call_planner(self, record: Record) -> Plan:
        spec = decode_run(record.body).spec
        planner = self.planners.get(spec.planner)
        if planner is None:
            raise PlanRefused(
                f"There is no planner {spec.planner!r} here.",
                todo="Start a server that knows it, and submit the run again.",
                facts={"planner": spec.planner, "known": sorted(self.planners)},
            )
        now = await self._engine.clock.now()
        left_s = (record.deadline_at - now).total_seconds() if record.deadline_at else None
        async with asyncio.timeout(left_s):
            return await planner.plan(PlanRequest(run_id=record.id, spec=spec))

    # Transitions of the run

    async def _begin(self, run_id: str, found: Record | None = None) -> Record | None:
        """Start planning, or wait for an approval.

        Return the run, None if there is none.
        """
        before: Record | None = None

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[RunCommit | None]:
            nonlocal before
            (before,) = found
            draft = decide_planning(before, now, self._settings.durations)
            if draft is None:
                return Decision(None)
            prepared = run_commit_of(draft, commit_id=self._engine.commit_id(), actor="orchestrator")
            return Decision(prepared, prepared.commit)

        known = () if found is None else (found,)
        applied = await self._engine.apply([Key(RUN.name, run_id)], decide, known=known)
        if not isinstance(applied, Applied) or applied.answer is None:
            return before
        await self._reconciler.carry_out(applied.answer, applied.at)
        return record_after(applied.answer.commit.changes[0], before, applied.at)

    async def _accept_plan(self, run_id: str, plan: Plan, awaits: AwaitedApproval | None) -> None:
        now = await self._engine.clock.now()
        pieces = pieces_of(plan, self._ids.draw_many(now, len(plan.jobs)))
        await self._accept(run_id, pieces, plan, awaits=awaits)

    async def _accept(
        self,
        run_id: str,
        pieces: Sequence[PlanPiece],
        plan: Plan | None = None,
        *,
        awaits: AwaitedApproval | None,
        known: Sequence[Record] = (),
        message: Record | None = None,
        joint: JointDecisions | None = None,
    ) -> bool:
        """Accept a stored plan, or a new `plan`.

        The run is queued and its jobs are created; a late plan has no effect. If an operator has to approve
        it first, the plan is stored, so that the approved plan is the one executed. Return whether the
        message that asked for it was committed as sent.
        """
        graph = self._plans.graph_of(pieces)
        tries = 0
        before: Record | None = None

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[_AcceptedRun | None]:
            nonlocal tries, before
            (before,) = found
            tries += 1
            if tries > 1 or joint is None:
                shared = JointDecisions(now, self._engine.commit_id(), self._settings)
            else:
                shared = joint
            # A conflict may be about the message, or about the id of a job.
            stored = _StoredPlan(pieces, graph, awaits, message if tries == 1 else None)
            accepted = self._accepted(run_id, before, stored, shared, plan, is_first=tries == 1)
            return Decision(accepted, accepted.ready.commit if accepted is not None else None)

        applied = await self._engine.apply([Key(RUN.name, run_id)], decide, known=known)
        if not isinstance(applied, Applied) or applied.answer is None:
            return False
        await self._follow(applied.answer, before, applied.at)
        return tries == 1 and message is not None

    def _accepted(
        self,
        run_id: str,
        record: Record | None,
        stored: _StoredPlan,
        joint: JointDecisions,
        plan: Plan | None = None,
        *,
        is_first: bool = True,
    ) -> _AcceptedRun | None:
        """Return the commit that accepts a plan; None if it is too late. Pure."""
        pieces, graph, awaits, message = stored
        durations, commit_id = self._settings.durations, joint.commit_id
        if plan is None:
            draft = decide_stored_plan(record, joint.now, durations, graph, awaits)
        else:
            draft = decide_plan(record, joint.now, durations, graph, len(pieces), plan, awaits)
        if draft is None:
            return None
        orders = orders_of(draft)
        more = [] if plan is None else piece_changes(run_id, pieces, commit_id=commit_id, actor="planner")
        more += [] if message is None else [sent(message, commit_id)]
        created = created_within(draft, orders, pieces, joint) if is_first else {}
        ready = run_commit_of(
            draft, orders, commit_id=commit_id, actor="planner", more=more, carried_out=created
        )
        return _AcceptedRun(run_id, ready, created, stored)

    async def _follow(self, accepted: _AcceptedRun, before: Record | None, at: datetime) -> None:
        """Remember an accepted plan, and carry out the orders that are left."""
        run_id, stored = accepted.run_id, accepted.stored
        self._plans.remember(run_id, stored.graph)
        self._plans.keep(run_id, stored.pieces)
        self._remember(accepted, before, at)
        await self._reconciler.carry_out(accepted.ready, at)

    async def take_up_all(self, messages: Sequence[Record], joint: JointDecisions) -> list[Record]:
        """Accept the stored plans of runs without a group.

        Return the other messages. The runs are loaded and committed together; one that meets a conflict is
        among the others.
        """
        ids = [message_in(message.body, RunMessage).run_id for message in messages]
        found = await self._engine.store.load([Key(RUN.name, run_id) for run_id in ids])
        bodies = {
            record.id: decode_run(record.body)
            for record in found
            if record is not None and record.queue is None and record.state == run.CREATED
        }
        plans = await self._plans.all_of({run_id: body.pieces for run_id, body in bodies.items()})
        accepted: list[tuple[Record, Record, _AcceptedRun]] = []
        left: list[Record] = []
        for message, record in zip(messages, found, strict=True):
            pieces = None if record is None else plans.get(record.id)
            one = None
            if record is not None and pieces:
                one = self._taken_up(record, bodies[record.id], pieces, message, joint)
            if record is None or one is None:
                left.append(message)
            else:
                accepted.append((message, record, one))
        engine = self._engine
        commits = [engine.stamped(one.ready.commit, [record]) for _, record, one in accepted]
        outcomes = await commit_all_with_recovery(engine, commits)
        following = []
        for (message, record, one), outcome in zip(accepted, outcomes, strict=True):
            if isinstance(outcome, Committed):
                following.append((one, record, outcome.at))
            else:
                left.append(message)
        await gather_all(self._follow(*each) for each in following)
        return left

    def _taken_up(
        self,
        record: Record,
        body: RunBody,
        pieces: Sequence[PlanPiece],
        message: Record,
        joint: JointDecisions,
    ) -> _AcceptedRun | None:
        """Return the commit that accepts a stored plan.

        Return None if its run is prepared alone.
        """
        jobs = _repeated_jobs(pieces)
        try:
            check_admitted(body, jobs, self._settings.secrets)
        except PlanRefused:
            return None
        awaits = awaited(body, jobs, self._settings.secrets)
        stored = _StoredPlan(pieces, self._plans.graph_of(pieces), awaits, message)
        return self._accepted(record.id, record, stored, joint)

    def _remember(self, accepted: _AcceptedRun, before: Record | None, at: datetime) -> None:
        """Remember the run and its held jobs, as they were committed."""
        run_id, number = accepted.run_id, len(accepted.stored.graph.ids)
        self._known.forget(run_id)
        self._known.remember(record_after(accepted.ready.commit.changes[0], before, at))
        held: dict[object, tuple[Change, list[int]]] = {}
        for order, changes in accepted.created.items():
            if order.what == HOLD and len(changes) == len(order.places):
                for place, change in zip(order.places, changes, strict=True):
                    shape = (change.body, change.queue, change.labels, change.priority, change.deadline_at)
                    held.setdefault(shape, (change, []))[1].append(place)
        for like, places in held.values():
            self._known.hold(run_id, number, record_after(like, None, at), places)

    async def _fail(self, run_id: str, error: str, reason: str) -> None:
        event = run.planner_timeout if reason == "planner_timeout" else run.planning_failed

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
            if found[0] is None:
                return Decision(None)
            draft = RunAggregate.of(found[0], now, self._settings.durations)
            if draft.fail_planning(event, error[:MAX_ERROR], reason) is not None:
                return Decision(None)
            commit: Commit = run_commit_of(
                draft, commit_id=self._engine.commit_id(), actor="planner", reason=reason
            ).commit
            return Decision(None, commit)

        await self._engine.apply([Key(RUN.name, run_id)], decide)


def _repeated_jobs(pieces: Sequence[PlanPiece]) -> list[PlannedJob]:
    """Return the jobs of a plan without those that are carried over."""
    return [
        job
        for piece in pieces
        for place, job in enumerate(piece.jobs, piece.first)
        if place not in piece.carried
    ]


def _looks_around(record: Record) -> bool:
    """Return whether to search the group.

    After a crash between joining and searching, too.
    """
    if _group_is_open(record):
        return False
    joined = record.state == run.PLANNING and decode_run(record.body).spec.planner == WORKFLOW
    return record.state == run.CREATED or joined


def _group_is_open(record: Record) -> bool:
    """Return whether only its workflow file can name the group.

    That of a fork cannot name one.
    """
    body = decode_run(record.body)
    spec = body.spec
    says_nothing = spec.concurrency_group is None and not spec.source.from_fork
    return spec.planner == WORKFLOW and says_nothing and not body.pieces


def in_group(record: Record, group: str) -> Change:
    """Return the change that moves a run into another group. Pure."""
    body = decode_run(record.body)
    body.spec = msgspec.structs.replace(body.spec, concurrency_group=group)
    body.group = group
    return rewritten(record, body=encode_run(body), queue=group_key(body.spec), labels=labels_of(body.spec))


def decide_planning(record: Record | None, now: datetime, durations: Durations) -> RunAggregate | None:
    """Return the run in PLANNING or waiting for an approval.

    Return None if it has started before. Pure.
    """
    if record is None:
        return None
    draft = RunAggregate.of(record, now, durations)
    awaits = awaited_first(draft.body) if draft.state is run.CREATED else None
    refused = draft.send(run.start_planning) if awaits is None else draft.wait_for_approval(awaits)
    return None if refused is not None else draft


def decide_plan(
    record: Record | None,
    now: datetime,
    durations: Durations,
    graph: PlanGraph,
    pieces: int = 0,
    plan: Plan | None = None,
    awaits: AwaitedApproval | None = None,
) -> RunAggregate | None:
    """Return the run with a plan of its planner.

    Return None if the plan is too late. Pure.
    """
    if record is None or RunState(record.state) is not run.PLANNING:
        return None
    draft = RunAggregate.of(record, now, durations)
    if plan is not None:
        draft.body.pieces = pieces
        draft.body.fail_fast, draft.body.timeout_s = plan.fail_fast, plan.timeout_s
        draft.body.approvals_s = seconds_for_approvals(plan.jobs, durations)
    return _with_plan(draft, graph, awaits)


def decide_stored_plan(
    record: Record | None,
    now: datetime,
    durations: Durations,
    graph: PlanGraph,
    awaits: AwaitedApproval | None = None,
) -> RunAggregate | None:
    """Return the run with its stored plan, queued or to be approved.

    Return None if the plan is too late. Pure.
    """
    if record is None or RunState(record.state) is not run.CREATED:
        return decide_plan(record, now, durations, graph, awaits=awaits)
    draft = decide_planning(record, now, durations)
    # A run that has to be approved first ignores the plan.
    return None if draft is None else _with_plan(draft, graph, awaits)


def _with_plan(draft: RunAggregate, graph: PlanGraph, awaits: AwaitedApproval | None) -> RunAggregate:
    if awaits is None:
        draft.accept(graph)
    else:
        draft.wait_for_approval(awaits)
    return draft


def _message_of(error: Exception) -> str:
    """Return the error as a message for readers of the run."""
    if isinstance(error, InterlockError):
        return f"{error.sentence} {error.todo}".strip()
    return f"{type(error).__name__}: {error}"
