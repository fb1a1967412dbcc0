"""A server for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest
from tests.server.running import Running, running


@pytest.fixture
async def server() -> AsyncIterator[Running]:
    """In memory, for whoever is on this machine."""
    async with running() as one:
        yield one


@pytest.fixture
async def client(server: Running) -> httpx2.AsyncClient:
    """Somebody without a token, who needs none."""
    return server.client()
