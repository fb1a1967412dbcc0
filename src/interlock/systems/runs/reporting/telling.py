"""From an outcome to REPORTED: every reporter is told, and then it is so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from interlock.engine.applying import Decision, Engine
from interlock.lifecycles import run
from interlock.lifecycles.run import RUN, RunState
from interlock.store.records import Key, Record
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.runs.body import decode_run
from interlock.systems.runs.committing import commit_of
from interlock.systems.runs.draft import RunDraft
from interlock.systems.runs.plans import Plans, settled_piece
from interlock.systems.runs.reporting.port import Reporter
from interlock.wire.runs import RunView


class Telling:
    """Reports outcomes."""

    def __init__(
        self,
        engine: Engine,
        plans: Plans,
        settings: OrchestratorSettings,
        reporters: Sequence[Reporter],
        view: Callable[[str], Awaitable[RunView]],
    ) -> None:
        self._engine = engine
        self._plans = plans
        self._settings = settings
        self.reporters = list(reporters)
        self._view = view

    async def report(self, run_id: str) -> None:
        """Tell every reporter, and note that it was; raises when one of them does, to be tried again."""
        (record,) = await self._engine.store.load([Key(RUN.name, run_id)])
        if record is None or RunState(record.state) not in run.OUTCOMES:
            return
        view = await self._view(run_id)
        for reporter in self.reporters:
            await reporter.report(view)
        await self._note(run_id, decode_run(record.body).pieces)

    async def _note(self, run_id: str, pieces: int) -> None:
        """The run is reported, and its plan is removed with it one day."""
        plan = [each.key for each in await self._plans.records(run_id, pieces)]

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
            record, *kept = found
            if record is None:
                return Decision(None)
            draft = RunDraft.of(record, now, self._settings.durations)
            if draft.tell(run.reported) is not None:
                return Decision(None)
            mark = self._engine.mark()
            more = [settled_piece(each, mark=mark) for each in kept if each is not None]
            return Decision(None, commit_of(draft, mark=mark, actor="reporter", more=more).commit)

        await self._engine.apply([Key(RUN.name, run_id), *plan], decide)
