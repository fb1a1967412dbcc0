"""Retention: remove records that ended long ago, with their journal, and expired requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

import msgspec

from interlock.store.catalogue import Catalogue
from interlock.store.contract import Store
from interlock.store.records import Pruned


class Retention(msgspec.Struct, frozen=True):
    """Retention of ended records, by kind and by final state."""

    default: timedelta = timedelta(days=30)
    by_kind: Mapping[str, timedelta] = msgspec.field(default_factory=dict)
    by_state: Mapping[str, Mapping[str, timedelta]] = msgspec.field(default_factory=dict)
    """Retention by kind and state; takes precedence over `by_kind`."""

    def of(self, kind: str, state: str = "") -> timedelta:
        """Return the retention of records of this kind that ended in this state."""
        kept = self.by_state.get(kind, {}).get(state)
        return self.by_kind.get(kind, self.default) if kept is None else kept

    def ages(self, kind: str, states: Iterable[str]) -> dict[timedelta, list[str]]:
        """Return the states of a kind by how long they are kept, the shortest first."""
        found: dict[timedelta, list[str]] = {}
        for state in sorted(states, key=lambda state: (self.of(kind, state), state)):
            found.setdefault(self.of(kind, state), []).append(state)
        return found


async def sweep_ended(
    store: Store, catalogue: Catalogue, retention: Retention, *, limit: int = 500
) -> dict[str, Pruned]:
    """Prune one bounded batch of each kind, and of each age in it; answers what was removed."""
    pruned: dict[str, Pruned] = {}
    for name, kind in catalogue.items():
        for age, states in retention.ages(name, kind.ended).items():
            gone = await store.prune(kind=name, states=states, older_than=age, limit=limit)
            pruned[name] = _together(pruned[name], gone) if name in pruned else gone
    return pruned


def _together(one: Pruned, other: Pruned) -> Pruned:
    return Pruned(
        one.records + other.records,
        one.entries + other.entries,
        one.requests + other.requests,
        more=one.more or other.more,
    )
