"""Batches over HTTP: created, filled, watched and canceled, by a program and from the command line's side."""

from __future__ import annotations

import httpx2
from tests.server.running import Running

JOB = {"task": "shop.send"}


async def test_a_batch_is_made_in_several_requests_and_shows_its_progress(
    server: Running, client: httpx2.AsyncClient
) -> None:
    spec = {"description": "letters", "callback": {"task": "shop.report"}, "into": "batch"}
    made = await client.post("/api/batches", json={"spec": spec, "jobs": [JOB], "request_id": "first"})
    assert made.status_code == 201, made.text
    batch_id, (first,) = made.json()["batch_id"], made.json()["ids"]
    path = f"/api/batches/{batch_id}"
    more = await client.post(f"{path}/jobs", json={"jobs": [JOB], "close": True})
    (second,) = more.json()["ids"]
    late = await client.post(f"{path}/jobs", json={"jobs": [JOB]})
    assert (late.status_code, late.json()["code"]) == (409, "transition_not_allowed")
    await server.work(first)
    await server.parts.runtime.deliver()
    view = (await client.get(path)).json()
    assert (view["state"], view["counts"]["completed"], view["callback"]) == ("RUNNING", 1, "shop.report")
    listed = (await client.get("/api/batches")).json()
    assert [each["id"] for each in listed["batches"]] == [batch_id]
    jobs = (await client.get(f"{path}/jobs")).json()["jobs"]
    assert jobs == [{"id": first, "state": "COMPLETED"}]
    stopped = await client.post(f"{path}/cancel", json={"reason": "enough", "request_id": "stop"})
    assert (stopped.status_code, stopped.json()["reason"]) == (200, "enough")
    await server.parts.runtime.deliver()
    job = (await client.get(f"/api/jobs/{second}")).json()
    assert (job["batch_id"], job["stop_reason"], job["cancel_reason"]) == (batch_id, "cancel", "enough")


async def test_a_batch_that_is_not_there_is_a_404(client: httpx2.AsyncClient) -> None:
    for answer in (
        await client.get("/api/batches/b_000000000000"),
        await client.get("/api/batches/b_000000000000/jobs"),
        await client.post("/api/batches/b_000000000000/cancel", json={}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_batch")
