"""Looking after trees of jobs: letting in who was held back, waking parents, stopping subtrees.

Any number of keepers may be at work. What a word brings about is read from the records as they are and
committed whole: the tree together with the jobs that it lets in. Of two keepers that decide about the
same tree one is told so by its version, and looks again. To hear a word twice changes nothing, so one
that was heard by somebody who then crashed is heard again by others.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec

from interlock.engine.bulk import Item, apply_all
from interlock.engine.gather import all_of
from interlock.engine.outbox import DeliveryPolicy, OutboxMessage, sent, take_all, undelivered
from interlock.engine.recovery import commit_with_recovery
from interlock.engine.unit_of_work import Decision, Engine, contended, failed
from interlock.errors import InterlockError, StoreUnavailable
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB, JobState
from interlock.store.records import Commit, Conflict, Illegal, Key, Query, Record, RequestReused
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import decode_body
from interlock.systems.orchestrator.cancellation import CancelChildren, cancelled, commit_of
from interlock.systems.orchestrator.failures import Failure, FailureClass
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.trees.admission import tended
from interlock.systems.orchestrator.trees.body import tree_key
from interlock.systems.orchestrator.trees.children import submit_children
from interlock.systems.orchestrator.trees.notifications import CANCEL_CHILDREN, TREE_TOPICS, TreeWord
from interlock.systems.orchestrator.trees.reads import LIVING, look_at
from interlock.systems.orchestrator.trees.submission import Draw
from interlock.systems.orchestrator.trees.views import children_of
from interlock.wire.jobs import JobSpec
from interlock.wire.trees import ChildPage

MANY = 500
"""How many words are heard, and how many jobs are stopped, in one go."""
PATIENCE_S = 60.0
"""How long whoever has taken a word may take to hear it, before others do."""

POSTAGE = DeliveryPolicy(max_tries=1_000_000, longest_pause_s=30.0)
"""A tree that does not hear would stand still for ever."""


class Trees:
    """Keeps the trees in a store."""

    def __init__(self, engine: Engine, settings: OrchestratorSettings, draw: Draw) -> None:
        self._engine = engine
        self._settings = settings
        self._draw = draw
        self.on_word: Callable[[], None] = _nobody
        """Called when jobs that were stopped or failed may have told their runs something."""

    async def submit(
        self, token: str, runner_id: str, name: str, specs: Sequence[JobSpec]
    ) -> tuple[str, ...]:
        """Children of the attempt that the token is about; the same again under a name are made once."""
        return await submit_children(self._engine, self._settings, self._draw, token, runner_id, name, specs)

    async def children(
        self,
        token: str,
        runner_id: str,
        cursor: str = "",
        sees: Callable[[str], bool] | None = None,
    ) -> ChildPage:
        """A page of the children of the job that the token is about, of queues that `sees` allows."""
        return await children_of(self._engine, self._settings, token, runner_id, cursor, sees)

    async def keep(self, *, limit: int = MANY) -> int:
        """Carry out what jobs have told their trees and their children; answers how much that was."""
        patience = timedelta(seconds=PATIENCE_S)
        taken = await take_all(self._engine.store, TREE_TOPICS, patience, limit=limit)
        orders = [each for each in taken if each.queue == CANCEL_CHILDREN]
        by_root: dict[str, list[tuple[TreeWord, Record]]] = {}
        for record in taken:
            if record.queue != CANCEL_CHILDREN:
                word = msgspec.json.decode(_payload(record), type=TreeWord)
                by_root.setdefault(word.root_id, []).append((word, record))
        await all_of(self._done([record], self._stop_below(record)) for record in orders)
        await all_of(
            self._done([record for _, record in said], self._hear(root_id, [word for word, _ in said]))
            for root_id, said in by_root.items()
        )
        return len(taken)

    async def _done(self, letters: Sequence[Record], work: Coroutine[None, None, None]) -> None:
        """Do it, and note that it was done; where it could not be, it is tried again a little later."""
        mark = self._engine.mark()
        try:
            await work
        except Exception as error:  # noqa: BLE001 - whatever a keeper meets, nothing that was said is lost
            now = await self._engine.clock.now()
            changes = [undelivered(record, error, now, POSTAGE, mark) for record in letters]
        else:
            changes = [sent(record, mark) for record in letters]
        await self._engine.committer.commit_all([Commit(changes=(change,)) for change in changes])

    async def _hear(self, root_id: str, words: Sequence[TreeWord]) -> None:
        """First what failures do to others: then nobody is let in who would be stopped right after."""
        for word in words:
            if word.parent_id is not None and word.fails_parent:
                await self._fail(word.parent_id, word.job_id)
        parents = {word.parent_id: word.job_id for word in words if word.parent_id and word.stops_siblings}
        for parent_id, job_id in parents.items():
            await self.stop_children(parent_id, "sibling", f"its sibling {job_id} did not succeed")
        await self.tend(root_id, words)

    # Places

    async def tend(self, root_id: str, words: Sequence[TreeWord]) -> None:
        """Give the places that have become free to whoever is in line."""
        conflict: Conflict | None = None
        for _ in range(self._engine.max_tries):
            look = await look_at(self._engine.store, root_id, words, self._settings.tree_quotas)
            if look is None:
                return
            now = await self._engine.clock.now()
            commit = tended(look, now, self._engine.mark(), self._settings)
            sealed = self._engine.sealed(commit, look.records)
            outcome = await commit_with_recovery(self._engine.store, self._engine.committer, sealed)
            if isinstance(outcome, Illegal | RequestReused):
                raise failed(outcome)
            if not isinstance(outcome, Conflict):
                return
            conflict = outcome
        raise contended([tree_key(root_id)], conflict, self._engine.max_tries)

    # Stopping

    async def _stop_below(self, record: Record) -> None:
        asked = msgspec.json.decode(_payload(record), type=CancelChildren)
        await self.stop_children(asked.job_id, "parent", f"its parent {asked.job_id} was stopped")

    async def stop_children(self, parent_id: str, why: str, reason: str) -> None:
        """Stop every child of a job; safe to repeat, since what has ended is passed over."""
        query = Query(kind=JOB.name, parent=parent_id, states=LIVING, limit=MANY)
        while True:
            page = await self._engine.store.find(query)
            decide = partial(self._stop, why, reason)
            items = [Item(record.key, decide, record) for record in page.records]
            _raise_first(await apply_all(self._engine, items))
            if not page.cursor:
                self.on_word()
                return
            query = msgspec.structs.replace(query, cursor=page.cursor)

    def _stop(self, why: str, reason: str, record: Record | None, now: datetime, mark: str) -> Decision[None]:
        if record is None or JobState(record.state) in job.ENDED:
            return Decision(None)
        draft = cancelled(record, now, self._settings, why)
        return Decision(None, commit_of(draft, mark=mark, actor="orchestrator", reason=reason))

    async def _fail(self, parent_id: str, child_id: str) -> None:
        """A parent fails with its child, unless it is being stopped or has ended; its table decides."""
        reason = f"its child {child_id} did not succeed"

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
            parent, child = found
            if parent is None or JobState(parent.state) in job.ENDED:
                return Decision(None)
            draft = JobAggregate.of(parent, now, self._settings)
            draft.fire_due()
            if draft.root.data.stop_reason is not None or draft.send(job.Error(at=now)) is not None:
                return Decision(None)
            draft.body.failure = _with_its_child(child_id, child)
            return Decision(
                None, commit_of(draft, mark=self._engine.mark(), actor="orchestrator", reason=reason)
            )

        await self._engine.apply([Key(JOB.name, parent_id), Key(JOB.name, child_id)], decide)
        self.on_word()


def _with_its_child(child_id: str, child: Record | None) -> Failure:
    body = decode_body(child.body) if child is not None else None
    if body is None or body.failure is None:
        why = body.data.stop_reason if body is not None else "removed"
        return Failure(failure_class=FailureClass.USER, error=f"Its child {child_id} was stopped ({why}).")
    return Failure(
        failure_class=body.failure.failure_class, error=f"Its child {child_id} failed: {body.failure.error}"
    )


def _raise_first(results: Iterable[object]) -> None:
    """One that was stopped by somebody else meanwhile does not matter; a store that is away does."""
    for result in results:
        if isinstance(result, StoreUnavailable):
            raise result
        if isinstance(result, InterlockError) and result.code == "contended":
            raise result


def _payload(record: Record) -> bytes:
    return bytes(msgspec.json.decode(record.body, type=OutboxMessage).payload)


def _nobody() -> None:
    """Nobody wants to know."""
