"""How many records there are in each state in which they live, as the store says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from interlock.errors import StoreError
from interlock.lifecycles import MACHINES
from interlock.store.catalogue import Catalogue
from interlock.store.contract import Store
from interlock.store.records import Query
from interlock.systems.catalogue import CATALOGUE

CAP = 10_000
"""Counting stops there, so that a long queue does not make looking at it expensive."""
FRESH_S = 5.0
"""How long an answer serves: several that ask are not several times as expensive."""
PATIENCE_S = 2.0

_OURS = {name: kind for name, kind in CATALOGUE.items() if name in MACHINES}
_NO_MORE: Catalogue = {}

Numbers = Mapping[tuple[str, str], int]


class Census:
    """Counts, and remembers for a moment."""

    def __init__(
        self, store: Store, own: Catalogue = _NO_MORE, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        kinds = {**_OURS, **own}.values()
        self._living = [
            (kind.name, state) for kind in kinds for state in kind.states if state not in kind.ended
        ]
        self._monotonic = monotonic
        self._numbers: Numbers = {}
        self._until = 0.0
        self._alone = asyncio.Lock()

    async def take(self) -> Numbers:
        """The numbers by kind and state; none when the store does not answer in time."""
        async with self._alone:
            if self._monotonic() >= self._until:
                self._numbers = await self._count()
                self._until = self._monotonic() + FRESH_S
            return self._numbers

    async def _count(self) -> Numbers:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return {
                    (kind, state): (
                        await self._store.count(Query(kind=kind, states=(state,)), cap=CAP)
                    ).number
                    for kind, state in self._living
                }
        except (StoreError, TimeoutError):
            return {}
