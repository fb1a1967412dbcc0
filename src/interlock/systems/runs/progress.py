"""The progress of runs in the commit in which their jobs end.

A run that is known to this process, and of which no other commit is under way here, is decided at once: its
step and the release of the jobs that follow are committed with the ends of its jobs. In any other case, and
after a conflict about the run, its jobs send it a message, which the reconciler applies.

Why: decision 0535.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from interlock.engine.unit_of_work import Engine
from interlock.errors import InterlockError
from interlock.store.records import Committed, Conflict, Outcome
from interlock.systems.orchestrator.joint_reports import RunSteps
from interlock.systems.orchestrator.notifications import JobChanged, JobsChanged
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.runs.orders import JointDecisions
from interlock.systems.runs.reconciler import ChangedRun, RunCommit, RunReconciler
from interlock.systems.runs.run_cache import KnownRuns

AVOIDED_FOR = timedelta(seconds=1)
"""Time for which a run gets messages after a conflict, since other processes change it as well."""
MOST_AVOIDED = 1_000


class JointProgress:
    """Decides about runs in the commits in which their jobs end."""

    def __init__(
        self, engine: Engine, reconciler: RunReconciler, settings: OrchestratorSettings, known: KnownRuns
    ) -> None:
        self._engine = engine
        self._reconciler = reconciler
        self._settings = settings
        self._known = known
        self._under_way: set[str] = set()
        self._avoided: dict[str, datetime] = {}

    @asynccontextmanager
    async def steps(
        self, ended: Mapping[str, Sequence[JobChanged | JobsChanged]], now: datetime, commit_id: str
    ) -> AsyncIterator[RunSteps]:
        """Decide about runs whose jobs have ended; then note the outcomes."""
        mine = [run_id for run_id in ended if run_id not in self._under_way and self._is_free(run_id, now)]
        self._under_way.update(mine)
        prepared: list[tuple[ChangedRun, RunCommit]] = []
        steps = RunSteps({}, {})
        try:
            prepared = await self._prepared({run_id: ended[run_id] for run_id in mine}, now, commit_id)
            steps.changes = {one.run_id: ready.commit.changes for one, ready in prepared}
            yield steps
        finally:
            self._under_way.difference_update(mine)
            for one, ready in prepared:
                self._note(one, ready, steps.outcomes.get(one.run_id), now)
        for one, ready in prepared:
            outcome = steps.outcomes[one.run_id]
            if isinstance(outcome, Committed):
                await self._reconciler.carry_out(ready, outcome.at)

    async def _prepared(
        self, ended: Mapping[str, Sequence[JobChanged | JobsChanged]], now: datetime, commit_id: str
    ) -> list[tuple[ChangedRun, RunCommit]]:
        """Return the commits of runs, with all of their orders carried out."""
        if not ended:
            return []
        found = await self._known.load([*ended])
        runs = [
            ChangedRun(run_id, changes, record)
            for (run_id, changes), record in zip(ended.items(), found, strict=True)
            if record is not None
        ]
        joint = JointDecisions(now, commit_id, self._settings)
        prepared = await self._reconciler.prepared(runs, joint, [])
        return [
            (one, ready)
            for one, ready in prepared
            if ready.body is not None and not ready.orders and not ready.is_unchanged
        ]

    def _note(
        self, one: ChangedRun, ready: RunCommit, outcome: Outcome | InterlockError | None, now: datetime
    ) -> None:
        """Remember the run as it was committed, or that others change it."""
        if isinstance(outcome, Conflict):
            if len(self._avoided) >= MOST_AVOIDED:
                self._avoided.clear()
            self._avoided[one.run_id] = now + AVOIDED_FOR
        if outcome is None:
            self._known.forget(one.run_id)
        else:
            self._reconciler.note(one, ready, outcome)

    def _is_free(self, run_id: str, now: datetime) -> bool:
        """Return whether this process has met no conflict about the run lately."""
        until = self._avoided.get(run_id)
        if until is None or until > now:
            return until is None
        del self._avoided[run_id]
        return True
