"""Cancel runs: on request, or because a newer run of the same group supersedes them.

Superseding. Runs of one group find each other by a column of their records, and of any two the one of the
earlier change is superseded. Each searches the group after it is stored and before it is planned: so of two
that are submitted at the same instant, the one that searches last sees the other. A run is superseded only
by one that was not canceled, checked in the same commit: so of any number of runs one continues.

Order of changes. Events arrive in any order: forges deliver late, and operators redeliver. So the time
at which the forge says that the change happened comes first. If two events lack it, or have the same second,
the commits decide: the one whose ref was at the other before is later, then the one that has the other in
its history. Otherwise the order is that of arrival, as it is for manual submissions.

Why: decisions 0173 and 0331.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec

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
from interlock.systems.runs.reconciler import RunCommit, RunReconciler, run_commit_of
from interlock.wire.filter_language import LOOKED_AT
from interlock.wire.runs import Source

MANUAL = "manual"


class ChangePosition(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a run in the order of changes."""

    id: str
    created_at: datetime
    at: datetime
    """Time of its change, as far as known."""
    timed: bool
    """Whether the forge gave the time."""
    source: Source
    before: str
    """The previous commit of the ref."""
    again: bool
    """Whether it is a rerun."""

    @property
    def arrival(self) -> tuple[datetime, datetime, str]:
        """A total order, as a last resort."""
        return self.at, self.created_at, self.id


def position_of(record: Record) -> ChangePosition:
    """Return the position of a run; a change cannot be later than its arrival."""
    body = decode_run(record.body)
    source, happened = body.spec.source, body.happened
    at = happened.at if happened is not None else None
    before = happened.before if happened is not None else ""
    if not before and source.event == "push":
        before = source.base_sha
    return ChangePosition(
        id=record.id,
        created_at=record.created_at,
        at=record.created_at if at is None else min(at, record.created_at),
        timed=at is not None,
        source=source,
        before=before,
        again=body.origin_run_id is not None,
    )


def is_later(one: ChangePosition, other: ChangePosition) -> bool | None:
    """Return whether the first change is later, by their events.

    Return None if the events leave it open.
    """
    if one.timed and other.timed and one.at != other.at:
        return one.at > other.at
    if not are_of_one_ref(one, other):
        return None
    follows, precedes = one.before == other.source.sha, other.before == one.source.sha
    return follows if follows != precedes else None


def are_of_one_ref(one: ChangePosition, other: ChangePosition) -> bool:
    """Return whether the commits of two runs can be compared.

    They have the same ref, and were not submitted manually.
    """
    mine, theirs = one.source, other.source
    named = mine.sha and theirs.sha and mine.sha != theirs.sha and MANUAL not in (mine.event, theirs.event)
    return bool(named) and (mine.repository, mine.ref) == (theirs.repository, theirs.ref)


def is_superseded_by(one: ChangePosition, other: ChangePosition, later: bool | None) -> bool:
    """Return whether the first run is superseded by the other.

    `later` is whether the other change is later; None leaves that to the order of arrival. A rerun was
    requested now, for a change that may be old. So it supersedes no newer run, and is superseded only by runs
    that arrive after it.
    """
    if later is None:
        later = other.arrival > one.arrival
    if one.again or other.again:
        return later and (other.created_at, other.id) > (one.created_at, one.id)
    return later


GIVES_WAY = tuple(str(state) for state in (*run.UNPLANNED, *run.PLANNED))
"""States in which a run can be superseded."""
SUPERSEDED, DECLINED = "superseded", "declined"
LOOKS_BACK = 20
"""Number of ended runs of its group that a late run is compared with."""

Descends: TypeAlias = Callable[[str, str, str], Awaitable[bool | None]]
"""Returns whether a commit has another one in its history; None if unknown."""


