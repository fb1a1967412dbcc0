"""What people do with runs: submit, look, cancel, do again. No rule is here; the tables have them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from interlock.engine.applying import Applied, Asked, Decision, Engine
from interlock.engine.outbox import Handler, Postage, deliver
from interlock.engine.paging import every_entry
from interlock.errors import UnknownRun
from interlock.lifecycles import run
from interlock.lifecycles.job import JOB
from interlock.lifecycles.run import RUN
from interlock.machine import Refusal
from interlock.store.records import Commit, Entry, Key, Record, Repeated
from interlock.systems.orchestrator.ids import JobIds
from interlock.systems.orchestrator.settings import DEFAULT_SETTINGS, OrchestratorSettings
from interlock.systems.runs.body import RunBody, decode_run
from interlock.systems.runs.checking import check_run
from interlock.systems.runs.committing import PLANS, REPORTS, About, RunCommit, about, commit_of
from interlock.systems.runs.draft import RunDraft
from interlock.systems.runs.finding import group_key, group_of, labels_of, query_of
from interlock.systems.runs.keeping import Keeper
from interlock.systems.runs.planning.port import Planner
from interlock.systems.runs.plans import Piece, Plans, piece_change, pieces_of
from interlock.systems.runs.preparing import Preparing
from interlock.systems.runs.reporting.log import LogReporter
from interlock.systems.runs.reporting.port import Reporter
from interlock.systems.runs.reporting.telling import Telling
from interlock.systems.runs.ringing import Bell
from interlock.systems.runs.viewing import job_views, view_of
from interlock.wire.runs import Plan, RunFilter, RunJobView, RunSpec, RunView

PAGE = 500
PLANNING = Postage(max_tries=1_000_000, longest_pause_s=30.0)
REPORTING = Postage(max_tries=1_000_000)
"""A run is reported however long that takes."""
AT_ONCE = 8
ALL = RunFilter()


class Runs:
    """The runs in a store."""

    def __init__(
        self,
        engine: Engine,
        *,
        settings: OrchestratorSettings = DEFAULT_SETTINGS,
        planners: Mapping[str, Planner] | None = None,
        reporters: Sequence[Reporter] = (LogReporter(),),
    ) -> None:
        self.engine = engine
        self.settings = settings
        self._ids = JobIds(secrets.randbelow, prefix="r_")
        self._job_ids = JobIds(secrets.randbelow)
        self._plans = Plans(lambda: engine.store)
        self.keeper = Keeper(engine, self._plans, settings)
        self.preparing = Preparing(engine, self._plans, self.keeper, settings, planners or {}, self._job_ids)
        self.telling = Telling(engine, self._plans, settings, reporters, self.view)
        self._bells = (
            Bell("runs hear", self._look_after),
            Bell("runs are planned", self._plan),
            Bell("runs are reported", self._report),
        )
        self.prompt = True
        """Whether news is dealt with at once; otherwise whoever sweeps does."""

    # Submitting

    async def submit(self, spec: RunSpec, *, request_id: str | None = None, actor: str = "") -> RunView:
        """A new run, or the one that an earlier request with this id has made."""
        check_run(spec, ("plan", *self.preparing.planners), self.settings)
        return await self._submit(
            spec, spec.plan, asked=Asked.of(request_id, "submit run", spec), actor=actor
        )

    async def _submit(
        self,
        spec: RunSpec,
        plan: Plan | None,
        *,
        asked: Asked | None,
        actor: str,
        origin_run_id: str | None = None,
    ) -> RunView:
        def decide(_: Sequence[Record | None], now: datetime) -> Decision[str]:
            run_id, mark = self._ids.draw(now), self.engine.mark()
            pieces: list[Piece] = []
            body = RunBody(
                spec=msgspec.structs.replace(spec, plan=None),
                group=group_of(spec),
                origin_run_id=origin_run_id,
            )
            if plan is not None:
                pieces = pieces_of(plan, [self._job_ids.draw(now) for _ in plan.jobs])
                body.pieces = len(pieces)
                body.fail_fast, body.timeout_s = plan.fail_fast, plan.timeout_s
            body.timer_at = now + timedelta(seconds=self.settings.durations.planner_timeout_s)
            draft = RunDraft(run_id, RUN.initial, body, now, self.settings.durations)
            change = msgspec.structs.replace(
                draft.change(mark=mark, actor=actor), queue=group_key(spec), labels=labels_of(spec)
            )
            more = [
                piece_change(run_id, number, piece, mark=mark, actor=actor)
                for number, piece in enumerate(pieces)
            ]
            request = asked.answered(msgspec.json.encode(run_id)) if asked else None
            changes = (change, *more, about(draft, PLANS, "plan", mark))
            return Decision(run_id, Commit(changes=changes, request=request))

        applied = await self.engine.apply_once(asked, [], decide)
        if isinstance(applied, Repeated):
            return await self.view(msgspec.json.decode(applied.recorded.answer.body, type=str))
        self.nudge()
        return await self.view(applied.answer)

    # Stopping

    async def cancel(
        self, run_id: str, *, reason: str = "", request_id: str | None = None, actor: str = ""
    ) -> RunView:
        """Ask a run to stop; the view says how far that is. Asking again changes nothing."""
        asked = Asked.of(request_id, f"cancel run {run_id}", reason)
        await self._stop(run_id, asked, "cancel", reason, actor)
        return await self.view(run_id)

    async def _stop(
        self, run_id: str, asked: Asked | None, why: str, reason: str, actor: str, by: str | None = None
    ) -> None:
        def decide(found: Sequence[Record | None], now: datetime) -> Decision[RunCommit | None]:
            draft = RunDraft.of(_present(run_id, found[0]), now, self.settings.durations)
            draft.fire_due()
            draft.body.stop_reason = draft.body.stop_reason or why
            draft.body.superseded_by = draft.body.superseded_by or by
            refused = draft.tell(run.cancel)
            if refused is not None:
                if refused.kind is Refusal.IGNORED:
                    return Decision(None)
                raise refused.error()
            request = asked.answered(b"null") if asked else None
            prepared = commit_of(draft, mark=self.engine.mark(), actor=actor, reason=reason, request=request)
            return Decision(prepared, prepared.commit)

        applied = await self.engine.apply_once(asked, [Key(RUN.name, run_id)], decide)
        if isinstance(applied, Applied) and applied.answer is not None:
            await self.keeper.carry_out(applied.answer, applied.at)
        self.nudge()

    # Looking

    async def view(self, run_id: str) -> RunView:
        """The run as it stands, with its jobs."""
        record = await self._load(run_id)
        pieces = await self._plans.pieces(run_id, decode_run(record.body).pieces) or []
        jobs = await self._job_views(record, pieces)
        return view_of(record, jobs=jobs, skipped=[each for piece in pieces for each in piece.skipped])

    async def find(
        self,
        wanted: RunFilter = ALL,
        *,
        newest_first: bool = True,
        cursor: str = "",
        limit: int = 100,
    ) -> tuple[list[RunView], str]:
        """A page of runs without their jobs, and the cursor of the next one."""
        query = query_of(wanted, newest_first=newest_first, cursor=cursor, limit=limit)
        page = await self.engine.store.find(query)
        return [view_of(record) for record in page.records], page.cursor

    async def jobs(self, run_id: str, *, first: int = 0, limit: int = PAGE) -> list[RunJobView]:
        """Jobs of a run in the order of its plan, from some place on."""
        record = await self._load(run_id)
        pieces = await self._plans.pieces(run_id, decode_run(record.body).pieces) or []
        return (await self._job_views(record, pieces))[first : first + limit]

    async def history(self, run_id: str) -> list[Entry]:
        """Everything that has happened to the run, oldest first; its jobs have journals of their own."""
        record = await self._load(run_id)
        return [entry async for entry in every_entry(self.engine.store, record.key)]

    async def _job_views(self, record: Record, pieces: Sequence[Piece]) -> list[RunJobView]:
        names = [name for piece in pieces for name in piece.ids]
        found: dict[str, Record] = {}
        for start in range(0, len(names), PAGE):
            keys = [Key(JOB.name, name) for name in names[start : start + PAGE]]
            found |= {each.id: each for each in await self.engine.store.load(keys) if each is not None}
        return job_views(decode_run(record.body), pieces, found)

    async def _load(self, run_id: str) -> Record:
        (record,) = await self.engine.store.load([Key(RUN.name, run_id)])
        return _present(run_id, record)

    # Looking after them

    def nudge(self) -> None:
        """There is news about some run: have it dealt with soon."""
        if self.prompt:
            for bell in self._bells:
                bell.ring()

    async def keep(self) -> int:
        """Deal with everything that waits to be dealt with; answers how much that was."""
        done = await self.keeper.sweep()
        while some := await self._plan() + await self._look_after() + await self._report():
            done += some
        return done

    async def close(self) -> None:
        """Answer no more news."""
        for bell in self._bells:
            await bell.close()

    async def _look_after(self) -> int:
        done = await self.keeper.hear() + await self.keeper.follow_orders()
        if done and self.prompt:
            self._bells[2].ring()
        return done

    async def _plan(self) -> int:
        return await self._deliver(PLANS, self._planned, PLANNING)

    async def _report(self) -> int:
        return await self._deliver(REPORTS, self._reported, REPORTING)

    async def _deliver(self, topic: str, handler: Handler, postage: Postage) -> int:
        engine = self.engine
        return await deliver(engine.store, engine.committer, {topic: handler}, postage, limit=AT_ONCE)

    async def _planned(self, payload: bytes) -> None:
        await self.preparing.prepare(msgspec.json.decode(payload, type=About).run_id)
        self.nudge()

    async def _reported(self, payload: bytes) -> None:
        await self.telling.report(msgspec.json.decode(payload, type=About).run_id)


def _present(run_id: str, record: Record | None) -> Record:
    if record is None:
        raise UnknownRun(
            f"There is no run {run_id}.",
            todo="Look for it with `interlock run list`; runs are pruned a while after they were reported.",
            facts={"run_id": run_id},
        )
    return record
