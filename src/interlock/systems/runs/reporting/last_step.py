"""The last step of a run: from its outcome to REPORTED, and its plan with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from interlock.engine.unit_of_work import Engine
from interlock.lifecycles import run
from interlock.lifecycles.run import RUN
from interlock.store.records import Change, Key, Record
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.runs.aggregate import RunAggregate
from interlock.systems.runs.body import decode_run
from interlock.systems.runs.columns import query_of
from interlock.systems.runs.commits import commit_of
from interlock.systems.runs.plans import Plans, piece_key, settled_piece
from interlock.systems.runs.views import view_of
from interlock.wire.runs import RunFilter, RunView

NEWER = 20
"""How many runs of one commit are looked at for one that is newer."""


class Ending:
    """What reports need of runs."""

    def __init__(
        self,
        engine: Engine,
        plans: Plans,
        settings: OrchestratorSettings,
        view: Callable[[str], Awaitable[RunView]],
    ) -> None:
        self._engine = engine
        self._plans = plans
        self._settings = settings
        self.view = view

    async def ending(self, run_id: str) -> list[Key]:
        """The run, and the pieces of its plan, which are removed with it one day."""
        key = Key(RUN.name, run_id)
        (record,) = await self._engine.store.load([key])
        pieces = decode_run(record.body).pieces if record is not None else 0
        return [key, *(piece_key(run_id, number) for number in range(pieces))]

    async def newer(self, run: RunView) -> list[RunView]:
        """Return runs of the same commit that have taken the place of a run, or came after it."""
        source = run.source
        if not source.sha:
            return []
        wanted = RunFilter(
            workflow=run.workflow, repository=source.repository, sha=source.sha, since=run.created_at
        )
        query = query_of(wanted, newest_first=True, cursor="", limit=NEWER)
        found = list((await self._engine.store.find(query)).records)
        if run.superseded_by:
            loaded = await self._engine.store.load([Key(RUN.name, run.superseded_by)])
            found += [record for record in loaded if record is not None]
        views = [view_of(record) for record in found]
        order = (run.created_at, run.id)
        return [
            view
            for view in views
            if view.id == run.superseded_by
            or ((view.created_at, view.id) > order and view.superseded_by != run.id)
        ]

    def reported(self, records: Sequence[Record | None], now: datetime) -> tuple[Change, ...]:
        """The run is REPORTED; nothing when it was before, or has no outcome."""
        record, *kept = records
        if record is None:
            return ()
        draft = RunAggregate.of(record, now, self._settings.durations)
        if draft.send(run.reported) is not None:
            return ()
        mark = self._engine.mark()
        pieces = [settled_piece(each, mark=mark) for each in kept if each is not None]
        return commit_of(draft, mark=mark, actor="reporter", more=pieces).commit.changes
