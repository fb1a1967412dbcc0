"""The fixture `store`, and an opener for the store in memory. Import the fixture where the suite is run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interlock.store.contract import Store
from interlock.store.memory import MemoryStore
from interlock.testing.clocks import JumpingClock
from interlock.testing.store_contract.builders import CATALOGUE
from interlock.testing.store_contract.suite import StoreOpener


@pytest.fixture
async def store(opener: StoreOpener) -> Store:
    """Open a store on an empty database."""
    return await opener.open()


class MemoryOpener(StoreOpener):
    """An opener of one object in memory; its clock moves only when a test moves it."""

    def __init__(self, make: Callable[..., MemoryStore] = MemoryStore) -> None:
        self._make = make
        self._clock = JumpingClock()
        self._store = make(CATALOGUE, clock=self._clock)

    async def open(self) -> Store:
        """Return the store, always the same object."""
        await self._store.open()
        return self._store

    async def elsewhere(self) -> StoreOpener:
        """Return an opener of another memory."""
        return MemoryOpener(self._make)

    async def elapse(self, store: Store, seconds: float) -> None:  # noqa: ARG002
        """Advance the clock."""
        self._clock.jump(seconds)
