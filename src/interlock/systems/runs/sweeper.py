"""The sweeper of runs: it plans them, applies job changes, fires deadlines, and has outcomes reported.

It acts at once on events of its own process. Work of a process that died, or that has no sweeper, is found by
the next sweep.

Why: decisions 0171 and 0537.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from interlock.engine.debounce import Debouncer
from interlock.engine.loops import gather_all
from interlock.engine.outbox import (
    DeliverRecord,
    DeliveryPolicy,
    TopicGroup,
    deliver_taken,
    message_in,
    take_groups,
)
from interlock.engine.unit_of_work import Engine
from interlock.lifecycles.run import RUN
from interlock.store.records import Commit, Committed, Record
from interlock.systems.orchestrator.notifications import RunsNotified
from interlock.systems.runs.failure_analysis import FailureAnalyser
from interlock.systems.runs.orders import JointDecisions
from interlock.systems.runs.preparation import (
    RunPreparation,
)
from interlock.systems.runs.reconciler import (
    CHANGES,
    MANY,
    PENDING,
    PLANS,
    REPORTS,
    RunDecided,
    RunMessage,
    RunProgressed,
    RunReconciler,
)
from interlock.systems.runs.reports.report import REPORT
from interlock.systems.runs.reports.reporter import HISTORY_TOPIC, ReportService

log: logging.Logger = logging.getLogger("interlock.runs")

PLANNING = DeliveryPolicy(max_tries=1_000_000, longest_pause_s=30.0)
REPORTING = DeliveryPolicy(max_tries=1_000_000)
"""Retry the messages of reporting without a practical limit."""
LOOK = 100
"""Number of messages that a sweep takes by one claim; if there may be more, it asks for each group."""
AT_ONCE = 50
"""Number of runs planned or reported concurrently."""
_PLANNED = TopicGroup((PLANS,), timedelta(seconds=PLANNING.delivery_s), AT_ONCE)
_REPORTED = TopicGroup((REPORTS, HISTORY_TOPIC), timedelta(seconds=REPORTING.delivery_s), AT_ONCE)


class RunSweeper:
    """Advances runs: plans them, applies job changes, and has outcomes reported."""

    def __init__(
        self,
        engine: Engine,
        reconciler: RunReconciler,
        preparation: RunPreparation,
        reporting: Callable[[], ReportService],
        analyser: FailureAnalyser,
    ) -> None:
        self._engine = engine
        self._reconciler = reconciler
        self._preparation = preparation
        self._reporting = reporting
        self._analyser = analyser
        self._changes = Debouncer("job changes of runs", reconciler.apply_changes)
        self._plans = Debouncer("runs are planned", self.plan)
        self._reports = Debouncer("runs are reported", self.report)
        self.prompt = True
        engine.bus.subscribe(RunsNotified, lambda _: self.job_changed())
        engine.bus.subscribe(RunProgressed, self._on_progress)
        engine.bus.subscribe(RunDecided, lambda _: self._on_decided())

    def job_changed(self) -> None:
        """Wake the reconciler: jobs of runs have changed."""
        if self.prompt:
            self._changes.trigger()

    def run_submitted(self) -> None:
        """Wake the planner: a run was submitted."""
        if self.prompt:
            self._plans.trigger()

    async def sweep(self, *, wait_for_planners: bool = True) -> int:
        """Handle all pending work of runs; return its amount.

        Planners may be slow; without `wait_for_planners` the caller does not wait for them.
        """
        done = await self.fire_deadlines()
        while (some := await self._round(wait_for_planners)) or (
            wait_for_planners and await self._was_busy()
        ):
            done += some
        return done + await self._reporting().go_on(at_once=not self.prompt)

    async def fire_deadlines(self, *, limit: int = MANY) -> int:
        """Handle expired deadlines of runs and reports; return their number."""
        commit_id, reporting = self._engine.commit_id(), self._reporting()
        reports: list[Record] = []

        def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
            reports[:] = [record for record in records if record.kind == REPORT.name]
            runs = [record for record in records if record.kind == RUN.name]
            return [*self._reconciler.swept(runs, now, commit_id), *reporting.swept(reports, now)]

        outcomes = await self._engine.due([RUN.name, REPORT.name], limit, decide)
        late = await reporting.give_up(reports)
        return late + sum(isinstance(outcome, Committed) for outcome in outcomes)

    async def close(self) -> None:
        """Finish pending rounds, and leave the rest to other processes."""
        await asyncio.gather(*(each.close() for each in (self._changes, self._plans, self._reports)))

    async def _round(self, wait_for_planners: bool) -> int:
        plans = wait_for_planners or not self.prompt
        groups = [CHANGES, PENDING, _REPORTED, *((_PLANNED,) if plans else ())]
        found = await take_groups(self._engine.store, groups, limit=LOOK)
        done = sum(map(len, found.taken)) + await self._reporting().report_pending()
        handlers = (
            self._reconciler.apply_messages,
            self._reconciler.follow_messages,
            self._report_taken,
            self._plan_taken,
        )
        await gather_all(handle(taken) for handle, taken in zip(handlers, found.taken, strict=False) if taken)
        if found.is_full:  # messages of one group may have hidden those of another
            done += await self._reconciler.apply_changes() + await self._reconciler.follow_orders()
            done += await self.report() + (await self.plan() if plans else 0)
        if not plans:
            self._plans.trigger()
        if done and self.prompt:
            await self._reporting().go_on()
        return done

    async def _was_busy(self) -> bool:
        """Wait until no work runs in the background; return whether there was any.

        It may cause more: applied changes are to be reported.
        """
        was_busy = False
        while busy := [each for each in (self._changes, self._plans, self._reports) if each.is_busy]:
            was_busy = True
            await asyncio.gather(*(each.idle() for each in busy))
        return was_busy

    async def plan(self) -> int:
        """Plan the runs that wait for it; return their number."""
        (taken,) = (await take_groups(self._engine.store, [_PLANNED])).taken
        await self._plan_taken(taken)
        return len(taken)

    async def _plan_taken(self, taken: Sequence[Record]) -> None:
        """Plan the runs of these messages together."""
        if not taken:
            return
        joint = await self._preparation.joint_decisions()
        left = await _left_by(partial(self._preparation.take_up_all, joint=joint), taken)
        await self._deliver(left, {PLANS: partial(self._planned, joint=joint)}, PLANNING)
        if len(left) < len(taken):
            self._on_decided()

    async def _planned(self, message: Record, joint: JointDecisions) -> bool:
        run_id = message_in(message.body, RunMessage).run_id
        is_recorded = await self._preparation.prepare(run_id, message, joint)
        self.job_changed()  # of superseded runs
        self._on_decided()
        return is_recorded

    async def report(self) -> int:
        """Create the reports of decided outcomes; delivery is asynchronous."""
        reported = await self._reporting().report_pending()
        (taken,) = (await take_groups(self._engine.store, [_REPORTED])).taken
        await self._report_taken(taken)
        if (reported or taken) and self.prompt:
            await self._reporting().go_on()
        return reported + len(taken)

    async def _report_taken(self, taken: Sequence[Record]) -> None:
        receivers = {REPORTS: self._reporting().outcome, HISTORY_TOPIC: self._learned}
        left = await _left_by(self._reporting().outcomes, [each for each in taken if each.queue == REPORTS])
        left += [each for each in taken if each.queue != REPORTS]
        await self._deliver(left, receivers, REPORTING)

    async def _learned(self, message: Record) -> bool:
        await self._analyser.learn(message_in(message.body, RunMessage).run_id)
        return False

    def _on_progress(self, event: RunProgressed) -> None:
        if self._reporting().on_its_way(event.run_id):
            self._on_decided()

    def _on_decided(self) -> None:
        if self.prompt:
            self._reports.trigger()

    async def _deliver(
        self, taken: Sequence[Record], receivers: Mapping[str, DeliverRecord], policy: DeliveryPolicy
    ) -> None:
        engine = self._engine
        await deliver_taken(engine.store, engine.committer, taken, receivers, policy)


async def _left_by(
    handle: Callable[[Sequence[Record]], Awaitable[list[Record]]], taken: Sequence[Record]
) -> list[Record]:
    """Return the messages that are left after handling many together.

    All are left if that failed. Each of them is handled alone then, so that one does not hold the others.
    """
    try:
        return await handle(taken)
    except Exception as error:  # noqa: BLE001 - it is raised again for the one that causes it
        log.warning("messages of runs are handled one by one: %s: %s", type(error).__name__, error)
        return list(taken)
