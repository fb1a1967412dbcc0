"""A server for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest
from tests.server.running import FOR_EVER_S, Running, running

from interlock.server import event_streams, long_poll, metrics
from interlock.server.api import runner


@pytest.fixture
async def server() -> AsyncIterator[Running]:
    """In memory, for whoever is on this machine."""
    async with running() as one:
        yield one


@pytest.fixture
async def client(server: Running) -> httpx2.AsyncClient:
    """Somebody without a token, who needs none."""
    return server.client()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no server in this process give up on a count or a reader because the machine stands still."""
    monkeypatch.setattr(metrics, "PATIENCE_S", FOR_EVER_S)
    monkeypatch.setattr(event_streams, "PATIENCE_S", FOR_EVER_S)


@pytest.fixture
def waiting_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runners wait for work for as long as they like, and be called by news only."""
    monkeypatch.setattr(runner, "MAX_WAIT_S", FOR_EVER_S)
    monkeypatch.setattr(long_poll, "LOOK_EVERY_S", FOR_EVER_S)
