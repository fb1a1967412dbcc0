"""Retention: remove records that ended long ago, with their journal, and expired requests.

Why: decision 0414.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import partial

import msgspec

from interlock.store.catalogue import Catalogue
from interlock.store.contract import Store
from interlock.store.records import Pruned

WALK_EVERY_S = 600.0
"""Time between the beginnings of two walks through the records of a state."""
_BATCHES = 10
_REST = 20


class Retention(msgspec.Struct, frozen=True):
    """Retention of ended records, by kind, by final state and by queue."""

    default: timedelta = timedelta(days=30)
    by_kind: Mapping[str, timedelta] = msgspec.field(default_factory=dict)
    by_state: Mapping[str, Mapping[str, timedelta]] = msgspec.field(default_factory=dict)
    """Retention by kind and state; takes precedence over `by_kind`."""
    by_queue: Mapping[str, Mapping[str, Mapping[str, timedelta]]] = msgspec.field(default_factory=dict)
    """Retention by kind, queue and state; takes precedence over `by_state`."""

    def of(self, kind: str, state: str = "") -> timedelta:
        """Return the retention of records of this kind that ended in this state."""
        kept = self.by_state.get(kind, {}).get(state)
        return self.by_kind.get(kind, self.default) if kept is None else kept

    def ages(self, kind: str, states: Iterable[str]) -> dict[timedelta, list[str]]:
        """Return the states of a kind by how long they are kept, shortest first."""
        found: dict[timedelta, list[str]] = {}
        for state in sorted(states, key=lambda state: (self.of(kind, state), state)):
            found.setdefault(self.of(kind, state), []).append(state)
        return found

    def rules(self, kind: str, states: Iterable[str]) -> Iterator[tuple[str | None, timedelta, list[str]]]:
        """Yield how long records of these states are kept: in general, by queue."""
        states = list(states)
        for age, some in self.ages(kind, states).items():
            yield None, age, some
        by_state = {state: self.of_queues(kind, state) for state in states}
        for queue in self.by_queue.get(kind, {}):
            own = {state: ages[queue] for state, ages in by_state.items() if queue in ages}
            for age in sorted(set(own.values())):
                yield queue, age, [state for state in own if own[state] == age]

    def of_queues(self, kind: str, state: str) -> dict[str, timedelta]:
        """Return the retention of queues that differs from the general one.

        These queues keep records of this state longer or shorter.
        """
        general = self.of(kind, state)
        found = {queue: ages.get(state, general) for queue, ages in self.by_queue.get(kind, {}).items()}
        return {queue: age for queue, age in found.items() if age != general}

    def longest(self) -> Retention:
        """Return the retention after which records of all queues are removed."""
        by_state = {kind: dict(ages) for kind, ages in self.by_state.items()}
        for kind, queues in self.by_queue.items():
            kept = by_state.setdefault(kind, {})
            for state in {state for ages in queues.values() for state in ages}:
                kept[state] = max(self.of(kind, state), *self.of_queues(kind, state).values(), timedelta(0))
        return Retention(self.default, self.by_kind, by_state)


async def sweep_ended(
    store: Store,
    catalogue: Catalogue,
    retention: Retention,
    *,
    limit: int = 500,
    walks: QueueWalks | None = None,
) -> dict[str, Pruned]:
    """Prune one bounded batch of each kind and age; return the counts.

    Ages of queues need `walks`, which know how far the sweeps before have looked.
    """
    pruned: dict[str, Pruned] = {}
    longest = retention.longest()
    for name, kind in catalogue.items():
        for age, states in longest.ages(name, kind.ended).items():
            gone = await store.prune(kind=name, states=states, older_than=age, limit=limit)
            pruned[name] = _sum_of(pruned[name], gone) if name in pruned else gone
    if walks is not None:
        for name, gone in (await walks.sweep(store, catalogue, retention, limit=limit)).items():
            pruned[name] = _sum_of(pruned[name], gone)
    return pruned


class _Walk(msgspec.Struct):
    """The progress of a walk through the records of a state."""

    cursor: str = ""
    next_at: float = float("-inf")
    """Time from which the next walk may begin."""
    took_s: float = 0.0

    async def go_on(self, prune: Callable[..., Awaitable[Pruned]]) -> Pruned:
        """Prune a few batches; return their sum, with `more` if it continues."""
        removed = Pruned()
        for _ in range(_BATCHES):
            batch = await prune(cursor=self.cursor)
            self.cursor = batch.cursor
            removed = _sum_of(removed, msgspec.structs.replace(batch, more=False))
            if not batch.cursor:
                return removed
        return msgspec.structs.replace(removed, more=True)

    def rest(self, began: float, now: float) -> None:
        """Delay the next walk in proportion to the time this one has taken."""
        self.took_s += now - began
        self.next_at = max(self.next_at, now + _REST * self.took_s)


class QueueWalks:
    """Walks through the ended records of the states whose queues are kept for different times.

    Ended records have no index by queue, so a walk looks at each of them, a bounded number at a time. It
    begins at most every `WALK_EVERY_S`, and rests for 20 times as long as the last one took.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._walks: dict[tuple[str, str], _Walk] = {}

    async def sweep(
        self, store: Store, catalogue: Catalogue, retention: Retention, *, limit: int
    ) -> dict[str, Pruned]:
        """Continue or begin each walk; return the removed records, by kind."""
        pruned: dict[str, Pruned] = {}
        for kind, state, queues in _walked(catalogue, retention):
            walk = self._walks.setdefault((kind, state), _Walk())
            began = self._monotonic()
            if not walk.cursor:
                if began < walk.next_at:
                    continue
                walk.next_at, walk.took_s = began + WALK_EVERY_S, 0.0
            prune = partial(
                store.prune_by_queue,
                kind=kind,
                state=state,
                older_than=retention.of(kind, state),
                queues=queues,
                limit=limit,
            )
            gone = await walk.go_on(prune)
            pruned[kind] = _sum_of(pruned.get(kind, Pruned()), gone)
            walk.rest(began, self._monotonic())
        return pruned


def _walked(catalogue: Catalogue, retention: Retention) -> Iterator[tuple[str, str, dict[str, timedelta]]]:
    for kind in retention.by_queue:
        for state in sorted(catalogue[kind].ended) if kind in catalogue else ():
            if queues := retention.of_queues(kind, state):
                yield kind, state, queues


def _sum_of(one: Pruned, other: Pruned) -> Pruned:
    return Pruned(
        one.records + other.records,
        one.entries + other.entries,
        one.requests + other.requests,
        more=one.more or other.more,
    )
