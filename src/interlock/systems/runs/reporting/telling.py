"""From an outcome to REPORTED: every reporter is told, and then it is so."""

from __future__ import annotations

import logging
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

log = logging.getLogger("interlock.runs")


async def _mention(reporter: Reporter, view: RunView) -> None:
    try:
        await reporter.mention(view)
    except Exception as error:  # noqa: BLE001 - it is not insisted on, whatever the reporter met
        log.info("run %s was not mentioned: %s: %s", view.id, type(error).__name__, error)


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
        self._unmentioned: dict[str, None] = {}

    async def report(self, run_id: str) -> None:
        """Tell every reporter, and note that it was; raises when one of them does, to be tried again."""
        (record,) = await self._engine.store.load([Key(RUN.name, run_id)])
        if record is None or RunState(record.state) not in run.OUTCOMES:
            return
        self._unmentioned.pop(run_id, None)
        view = await self._view(run_id)
        for reporter in self.reporters:
            await reporter.report(view)
        await self._note(run_id, decode_run(record.body).pieces)

    def note_on_its_way(self, run_id: str) -> None:
        """The run is worth a mention, when there is time for it."""
        self._unmentioned[run_id] = None

    async def mention(self) -> int:
        """Tell every reporter which runs are on their way; who does not hear it is not told again."""
        waiting, self._unmentioned = self._unmentioned, {}
        for run_id in waiting:
            view = await self._view(run_id)
            for reporter in self.reporters:
                if RunState(view.state) in run.PLANNED:
                    await _mention(reporter, view)
        return len(waiting)

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
