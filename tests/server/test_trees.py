"""Trees of jobs over HTTP: who may submit children, and who sees how much of a tree."""

from __future__ import annotations

from typing import Any

import httpx2
from tests.server.running import Running

from interlock.wire.access import Role
from interlock.wire.artifacts import LEASE, RUNNER
from interlock.wire.runner import Grant

CHILD = {"task": "shop.fetch", "input": {"page": 1}}


async def parent_of(server: Running, runner_id: str = "r") -> Grant:
    return await server.hold(await server.submit("shop.parent", queue="parents"), "parents", runner_id)


def new_children(parent: Grant, *jobs: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"token": parent.token, "runner_id": "r", "name": "pages", "jobs": jobs or (CHILD,), **more}


async def test_children_are_submitted_once_and_listed_with_their_results(
    server: Running, client: httpx2.AsyncClient
) -> None:
    parent = await parent_of(server)
    made = await client.post("/api/runner/children", json=new_children(parent))
    again = await client.post("/api/runner/children", json=new_children(parent))
    assert (made.status_code, again.status_code, again.json()) == (201, 201, made.json())
    (child,) = made.json()["ids"]
    await server.work(child, result=b'{"words":3}')

    headers = {LEASE: parent.token, RUNNER: "r"}
    page = (await client.get("/api/runner/children", headers=headers)).json()
    assert page == {
        "children": [{"id": child, "task": "shop.fetch", "state": "COMPLETED", "result": {"words": 3}}]
    }

    tree = (await client.get(f"/api/jobs/{parent.job_id}/tree")).json()
    assert [(node["id"], node["state"]) for node in tree["nodes"]] == [
        (parent.job_id, "RUNNING"),
        (child, "COMPLETED"),
    ]
    assert "cut" not in tree


async def test_other_children_under_a_name_are_a_conflict(
    server: Running, client: httpx2.AsyncClient
) -> None:
    parent = await parent_of(server)
    await client.post("/api/runner/children", json=new_children(parent))
    other = await client.post("/api/runner/children", json=new_children(parent, CHILD, CHILD))
    assert (other.status_code, other.json()["code"]) == (409, "request_id_reused")


async def test_a_runner_without_the_lease_can_neither_submit_nor_list_children(
    server: Running, client: httpx2.AsyncClient
) -> None:
    parent = await parent_of(server)
    foreign = new_children(parent, token=f"{parent.token[:-4]}0000")
    assert (await client.post("/api/runner/children", json=foreign)).json()["code"] == "UNKNOWN_LEASE"
    another = new_children(parent, runner_id="somebody")
    assert (await client.post("/api/runner/children", json=another)).json()["code"] == "wrong_runner"
    response = await client.get("/api/runner/children", headers={LEASE: "x", RUNNER: "r"})
    assert response.json()["code"] == "UNKNOWN_LEASE"
    assert (await client.get(f"/api/jobs/{parent.job_id}")).json().get("children", 0) == 0


async def test_a_runner_submits_children_only_to_its_own_queues(server: Running) -> None:
    token = await server.token(Role.RUNNER, "ci", queues=["parents", "parts"])
    runner = server.client(token)
    parent = await parent_of(server, "ci/r")
    own = await runner.post("/api/runner/children", json=new_children(parent, {**CHILD, "queue": "parts"}))
    assert own.status_code == 201, own.text
    foreign = {**new_children(parent, {**CHILD, "queue": "mail"}), "name": "others"}
    refused = await runner.post("/api/runner/children", json=foreign)
    assert refused.status_code == 403


async def test_a_tree_shows_only_the_jobs_that_the_caller_may_see(
    server: Running, client: httpx2.AsyncClient
) -> None:
    parent = await parent_of(server)
    hidden, seen = {**CHILD, "queue": "mail"}, {**CHILD, "queue": "parents"}
    ids = (await client.post("/api/runner/children", json=new_children(parent, hidden, seen))).json()["ids"]
    viewer = server.client(await server.token(Role.VIEWER, "guest", queues=["parents"]))
    tree = (await viewer.get(f"/api/jobs/{parent.job_id}/tree")).json()
    assert [node["id"] for node in tree["nodes"]] == [parent.job_id, ids[1]]
    assert tree["cut"] is True
    assert (await viewer.get(f"/api/jobs/{ids[0]}/tree")).status_code == 404


async def test_a_tree_that_is_too_large_is_cut(server: Running, client: httpx2.AsyncClient) -> None:
    parent = await parent_of(server)
    await client.post("/api/runner/children", json=new_children(parent, *[CHILD] * 30))
    tree = (await client.get(f"/api/jobs/{parent.job_id}/tree", params={"limit": 10})).json()
    assert (len(tree["nodes"]), tree["cut"]) == (10, True)
    assert tree["nodes"][0]["children"] == 30
