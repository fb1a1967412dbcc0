"""Unique jobs and times to start over HTTP: answers, errors, clients, and tokens confined to queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.server.running import Running, any_port, running

from interlock import Interlock, JobSpec, Unique, sync
from interlock.errors import DuplicateJob, InvalidJob, ServerRefused
from interlock.wire.access import Role
from interlock.wire.jobs import SubmittedJob

JOB = {"task": "shop.send", "input": {"order": 17}, "unique": {"by": ["order"]}}


@pytest.fixture
async def server() -> AsyncIterator[Running]:
    async with running() as one:
        yield one


def unique(policy: str, **more: Any) -> dict[str, Any]:
    return {**JOB, "unique": {"by": ["order"], "policy": policy}, **more}


async def test_a_duplicate_is_a_conflict_that_names_the_job(server: Running) -> None:
    async with server.client() as client:
        first = (await client.post("/api/jobs", json=JOB)).json()
        answer = await client.post("/api/jobs", json=JOB)
        problem = answer.json()
    assert first == {"ids": [first["id"]], "id": first["id"]}
    assert (answer.status_code, problem["code"]) == (409, "duplicate_job")
    assert problem["facts"]["job_id"] == first["id"]
    assert first["id"] in problem["todo"]


async def test_the_response_shows_for_each_unique_job_how_it_was_submitted(server: Running) -> None:
    async with server.client() as client:
        first = (await client.post("/api/jobs", json=unique("existing"))).json()["id"]
        again = (await client.post("/api/jobs", json=unique("existing"))).json()
        jobs = [unique("replace"), {"task": "other"}, unique("debounce", delay_s=5)]
        many = (await client.post("/api/jobs", json={"jobs": jobs})).json()
        view = (await client.get(f"/api/jobs/{first}")).json()
    assert again == {"ids": [first], "id": first, "how": ["existing"]}
    assert many["how"] == ["replaced", "created", "debounced"]
    assert (many["ids"][0], many["ids"][2]) == (first, first)
    assert view["unique_key"] == '{"order":17}'


async def test_the_async_and_sync_clients_return_how_a_unique_job_was_submitted(server: Running) -> None:
    spec = JobSpec(task="shop.send", input={"order": 17}, unique=Unique(policy="existing"))
    async with Interlock(server.url) as il:
        first = await il.submit(spec)
        again = await il.submit(spec)
        with pytest.raises(DuplicateJob) as error:
            await il.submit(JobSpec(task="shop.send", input={"order": 17}, unique=Unique()))
    assert (first.how, again.how, again.id) == ("created", "existing", first.id)
    assert error.value.facts["job_id"] == first.id

    def plainly() -> list[SubmittedJob]:
        with sync.Interlock(server.url) as plain:
            return plain.submit_jobs([spec])

    assert await asyncio.to_thread(plainly) == [SubmittedJob(first.id, "existing")]


async def test_a_token_that_is_confined_to_a_queue_shares_no_key_with_others() -> None:
    async with running(settings=any_port(tokens_required=True)) as server:
        token = await server.token(Role.SUBMITTER, queues=["mine"])
        async with server.client(token) as client:
            everywhere = await client.post("/api/jobs", json={**JOB, "queue": "mine"})
            within = {"scope": "queue", "by": ["order"]}
            here = await client.post("/api/jobs", json={**JOB, "queue": "mine", "unique": within})
    assert (everywhere.status_code, everywhere.json()["code"]) == (403, "not_allowed")
    assert here.status_code == 201


@pytest.mark.parametrize("field", ["at", "not_after"])
async def test_a_job_with_at_or_not_after_without_a_time_zone_returns_422(
    server: Running, field: str
) -> None:
    async with server.client() as client:
        answer = await client.post("/api/jobs", json={"task": "a", field: "2030-01-01T14:00:00"})
        good = await client.post("/api/jobs", json={"task": "a", field: "2030-01-01T14:00:00+05:30"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_job")
    assert f"{field} is 2030-01-01T14:00:00, which has no time zone" in answer.json()["error"]
    assert good.status_code == 201


async def test_a_job_that_has_expired_is_shown_listed_and_explained(server: Running) -> None:
    async with server.client() as client:
        made = (await client.post("/api/jobs", json={"task": "a", "start_within_s": 60})).json()["id"]
        server.jump(61)
        await server.parts.runtime.sweep()
        view = (await client.get(f"/api/jobs/{made}")).json()
        listed = (await client.get("/api/jobs", params={"q": "state:failed"})).json()["jobs"]
        explanation = (await client.get(f"/api/jobs/{made}/explain")).json()
    assert (view["state"], view["failure"]["failure_class"]) == ("FAILED", "expired")
    assert [one["id"] for one in listed] == [made]
    assert explanation["sentence"].startswith("It has expired: No worker started it before ")


async def test_a_field_that_a_server_does_not_know_is_refused_and_not_ignored(server: Running) -> None:
    """So does a server of the version before with `unique`, `at` and `not_after`."""
    async with server.client() as client:
        answer = await client.post("/api/jobs", json={"task": "a", "uniqueness": {}})
    assert answer.status_code == 422
    assert "uniqueness" in answer.json()["error"]


async def test_errors_of_a_rule_are_those_of_a_store(server: Running) -> None:
    async with Interlock(server.url) as il:
        with pytest.raises((InvalidJob, ServerRefused), match="none of the arguments of"):
            await il.submit(JobSpec(task="a", input={"n": 1}, unique=Unique(by=("m",))))
