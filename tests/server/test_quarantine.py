"""A quarantined runner is told why it is given nothing, and an operator lifts it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest
from tests.server.running import Running, running

from interlock.systems.quarantine import LostWork, QuarantineSettings
from interlock.systems.settings import Settings


@pytest.fixture
async def server() -> AsyncIterator[Running]:
    """One that has no patience with runners."""
    settings = Settings(quarantine=QuarantineSettings(occasions=1))
    async with running(orchestration=settings) as one:
        yield one


async def test_a_quarantined_runner_is_refused_until_the_quarantine_is_lifted(
    server: Running, client: httpx2.AsyncClient
) -> None:
    quarantine = server.parts.runtime.quarantine
    await quarantine.count([LostWork(runner="runner-7", job_id="j_1", attempt="1.1")])
    await server.submit()
    claim = {"runner_id": "runner-7#2", "queues": ["default"], "limit": 1, "wait_s": 0.0}
    held = (await client.post("/api/runner/lease", json=claim)).json()
    assert held["grants"] == []
    assert held["held"].startswith("runner-7 is quarantined until ")
    (view,) = (await client.get("/api/quarantine")).json()["runners"]
    assert (view["runner"], view["state"], view["jobs"]) == ("runner-7", "quarantined", ["j_1"])
    lifted = await client.post("/api/quarantine/lift", json={"runner": "runner-7", "reason": "mended"})
    assert lifted.status_code == 200, lifted.text
    assert lifted.json()["state"] == "cleared"
    assert (await client.get("/api/quarantine")).json() == {"runners": []}
    assert len((await client.post("/api/runner/lease", json=claim)).json()["grants"]) == 1
    again = await client.post("/api/quarantine/lift", json={"runner": "runner-7"})
    assert (again.status_code, again.json()["code"]) == (404, "unknown_worker")
