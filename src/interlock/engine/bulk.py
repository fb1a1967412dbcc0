"""Decide about many records at once: one load, one pass of decisions, one commit of all.

Each item has its own outcome. After a conflict, only that item is loaded and decided again. A caller that has
just written a record may pass it as `known`: if it is still current, which the commit itself checks, nothing
has to be loaded.

Why: decision 0372.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Generic, TypeAlias, TypeVar

import msgspec

from interlock.engine.recovery import commit_with_recovery
from interlock.engine.unit_of_work import Applied, Decision, Engine, contended, failed, only_refuses
from interlock.errors import InterlockError, StoreUnavailable
from interlock.store.records import (
    Commit,
    Committed,
    Conflict,
    Illegal,
    Key,
    Outcome,
    Record,
    Repeated,
    RequestReused,
    TooLate,
    Work,
    one_by_one,
)

A = TypeVar("A")

DecideOne: TypeAlias = Callable[[Record | None, datetime, str], Decision[A]]
"""Pure: from a record, the time and the id for its notes to a decision. May raise a refusal."""

Result: TypeAlias = Applied[A] | Repeated | InterlockError


class Item(msgspec.Struct, Generic[A], gc=False):
    """One record to decide about."""

    key: Key
    decide: DecideOne[A]
    known: Record | None = None
    """The record as the caller last saw it; None to load it."""
    fresh: bool = False
    """Whether it is to be created, so there is nothing to load."""


async def apply_all(engine: Engine, items: Sequence[Item[A]]) -> list[Result[A]]:
    """Return the result of each item, in order."""
    batch = _Batch(engine, items)
    while batch.waiting:
        turn = await batch.turn()
        decided = batch.decide(turn, max(await engine.clock.now(), batch.not_before))
        outcomes = await commit_all_with_recovery(engine, [commit for _, commit, _ in decided])
        for (place, commit, decision), outcome in zip(decided, outcomes, strict=True):
            if isinstance(outcome, Repeated) and only_refuses(commit):
                batch.settle(place, decision, Committed(await engine.clock.now()))
            else:
                batch.settle(place, decision, outcome)
    return [result for result in batch.results if result is not None]


class _Batch(Generic[A]):
    """Items in progress: their known records, and their results."""

    def __init__(self, engine: Engine, items: Sequence[Item[A]]) -> None:
        self._engine = engine
        self._items = items
        self._known = [item.known for item in items]
        self._loaded = [item.fresh for item in items]
        """Whether the known record was just read. A record from the caller is only a guess."""
        self._tries = [0] * len(items)
        self.not_before = datetime.min.replace(tzinfo=UTC)
        """A time received from the store; an estimate may be behind, after a machine has slept."""
        self.results: list[Result[A] | None] = [None] * len(items)
        self.waiting = dict.fromkeys(range(len(items)))

    async def turn(self) -> list[int]:
        """Load unknown records; return the first item of each record.

        Later items of the record have to wait for it.
        """
        first: dict[Key, int] = {}
        for place in self.waiting:
            first.setdefault(self._items[place].key, place)
        turn = list(first.values())
        missing = [place for place in turn if self._known[place] is None and not self._loaded[place]]
        if missing:
            found = await self._engine.store.load([self._items[place].key for place in missing])
            for place, record in zip(missing, found, strict=True):
                self._known[place], self._loaded[place] = record, True
        return turn

    def decide(self, turn: Sequence[int], now: datetime) -> list[tuple[int, Commit, Decision[A]]]:
        """Decide; return the items with a commit.

        Others have a result, or are loaded again. A decision is reliable on a record just read, or if the
        commit confirms the version that it names.
        """
        commit_id = self._engine.commit_id()
        decided: list[tuple[int, Commit, Decision[A]]] = []
        for place in turn:
            item, known, is_sure = self._items[place], self._known[place], self._loaded[place]
            try:
                decision = item.decide(known, now, commit_id)
            except InterlockError as error:
                if is_sure:
                    self._end(place, error)
                else:
                    self._forget(place)
                continue
            commit = decision.commit
            if not is_sure and not _names_version(commit, item.key):
                self._forget(place)
            elif commit is None:
                self._end(place, Applied(decision.answer, now))
            else:
                decided.append((place, self._engine.stamped(commit, [known]), decision))
        return decided

    def settle(self, place: int, decision: Decision[A], outcome: Outcome | InterlockError) -> None:
        """Handle the outcome of an item."""
        match outcome:
            case Committed(at):
                self._end(place, Applied(decision.answer, at))
            case Conflict() | TooLate():
                if isinstance(outcome, TooLate):
                    self.not_before = max(self.not_before, outcome.now)
                self._tries[place] += 1
                self._forget(place)
                if self._tries[place] >= self._engine.max_tries:
                    conflict = outcome if isinstance(outcome, Conflict) else None
                    self._end(place, contended([self._items[place].key], conflict, self._tries[place]))
            case RequestReused() | Illegal():
                self._end(place, failed(outcome))
            case _:
                self._end(place, outcome)

    def _forget(self, place: int) -> None:
        self._known[place], self._loaded[place] = None, False

    def _end(self, place: int, result: Result[A]) -> None:
        self.results[place] = result
        del self.waiting[place]


def _names_version(commit: Commit | None, key: Key) -> bool:
    """Return whether the store would detect an outdated version.

    The decision would be on that version of the record.
    """
    if commit is None:
        return False
    for change in commit.changes:  # noqa: SIM110 - a generator would cost more than the question
        if change.id == key.id and change.kind == key.kind:
            return True
    return False


async def commit_all_with_recovery(engine: Engine, work: Sequence[Work]) -> list[Outcome | InterlockError]:
    """Return the outcome of each commit, also after a lost connection."""
    outcomes = await engine.committer.commit_all(work)
    doubtful = [place for place, outcome in enumerate(outcomes) if isinstance(outcome, StoreUnavailable)]
    if doubtful:
        commits = one_by_one(work)
        found = await asyncio.gather(*[_settled_outcome(engine, commits[place]) for place in doubtful])
        for place, outcome in zip(doubtful, found, strict=True):
            outcomes[place] = outcome
    return outcomes


async def _settled_outcome(engine: Engine, commit: Commit) -> Outcome | InterlockError:
    try:
        return await commit_with_recovery(engine.store, engine.committer, commit, in_doubt=True)
    except InterlockError as error:
        return error
