"""Stopping runs: because somebody asks, or because a newer run of the same group takes their place.

Superseding. Runs of one group find each other by a column of their records, and of any two the one
that was created first gives way. Each looks around once it is recorded, before it is planned: so of
two that are submitted at the same instant, whichever looks last sees the other, and both come to the
same verdict whoever looks first. No record has to be shared, and nobody has to wait.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from interlock.engine.applying import Applied, Asked, Decision, Engine
from interlock.errors import TransitionRefused, UnknownRun
from interlock.lifecycles import run
from interlock.lifecycles.durations import Durations
from interlock.lifecycles.run import RUN
from interlock.machine import Event, Refusal
from interlock.store.records import Key, Query, Record
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.runs.committing import RunCommit, commit_of
from interlock.systems.runs.draft import RunDraft
from interlock.systems.runs.keeping import Keeper

GIVES_WAY = tuple(str(state) for state in (*run.UNPLANNED, *run.PLANNED))
"""Where a run can still be superseded."""
SUPERSEDED, DECLINED = "superseded", "declined"


class Stopping:
    """Stops runs."""

    def __init__(self, engine: Engine, keeper: Keeper, settings: OrchestratorSettings) -> None:
        self._engine = engine
        self._keeper = keeper
        self._settings = settings

    async def stop(
        self,
        run_id: str,
        why: str,
        event: Event = run.cancel,
        *,
        asked: Asked | None = None,
        reason: str = "",
        actor: str = "",
        by: str | None = None,
    ) -> None:
        """Ask a run to stop; asking again changes nothing, and what has ended refuses."""

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[RunCommit | None]:
            draft = stopped(present(run_id, found[0]), now, self._settings.durations, why, by, event)
            if draft is None:
                return Decision(None)
            request = asked.answered(b"null") if asked else None
            mark = self._engine.mark()
            prepared = commit_of(draft, mark=mark, actor=actor, reason=reason, request=request)
            return Decision(prepared, prepared.commit)

        applied = await self._engine.apply_once(asked, [Key(RUN.name, run_id)], decide)
        if isinstance(applied, Applied) and applied.answer is not None:
            await self._keeper.carry_out(applied.answer, applied.at)

    async def make_room(self, record: Record) -> None:
        """Of the runs of a group only the newest goes on; safe to repeat."""
        newest = record
        async for other in self._companions(record):
            if _age(other) > _age(newest):
                newest = other
            elif other.id != record.id:
                await self._supersede(other.id, record.id)
        if newest.id != record.id:
            await self._supersede(record.id, newest.id)

    async def _supersede(self, run_id: str, by: str) -> None:
        try:
            reason = f"the run {by} of the same group is newer"
            await self.stop(run_id, SUPERSEDED, reason=reason, actor="orchestrator", by=by)
        except (TransitionRefused, UnknownRun):
            pass  # it has ended meanwhile

    async def _companions(self, record: Record) -> AsyncIterator[Record]:
        cursor = ""
        while record.queue is not None:
            query = Query(kind=RUN.name, queue=record.queue, states=GIVES_WAY, cursor=cursor)
            page = await self._engine.store.find(query)
            for each in page.records:
                yield each
            if not (cursor := page.cursor):
                return


def stopped(
    record: Record,
    now: datetime,
    durations: Durations,
    why: str,
    by: str | None = None,
    event: Event = run.cancel,
) -> RunDraft | None:
    """The run after it was asked to stop, None when it was before; raises where its table says so. Pure."""
    draft = RunDraft.of(record, now, durations)
    draft.fire_due()
    draft.body.stop_reason = draft.body.stop_reason or why
    draft.body.superseded_by = draft.body.superseded_by or by
    if (refused := draft.tell(event)) is None:
        return draft
    if refused.kind is Refusal.IGNORED:
        return None
    raise refused.error()


def approved(record: Record, now: datetime, durations: Durations, by: str, comment: str) -> RunDraft:
    """The run after an operator has approved it; raises where its table says so. Pure."""
    draft = RunDraft.of(record, now, durations)
    draft.fire_due()
    if (refused := draft.approve(by, comment)) is not None:
        raise refused.error()
    return draft


def _age(record: Record) -> tuple[datetime, str]:
    return record.created_at, record.id


def present(run_id: str, record: Record | None) -> Record:
    """The run, or the error that there is none."""
    if record is None:
        raise UnknownRun(
            f"There is no run {run_id}.",
            todo="Look for it with `interlock run list`; runs are pruned a while after they were reported.",
            facts={"run_id": run_id},
        )
    return record
