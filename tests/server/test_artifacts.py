"""Uploads under a lease, and downloads that no browser takes for a page."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from tests.server.runners import Runner, done
from tests.server.running import ANY_PORT, Running, any_port, running
from tests.waiting import PATIENCE_S

from interlock.systems.blobs import BlobSettings
from interlock.systems.settings import Settings
from interlock.wire.access import Role

MOST = 3_000_000


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


def keeping(blobs: Path) -> Settings:
    return Settings(blobs=BlobSettings(directory=str(blobs), max_blob_bytes=MOST))


@pytest.fixture
async def server(blobs: Path) -> AsyncIterator[Running]:
    async with running(orchestration=keeping(blobs)) as one:
        yield one


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]


async def upload(
    client: httpx2.AsyncClient,
    token: str,
    name: str,
    body: bytes | AsyncIterator[bytes],
    by: str = "runner-7",
) -> httpx2.Response:
    headers = {"X-Interlock-Lease": token, "X-Interlock-Runner": by}
    return await client.put(f"/api/runner/artifacts/{name}", content=body, headers=headers)


async def test_an_artifact_larger_than_the_body_limit_is_downloaded_unchanged_as_an_octet_stream(
    server: Running, client: httpx2.AsyncClient
) -> None:
    runner = Runner(client)
    job_id = await server.submit()
    grant = await runner.grant()
    content = bytes(range(256)) * 10_000
    assert len(content) > ANY_PORT.max_body_bytes
    kept = await upload(client, grant["token"], "page.html", content)
    assert kept.status_code == 200, kept.text
    assert kept.json()["sha256"] == hashlib.sha256(content).hexdigest()
    await runner.say("complete", grant["token"], 2, **done())

    listed = (await client.get(f"/api/jobs/{job_id}/artifacts")).json()["artifacts"]
    assert listed == [kept.json()]
    fetched = await client.get(f"/api/jobs/{job_id}/artifacts/page.html", params={"attempt": "1.1"})
    assert fetched.content == content
    assert fetched.headers["content-type"] == "application/octet-stream"
    assert fetched.headers["content-disposition"] == 'attachment; filename="page.html"'
    assert fetched.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in fetched.headers["content-security-policy"]
    head = await client.head(f"/api/jobs/{job_id}/artifacts/page.html")
    assert (head.status_code, head.headers["content-length"], head.content) == (200, str(len(content)), b"")


async def test_nothing_is_taken_under_a_lease_that_has_ended_or_is_none(
    server: Running, client: httpx2.AsyncClient, blobs: Path
) -> None:
    runner = Runner(client)
    await server.submit()
    grant = await runner.grant()
    assert (await upload(client, "nonsense", "x", b"x")).json()["code"] == "UNKNOWN_LEASE"
    assert (await upload(client, grant["token"], "x", b"x", by="other")).json()["code"] == "wrong_runner"
    assert (await upload(client, grant["token"], "x", b"x", by="")).json()["code"] == "bad_request"
    assert (await upload(client, grant["token"], ".x", b"x")).json()["code"] == "invalid_artifact"
    await runner.say("complete", grant["token"], 2, **done())
    late = await upload(client, grant["token"], "x", b"x")
    assert (late.status_code, late.json()["code"]) == (409, "UNKNOWN_LEASE")
    assert files(blobs) == []


async def test_an_upload_that_is_too_large_is_refused_with_or_without_a_content_length(
    server: Running, client: httpx2.AsyncClient, blobs: Path
) -> None:
    await server.submit()
    token = (await Runner(client).grant())["token"]

    async def unannounced() -> AsyncIterator[bytes]:
        for _ in range(MOST // 100_000 + 1):
            yield bytes(100_000)

    for body in (bytes(MOST + 1), unannounced()):
        refused = await upload(client, token, "x", body)
        assert (refused.status_code, refused.json()["facts"]["limit"]) == (413, MOST)
    assert files(blobs) == []
    assert (await upload(client, token, "x", bytes(MOST))).status_code == 200


async def test_a_runner_that_stops_in_the_middle_of_a_file_leaves_nothing(blobs: Path) -> None:
    async with running(orchestration=keeping(blobs), settings=any_port(body_s=0.2)) as server:
        grant = await server.hold(await server.submit(), "default", "runner-7")
        slow = await _stalling(server, grant.token)
        assert b" 408 " in slow.split(b"\r\n", 1)[0]
        assert files(blobs) == []


async def _stalling(server: Running, token: str) -> bytes:
    """Announces more than it sends, and waits for the answer."""
    reader, writer = await asyncio.open_connection(*server.address)
    head = (
        "PUT /api/runner/artifacts/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
        f"X-Interlock-Lease: {token}\r\nX-Interlock-Runner: runner-7\r\n\r\n"
    )
    writer.write(head.encode() + b"half")
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.close()
        await writer.wait_closed()


async def test_only_tokens_of_its_queue_read_the_artifacts_of_a_job_and_only_its_runner_uploads_them(
    blobs: Path,
) -> None:
    settings = any_port(tokens_required=True)
    async with running(orchestration=keeping(blobs), settings=settings) as server:
        runners = server.client(await server.token(Role.RUNNER, "ours"))
        job_id = await server.submit(queue="mail")
        runner = Runner(runners)
        grant = await runner.grant(queues=["mail"])
        assert (await upload(runners, grant["token"], "x", b"letters")).status_code == 200
        others = server.client(await server.token(Role.RUNNER, "others"))
        assert (await upload(others, grant["token"], "y", b"forged")).json()["code"] == "wrong_runner"
        near = server.client(await server.token(Role.VIEWER, "near", queues=("mail",)))
        far = server.client(await server.token(Role.VIEWER, "far", queues=("default",)))
        path = f"/api/jobs/{job_id}/artifacts"
        assert (await near.get(f"{path}/x")).content == b"letters"
        assert (await far.get(path)).status_code == (await far.get(f"{path}/x")).status_code == 404
        assert (await upload(near, grant["token"], "z", b"x")).status_code == 403
