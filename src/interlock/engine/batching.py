"""The same as applying, for many records at once: one load, one pass of deciding, one commit of all.

Each item has an outcome of its own. Where somebody was faster, only that item is loaded and decided
again. Whoever has just written a record may hand it in as `known`: if it is still current, which the
commit itself finds out, nothing has to be loaded at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Generic, TypeAlias, TypeVar

import msgspec

from interlock.engine.applying import Applied, Decision, Engine, contended, failed
from interlock.engine.surely import commit_surely
from interlock.errors import InterlockError, StoreUnavailable
from interlock.store.records import (
    Change,
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
)

A = TypeVar("A")

DecideOne: TypeAlias = Callable[[Record | None, datetime, str], Decision[A]]
"""Pure: from a record, the time and the mark for its notes to a decision. May raise a refusal."""

Result: TypeAlias = Applied[A] | Repeated | InterlockError


class Item(msgspec.Struct, Generic[A]):
    """One record to be decided about."""

    key: Key
    decide: DecideOne[A]
    known: Record | None = None
    """As it was last seen, by whoever asks; None when it has to be loaded."""
    fresh: bool = False
    """It is to be created, so there is nothing to load."""


async def apply_all(engine: Engine, items: Sequence[Item[A]]) -> list[Result[A]]:
    """What becomes of each of them, in their order."""
    results: list[Result[A] | None] = [None] * len(items)
    known = [item.known for item in items]
    waiting = list(range(len(items)))
    for _ in range(engine.max_tries):
        turn = _one_for_each_record(items, waiting)
        await _load_missing(engine, items, known, turn)
        decided = _decide(engine, items, known, turn, await engine.clock.now(), results)
        outcomes = await _commit(engine, [commit for _, commit, _ in decided])
        for (place, _, decision), outcome in zip(decided, outcomes, strict=True):
            results[place] = _result(decision, outcome)
        for place in turn:
            known[place] = None  # whoever has to decide again must see what is there now
        waiting = [place for place in waiting if results[place] is None]
        if not waiting:
            break
    tries = engine.max_tries
    return [
        contended([item.key], None, tries) if result is None else result
        for item, result in zip(items, results, strict=True)
    ]


def record_after(change: Change, before: Record | None, at: datetime) -> Record:
    """What a record is once a change of it was committed at that time."""
    return Record(
        kind=change.kind,
        id=change.id,
        state=change.state,
        version=change.expected + 1,
        body=change.body,
        parent=change.parent,
        queue=change.queue,
        labels=change.labels,
        priority=change.priority,
        ready_at=change.ready_at,
        deadline_at=change.deadline_at,
        chain=change.chain,
        created_at=before.created_at if before else at,
        updated_at=at,
    )


def _one_for_each_record(items: Sequence[Item[A]], waiting: Sequence[int]) -> list[int]:
    """Of several items about the same record the first has its turn, the others theirs after it."""
    first: dict[tuple[str, str], int] = {}
    for place in waiting:
        key = items[place].key
        first.setdefault((key.kind, key.id), place)
    return list(first.values())


async def _load_missing(
    engine: Engine, items: Sequence[Item[A]], known: list[Record | None], turn: Sequence[int]
) -> None:
    missing = [place for place in turn if known[place] is None and not items[place].fresh]
    if missing:
        found = await engine.store.load([items[place].key for place in missing])
        for place, record in zip(missing, found, strict=True):
            known[place] = record


def _decide(
    engine: Engine,
    items: Sequence[Item[A]],
    known: Sequence[Record | None],
    turn: Sequence[int],
    now: datetime,
    results: list[Result[A] | None],
) -> list[tuple[int, Commit, Decision[A]]]:
    """Those that have something to commit; the others have their result already."""
    mark = engine.mark()
    decided: list[tuple[int, Commit, Decision[A]]] = []
    for place in turn:
        try:
            decision = items[place].decide(known[place], now, mark)
        except InterlockError as error:
            results[place] = error
            continue
        if decision.commit is None:
            results[place] = Applied(decision.answer, now, decision.effects)
        else:
            decided.append((place, engine.sealed(decision.commit, [known[place]]), decision))
    return decided


async def _commit(engine: Engine, commits: Sequence[Commit]) -> list[Outcome | InterlockError]:
    outcomes = await engine.committer.commit_all(commits)
    doubtful = [place for place, outcome in enumerate(outcomes) if isinstance(outcome, StoreUnavailable)]
    found = await asyncio.gather(*[_surely(engine, commits[place]) for place in doubtful])
    for place, outcome in zip(doubtful, found, strict=True):
        outcomes[place] = outcome
    return outcomes


async def _surely(engine: Engine, commit: Commit) -> Outcome | InterlockError:
    try:
        return await commit_surely(engine.store, engine.committer, commit, in_doubt=True)
    except InterlockError as error:
        return error


def _result(decision: Decision[A], outcome: Outcome | InterlockError) -> Result[A] | None:
    """None when it has to be decided again."""
    match outcome:
        case Committed(at):
            return Applied(decision.answer, at, decision.effects)
        case Conflict() | TooLate():
            return None
        case RequestReused() | Illegal():
            return failed(outcome)
        case _:
            return outcome
