"""What the API answers about runs, from the request to the report, and what it does with many of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from tests import waiting
from tests.server.running import ANY_PORT, Running, running
from tests.systems.runs.workflows.test_repositories import CI_FILE, Repository

from interlock.wire.access import Role
from interlock.wire.runner import ClaimRequest, Complete, Succeeded
from interlock.wire.runs import RunView

PLAN = {
    "jobs": [
        {"name": "lint", "task": "shop.lint"},
        {"name": "test", "task": "shop.test", "needs": ["lint"]},
        {"name": "pack", "task": "shop.pack", "needs": ["test"]},
    ]
}


async def made(client: httpx2.AsyncClient, **spec: Any) -> str:
    answer = await client.post("/api/runs", json={"workflow": "ci", "plan": PLAN, **spec})
    assert answer.status_code == 201, answer.text
    run_id: str = answer.json()["id"]
    return run_id


async def until(client: httpx2.AsyncClient, run_id: str, *states: str) -> RunView:
    """The run once it is in one of these states; the server looks after it meanwhile."""

    async def is_there() -> bool:
        return (await look(client, run_id)).state in states

    await waiting.until(is_there, f"the run is in {' or '.join(states)}")
    return await look(client, run_id)


async def look(client: httpx2.AsyncClient, run_id: str) -> RunView:
    return msgspec.json.decode((await client.get(f"/api/runs/{run_id}")).content, type=RunView)


async def work(server: Running, client: httpx2.AsyncClient, run_id: str) -> RunView:
    """Do every job as it comes, until the run is reported."""
    orchestrator = server.parts.runtime.orchestrator

    async def is_reported() -> bool:
        for grant in await orchestrator.claim(ClaimRequest(runner_id="r", limit=100)):
            done = Complete(token=grant.token, runner_id="r", outcome=Succeeded())
            await orchestrator.report([done])
        return (await look(client, run_id)).state == "REPORTED"

    await waiting.until(is_reported, "the run is reported")
    return await look(client, run_id)


async def test_a_run_from_the_request_to_the_report(server: Running, client: httpx2.AsyncClient) -> None:
    run_id = await made(client, source={"repository": "shop/web", "ref": "refs/heads/main", "sha": "5f1c"})
    planned = await until(client, run_id, "QUEUED")
    assert [(job.name, job.state) for job in planned.jobs] == [
        ("lint", "PENDING"),
        ("test", "WAITING"),
        ("pack", "WAITING"),
    ]
    waiting = (await client.get(f"/api/runs/{run_id}/explain")).json()
    assert (waiting["run_id"], waiting["state"]) == (run_id, "QUEUED")

    view = await work(server, client, run_id)

    assert (view.outcome, view.tally) == ("SUCCESS", {"COMPLETED": 3})
    history = (await client.get(f"/api/runs/{run_id}/history")).json()
    states = [step["to"] for entry in history["entries"] for step in entry.get("steps", ())]
    assert states == ["PLANNING", "QUEUED", "RUNNING", "SUCCESS", "REPORTED"]
    first = (await client.get(f"/api/runs/{run_id}/history", params={"limit": 2})).json()
    rest = (await client.get(f"/api/runs/{run_id}/history", params={"after": first["after"]})).json()
    assert first["entries"] + rest["entries"] == history["entries"]


async def test_jobs_of_a_run_are_read_page_by_page_and_a_run_without_them(
    client: httpx2.AsyncClient,
) -> None:
    run_id = await made(client)
    await until(client, run_id, "QUEUED")
    first = (await client.get(f"/api/runs/{run_id}/jobs", params={"limit": 2})).json()
    assert ([job["name"] for job in first["jobs"]], first["next"]) == (["lint", "test"], 2)
    rest = (await client.get(f"/api/runs/{run_id}/jobs", params={"first": 2})).json()
    assert ([job["name"] for job in rest["jobs"]], rest.get("next")) == (["pack"], None)
    job = await client.get(f"/api/jobs/{first['jobs'][0]['job_id']}")
    assert job.json()["run_id"] == run_id
    brief = (await client.get(f"/api/runs/{run_id}", params={"jobs": "false"})).json()
    assert "jobs" not in brief
    assert brief["tally"] == {"PENDING": 1, "WAITING": 2}


async def test_runs_are_listed_by_a_filter_page_by_page(client: httpx2.AsyncClient) -> None:
    ids = [await made(client, workflow="docs" if n % 3 == 0 else "ci") for n in range(9)]
    listed = (await client.get("/api/runs", params={"q": "workflow:docs", "limit": 2})).json()
    more = (await client.get("/api/runs", params={"q": "workflow:docs", "cursor": listed["cursor"]})).json()
    assert [run["id"] for run in listed["runs"] + more["runs"]] == [ids[6], ids[3], ids[0]]
    wrong = await client.get("/api/runs", params={"q": "queue:ci"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "bad_filter")


async def test_runs_filtered_by_outcome_are_paged_without_gaps(client: httpx2.AsyncClient) -> None:
    ids = [await made(client) for _ in range(7)]
    for run_id in ids[::2]:
        await client.post(f"/api/runs/{run_id}/cancel")
        await until(client, run_id, "REPORTED")
    seen: list[str] = []
    cursor = ""
    while True:
        query: dict[str, str | int] = {"q": "outcome:canceled", "limit": 1, "cursor": cursor}
        page = (await client.get("/api/runs", params=query)).json()
        seen += [run["id"] for run in page["runs"]]
        cursor = page["cursor"]
        if not cursor:
            break
    assert seen == ids[::-2]


async def test_a_request_that_is_sent_many_times_makes_one_run(client: httpx2.AsyncClient) -> None:
    body = {"workflow": "ci", "plan": PLAN, "request_id": "push-17"}
    answers = await asyncio.gather(*(client.post("/api/runs", json=body) for _ in range(10)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    other = await client.post("/api/runs", json={**body, "workflow": "docs"})
    assert (other.status_code, other.json()["code"]) == (409, "request_id_reused")


async def test_a_run_is_cancelled_and_done_again(client: httpx2.AsyncClient) -> None:
    run_id = await made(client)
    await until(client, run_id, "QUEUED")
    early = await client.post(f"/api/runs/{run_id}/rerun", json={"which": "failed"})
    assert (early.status_code, early.json()["code"]) == (409, "transition_not_allowed")
    stopped = await client.post(f"/api/runs/{run_id}/cancel", json={"reason": "wrong branch"})
    assert stopped.status_code == 200
    assert (await until(client, run_id, "REPORTED")).outcome == "CANCELED"
    again = await client.post(f"/api/runs/{run_id}/rerun", json={"which": "from", "job": "test"})
    assert (again.status_code, again.json()["origin_run_id"]) == (201, run_id)
    unknown = await client.post(f"/api/runs/{run_id}/rerun", json={"which": "from", "job": "nope"})
    assert (unknown.status_code, unknown.json()["code"]) == (422, "invalid_run")


async def test_an_invalid_run_is_refused_with_422_and_not_stored_and_an_unknown_run_returns_404(
    client: httpx2.AsyncClient,
) -> None:
    circle = {"jobs": [{"name": n, "task": "t", "needs": [m]} for n, m in (("a", "b"), ("b", "a"))]}
    wrong = await client.post("/api/runs", json={"plan": circle})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "plan_refused")
    none = await client.post("/api/runs", json={"workflow": "ci"})
    assert (none.status_code, none.json()["code"]) == (422, "invalid_run")
    assert (await client.get("/api/runs")).json()["runs"] == []
    for path in ("", "/jobs", "/history", "/explain"):
        missing = await client.get(f"/api/runs/r_000000000000{path}")
        assert (missing.status_code, missing.json()["code"]) == (404, "unknown_run")


async def test_a_workflow_file_with_faults_fails_the_run_with_line_and_column(
    client: httpx2.AsyncClient,
) -> None:
    text = "jobs:\n  a: {stepz: []}\n"
    answer = await client.post(
        "/api/runs", json={"workflow": "ci", "planner": "workflow", "definition": text}
    )
    view = await until(client, answer.json()["id"], "REPORTED")
    assert (view.outcome, view.reason) == ("FAILED", "plan_failed")
    assert "ci.yml:2:7: there is no key of a job 'stepz'; did you mean steps?" in view.error


async def test_a_run_of_a_commit_is_planned_only_from_a_repository_that_the_server_has_configured(
    tmp_path: Path,
) -> None:
    repository = Repository(tmp_path / "shop")
    sha = repository.commit(**{CI_FILE: "jobs: {lint: {steps: [{run: make lint}]}}"})
    settings = msgspec.structs.replace(ANY_PORT, repositories={"shop/web": str(repository.folder)})
    async with running(settings=settings) as server:
        client = server.client()
        source = {"repository": "shop/web", "sha": sha, "event": "push", "ref": "refs/heads/main"}
        answer = await client.post("/api/runs", json={"planner": "workflow", "source": source})
        view = await until(client, answer.json()["id"], "QUEUED", "REPORTED")
        assert [job.name for job in view.jobs] == ["lint"], view.error
        elsewhere = {"repository": str(repository.folder), "sha": sha}
        other = await client.post("/api/runs", json={"planner": "workflow", "source": elsewhere})
        view = await until(client, other.json()["id"], "REPORTED")
        assert "does not know the repository" in view.error


async def test_many_are_cancelled_at_once_and_only_shown_in_a_dry_run(client: httpx2.AsyncClient) -> None:
    ids = [await made(client) for _ in range(3)]
    body = {"filter": "workflow:ci", "action": "cancel", "dry_run": True}
    dry = (await client.post("/api/runs/actions", json=body)).json()
    assert sorted(done["id"] for done in dry["done"]) == sorted(ids)
    again = {"filter": "workflow:ci", "action": "rerun"}
    assert (await client.post("/api/runs/actions", json=again)).json().get("done", []) == []
    body = {"filter": "workflow:ci", "action": "cancel", "request_id": "all"}
    first, second = [(await client.post("/api/runs/actions", json=body)).json() for _ in range(2)]
    assert first == second
    assert len(first["done"]) == 3
    for run_id in ids:
        await until(client, run_id, "REPORTED")
    redone = (await client.post("/api/runs/actions", json={**again, "limit": 2})).json()
    assert (len(redone["done"]), redone["more"]) == (2, True)
    assert all(done["new_id"].startswith("r_") for done in redone["done"])


async def test_a_viewer_only_reads_runs_a_submitter_creates_them_and_a_confined_token_gets_403() -> None:
    settings = msgspec.structs.replace(ANY_PORT, tokens_required=True)
    async with running(settings=settings) as server:
        viewer = server.client(await server.token(Role.VIEWER))
        submitter = server.client(await server.token(Role.SUBMITTER))
        confined = server.client(await server.token(Role.OPERATOR, "confined", queues=("mail",)))
        assert (await viewer.post("/api/runs", json={"plan": PLAN})).status_code == 403
        run_id = await made(submitter)
        assert (await viewer.get(f"/api/runs/{run_id}")).status_code == 200
        assert (await submitter.post(f"/api/runs/{run_id}/cancel")).status_code == 403
        for path in ("/api/runs", f"/api/runs/{run_id}"):
            assert (await confined.get(path)).status_code == 403, "a run is about all queues"
