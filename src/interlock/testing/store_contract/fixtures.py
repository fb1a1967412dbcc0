"""The fixture `store`: an open store on an empty database. Import it where the suite is run."""

from __future__ import annotations

import pytest

from interlock.store.contract import Store
from interlock.testing.store_contract.opener import StoreOpener


@pytest.fixture
async def store(opener: StoreOpener) -> Store:
    """An open store on an empty database."""
    return await opener.open()
