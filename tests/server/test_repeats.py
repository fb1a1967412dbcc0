"""What changes something is done once under a request id, however often and wherever it is sent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.server.running import Running, running

from interlock.errors import InterlockError, UnknownJob
from interlock.server.bulk import part_of
from interlock.wire.access import Role
from interlock.wire.jobs import JobSpec

MANY = 32


async def at_once(
    server: Running, path: str, body: dict[str, Any], times: int = MANY
) -> list[httpx2.Response]:
    """The same request, many times at the same moment."""
    client = server.client(limits=httpx2.Limits(max_connections=times))
    return await asyncio.gather(*(client.post(path, json=body) for _ in range(times)))


async def number_of_jobs(server: Running) -> int:
    return len((await server.client().get("/api/jobs", params={"limit": 1000})).json()["jobs"])


@pytest.fixture(params=["memory:", "sqlite"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/interlock.db" if request.param == "sqlite" else str(request.param)


async def test_a_job_that_is_submitted_many_times_at_once_is_one_job(url: str) -> None:
    async with running(url) as server:
        answers = await at_once(server, "/api/jobs", {"task": "a.b", "request_id": "one"})
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.content for answer in answers}) == 1
        assert await number_of_jobs(server) == 1


async def test_a_bulk_that_is_submitted_many_times_at_once_is_one_bulk(url: str) -> None:
    async with running(url) as server:
        answers = await at_once(server, "/api/jobs", {"jobs": [{"task": "a.b"}] * 5, "request_id": "bulk"}, 8)
        assert len({answer.content for answer in answers}) == 1
        assert await number_of_jobs(server) == 5


async def test_a_cancel_that_is_sent_many_times_at_once_succeeds_for_all_and_is_done_once(url: str) -> None:
    async with running(url) as server:
        job_id = await server.submit()
        answers = await at_once(server, f"/api/jobs/{job_id}/cancel", {"request_id": "stop"})
        assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
        assert {answer.json()["state"] for answer in answers} == {"CANCELED"}
        history = (await server.client().get(f"/api/jobs/{job_id}/history")).json()["entries"]
        assert len(history) == 2
        other = await server.client().post(
            f"/api/jobs/{job_id}/cancel", json={"reason": "another one", "request_id": "stop"}
        )
        assert (other.status_code, other.json()["code"]) == (409, "request_id_reused")


async def test_without_an_id_only_one_of_many_cancels_succeeds(server: Running) -> None:
    job_id = await server.submit()
    answers = await at_once(server, f"/api/jobs/{job_id}/cancel", {})
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * (MANY - 1)


async def test_a_retry_that_is_sent_many_times_at_once_makes_one_job(url: str) -> None:
    async with running(url) as server:
        job_id = await server.submit()
        await server.parts.runtime.jobs.cancel(job_id)
        answers = await at_once(server, f"/api/jobs/{job_id}/retry", {"request_id": "again"})
        assert len({answer.content for answer in answers}) == 1
        assert await number_of_jobs(server) == 2


async def test_an_action_that_is_sent_again_is_answered_as_before(server: Running) -> None:
    for _ in range(4):
        await server.submit()
    body = {"filter": "queue:default", "action": "cancel", "request_id": "all"}
    first = await server.client().post("/api/jobs/actions", json=body)
    assert len(first.json()["done"]) == 4
    await server.submit()  # it would match as well, were it asked anew
    second = await server.client().post("/api/jobs/actions", json=body)
    assert second.content == first.content
    other = await server.client().post("/api/jobs/actions", json={**body, "filter": "queue:mail"})
    assert other.json()["code"] == "request_id_reused"


async def test_an_action_that_is_sent_many_times_at_once_retries_each_job_once(server: Running) -> None:
    ids = [await server.submit() for _ in range(3)]
    for job_id in ids:
        await server.parts.runtime.jobs.cancel(job_id)
    body = {"filter": "state:canceled", "action": "retry", "request_id": "redo"}
    answers = await at_once(server, "/api/jobs/actions", body, 8)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert await number_of_jobs(server) == 6


async def test_the_id_may_be_in_the_header_in_quotation_marks_or_not(
    client: httpx2.AsyncClient,
) -> None:
    body = {"task": "a.b"}
    ids = {
        (await client.post("/api/jobs", json=sent, headers=headers)).json()["id"]
        for sent, headers in (
            (body, {"Idempotency-Key": "k-1"}),
            (body, {"Idempotency-Key": '"k-1"'}),
            ({**body, "request_id": "k-1"}, {}),
            ({**body, "request_id": "k-1"}, {"Idempotency-Key": "k-1"}),
        )
    }
    assert len(ids) == 1


async def test_two_ids_that_differ_are_refused(client: httpx2.AsyncClient) -> None:
    answer = await client.post(
        "/api/jobs", json={"task": "a.b", "request_id": "one"}, headers={"Idempotency-Key": "two"}
    )
    assert (answer.status_code, answer.json()["code"]) == (409, "conflicting_request_ids")


async def test_an_id_that_was_used_for_something_else_is_refused(
    server: Running, client: httpx2.AsyncClient
) -> None:
    first = await client.post("/api/jobs", json={"task": "a.b", "request_id": "x"})
    for path, body in (
        ("/api/jobs", {"task": "c.d", "request_id": "x"}),
        ("/api/jobs", {"jobs": [{"task": "a.b"}, {"task": "a.b"}], "request_id": "x"}),
        (f"/api/jobs/{first.json()['id']}/cancel", {"request_id": "x"}),
    ):
        answer = await client.post(path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (409, "request_id_reused"), answer.text
    assert await number_of_jobs(server) == 1


async def test_a_refusal_releases_the_id(server: Running, client: httpx2.AsyncClient) -> None:
    job_id = await server.submit()
    refused = await client.post(f"/api/jobs/{job_id}/retry", json={"request_id": "later"})
    assert refused.status_code == 409
    await server.parts.runtime.jobs.cancel(job_id)
    assert (await client.post(f"/api/jobs/{job_id}/retry", json={"request_id": "later"})).status_code == 201


@pytest.mark.parametrize("request_id", ["", "x" * 65, 17, None])
async def test_an_id_that_is_none(client: httpx2.AsyncClient, request_id: object) -> None:
    answer = await client.post("/api/jobs", json={"task": "a.b", "request_id": request_id})
    assert answer.status_code == (201 if request_id is None else 422)


async def test_a_child_that_was_submitted_is_answered_again_after_its_parent_has_ended(
    server: Running, client: httpx2.AsyncClient
) -> None:
    parent = await server.submit()
    body = {"task": "a.b", "parent_job_id": parent, "request_id": "child"}
    first = await client.post("/api/jobs", json=body)
    await client.post(f"/api/jobs/{parent}/cancel")
    assert (await client.post("/api/jobs", json=body)).content == first.content


async def test_two_tokens_may_use_the_same_request_id_for_separate_requests(server: Running) -> None:
    ann, ben = [server.client(await server.token(Role.OPERATOR, name)) for name in ("ann", "ben")]
    body = {"task": "a.b", "request_id": "deploy-17"}
    made = [(await client.post("/api/jobs", json=body)).json()["id"] for client in (ann, ben, ann)]
    assert made[0] == made[2] != made[1]
    other = await ben.post("/api/jobs", json={**body, "task": "c.d"})
    assert (other.status_code, other.json()["code"]) == (409, "request_id_reused")
    assert "deploy-17" in other.json()["error"], "in the words of whoever asked"
    assert other.json()["facts"]["request_id"] == "deploy-17"
    stop = {"filter": f"id:{made[0]},{made[1]}", "action": "cancel", "request_id": "deploy-17"}
    assert (await ben.post("/api/jobs/actions", json=stop)).json()["code"] == "request_id_reused"
    assert len((await ben.post("/api/jobs/actions", json={**stop, "request_id": "s"})).json()["done"]) == 2


async def test_an_action_about_many_is_a_few_trips_to_the_store(server: Running) -> None:
    jobs = server.parts.runtime.jobs
    ids = await jobs.submit_many([JobSpec(task="a.b")] * 200)
    tally = server.parts.runtime.committer.tally
    before = tally.batches
    client = server.client()
    body = {"filter": "queue:default", "action": "cancel", "limit": 500, "request_id": "all"}
    stopped = (await client.post("/api/jobs/actions", json=body)).json()
    assert {each["state"] for each in stopped["done"]} == {"CANCELED"}
    assert {each["id"] for each in stopped["done"]} == set(ids)
    again = (
        await client.post("/api/jobs/actions", json={**body, "action": "retry", "request_id": "r"})
    ).json()
    assert len({each["new_id"] for each in again["done"]}) == 200
    assert tally.batches - before < 10


async def test_an_action_that_died_half_way_continues_where_it_stopped(server: Running) -> None:
    ids = [await server.submit() for _ in range(4)]
    jobs = server.parts.runtime.jobs
    for job_id in ids:
        await jobs.cancel(job_id)
    body = {"filter": f"id:{','.join(ids)}", "action": "retry", "request_id": "redo"}
    parts = [part_of("redo", job_id) for job_id in ids]
    first = await jobs.retry_all(ids[:2], request_ids=parts[:2])
    done = (await server.client().post("/api/jobs/actions", json=body)).json()["done"]
    made = {each["id"]: each["new_id"] for each in done}
    assert [made[job_id] for job_id in ids[:2]] == first
    assert await number_of_jobs(server) == 8


async def test_a_refused_cancel_does_not_affect_the_other_cancels_of_the_same_call(server: Running) -> None:
    jobs = server.parts.runtime.jobs
    ended, living = await server.submit(), await server.submit()
    await jobs.cancel(ended)
    done, refused, missing = await jobs.cancel_all([living, ended, "j_000000000000"])
    assert done == "CANCELED"
    assert isinstance(refused, InterlockError)
    assert refused.code == "already_there"
    assert isinstance(missing, UnknownJob)
