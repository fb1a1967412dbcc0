"""Looking after runs: hearing what their jobs say, and seeing to it that their orders are followed.

Any number of keepers may be at work. A word is taken by one of them, and is counted in the commit of
the run that hears it: so each is counted once. Of two keepers that decide about the same run one is
told so by the version, and looks again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from interlock.engine.gather import all_of
from interlock.engine.outbox import OutboxMessage, returned, sent, take_all
from interlock.engine.recovery import commit_with_recovery
from interlock.engine.unit_of_work import Engine, contended, failed
from interlock.errors import InterlockError
from interlock.lifecycles import run
from interlock.lifecycles.run import RUN
from interlock.store.records import (
    Commit,
    Committed,
    Conflict,
    Illegal,
    Key,
    Record,
    RequestReused,
    record_after,
)
from interlock.systems.orchestrator.ids import JobIds
from interlock.systems.orchestrator.notifications import RUN_JOBS, JobChanged, noop
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.runs.aggregate import RunAggregate
from interlock.systems.runs.commits import PLANS, RunCommit, about, commit_of
from interlock.systems.runs.orders import ORDERS, PATIENCE_S, Order, Orders
from interlock.systems.runs.plans import Plans

MANY = 500
"""How many words are heard in one go."""
FEW = 20
"""How many orders are."""
GIVE_BACK_S = 5.0
"""How long a process that ends tries to give an order back."""


class Keeper:
    """Looks after the runs in a store."""

    def __init__(self, engine: Engine, plans: Plans, settings: OrchestratorSettings, ids: JobIds) -> None:
        self._engine = engine
        self._plans = plans
        self._settings = settings
        self._orders = Orders(engine, plans, settings, ids)
        self.on_its_way: Callable[[str], None] = _nobody
        """Called when a run has come so far that it is worth a mention."""
        self.on_decided: Callable[[], None] = noop
        """Called when the outcome of a run is decided."""

    async def hear(self, *, limit: int = MANY) -> int:
        """Let runs hear what their jobs have said; answers how much was said."""
        taken = await take_all(self._engine.store, (RUN_JOBS,), timedelta(seconds=PATIENCE_S), limit=limit)
        by_run: dict[str, list[tuple[JobChanged, Record]]] = {}
        for record in taken:
            word = msgspec.json.decode(_payload(record), type=JobChanged)
            by_run.setdefault(word.run_id, []).append((word, record))
        found = await self._engine.store.load([Key(RUN.name, run_id) for run_id in by_run])
        heard = zip(by_run.values(), found, strict=True)
        await all_of(self.bring(words, known) for words, known in heard)
        return len(taken)

    async def bring(self, words: Sequence[tuple[JobChanged, Record]], known: Record | None) -> None:
        """One commit for all that was said to one run."""
        conflict: Conflict | None = None
        for _ in range(self._engine.max_tries):
            if conflict is not None:
                known, words = await self._again(words)
            if not words:
                return
            prepared = await self._heard(words, known)
            outcome = await self._commit(prepared, known)
            if not isinstance(outcome, Conflict):
                await self.carry_out(prepared, outcome.at)
                return
            conflict = outcome
        raise contended([Key(RUN.name, words[0][0].run_id)], conflict, self._engine.max_tries)

    async def _again(
        self, words: Sequence[tuple[JobChanged, Record]]
    ) -> tuple[Record | None, list[tuple[JobChanged, Record]]]:
        """The run as it is now, and those of the words that nobody else has brought to it meanwhile."""
        run_key = Key(RUN.name, words[0][0].run_id)
        known, *letters = await self._engine.store.load([run_key, *(record.key for _, record in words)])
        ours = [
            (word, record)
            for (word, record), now in zip(words, letters, strict=True)
            if now is not None and now.version == record.version
        ]
        return known, ours

    async def _heard(self, words: Sequence[tuple[JobChanged, Record]], known: Record | None) -> RunCommit:
        mark = self._engine.mark()
        letters = [sent(record, mark) for _, record in words]
        draft = await self._draft(known)
        if draft is None:
            return RunCommit(Commit(changes=tuple(letters)))  # the run was removed: nobody listens
        heard(draft, [word for word, _ in words])
        return commit_of(draft, mark=mark, actor="orchestrator", more=letters)

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
        """Carry out orders that nobody has carried out yet; answers how many."""
        taken = await take_all(self._engine.store, (ORDERS,), timedelta(seconds=PATIENCE_S), limit=limit)
        for record in taken:
            await self._follow(msgspec.json.decode(_payload(record), type=Order), record)
        return len(taken)

    async def carry_out(self, prepared: RunCommit, at: datetime) -> None:
        """See to what a commit has ordered; if this is where we crash, others do after a while."""
        if prepared.mentioned:
            self.on_its_way(prepared.mentioned)
        if prepared.decided:
            self.on_decided()
        for order, change in prepared.orders:
            await self._follow(order, record_after(change, None, at))

    async def _follow(self, order: Order, record: Record) -> None:
        try:
            await self._orders.carry_out(order)
        except asyncio.CancelledError:
            await self._give_back(record)
            raise
        done = Commit(changes=(sent(record, self._engine.mark()),))
        await commit_with_recovery(self._engine.store, self._engine.committer, done)

    async def _give_back(self, record: Record) -> None:
        """Let another process follow an order at once, not only when this one counts as lost."""
        with contextlib.suppress(TimeoutError, InterlockError):
            async with asyncio.timeout(GIVE_BACK_S):
                now = await self._engine.clock.now()
                back = Commit(changes=(returned(record, now, self._engine.mark()),))
                await commit_with_recovery(self._engine.store, self._engine.committer, back)

    # Deadlines

    async def sweep(self, *, limit: int = MANY) -> int:
        """Deal with deadlines of runs that have passed; answers how many."""
        mark = self._engine.mark()

        def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
            return [swept(record, now, mark, self._settings) for record in records]

        outcomes = await self._engine.due([RUN.name], limit, decide)
        return sum(isinstance(outcome, Committed) for outcome in outcomes)


def _nobody(run_id: str) -> None:
    """Nobody wants to know."""


def heard(draft: RunAggregate, words: Sequence[JobChanged]) -> None:
    """What a run makes of what its jobs have said; a deadline that has passed meanwhile goes before. Pure."""
    draft.fire_due()
    draft.hear_jobs(words)


def swept(record: Record, now: datetime, mark: str, settings: OrchestratorSettings) -> Commit:
    """What becomes of a run whose deadline has passed; one that nobody has seen to asks for it again."""
    draft = RunAggregate.of(record, now, settings.durations)
    draft.fire_due()
    unattended = draft.state is run.CREATED or draft.is_planned_already
    more = (about(draft, PLANS, f"plan.{record.version}", mark),) if unattended else ()
    return commit_of(draft, mark=mark, actor="clock", more=more, taken=False).commit


def _payload(record: Record) -> bytes:
    return bytes(msgspec.json.decode(record.body, type=OutboxMessage).payload)
