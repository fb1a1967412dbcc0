"""Stopping runs: because somebody asks, or because a newer run of the same group takes their place.

Superseding. Runs of one group find each other by a column of their records, and of any two the one of the
earlier change gives way (`ordering`). Each looks around once it is recorded, before it is planned: so of
two that are submitted at the same instant, whichever looks last sees the other. A run gives way only to one
that stands, in the commit in which it does: so of any number one goes on, whatever each of them knows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypeAlias

from interlock.engine.aggregate import rewritten
from interlock.engine.unit_of_work import Applied, Decision, Engine, IdempotencyKey
from interlock.errors import TransitionRefused, UnknownRun
from interlock.lifecycles import run
from interlock.lifecycles.durations import Durations
from interlock.lifecycles.run import RUN, RunState
from interlock.machine import Event, Refusal
from interlock.store.records import Key, Query, Record
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.runs.aggregate import RunAggregate
from interlock.systems.runs.body import decode_run
from interlock.systems.runs.commit_order import Standing, are_of_one_ref, gives_way, is_later, standing_of
from interlock.systems.runs.commits import RunCommit, commit_of
from interlock.systems.runs.reconciler import Keeper
from interlock.wire.wanted import LOOKED_AT

GIVES_WAY = tuple(str(state) for state in (*run.UNPLANNED, *run.PLANNED))
"""Where a run can still be superseded."""
SUPERSEDED, DECLINED = "superseded", "declined"
LOOKS_BACK = 20
"""How many runs of its group that have ended a late one is compared with."""

Descends: TypeAlias = Callable[[str, str, str], Awaitable[bool | None]]
"""Whether in a repository a commit has another one in its history; None where nobody knows."""


class Stopping:
    """Stops runs."""

    def __init__(
        self, engine: Engine, keeper: Keeper, settings: OrchestratorSettings, descends: Descends
    ) -> None:
        self._engine = engine
        self._descends = descends
        self._keeper = keeper
        self._settings = settings

    async def stop(
        self,
        run_id: str,
        why: str,
        event: Event = run.cancel,
        *,
        asked: IdempotencyKey | None = None,
        reason: str = "",
        actor: str = "",
    ) -> None:
        """Ask a run to stop; asking again changes nothing, and what has ended refuses."""

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[RunCommit | None]:
            draft = stopped(present(run_id, found[0]), now, self._settings.durations, why, event=event)
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
        """Let a run of a group take the place of those of earlier changes, or give way; safe to repeat."""
        mine, earlier = standing_of(record), list[str]()
        async for other in self._companions(record):
            theirs = standing_of(other)
            if other.id == record.id:
                continue
            later = await self._is_later(theirs, mine)
            if gives_way(mine, theirs, later):
                if await self._supersede(record.id, other.id):
                    return
            elif gives_way(theirs, mine, None if later is None else not later):
                earlier.append(other.id)
        if not await self._comes_too_late(record, mine):
            for each in earlier:
                await self._supersede(each, record.id)

    async def _comes_too_late(self, record: Record, mine: Standing) -> bool:
        """Give way to a run of a later change that has ended: what is old is not done after what is new."""
        if record.queue is None or mine.again:
            return False
        query = Query(kind=RUN.name, queue=record.queue, limit=LOOKS_BACK, within=LOOKED_AT)
        found = await self._engine.store.find(query)
        for other in found.records:
            theirs = standing_of(other)
            if other.id == mine.id or theirs.again or not _was_done(other):
                continue
            if await self._is_later(theirs, mine) and await self._supersede(mine.id, other.id):
                return True
        return False

    async def _is_later(self, one: Standing, other: Standing) -> bool | None:
        """Whether the first is of the later change; None when neither events nor commits tell."""
        known = is_later(one, other)
        if known is not None or not are_of_one_ref(one, other):
            return known
        repository, ours, theirs = one.source.repository, one.source.sha, other.source.sha
        if await self._descends(repository, ours, theirs):
            return True
        return False if await self._descends(repository, theirs, ours) else None

    async def _supersede(self, run_id: str, by: str) -> bool:
        """Stop a run because of another one; False when that one does not stand any more."""

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[RunCommit | None]:
            old, new = found
            if old is None or new is None or not (new.state in GIVES_WAY or _was_done(new)):
                return Decision(None)
            draft = stopped(old, now, self._settings.durations, SUPERSEDED, by)
            if draft is None:
                return Decision(None)
            reason = f"the run {by} of the same group is of a later change"
            # The other one may be about to give way itself: of two such commits one has to look again.
            more = (rewritten(new),) if new.state in GIVES_WAY else ()
            prepared = commit_of(
                draft, mark=self._engine.mark(), actor="orchestrator", reason=reason, more=more
            )
            return Decision(prepared, prepared.commit)

        try:
            applied = await self._engine.apply([Key(RUN.name, run_id), Key(RUN.name, by)], decide)
        except TransitionRefused:
            return True  # it has ended meanwhile
        if not isinstance(applied, Applied) or applied.answer is None:
            return False
        await self._keeper.carry_out(applied.answer, applied.at)
        return True

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
) -> RunAggregate | None:
    """The run after it was asked to stop, None when it was before; raises where its table says so. Pure."""
    draft = RunAggregate.of(record, now, durations)
    draft.fire_due()
    draft.body.stop_reason = draft.body.stop_reason or why
    draft.body.superseded_by = draft.body.superseded_by or by
    if (refused := draft.send(event)) is None:
        return draft
    if refused.kind is Refusal.IGNORED:
        return None
    raise refused.error()


def approved(record: Record, now: datetime, durations: Durations, by: str, comment: str) -> RunAggregate:
    """The run after an operator has approved it; raises where its table says so. Pure."""
    draft = RunAggregate.of(record, now, durations)
    draft.fire_due()
    if (refused := draft.approve(by, comment)) is not None:
        raise refused.error()
    return draft


def _was_done(record: Record) -> bool:
    """Whether a run has ended by itself."""
    return RunState(record.state) in run.SETTLED and decode_run(record.body).data.outcome is not run.CANCELED


def present(run_id: str, record: Record | None) -> Record:
    """The run, or the error that there is none."""
    if record is None:
        raise UnknownRun(
            f"There is no run {run_id}.",
            todo="Look for it with `interlock run list`; runs are pruned a while after they were reported.",
            facts={"run_id": run_id},
        )
    return record
