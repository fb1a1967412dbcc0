"""The reconciler: job changes come in, commits of runs and orders to their jobs go out.

Any number of reconcilers may work on one store. A message is taken by one of them, and is counted in the
commit of the run that receives it, so each is counted once. When two decide about the same run, one meets a
version conflict, loads the run and decides again. A few jobs are released in the commit of the run, which
conflicts if one of them has changed meanwhile.

Why: decision 0175.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import msgspec

from interlock.engine.bulk import commit_all_with_recovery
from interlock.engine.loops import gather_all
from interlock.engine.outbox import TopicGroup, message_in, outgoing, returned, sent, take_all
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
    Outcome,
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
from interlock.systems.runs.new_jobs import JobOrder
from interlock.systems.runs.orders import (
    ORDERS,
    PATIENCE_S,
    CarriedOut,
    JointDecisions,
    Orders,
    order_change,
    orders_of,
    released_within,
)
from interlock.systems.runs.plans import Plans
from interlock.systems.runs.run_cache import KnownRuns

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
    """The run, for its orders; None if it was pruned."""
    is_unchanged: bool = False
    """Whether the run itself is not written."""


_NONE: CarriedOut = MappingProxyType({})


def run_commit_of(
    draft: RunAggregate,
    orders: Sequence[JobOrder] | None = None,
    *,
    commit_id: str,
    actor: str,
    reason: str = "",
    more: Iterable[Change] = (),
    request: Request | None = None,
    taken: bool = True,
    carried_out: CarriedOut = _NONE,
) -> RunCommit:
    """Return the commit of the run, its orders, and its outcome's message.

    The message is sent once the outcome is decided. Orders that are `carried_out` need no message. `orders`
    are those of the draft, if they are known.
    """
    change = draft.change(commit_id=commit_id, actor=actor, reason=reason)
    left = [
        (order, order_change(order, f"{draft.id}.{change.expected}.{n}", draft.now, commit_id, taken=taken))
        for n, order in enumerate(orders_of(draft) if orders is None else orders)
        if order not in carried_out
    ]
    changes = [change, *[each for _, each in left], *chain.from_iterable(carried_out.values()), *more]
    is_decided = draft.is_decided
    if is_decided:
        changes.append(run_message(draft, REPORTS, "report", commit_id))
    commit = Commit(changes=tuple(changes), request=request)
    lines = () if change.note is None else change.note.steps
    on_its_way = lines and lines[-1].target in (run.AWAITING_APPROVAL, *run.PLANNED)
    mentioned = draft.id if on_its_way else ""
    return RunCommit(commit, tuple(left) if taken else (), mentioned, is_decided, draft.body)


def run_message(draft: RunAggregate, topic: str, change: str, commit_id: str) -> Change:
    """Return the change that stores a message about the run."""
    return outgoing(
        f"{draft.id}.{change}",
        topic,
        msgspec.json.encode(RunMessage(draft.id)),
        draft.now,
        commit_id=commit_id,
    )


MANY = 500
"""Number of job changes processed in one round."""
FEW = 20
"""Number of orders processed in one round."""
CHANGES = TopicGroup((RUN_JOBS, RUN_JOBS_TOGETHER), timedelta(seconds=PATIENCE_S), MANY)
"""The messages of jobs to their runs."""
PENDING = TopicGroup((ORDERS,), timedelta(seconds=PATIENCE_S), FEW)
"""The orders that the committing process has not carried out."""
GIVE_BACK_S = 5.0
"""Deadline for a stopping process to give an order back."""


class ChangedRun(NamedTuple):
    """A run, the changes of its jobs, and the messages that reported them."""

    run_id: str
    changes: Sequence[Changes]
    known: Record | None
    messages: Sequence[Record] = ()
    is_guess: bool = True
    """Whether it was not read just now: then only a commit of the run itself shows whether it is current."""

    def as_sent(self, commit_id: str) -> tuple[Change, ...]:
        """Return the messages as sent, to be committed with their effect."""
        return tuple([sent(record, commit_id) for record in self.messages]) if self.messages else ()


class RunProgressed(msgspec.Struct, frozen=True):
    """Published when a run has reached a reported state."""

    run_id: str


class RunDecided(msgspec.Struct, frozen=True):
    """Published when the outcome of a run is decided."""


class RunReconciler:
    """Processes job changes, orders and deadlines of the runs in a store."""

    def __init__(
        self, engine: Engine, plans: Plans, settings: OrchestratorSettings, ids: JobIds, known: KnownRuns
    ) -> None:
        self._engine = engine
        self._plans = plans
        self._settings = settings
        self.known: KnownRuns = known
        self._orders = Orders(engine, plans, settings, ids, known)

    async def apply_changes(self, *, limit: int = MANY) -> int:
        """Apply reported job changes to their runs; return their number."""
        taken = await take_all(self._engine.store, CHANGES.topics, CHANGES.patience, limit=limit)
        await self.apply_messages(taken)
        return len(taken)

    async def apply_messages(self, taken: Sequence[Record]) -> None:
        """Apply the job changes that these messages report to their runs."""
        by_run: dict[str, tuple[list[Changes], list[Record]]] = {}
        for record in taken:
            change: Changes = (
                message_in(record.body, JobsChanged)
                if record.queue == RUN_JOBS_TOGETHER
                else message_in(record.body, JobChanged)
            )
            changes, messages = by_run.setdefault(change.run_id, ([], []))
            changes.append(change)
            messages.append(record)
        if by_run:
            found = await self.known.load([*by_run])
            await self.bring(
                [
                    ChangedRun(run_id, changes, known, messages)
                    for (run_id, (changes, messages)), known in zip(by_run.items(), found, strict=True)
                ]
            )

    async def bring(self, runs: Sequence[ChangedRun]) -> None:
        """Commit all changes reported to each of some runs.

        The first failure is raised after all others were committed. The runs are decided at one time, and
        each by a commit of its own. Those that meet a conflict are decided again.
        """
        waiting = list(runs)
        failures: list[Exception] = []
        engine = self._engine
        for _ in range(engine.max_tries):
            joint = JointDecisions(await engine.clock.now(), engine.commit_id(), self._settings)
            prepared = await self.prepared(waiting, joint, failures)
            commits = [engine.stamped(ready.commit, [one.known]) for one, ready in prepared]
            outcomes = await commit_all_with_recovery(engine, commits)
            following: list[tuple[RunCommit, datetime]] = []
            conflicts: list[tuple[ChangedRun, Conflict]] = []
            for (one, ready), outcome in zip(prepared, outcomes, strict=True):
                self.note(one, ready, outcome)
                match outcome:
                    case Committed(at):
                        following.append((ready, at))
                    case Conflict():
                        conflicts.append((one, outcome))
                    case Illegal() | RequestReused():
                        failures.append(failed(outcome))
                    case InterlockError():
                        failures.append(outcome)
            await gather_all(self.carry_out(ready, at) for ready, at in following)
            waiting = await self._reloaded([one for one, _ in conflicts])
            if not waiting:
                break
        else:
            one, conflict = conflicts[0]
            failures.append(contended([Key(RUN.name, one.run_id)], conflict, engine.max_tries))
        if failures:
            raise failures[0]

    def note(self, one: ChangedRun, ready: RunCommit, outcome: Outcome | InterlockError) -> None:
        """Remember the run as it was committed.

        Forget it if the outcome of the commit is not known, or the run is decided.
        """
        if ready.is_unchanged:
            if one.known is not None and one.known.state not in run.SETTLED:
                self.known.remember(one.known)
            return
        if isinstance(outcome, Committed) and ready.body is not None and not ready.decided:
            self.known.remember(record_after(ready.commit.changes[0], one.known, outcome.at))
        else:
            self.known.forget(one.run_id)

    async def _reloaded(self, runs: Sequence[ChangedRun]) -> list[ChangedRun]:
        """Return the runs as they are now, with the changes still to apply.

        No other process has applied these meanwhile.
        """
        if not runs:
            return []
        keys = [Key(RUN.name, one.run_id) for one in runs]
        messages = [record for one in runs for record in one.messages]
        found = await self._engine.load([*keys, *(record.key for record in messages)])
        versions = {record.id: record.version for record in found[len(keys) :] if record is not None}
        again = []
        for one, known in zip(runs, found, strict=False):
            ours = [
                (change, record)
                for change, record in zip(one.changes, one.messages, strict=True)
                if versions.get(record.id) == record.version
            ]
            if ours:
                changes, left = zip(*ours, strict=True)
                again.append(ChangedRun(one.run_id, changes, known, left, is_guess=False))
        return again

    async def prepared(
        self, runs: Sequence[ChangedRun], joint: JointDecisions, failures: list[Exception]
    ) -> list[tuple[ChangedRun, RunCommit]]:
        """Return the commit of each run.

        One that cannot be decided does not hold the others.
        """
        prepared: list[tuple[ChangedRun, RunCommit]] = []
        decided: list[tuple[ChangedRun, RunAggregate, list[JobOrder]]] = []
        unsure: list[ChangedRun] = []
        for one in runs:
            try:
                draft = await self._draft(one.known, joint.now)
                if draft is not None:
                    apply_job_changes(draft, one.changes)
                    if not draft.is_unchanged:
                        decided.append((one, draft, orders_of(draft)))
                        continue
            except Exception as error:  # noqa: BLE001 - raised when the others are done
                failures.append(error)
                continue
            if one.is_guess:
                unsure.append(one)
            else:  # it was pruned, or knows this already, such as the begin of a job that has ended
                commit = Commit(changes=one.as_sent(joint.commit_id))
                body = None if draft is None else draft.body
                prepared.append((one, RunCommit(commit, body=body, is_unchanged=draft is not None)))
        if unsure:
            prepared += await self.prepared(await self._read(unsure), joint, failures)
        jobs = await self._orders.jobs_to_release(((draft, orders) for _, draft, orders in decided), joint)
        for one, draft, orders in decided:
            try:
                released = released_within(draft, orders, jobs, joint, self.known.held(draft.id))
            except Exception as error:  # noqa: BLE001 - as above
                failures.append(error)
                continue
            more = one.as_sent(joint.commit_id)
            ready = run_commit_of(
                draft,
                orders,
                commit_id=joint.commit_id,
                actor="orchestrator",
                more=more,
                carried_out=released,
            )
            prepared.append((one, ready))
        return prepared

    async def _read(self, runs: Sequence[ChangedRun]) -> list[ChangedRun]:
        """Return the runs as they are in the store."""
        found = await self._engine.load([Key(RUN.name, one.run_id) for one in runs])
        return [one._replace(known=known, is_guess=False) for one, known in zip(runs, found, strict=True)]

    async def _draft(self, record: Record | None, now: datetime) -> RunAggregate | None:
        if record is None:
            return None
        draft = RunAggregate.of(record, now, self._settings.durations)
        draft.graph = await self._plans.graph(record.id, draft.body.pieces)
        return draft if draft.graph is not None else None

    # Orders

    async def follow_orders(self, *, limit: int = FEW) -> int:
        """Carry out pending orders; return their number."""
        taken = await take_all(self._engine.store, PENDING.topics, PENDING.patience, limit=limit)
        await self.follow_messages(taken)
        return len(taken)

    async def follow_messages(self, taken: Sequence[Record]) -> None:
        """Carry out the orders in these messages."""
        await self._follow([(message_in(record.body, JobOrder), record) for record in taken])

    async def carry_out(self, prepared: RunCommit, at: datetime) -> None:
        """Carry out the orders of a commit; after a crash another process does."""
        if prepared.mentioned:
            self._engine.bus.publish(RunProgressed(prepared.mentioned))
        if prepared.decided:
            self._engine.bus.publish(RunDecided())
        if prepared.orders:
            orders = [(order, record_after(change, None, at)) for order, change in prepared.orders]
            await self._follow(orders, prepared.body)

    async def _follow(self, orders: Sequence[tuple[JobOrder, Record]], body: RunBody | None = None) -> None:
        """Carry out orders at the same time, with the `body` of their run."""
        if not orders:
            return
        try:
            await gather_all(self._orders.carry_out(order, body) for order, _ in orders)
        except asyncio.CancelledError:
            await self._give_back([record for _, record in orders])
            raise
        commit_id = self._engine.commit_id()
        done = Commit(changes=tuple(sent(record, commit_id) for _, record in orders))
        await commit_with_recovery(self._engine.store, self._engine.committer, done)

    async def _give_back(self, records: Sequence[Record]) -> None:
        """Give orders back.

        Another process can carry them out before the timeout.
        """
        with contextlib.suppress(TimeoutError, InterlockError):
            async with asyncio.timeout(GIVE_BACK_S):
                now, commit_id = await self._engine.clock.now(), self._engine.commit_id()
                back = Commit(changes=tuple(returned(record, now, commit_id) for record in records))
                await commit_with_recovery(self._engine.store, self._engine.committer, back)

    # Deadlines

    def swept(self, records: Sequence[Record], now: datetime, commit_id: str) -> list[Commit]:
        """Return the commits of runs whose deadlines have passed. Pure."""
        return [fire_deadlines(record, now, commit_id, self._settings) for record in records]


def apply_job_changes(draft: RunAggregate, changes: Sequence[Changes]) -> None:
    """Apply job changes to a run, after an expired deadline. Pure."""
    draft.fire_due()
    draft.apply_jobs(changes)


def fire_deadlines(record: Record, now: datetime, commit_id: str, settings: OrchestratorSettings) -> Commit:
    """Return the commit of a run whose deadline has passed.

    An unattended one is requested again.
    """
    draft = RunAggregate.of(record, now, settings.durations)
    draft.fire_due()
    unattended = draft.state is run.CREATED or draft.is_planned_already
    more = (run_message(draft, PLANS, f"plan.{record.version}", commit_id),) if unattended else ()
    return run_commit_of(draft, commit_id=commit_id, actor="clock", more=more, taken=False).commit
