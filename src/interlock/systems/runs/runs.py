"""The operations on runs: submit, find, show, cancel, rerun.

It contains no rules; the tables have them. The sweeper acts at once on events of its own process. Work of a
process that died, or that has no sweeper, is found by the next sweep.

Why: decisions 0171 and 0443.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from interlock.engine.loader import every_entry
from interlock.engine.unit_of_work import Decision, Engine, IdempotencyKey
from interlock.lifecycles import run
from interlock.lifecycles.job import JOB
from interlock.lifecycles.run import RUN
from interlock.store.records import Change, Commit, Entry, Key, Record, Repeated, record_after
from interlock.systems.orchestrator.explanation import Blocker, find_blockers
from interlock.systems.orchestrator.ids import JobIds
from interlock.systems.orchestrator.limits import Limits
from interlock.systems.orchestrator.settings import DEFAULT_SETTINGS, OrchestratorSettings
from interlock.systems.runs.aggregate import RunAggregate
from interlock.systems.runs.body import ChangeTime, RunBody, decode_run, group_of, query_of
from interlock.systems.runs.cancellation import DECLINED, RunCancellation, decide_approval, existing_run
from interlock.systems.runs.failure_analysis import FailureAnalyser, signs_of
from interlock.systems.runs.plan_validation import FORK, check_run, seconds_for_approvals
from interlock.systems.runs.plans import PlanPiece, Plans, piece_changes, pieces_of, plan_graph
from interlock.systems.runs.preparation import (
    WORKFLOW,
    RunPreparation,
    carried_over,
    check_settled,
    plan_of,
    preview_of,
)
from interlock.systems.runs.progress import JointProgress
from interlock.systems.runs.reconciler import (
    PLANS,
    RunReconciler,
    run_commit_of,
    run_message,
)
from interlock.systems.runs.reports.report import Reporter
from interlock.systems.runs.reports.reporter import ReportedRuns, ReportService
from interlock.systems.runs.run_cache import KnownRuns
from interlock.systems.runs.settings import ReportingSettings
from interlock.systems.runs.sweeper import RunSweeper
from interlock.systems.runs.views import (
    LOOKS_BACK,
    MOST_LINES,
    compared,
    compared_with,
    earlier_runs,
    explain,
    is_green,
    job_views,
    unfinished,
    view_of,
)
from interlock.systems.runs.workflows import Historian, Planner
from interlock.wire.runs import (
    Approval,
    FlakyJobs,
    ForkTerms,
    Plan,
    ReportView,
    RerunPreview,
    RunComparison,
    RunExplanation,
    RunFilter,
    RunJobView,
    RunSpec,
    RunView,
    Which,
)

PAGE = 500
COMPARED_AT_ONCE = 20
ALL = RunFilter()


class RunOrigin(msgspec.Struct, frozen=True):
    """Data that a new run takes over from an earlier one, or from its submitter."""

    origin_run_id: str | None = None
    plan: Plan | None = None
    carried: dict[int, str] = {}
    """The carried-over jobs by place, with their ids."""
    terms: ForkTerms | None = None
    claimed: bool = False
    approvals: tuple[Approval, ...] = ()
    happened: ChangeTime | None = None


class RunService:
    """The runs in a store."""

    def __init__(
        self,
        engine: Engine,
        *,
        settings: OrchestratorSettings = DEFAULT_SETTINGS,
        planners: Mapping[str, Planner] | None = None,
        reporting: ReportingSettings | None = None,
        reporters: Sequence[Reporter] | None = None,
        below: Callable[[int], int] = secrets.randbelow,
        limits: Limits | None = None,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self._limits = limits
        self._ids = JobIds(below, prefix="r_")
        self._job_ids = JobIds(below)
        self._plans = Plans(lambda: engine.store)
        self._known = KnownRuns(lambda: engine.store)
        self.reconciler: RunReconciler = RunReconciler(
            engine, self._plans, settings, self._job_ids, self._known
        )
        self.progress: JointProgress = JointProgress(engine, self.reconciler, settings, self._known)
        self._cancellation = RunCancellation(engine, self.reconciler, settings, self._descends)
        self.preparation: RunPreparation = RunPreparation(
            engine,
            self._plans,
            self.reconciler,
            self._cancellation,
            settings,
            planners or {},
            self._job_ids,
            limits,
        )
        ending = ReportedRuns(engine, self._plans, settings, self.view, self.outline)
        self.reporting: ReportService = ReportService(
            engine, ending, reporting or ReportingSettings(), reporters
        )
        self.analyser: FailureAnalyser = FailureAnalyser(engine, self.view, signs_of(settings.failure_rules))
        self.sweeper: RunSweeper = RunSweeper(
            engine, self.reconciler, self.preparation, lambda: self.reporting, self.analyser
        )

    # Submit

    async def submit(
        self,
        spec: RunSpec,
        *,
        request_id: str | None = None,
        actor: str = "",
        remember_s: float | None = None,
        terms: ForkTerms | None = None,
        claimed: bool = False,
        happened: ChangeTime | None = None,
    ) -> RunView:
        """Submit a run; return the existing one for a repeated request id.

        The id is remembered for `remember_s`, for senders that repeat days later. `terms` apply to a change
        from a fork. With `claimed`, repository and ref are unverified statements of a submitter. `happened`
        is the time of the change: a run is superseded by those of later changes.
        """
        check_run(spec, ("plan", *self.preparation.planners), self.settings)
        idempotency_key = self.engine.key_for(request_id, "submit run", spec, ttl_s=remember_s)
        again = RunOrigin(terms=terms, claimed=claimed, happened=happened)

        async def do() -> RunView:
            if spec.plan is not None:
                await self.preparation.check_limits(spec.plan)
            return await self._made(
                spec, spec.plan, idempotency_key=idempotency_key, actor=actor, again=again
            )

        return await self.engine.answer_once(idempotency_key, RunView, do)

    async def _made(
        self,
        spec: RunSpec,
        plan: Plan | None,
        *,
        idempotency_key: IdempotencyKey | None,
        actor: str,
        again: RunOrigin,
    ) -> RunView:
        pieces: list[PlanPiece] = []

        def decide(_: Sequence[Record | None], now: datetime) -> Decision[Change]:
            run_id, commit_id = self._ids.draw(now), self.engine.commit_id()
            body = RunBody(
                spec=msgspec.structs.replace(spec, plan=None),
                group=group_of(spec),
                origin_run_id=again.origin_run_id,
                terms=(again.terms or ForkTerms()) if spec.source.from_fork else None,
                claimed=again.claimed,
                happened=again.happened,
                approvals=again.approvals,
            )
            if plan is not None:
                ids = self._job_ids.draw_many(now, len(plan.jobs))
                for place, job_id in again.carried.items():
                    ids[place] = job_id
                pieces[:] = pieces_of(plan, ids, frozenset(again.carried))
                body.pieces = len(pieces)
                body.fail_fast, body.timeout_s = plan.fail_fast, plan.timeout_s
                body.approvals_s = seconds_for_approvals(plan.jobs, self.settings.durations)
            draft = RunAggregate.new(run_id, body, now, self.settings.durations)
            change = draft.change(commit_id=commit_id, actor=actor)
            more = piece_changes(run_id, pieces, commit_id=commit_id, actor=actor)
            request = idempotency_key.answered(msgspec.json.encode(run_id)) if idempotency_key else None
            changes = (change, *more, run_message(draft, PLANS, "plan", commit_id))
            return Decision(change, Commit(changes=changes, request=request))

        applied = await self.engine.apply_once(idempotency_key, [], decide)
        if isinstance(applied, Repeated):
            return await self.view(msgspec.json.decode(applied.recorded.answer.body, type=str))
        record = record_after(applied.answer, None, applied.at)
        self._plans.keep(record.id, pieces)
        self.sweeper.run_submitted()
        carried = await self._jobs_named(list(again.carried.values()))
        return _view_with(record, pieces, carried)

    # Cancel

    async def cancel(
        self, run_id: str, *, reason: str = "", request_id: str | None = None, actor: str = ""
    ) -> RunView:
        """Request the cancellation of a run. Idempotent.

        The view shows its progress.
        """
        idempotency_key = self.engine.key_for(request_id, f"cancel run {run_id}", reason)

        async def do() -> RunView:
            await self._cancellation.stop(
                run_id, "cancel", idempotency_key=idempotency_key, reason=reason, actor=actor
            )
            self.nudge()
            return await self.view(run_id)

        return await self.engine.answer_once(idempotency_key, RunView, do)

    # Approve

    async def approve(
        self, run_id: str, *, comment: str = "", request_id: str | None = None, actor: str = ""
    ) -> RunView:
        """Approve a waiting run, for its commit."""
        idempotency_key = self.engine.key_for(request_id, f"approve run {run_id}", comment)

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
            draft = decide_approval(
                existing_run(run_id, found[0]), now, self.settings.durations, actor, comment
            )
            commit_id, version = self.engine.commit_id(), draft.version
            more = (run_message(draft, PLANS, f"plan.{version}", commit_id),)
            request = idempotency_key.answered(b"null") if idempotency_key else None
            prepared = run_commit_of(
                draft, commit_id=commit_id, actor=actor, reason=comment, more=more, request=request
            )
            return Decision(None, prepared.commit)

        async def do() -> RunView:
            await self.engine.apply_once(idempotency_key, [Key(RUN.name, run_id)], decide)
            self.sweeper.run_submitted()
            return await self.view(run_id)

        return await self.engine.answer_once(idempotency_key, RunView, do)

    async def decline(
        self, run_id: str, *, reason: str = "", request_id: str | None = None, actor: str = ""
    ) -> RunView:
        """Decline a waiting run, which cancels it before any job."""
        idempotency_key = self.engine.key_for(request_id, f"decline run {run_id}", reason)

        async def do() -> RunView:
            await self._cancellation.stop(
                run_id, DECLINED, run.decline, idempotency_key=idempotency_key, reason=reason, actor=actor
            )
            self.nudge()
            return await self.view(run_id)

        return await self.engine.answer_once(idempotency_key, RunView, do)

    # Rerun

    async def rerun(
        self,
        run_id: str,
        which: Which = "all",
        *,
        job: str = "",
        request_id: str | None = None,
        actor: str = "",
    ) -> RunView:
        """Rerun a settled run as a new run that names its origin.

        Repeat all jobs; or those that have not succeeded (`failed`); or `from` a job on. The approval of a
        fork's commit is kept; that of an environment is not.
        """
        idempotency_key = self.engine.key_for(request_id, f"rerun {run_id}", (which, job))

        async def do() -> RunView:
            record = await self._load(run_id)
            check_settled(record)
            spec, again = await self._rerun_of(record, which, job)
            return await self._made(
                spec, again.plan, idempotency_key=idempotency_key, actor=actor, again=again
            )

        return await self.engine.answer_once(idempotency_key, RunView, do)

    async def _rerun_of(self, record: Record, which: Which, job: str) -> tuple[RunSpec, RunOrigin]:
        """Return the spec of a rerun, and the data that it takes over."""
        run_id, body = record.id, decode_run(record.body)
        plan, carried = None, dict[int, str]()
        pieces = await self._plans.pieces(run_id, body.pieces)
        if pieces:
            graph, plan = plan_graph(pieces), plan_of(pieces, body)
            carried = {place: graph.ids[place] for place in carried_over(run_id, body, graph, which, job)}
        # The approval of a fork's commit is kept; another deployment needs another approval.
        approvals = tuple(each for each in body.approvals if each.reason == FORK)
        happened = body.happened or ChangeTime()
        if happened.at is None:
            happened = msgspec.structs.replace(happened, at=record.created_at)
        again = RunOrigin(run_id, plan, carried, body.terms, body.claimed, approvals, happened)
        return body.spec, again

    async def preview(self, run_id: str, which: Which = "all", *, job: str = "") -> RerunPreview:
        """Return which jobs a rerun would execute; raise if it is refused."""
        record = await self._load(run_id)
        check_settled(record)
        body = decode_run(record.body)
        graph = await self._plans.graph(run_id, body.pieces)
        if graph is None:
            return RerunPreview(run_id=run_id, planned_anew=True)
        return preview_of(run_id, graph, carried_over(run_id, body, graph, which, job))

    async def compare(self, run_id: str, *, other: str = "") -> RunComparison:
        """Compare a run with another: by default the last green one of its kind.

        Runs of the same workflow, repository and ref are of a kind.
        """
        view = await self.view(run_id)
        if other:
            return compared_with(view, await self.view(other))
        wanted, cursor, looked_at = earlier_runs(view), "", 0
        while wanted is not None and looked_at < LOOKS_BACK:
            found, cursor = await self.find(wanted, cursor=cursor, limit=COMPARED_AT_ONCE)
            for place, each in enumerate(found, 1):
                if is_green(each, view):
                    return compared(view, await self.view(each.id), looked_at + place)
            looked_at += len(found)
            if not cursor or len(found) < COMPARED_AT_ONCE:
                break
        return compared(view, None, looked_at)

    # Views

    async def view(self, run_id: str) -> RunView:
        """Return the run with its jobs."""
        record = await self._load(run_id)
        pieces = await self._plans.pieces(run_id, decode_run(record.body).pieces) or []
        return _view_with(
            record, pieces, await self._jobs_named([name for piece in pieces for name in piece.ids])
        )

    async def outline(self, run_id: str) -> RunView:
        """Return the run without its jobs, which is cheap."""
        return view_of(await self._load(run_id))

    async def find(
        self,
        wanted: RunFilter = ALL,
        *,
        newest_first: bool = True,
        cursor: str = "",
        limit: int = 100,
    ) -> tuple[list[RunView], str]:
        """Return a page of runs without their jobs, and the next cursor."""
        query = query_of(wanted, newest_first=newest_first, cursor=cursor, limit=limit)
        page = await self.engine.store.find(query)
        return [view_of(record) for record in page.records], page.cursor

    async def jobs(self, run_id: str, *, first: int = 0, limit: int = PAGE) -> list[RunJobView]:
        """Return jobs of a run in the order of its plan, from some place on."""
        record = await self._load(run_id)
        pieces = await self._plans.pieces(run_id, decode_run(record.body).pieces) or []
        wanted = range(first, first + limit)
        some = [
            piece for piece in pieces if piece.first < wanted.stop and piece.first + len(piece.jobs) > first
        ]
        skip = first - some[0].first if some else 0
        found = await self._jobs_named([name for piece in some for name in piece.ids])
        return job_views(decode_run(record.body), some, found)[skip : skip + limit]

    async def history(self, run_id: str) -> list[Entry]:
        """Return the history of the run without its jobs, oldest first."""
        record = await self._load(run_id)
        return [entry async for entry in every_entry(self.engine.store, record.key)]

    async def explain(self, run_id: str) -> RunExplanation:
        """Explain why the run and its jobs wait, or how it ended.

        The explanation has the role that acts next and the next deadline.
        """
        record = await self._load(run_id)
        body = decode_run(record.body)
        graph = await self._plans.graph(run_id, body.pieces)
        names = [graph.ids[place] for place in unfinished(body)[:MOST_LINES]] if graph is not None else []
        found = await self._jobs_named(names)
        now = await self.engine.clock.now()
        blockers = await find_blockers(self.engine.store, found.values(), now, names=False)
        waits = {**blockers, **await self._held_back(found.values(), now)}
        explanation = explain(record, graph, found, now, waits)
        return await self.analyser.explained(await self.reporting.explained(explanation))

    async def _held_back(self, jobs: Iterable[Record], now: datetime) -> dict[str, Blocker]:
        """Return which limit each of these jobs waits for, by its id."""
        if self._limits is None:
            return {}
        held = {one.id: await self._limits.explain(one, now, names=False) for one in jobs}
        return {job_id: blocker for job_id, blocker in held.items() if blocker is not None}

    async def _jobs_named(self, names: Sequence[str]) -> dict[str, Record]:
        found: dict[str, Record] = {}
        for start in range(0, len(names), PAGE):
            keys = [Key(JOB.name, name) for name in names[start : start + PAGE]]
            found |= {each.id: each for each in await self.engine.store.load(keys) if each is not None}
        return found

    async def _descends(self, repository: str, sha: str, older: str) -> bool | None:
        """Return whether a commit has another one in its history; None if unknown."""
        planner: object = self.preparation.planners.get(WORKFLOW)
        return await planner.descends(repository, sha, older) if isinstance(planner, Historian) else None

    async def _load(self, run_id: str) -> Record:
        (record,) = await self.engine.store.load([Key(RUN.name, run_id)])
        return existing_run(run_id, record)

    async def reports(self, run_id: str) -> list[ReportView]:
        """Return the reports of a run."""
        await self._load(run_id)
        return await self.reporting.reports_of(run_id)

    async def report_again(self, run_id: str) -> list[ReportView]:
        """Retry reports that were given up."""
        await self._load(run_id)
        return await self.reporting.again(run_id)

    async def flaky(
        self, *, repository: str = "", workflow: str = "", cursor: str = "", limit: int = 100
    ) -> FlakyJobs:
        """Return jobs that have passed and failed on one commit lately."""
        return await self.analyser.flaky(repository=repository, workflow=workflow, cursor=cursor, limit=limit)

    # Sweeping

    @property
    def prompt(self) -> bool:
        """Whether events are handled at once, instead of by the next sweep."""
        return self.sweeper.prompt

    @prompt.setter
    def prompt(self, at_once: bool) -> None:
        self.sweeper.prompt = at_once

    def nudge(self) -> None:
        """Wake the reconciler: jobs have changed."""
        self.sweeper.job_changed()

    async def keep(self, *, wait_for_planners: bool = True) -> int:
        """Handle all pending work of runs; return its amount.

        Planners may be slow; without `wait_for_planners` the caller does not wait for them.
        """
        return await self.sweeper.sweep(wait_for_planners=wait_for_planners)

    async def close(self) -> None:
        """Stop handling events."""
        await self.sweeper.close()
        await self.reporting.close()


def _view_with(record: Record, pieces: Sequence[PlanPiece], found: Mapping[str, Record]) -> RunView:
    """Return the run with the jobs of its plan, of which these exist."""
    jobs = job_views(decode_run(record.body), pieces, found)
    return view_of(record, jobs=jobs, skipped=[each for piece in pieces for each in piece.skipped])
