"""Retention: remove records that ended long ago, with their journal, and expired requests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from interlock.store.catalogue import Catalogue
from interlock.store.contract import Store
from interlock.store.records import Pruned


class Retention(msgspec.Struct, frozen=True):
    """Retention of ended records by kind."""

    default: timedelta = timedelta(days=30)
    by_kind: Mapping[str, timedelta] = msgspec.field(default_factory=dict)

    def of(self, kind: str) -> timedelta:
        """Return the retention of a kind."""
        return self.by_kind.get(kind, self.default)


async def sweep_ended(
    store: Store, catalogue: Catalogue, retention: Retention, *, limit: int = 500
) -> dict[str, Pruned]:
    """Prune one bounded batch of each kind; return the counts."""
    return {
        name: await store.prune(
            kind=name, states=sorted(kind.ended), older_than=retention.of(name), limit=limit
        )
        for name, kind in catalogue.items()
        if kind.ended
    }
