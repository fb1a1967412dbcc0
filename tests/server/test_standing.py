"""Where the live records of a machine stand, for whoever looks at its table."""

from __future__ import annotations

import httpx2
from tests.server.running import Running


async def test_live_jobs_are_counted_by_state_with_the_oldest_and_how_long_they_stay(
    server: Running, client: httpx2.AsyncClient
) -> None:
    first, second = [
        (await client.post("/api/jobs", json={"task": "shop.send"})).json()["id"] for _ in range(2)
    ]
    await client.post(f"/api/jobs/{second}/cancel", json={})
    states = (await client.get("/api/machines/job/standing")).json()["states"]
    assert [state["state"] for state in states] == ["SUBMITTED", "PENDING", "RUNNING"], "not those that ended"
    pending = states[1]
    assert (pending["number"], pending["oldest_id"]) == (1, first)
    assert pending["median_stay_s"] >= 0
    assert states[0] == {"state": "SUBMITTED", "number": 0}


async def test_the_standing_of_a_machine_without_records_of_its_own_is_empty(
    client: httpx2.AsyncClient,
) -> None:
    assert (await client.get("/api/machines/lease/standing")).json() == {"machine": "lease", "states": []}


async def test_the_standing_of_an_unknown_machine_returns_404(
    client: httpx2.AsyncClient,
) -> None:
    answer = await client.get("/api/machines/jab/standing")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_machine")
