"""The lease of an attempt as a credential: it reports on that attempt while it lives, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from tests.server.running import Running, running

from interlock.server.app import every_route
from interlock.systems.blobs import BlobSettings
from interlock.systems.settings import Settings
from interlock.wire.access import Role
from interlock.wire.runner import Complete, Grant, Succeeded

BY_CLAIM = {
    ("POST", "/api/runner/log"),
    ("PUT", "/api/runner/artifacts/{artifact}"),
    ("GET", "/api/runner/caches"),
    ("PUT", "/api/runner/caches"),
    ("GET", "/api/runner/children"),
    ("POST", "/api/runner/children"),
    ("GET", "/api/runner/predecessors"),
    ("POST", "/api/runner/waits"),
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    settings = Settings(blobs=BlobSettings(directory=str(tmp_path / "blobs")))
    async with running(orchestration=settings) as one:
        await one.token(Role.ADMIN)  # from now on everybody needs a credential
        yield one


@pytest.fixture
async def grant(server: Running) -> Grant:
    """An attempt that a runner with a token of its own has been given."""
    job_id = await server.submit("shop.build", queue="ci")
    return await server.hold(job_id, "ci", "ci-runners/box-1")


@pytest.fixture
def job(server: Running, grant: Grant) -> httpx2.AsyncClient:
    """The job itself, which knows nothing but its lease."""
    return server.client(grant.token)


async def test_a_job_reports_with_nothing_but_its_lease(
    server: Running, grant: Grant, job: httpx2.AsyncClient
) -> None:
    line = {"token": grant.token, "runner_id": "x", "log": [["2026-05-01T12:00:00Z", "info", "built"]]}
    assert (await job.post("/api/runner/log", json=line)).status_code == 200
    assert (await job.put("/api/runner/artifacts/report", content=b"green")).status_code == 200
    assert (await job.put("/api/runner/caches", params={"key": "pip"}, content=b"wheels")).status_code == 200
    assert (await job.get("/api/runner/caches", params={"key": "pip"})).content == b"wheels"
    children = {"token": grant.token, "runner_id": "x", "name": "pages"}
    born = await job.post(
        "/api/runner/children", json={**children, "jobs": [{"task": "shop.page", "queue": "ci"}]}
    )
    assert born.status_code == 201
    listed = await job.get("/api/runner/children")
    assert [child["id"] for child in listed.json()["children"]] == born.json()["ids"]
    lines = [
        line.text async for chunk in server.parts.runtime.jobs.logs(grant.job_id) for line in chunk.lines
    ]
    assert lines == ["built"]
    history = await server.parts.runtime.jobs.history(grant.job_id)
    assert {entry.note.actor for entry in history} >= {"ci-runners/box-1"}, "the journal names its runner"


async def test_credentials_in_log_lines_and_progress_of_a_runner_are_masked_before_storage(
    server: Running, grant: Grant, job: httpx2.AsyncClient
) -> None:
    token = f"il_{'0123456789abcdef'}_{'ab' * 32}"
    texts = [f"stolen {token}!", f"lease {grant.token}", "and so on"]
    line = {
        "token": grant.token,
        "runner_id": "x",
        "progress": {"message": f"got {token}"},
        "log": [["2026-05-01T12:00:00Z", "info", text] for text in texts],
    }
    assert (await job.post("/api/runner/log", json=line)).status_code == 200
    jobs = server.parts.runtime.jobs
    stored = [line.text async for chunk in jobs.logs(grant.job_id) for line in chunk.lines]
    assert [len(text) for text in stored] == [len(text) for text in texts], "positions in the log stay true"
    assert stored[0] == f"stolen {'*' * len(token)}!"
    assert stored[1] == f"lease {'*' * len(grant.token)}"
    assert token not in str(await jobs.get(grant.job_id))


async def test_a_lease_leases_nothing_and_ends_nothing(
    server: Running, grant: Grant, job: httpx2.AsyncClient
) -> None:
    await server.submit("shop.deploy", queue="ci")
    response = await job.post("/api/runner/lease", json={"runner_id": "evil", "queues": ["ci"], "limit": 1})
    assert response.status_code == 403
    assert response.json()["code"] == "not_allowed"
    assert "access token" in response.json()["todo"]
    body = {"token": grant.token, "runner_id": "box-1", "sequence": 1}
    for message in ("ack", "heartbeat", "complete", "release", "cancel-ack", "messages"):
        refused = await job.post(f"/api/runner/{message}", json=body)
        assert refused.status_code == 403, message
    assert (await server.parts.runtime.jobs.get(grant.job_id)).state == "RUNNING"


def test_a_lease_is_enough_only_where_a_job_reports_on_itself() -> None:
    declared = {(each.method, each.path) for each in every_route() if each.by_claim}
    assert declared == BY_CLAIM


async def test_a_lease_reports_on_no_other_attempt(
    server: Running, grant: Grant, job: httpx2.AsyncClient
) -> None:
    other = await server.hold(await server.submit("shop.deploy", queue="prod"), "prod", "ci-runners/box-1")
    line = {"token": other.token, "runner_id": "box-1", "log": []}
    wait = {"token": other.token, "runner_id": "box-1", "name": "paid"}
    headers = {"X-Interlock-Lease": other.token, "X-Interlock-Runner": "box-1"}
    children = {"token": grant.token, "runner_id": "x", "name": "n", "jobs": [{"task": "t", "queue": "prod"}]}
    answers = [
        await job.post("/api/runner/log", json=line),
        await job.put("/api/runner/artifacts/report", content=b"forged", headers=headers),
        await job.put("/api/runner/caches", params={"key": "pip"}, content=b"evil", headers=headers),
        await job.post("/api/runner/children", json=children),
        await job.post("/api/runner/waits", json=wait),
        await job.get("/api/runner/predecessors", headers=headers),
    ]
    assert [answer.status_code for answer in answers] == [403] * 6
    assert not await server.parts.runtime.artifacts.list(other.job_id)


@pytest.mark.parametrize("end", ["expired", "completed", "forged"])
async def test_a_lease_that_has_ended_grants_no_access(
    server: Running, grant: Grant, job: httpx2.AsyncClient, end: str
) -> None:
    if end == "expired":
        server.jump(grant.ttl_s + 1)
    elif end == "completed":
        await server.parts.runtime.orchestrator.report([_done(grant)])
    else:
        job = server.client(grant.token[:-1] + ("0" if grant.token[-1] != "0" else "1"))
    answer = await job.put("/api/runner/artifacts/report", content=b"late")
    expected = {"expired": (401, 409)}  # what the server has not yet seen to expire, the commit refuses
    assert answer.status_code in expected.get(end, (401,))
    assert not await server.parts.runtime.artifacts.list(grant.job_id)


def _done(grant: Grant) -> Complete:
    return Complete(token=grant.token, runner_id="ci-runners/box-1", sequence=1, outcome=Succeeded())
