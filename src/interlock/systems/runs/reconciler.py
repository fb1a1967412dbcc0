"""The reconciler: job changes come in, commits of runs and orders to their jobs go out.

Any number of reconcilers may work on one store. A message is taken by one of them, and is counted in the
commit of the run that receives it, so each is counted once. When two decide about the same run, one meets a
version conflict, loads the run and decides again. A few jobs are released in the commit of the run, which
conflicts if one of them has changed meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import chain
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from interlock.engine.loops import gather_all
from interlock.engine.outbox import message_in, outgoing, returned, sent, take_all
from interlock.engine.recovery import commit_with_recovery
from interlock.engine.unit_of_work import Engine, contended, failed
from interlock.errors import InterlockError
from interlock.lifecycles import run
from interlock.lifecycles.run import RUN
from interlock.store.records import (
    Change,
    Commit,
    Committed,
    Conflict,
    Illegal,
    Key,
    Record,
    Request,
    RequestReused,
    record_after,
)
from interlock.systems.orchestrator.ids import JobIds
from interlock.systems.orchestrator.notifications import RUN_JOBS, RUN_JOBS_TOGETHER, JobChanged, JobsChanged
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.runs.aggregate import RunAggregate
from interlock.systems.runs.body import RunBody
from interlock.systems.runs.orders import (
    ORDERS,
    PATIENCE_S,
    CarriedOut,
    JobOrder,
    Orders,
    order_change,
    orders_of,
)
from interlock.systems.runs.plans import Plans

Changes: TypeAlias = JobChanged | JobsChanged

PLANS = "run.plan"
"""The topic of planning requests."""
REPORTS = "run.report"
"""The topic of outcomes to report."""


class RunMessage(msgspec.Struct, frozen=True):
    """A message that only names a run."""

    run_id: str


class RunCommit(msgspec.Struct, frozen=True):
    """A commit, and the orders in it that the committing process carries out at once."""

    commit: Commit
    orders: tuple[tuple[JobOrder, Change], ...] = ()
    mentioned: str = ""
    """The id of the run, if its state is reported."""
    decided: bool = False
    """Whether its outcome is decided."""
    body: RunBody | None = None
    """The run, for its orders."""


_NONE: CarriedOut = MappingProxyType({})


def run_commit_of(
    draft: RunAggregate,
    *,
    mark: str,
    actor: str,
    reason: str = "",
    more: Iterable[Change] = (),
    request: Request | None = None,
    taken: bool = True,
    carried_out: CarriedOut = _NONE,
) -> RunCommit:
    """Return the commit of the run, its orders, and the message about its outcome once decided.

    Orders that are `carried_out` need no message.
    """
    change = draft.change(mark=mark, actor=actor, reason=reason)
    orders = [
        (order, order_change(order, f"{draft.id}.{change.expected}.{n}", draft.now, mark, taken=taken))
        for n, order in enumerate(orders_of(draft))
        if order not in carried_out
    ]
    changes = [change, *(each for _, each in orders), *chain.from_iterable(carried_out.values()), *more]
    if draft.is_decided:
        changes.append(run_message(draft, REPORTS, "report", mark))
    commit = Commit(changes=tuple(changes), request=request)
    lines = draft.lines
    on_its_way = lines and lines[-1].target in (run.AWAITING_APPROVAL, *run.PLANNED)
    mentioned = draft.id if on_its_way else ""
    return RunCommit(commit, tuple(orders) if taken else (), mentioned, draft.is_decided, draft.body)


def run_message(draft: RunAggregate, topic: str, change: str, mark: str) -> Change:
    """Return the change that stores a message about the run."""
    return outgoing(
        f"{draft.id}.{change}", topic, msgspec.json.encode(RunMessage(draft.id)), draft.now, mark=mark
    )


MANY = 500
"""Number of job changes processed in one round."""
FEW = 20
"""Number of orders processed in one round."""
GIVE_BACK_S = 5.0
"""Deadline for a stopping process to give an order back."""


class RunProgressed(msgspec.Struct, frozen=True):
    """Published when a run has reached a reported state."""

    run_id: str


class RunDecided(msgspec.Struct, frozen=True):
    """Published when the outcome of a run is decided."""


class RunReconciler:
    """Processes job changes, orders and deadlines of the runs in a store."""

    def __init__(self, engine: Engine, plans: Plans, settings: OrchestratorSettings, ids: JobIds) -> None:
        self._engine = engine
        self._plans = plans
        self._settings = settings
        self._orders = Orders(engine, plans, settings, ids)

    async def apply_changes(self, *, limit: int = MANY) -> int:
        """Apply reported job changes to their runs; return their number."""
        topics = (RUN_JOBS, RUN_JOBS_TOGETHER)
        taken = await take_all(self._engine.store, topics, timedelta(seconds=PATIENCE_S), limit=limit)
        if not taken:
            return 0
        by_run: dict[str, list[tuple[Changes, Record]]] = {}
        for record in taken:
            change: Changes = (
                message_in(record.body, JobsChanged)
                if record.queue == RUN_JOBS_TOGETHER
                else message_in(record.body, JobChanged)
            )
            by_run.setdefault(change.run_id, []).append((change, record))
        found = await self._engine.store.load([Key(RUN.name, run_id) for run_id in by_run])
        pairs = zip(by_run.values(), found, strict=True)
        await gather_all(self.bring(changes, known) for changes, known in pairs)
        return len(taken)

    async def bring(self, changes: Sequence[tuple[Changes, Record]], known: Record | None) -> None:
        """Commit all changes reported to one run."""
        conflict: Conflict | None = None
        for _ in range(self._engine.max_tries):
            if conflict is not None:
                known, changes = await self._again(changes)
            if not changes:
                return
            prepared = await self._commit_of(changes, known)
            outcome = await self._commit(prepared, known)
            if not isinstance(outcome, Conflict):
                await self.carry_out(prepared, outcome.at)
                return
            conflict = outcome
        raise contended([Key(RUN.name, changes[0][0].run_id)], conflict, self._engine.max_tries)

    async def _again(
        self, changes: Sequence[tuple[Changes, Record]]
    ) -> tuple[Record | None, list[tuple[Changes, Record]]]:
        """Return the current run, and the changes that no other process has applied meanwhile."""
        run_key = Key(RUN.name, changes[0][0].run_id)
        known, *messages = await self._engine.store.load([run_key, *(record.key for _, record in changes)])
        ours = [
            (change, record)
            for (change, record), now in zip(changes, messages, strict=True)
            if now is not None and now.version == record.version
        ]
        return known, ours

    async def _commit_of(self, changes: Sequence[tuple[Changes, Record]], known: Record | None) -> RunCommit:
        mark = self._engine.mark()
        messages = [sent(record, mark) for _, record in changes]
        draft = await self._draft(known)
        if draft is None:
            return RunCommit(Commit(changes=tuple(messages)))  # the run was pruned
        apply_job_changes(draft, [change for change, _ in changes])
        released = await self._orders.released(draft, mark)
        return run_commit_of(draft, mark=mark, actor="orchestrator", more=messages, carried_out=released)

    async def _draft(self, record: Record | None) -> RunAggregate | None:
        if record is None:
            return None
        now = await self._engine.clock.now()
        draft = RunAggregate.of(record, now, self._settings.durations)
        draft.graph = await self._plans.graph(record.id, draft.body.pieces)
        return draft if draft.graph is not None else None

    async def _commit(self, prepared: RunCommit, known: Record | None) -> Committed | Conflict:
        engine = self._engine
        sealed = engine.sealed(prepared.commit, [known])
        outcome = await commit_with_recovery(engine.store, engine.committer, sealed)
        if isinstance(outcome, Illegal | RequestReused):
            raise failed(outcome)
        assert isinstance(outcome, Committed | Conflict)
        return outcome

    # Orders

    async def follow_orders(self, *, limit: int = FEW) -> int:
        """Carry out pending orders; return their number."""
        taken = await take_all(self._engine.store, (ORDERS,), timedelta(seconds=PATIENCE_S), limit=limit)
        await self._follow([(message_in(record.body, JobOrder), record) for record in taken])
        return len(taken)

    async def carry_out(self, prepared: RunCommit, at: datetime) -> None:
        """Carry out the orders of a commit; after a crash another process does."""
        if prepared.mentioned:
            self._engine.bus.publish(RunProgressed(prepared.mentioned))
        if prepared.decided:
            self._engine.bus.publish(RunDecided())
        orders = [(order, record_after(change, None, at)) for order, change in prepared.orders]
        await self._follow(orders, prepared.body)

    async def _follow(self, orders: Sequence[tuple[JobOrder, Record]], body: RunBody | None = None) -> None:
        """Carry out orders at the same time; `body` is that of their run, if they are of one."""
        if not orders:
            return
        try:
            await gather_all(self._orders.carry_out(order, body) for order, _ in orders)
        except asyncio.CancelledError:
            await self._give_back([record for _, record in orders])
            raise
        mark = self._engine.mark()
        done = Commit(changes=tuple(sent(record, mark) for _, record in orders))
        await commit_with_recovery(self._engine.store, self._engine.committer, done)

    async def _give_back(self, records: Sequence[Record]) -> None:
        """Give orders back, so that another process can carry them out before the timeout."""
        with contextlib.suppress(TimeoutError, InterlockError):
            async with asyncio.timeout(GIVE_BACK_S):
                now, mark = await self._engine.clock.now(), self._engine.mark()
                back = Commit(changes=tuple(returned(record, now, mark) for record in records))
                await commit_with_recovery(self._engine.store, self._engine.committer, back)

    # Deadlines

    async def sweep(self, *, limit: int = MANY) -> int:
        """Handle expired deadlines of runs; return their number."""
        mark = self._engine.mark()

        def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
            return [fire_deadlines(record, now, mark, self._settings) for record in records]

        outcomes = await self._engine.due([RUN.name], limit, decide)
        return sum(isinstance(outcome, Committed) for outcome in outcomes)


def apply_job_changes(draft: RunAggregate, changes: Sequence[Changes]) -> None:
    """Apply job changes to a run, after an expired deadline. Pure."""
    draft.fire_due()
    draft.apply_jobs(changes)


def fire_deadlines(record: Record, now: datetime, mark: str, settings: OrchestratorSettings) -> Commit:
    """Return the commit of a run whose deadline has passed; an unattended one is requested again."""
    draft = RunAggregate.of(record, now, settings.durations)
    draft.fire_due()
    unattended = draft.state is run.CREATED or draft.is_planned_already
    more = (run_message(draft, PLANS, f"plan.{record.version}", mark),) if unattended else ()
    return run_commit_of(draft, mark=mark, actor="clock", more=more, taken=False).commit
