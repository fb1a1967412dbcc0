"""Looking after runs: at once where their news arises, and again wherever somebody sweeps.

Whoever brings news rings the bell of those whom it concerns, and they look after it in the same
process. What is lost with a process, or was brought by one that has no time, is found by sweeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from interlock.engine.outbox import DeliveryPolicy, Handler, deliver
from interlock.engine.unit_of_work import Engine
from interlock.systems.runs.analysis.analyser import Analysing
from interlock.systems.runs.commits import PLANS, REPORTS, About
from interlock.systems.runs.debounce import Debouncer
from interlock.systems.runs.preparation import Preparing
from interlock.systems.runs.reconciler import Keeper
from interlock.systems.runs.reporting.reporter import LESSONS, Reporting

PLANNING = DeliveryPolicy(max_tries=1_000_000, longest_pause_s=30.0)
REPORTING = DeliveryPolicy(max_tries=1_000_000)
"""A run is reported however long that takes."""
AT_ONCE = 50
"""How many runs are planned or reported side by side."""


class RunSweeper:
    """Who sees to what there is to do about runs."""

    def __init__(
        self,
        engine: Engine,
        keeper: Keeper,
        preparing: Preparing,
        reporting: Callable[[], Reporting],
        analysing: Analysing,
    ) -> None:
        self._engine = engine
        self._keeper = keeper
        self._preparing = preparing
        self._reporting = reporting
        self._analysing = analysing
        self._words = Debouncer("runs hear", keeper.hear)
        self._plans = Debouncer("runs are planned", self.plan)
        self._reports = Debouncer("runs are reported", self.report)
        self.prompt = True
        keeper.on_its_way = self._on_its_way
        keeper.on_decided = self._on_decided

    def words(self) -> None:
        """Jobs have told their runs something."""
        if self.prompt:
            self._words.ring()

    def plans(self) -> None:
        """Somebody has submitted a run."""
        if self.prompt:
            self._plans.ring()

    async def keep(self, *, patiently: bool = True) -> int:
        """Deal with everything that waits to be dealt with; answers how much that was.

        Planners may take their time, and whoever has other things to look after need not wait for them.
        """
        done = await self._keeper.sweep() + await self._reporting().sweep()
        while some := await self._round(patiently):
            done += some
        return done + await self._reporting().go_on(at_once=not self.prompt)

    async def close(self) -> None:
        """Finish what can be finished at once, and leave the rest to others."""
        await asyncio.gather(*(bell.close() for bell in (self._words, self._plans, self._reports)))

    async def _round(self, patiently: bool) -> int:
        done = await self._keeper.hear() + await self._keeper.follow_orders()
        if patiently or not self.prompt:
            done += await self.plan()
        else:
            self._plans.ring()
        done += await self.report()
        if patiently:
            await asyncio.gather(*(bell.idle() for bell in (self._words, self._plans, self._reports)))
        return done

    async def plan(self) -> int:
        """Have runs planned that wait for it; answers how many there were."""
        return await self._deliver({PLANS: self._planned}, PLANNING)

    async def _planned(self, payload: bytes) -> None:
        await self._preparing.prepare(msgspec.json.decode(payload, type=About).run_id)
        self.words()  # of runs that were superseded
        self._on_decided()

    async def report(self) -> int:
        """What is to be told is put before those who tell it; how long they take is their own matter."""
        handlers = {REPORTS: self._reporting().outcome, LESSONS: self._analysing.learn}
        done = await self._reporting().mention() + await self._deliver(handlers, REPORTING)
        if done and self.prompt:
            await self._reporting().go_on()
        return done

    def _on_its_way(self, run_id: str) -> None:
        if self._reporting().on_its_way(run_id):
            self._on_decided()

    def _on_decided(self) -> None:
        if self.prompt:
            self._reports.ring()

    async def _deliver(self, handlers: Mapping[str, Handler], postage: DeliveryPolicy) -> int:
        engine = self._engine
        return await deliver(engine.store, engine.committer, handlers, postage, limit=AT_ONCE)
