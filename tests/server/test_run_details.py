"""What the page of a run asks the API for: a preview, the last green run, artifacts, and a fork's terms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
from tests.server.runners import Runner, done
from tests.server.running import Running, running
from tests.server.test_artifacts import keeping, upload
from tests.server.test_runs import made, until, work

from interlock.wire.access import Role

SOURCE = {"repository": "shop/web", "ref": "refs/heads/main", "sha": "5f1c"}


async def failing(client: httpx2.AsyncClient, run_id: str, *names: str) -> None:
    """Do the jobs of a run as they come; these fail."""
    runner = Runner(client)
    while (await until(client, run_id, "QUEUED", "RUNNING", "REPORTED")).state != "REPORTED":
        for grant in await runner.grants():
            bad = {"outcome": {"outcome": "failed", "error": "exit 2", "failure_class": "user"}}
            jobs = (await client.get(f"/api/runs/{run_id}/jobs")).json()["jobs"]
            name = next(job["name"] for job in jobs if job["job_id"] == grant["job_id"])
            await runner.say("complete", grant["token"], **(bad if name in names else done()))


async def get(client: httpx2.AsyncClient, path: str, **query: Any) -> dict[str, Any]:
    answer = await client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_rerun_is_previewed_and_refused_as_the_rerun_would_be(
    server: Running, client: httpx2.AsyncClient
) -> None:
    run_id = await made(client)
    await until(client, run_id, "QUEUED")
    path = f"/api/runs/{run_id}/rerun"
    early = await client.get(path)
    assert (early.status_code, early.json()["code"]) == (409, "transition_not_allowed")
    await work(server, client, run_id)
    preview = await get(client, path, which="from", job="test")
    assert (preview["again"], preview["kept"]) == (["test", "pack"], ["lint"])
    assert (await get(client, path))["again"] == ["lint", "test", "pack"]
    wrong = await client.get(path, params={"which": "from", "job": "nope"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_run")
    missing = await client.get("/api/runs/r_000000000000/rerun")
    assert (missing.status_code, missing.json()["code"]) == (404, "unknown_run")


async def test_a_run_is_compared_with_the_last_green_run_of_its_branch(
    server: Running, client: httpx2.AsyncClient
) -> None:
    green = await made(client, source=SOURCE)
    await work(server, client, green)
    run_id = await made(client, source={**SOURCE, "sha": "77aa"})
    await failing(client, run_id, "test")
    found = await get(client, f"/api/runs/{run_id}/comparison")
    assert (found["green"]["id"], found["looked_at"]) == (green, 1)
    assert [(each["name"], each["change"]) for each in found["changes"]] == [("test", "failed")]
    assert "jobs" not in found["green"]
    first = await get(client, f"/api/runs/{green}/comparison")
    assert (first.get("green"), first["looked_at"]) == (None, 0)


async def test_artifacts_of_a_run_are_listed_by_job_page_by_page(tmp_path: Path) -> None:
    async with running(orchestration=keeping(tmp_path / "blobs")) as server:
        client = server.client()
        run_id = await made(client)
        await until(client, run_id, "QUEUED")
        runner = Runner(client)
        for name in ("lint", "test"):
            grant = await runner.grant(wait_s=30)
            assert (await upload(client, grant["token"], f"{name}.txt", name.encode() * 3)).status_code == 200
            await runner.say("complete", grant["token"], sequence=2, **done())
        found = await get(client, f"/api/runs/{run_id}/artifacts")
        assert [(each["job"], each["artifact"]["name"]) for each in found["artifacts"]] == [
            ("lint", "lint.txt"),
            ("test", "test.txt"),
        ]
        assert [each["artifact"]["size"] for each in found["artifacts"]] == [12, 12]
        page = await get(client, f"/api/runs/{run_id}/artifacts", limit=1)
        assert ([each["job"] for each in page["artifacts"]], page["next"]) == (["lint"], 1)
        rest = await get(client, f"/api/runs/{run_id}/artifacts", first=1)
        assert ([each["job"] for each in rest["artifacts"]], rest.get("next")) == (["test"], None)


async def test_the_view_of_a_run_from_a_fork_shows_the_queue_and_labels_imposed_on_its_jobs(
    client: httpx2.AsyncClient,
) -> None:
    run_id = await made(client, source={**SOURCE, "from_fork": True})
    view = await until(client, run_id, "AWAITING_APPROVAL")
    assert view.held_to is not None
    shown = (await get(client, f"/api/runs/{run_id}"))["held_to"]
    assert shown == {"queue": "untrusted", "labels": []}, "a queue that is the default is named too"
    own = await until(client, await made(client, source=SOURCE), "QUEUED")
    assert own.held_to is None


async def test_a_viewer_may_look_at_all_of_it() -> None:
    async with running() as server:
        await server.token(Role.ADMIN)
        run_id = await made(server.client(await server.token(Role.SUBMITTER)))
        viewer = server.client(await server.token(Role.VIEWER))
        confined = server.client(await server.token(Role.VIEWER, "confined", queues=("mail",)))
        for path in ("comparison", "artifacts"):
            assert (await viewer.get(f"/api/runs/{run_id}/{path}")).status_code == 200
            assert (await confined.get(f"/api/runs/{run_id}/{path}")).status_code == 403
