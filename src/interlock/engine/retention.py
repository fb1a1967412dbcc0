"""Records that ended long ago, with their journal, and requests that nobody will repeat any more."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from interlock.store.catalogue import Catalogue
from interlock.store.contract import Store
from interlock.store.records import Pruned


class Retention(msgspec.Struct, frozen=True):
    """How long records of each kind are kept after they have ended."""

    default: timedelta = timedelta(days=30)
    by_kind: Mapping[str, timedelta] = msgspec.field(default_factory=dict)

    def of(self, kind: str) -> timedelta:
        """How long records of this kind are kept."""
        return self.by_kind.get(kind, self.default)


async def sweep_ended(
    store: Store, catalogue: Catalogue, retention: Retention, *, limit: int = 500
) -> dict[str, Pruned]:
    """Prune one bounded batch of each kind; answers what was removed."""
    return {
        name: await store.prune(
            kind=name, states=sorted(kind.ended), older_than=retention.of(name), limit=limit
        )
        for name, kind in catalogue.items()
        if kind.ended
    }