class RunCancellation:
    """Stops runs."""

    def __init__(
        self, engine: Engine, reconciler: RunReconciler, settings: OrchestratorSettings, descends: Descends
    ) -> None:
        self._engine = engine
        self._descends = descends
        self._reconciler = reconciler
        self._settings = settings

    async def stop(
        self,
        run_id: str,
        why: str,
        event: Event = run.cancel,
        *,
        idempotency_key: IdempotencyKey | None = None,
        reason: str = "",
        actor: str = "",
    ) -> None:
        """Request a run to stop.

        Repeating has no effect, and an ended run refuses.
        """

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[RunCommit | None]:
            draft = decide_stop(
                existing_run(run_id, found[0]), now, self._settings.durations, why, event=event
            )
            if draft is None:
                return Decision(None)
            request = idempotency_key.answered(b"null") if idempotency_key else None
            commit_id = self._engine.commit_id()
            prepared = run_commit_of(draft, commit_id=commit_id, actor=actor, reason=reason, request=request)
            return Decision(prepared, prepared.commit)

        applied = await self._engine.apply_once(idempotency_key, [Key(RUN.name, run_id)], decide)
        if isinstance(applied, Applied) and applied.answer is not None:
            await self._reconciler.carry_out(applied.answer, applied.at)

    async def make_room(self, record: Record) -> None:
        """Supersede the earlier runs of the group, or be superseded; idempotent."""
        mine, earlier = position_of(record), list[str]()
        async for other in self._companions(record):
            theirs = position_of(other)
            if other.id == record.id:
                continue
            later = await self._is_later(theirs, mine)
            if is_superseded_by(mine, theirs, later):
                if await self._supersede(record.id, other.id):
                    return
            elif is_superseded_by(theirs, mine, None if later is None else not later):
                earlier.append(other.id)
        if not await self._supersede_if_outdated(record, mine):
            for each in earlier:
                await self._supersede(each, record.id)

    async def _supersede_if_outdated(self, record: Record, mine: ChangePosition) -> bool:
        """Supersede a run by an ended run of a later change, if there is one.

        Return whether there was one.
        """
        if record.queue is None or mine.again:
            return False
        query = Query(kind=RUN.name, queue=record.queue, limit=LOOKS_BACK, within=LOOKED_AT)
        found = await self._engine.store.find(query)
        for other in found.records:
            theirs = position_of(other)
            if other.id == mine.id or theirs.again or not _was_done(other):
                continue
            if await self._is_later(theirs, mine) and await self._supersede(mine.id, other.id):
                return True
        return False

    async def _is_later(self, one: ChangePosition, other: ChangePosition) -> bool | None:
        """Return whether the first change is later.

        Return None if events and commits leave it open.
        """
        known = is_later(one, other)
        if known is not None or not are_of_one_ref(one, other):
            return known
        repository, ours, theirs = one.source.repository, one.source.sha, other.source.sha
        if await self._descends(repository, ours, theirs):
            return True
        return False if await self._descends(repository, theirs, ours) else None

    async def _supersede(self, run_id: str, by: str) -> bool:
        """Stop a run because of another one.

        Return False if that one was canceled or removed.
        """

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[RunCommit | None]:
            old, new = found
            if old is None or new is None or not (new.state in GIVES_WAY or _was_done(new)):
                return Decision(None)
            draft = decide_stop(old, now, self._settings.durations, SUPERSEDED, by)
            if draft is None:
                return Decision(None)
            reason = f"the run {by} of the same group is of a later change"
            # The other run may be about to be superseded itself: of two such commits one conflicts and
            # decides again.
            more = (rewritten(new),) if new.state in GIVES_WAY else ()
            prepared = run_commit_of(
                draft, commit_id=self._engine.commit_id(), actor="orchestrator", reason=reason, more=more
            )
            return Decision(prepared, prepared.commit)

        try:
            applied = await self._engine.apply([Key(RUN.name, run_id), Key(RUN.name, by)], decide)
        except TransitionRefused:
            return True  # it has ended in the meantime
        if not isinstance(applied, Applied) or applied.answer is None:
            return False
        await self._reconciler.carry_out(applied.answer, applied.at)
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


def decide_stop(
    record: Record,
    now: datetime,
    durations: Durations,
    why: str,
    by: str | None = None,
    event: Event = run.cancel,
) -> RunAggregate | None:
    """Return the run after a stop request, or None if it was repeated. Pure.

    Raise if its table refuses the stop.
    """
    draft = RunAggregate.of(record, now, durations)
    draft.fire_due()
    draft.body.stop_reason = draft.body.stop_reason or why
    draft.body.superseded_by = draft.body.superseded_by or by
    if (refused := draft.send(event)) is None:
        return draft
    if refused.kind is Refusal.IGNORED:
        return None
    raise refused.error()


def decide_approval(
    record: Record, now: datetime, durations: Durations, by: str, comment: str
) -> RunAggregate:
    """Return the run after an approval; raise if its table refuses. Pure."""
    draft = RunAggregate.of(record, now, durations)
    draft.fire_due()
    if (refused := draft.approve(by, comment)) is not None:
        raise refused.error()
    return draft


def _was_done(record: Record) -> bool:
    """Return whether a run has ended without cancellation."""
    return RunState(record.state) in run.SETTLED and decode_run(record.body).data.outcome is not run.CANCELED


def existing_run(run_id: str, record: Record | None) -> Record:
    """Return the run; raise `UnknownRun` if there is none."""
    if record is None:
        raise UnknownRun(
            f"There is no run {run_id}.",
            todo="Look for it with `interlock run list`; runs are pruned a while after they were reported.",
            facts={"run_id": run_id},
        )
    return record
