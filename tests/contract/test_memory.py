"""The contract on the store in memory."""

from __future__ import annotations

import pytest

from interlock.testing.store_contract import StoreOpener, Traits, suite_for
from interlock.testing.store_contract.fixtures import MemoryOpener

globals().update(suite_for(Traits()))


@pytest.fixture
def opener() -> StoreOpener:
    return MemoryOpener()
