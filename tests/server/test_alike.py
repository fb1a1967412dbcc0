"""GET /api/jobs/{job_id}/alike: how many of the newest failed jobs failed the same way, and since when."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from tests.server.runners import Runner
from tests.server.running import Running, any_port, running

from interlock.server.api import jobs
from interlock.wire.access import Role


async def fail(server: Running, error: str, task: str = "shop.send", queue: str = "default") -> str:
    """Return a job that has failed so."""
    token = await server.token(Role.RUNNER, f"in-{queue}") if server.parts.tokens_required else None
    job = await server.submit(task, queue=queue)
    runner = Runner(server.client(token))
    grant = await runner.grant(queues=[queue])
    outcome = {"outcome": "failed", "error": error, "failure_class": "permanent"}
    answer = await runner.say("complete", grant["token"], outcome=outcome)
    assert answer.status_code == 200, answer.text
    return job


async def of(client: httpx2.AsyncClient, job: str) -> dict[str, Any]:
    answer = await client.get(f"/api/jobs/{job}/alike")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_failures_that_differ_only_in_numbers_and_ids_are_counted_as_the_same_failure(
    client: httpx2.AsyncClient, server: Running
) -> None:
    first = await fail(server, "timeout after 30 s at 0x7f3a of j_0123456789ab")
    await fail(server, "timeout after 31 s at 0x1111 of j_aaaaaaaaaaaa")
    await fail(server, "disk full")
    await fail(server, "timeout after 30 s at 0x7f3a of j_0123456789ab", task="shop.other")
    waits = await server.submit(queue="idle")
    last = await fail(server, "timeout after 5 s at 0x2 of j_bbbbbbbbbbbb")
    summary = await of(client, last)
    assert (summary["number"], summary["looked_at"], summary.get("more", False)) == (3, 5, False)
    assert summary["ids"][0] == last
    assert summary["ids"][-1] == first
    (one,) = (await client.get("/api/jobs", params={"q": f"id:{first}"})).json()["jobs"]
    assert summary["since"] == one["completed_at"]
    assert await of(client, waits) == {"number": 0, "looked_at": 0}


async def test_the_number_of_scanned_jobs_is_limited_and_the_response_reports_more(
    client: httpx2.AsyncClient, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = [await fail(server, f"boom {number}") for number in range(5)]
    monkeypatch.setattr(jobs, "MOST", 3)
    monkeypatch.setattr(jobs, "PAGE", 2)
    summary = await of(client, failed[0])
    assert (summary["looked_at"], summary["more"]) == (3, True)
    assert summary["number"] == 4  # the three, and the job itself, which is older
    monkeypatch.setattr(jobs, "MOST_BYTES", 1)
    assert (await of(client, failed[-1]))["looked_at"] == 2


async def test_a_confined_token_counts_in_its_own_queues_only() -> None:
    async with running(settings=any_port(tokens_required=True)) as server:
        mine = await fail(server, "boom 1", queue="mine")
        await fail(server, "boom 2", queue="theirs")
        confined = server.client(await server.token(Role.VIEWER, "ada", queues=("mine",)))
        summary = await of(confined, mine)
        assert (summary["number"], summary["looked_at"], summary["ids"]) == (1, 1, [mine])
        everywhere = server.client(await server.token(Role.VIEWER, "bob"))
        assert (await of(everywhere, mine))["number"] == 2
