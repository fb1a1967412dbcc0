"""One order for every worker that a filter means: previewed, done once, refused one by one."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from tests.server.running import Running
from tests.server.test_workers import registered

from interlock.wire.access import Role

ACTIONS = "/api/supervisor/workers/actions"


async def at_work(client: httpx2.AsyncClient, *names: str, **spec: Any) -> list[str]:
    """Workers that have had a task; their ids."""
    ids = [(await registered(client, name=name, **spec))["id"] for name in names]
    for worker_id in ids:
        await client.post(f"/api/workers/{worker_id}/start")
    return ids


async def states(client: httpx2.AsyncClient) -> dict[str, str]:
    """Every worker, by its name."""
    page = (await client.get("/api/workers")).json()["workers"]
    return {view["name"]: view["state"] for view in page}


async def asked(client: httpx2.AsyncClient, q: str, action: str, **more: Any) -> dict[str, Any]:
    answer = await client.post(ACTIONS, json={"filter": q, "action": action, **more})
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def ids_in(answer: dict[str, Any]) -> list[str]:
    return [done["id"] for done in answer.get("done", [])]


async def test_a_dry_run_lists_the_matching_workers_and_changes_nothing(client: httpx2.AsyncClient) -> None:
    ids = await at_work(client, "anna", "berta", labels=["gpu"])
    await at_work(client, "carla")
    preview = await asked(client, "label:gpu", "pause", dry_run=True, request_id="look")
    assert (preview["dry_run"], ids_in(preview)) == (True, ids[::-1])
    assert set((await states(client)).values()) == {"RUNNING"}
    done = await asked(client, "label:gpu", "pause", reason="deploy", give_back=True, request_id="look")
    assert {one["state"] for one in done["done"]} == {"PAUSED"}
    assert await states(client) == {"anna": "PAUSED", "berta": "PAUSED", "carla": "RUNNING"}
    held = (await client.get(f"/api/workers/{ids[0]}")).json()
    assert (held["reason"], held["give_back"]) == ("deploy", True)


async def test_only_those_are_meant_with_which_it_can_be_done(client: httpx2.AsyncClient) -> None:
    (first, second) = await at_work(client, "anna", "berta")
    idle = (await registered(client, name="carla"))["id"]
    assert ids_in(await asked(client, "name:anna", "pause")) == [first]
    assert ids_in(await asked(client, "", "pause", dry_run=True)) == [second], "one is held, one never began"
    assert ids_in(await asked(client, "", "resume", dry_run=True)) == [first]
    assert ids_in(await asked(client, "", "drain", dry_run=True)) == [idle, second, first]
    await client.post(f"/api/workers/{idle}/leave")
    assert ids_in(await asked(client, "", "terminate", dry_run=True)) == [second, first]
    assert ids_in(await asked(client, "state:completed", "terminate")) == [idle], "who is named is meant"
    assert ids_in(await asked(client, "state:paused", "pause")) == []


async def test_a_limited_action_reports_whether_more_workers_match(client: httpx2.AsyncClient) -> None:
    ids = await at_work(client, "anna", "berta", "carla")
    some = await asked(client, "", "drain", limit=2)
    assert (ids_in(some), some["more"]) == ([ids[2], ids[1]], True)
    rest = await asked(client, "name:anna", "drain", limit=1)
    assert (ids_in(rest), rest.get("more", False)) == ([ids[0]], False)


async def test_the_same_request_is_done_once_with_each(client: httpx2.AsyncClient) -> None:
    ids = await at_work(client, "anna", "berta")
    first = await asked(client, "", "pause", request_id="p")
    assert first == await asked(client, "", "pause", request_id="p")
    other = await client.post(ACTIONS, json={"filter": "", "action": "resume", "request_id": "p"})
    assert (other.status_code, other.json()["code"]) == (409, "request_id_reused")
    for worker_id in ids:
        entries = (await client.get(f"/api/workers/{worker_id}/history")).json()["entries"]
        events = [step["event"] for entry in entries for step in entry.get("steps", [])]
        assert events.count("pause") == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"filter": "task:x", "action": "pause"}, "bad_filter"),
        ({"filter": "", "action": "stop"}, "bad_request"),
        ({"action": "pause"}, "bad_request"),
        ({"filter": "", "action": "pause", "dryrun": True}, "bad_request"),
    ],
)
async def test_an_invalid_worker_action_is_refused_with_422_and_changes_nothing(
    client: httpx2.AsyncClient, body: dict[str, Any], code: str
) -> None:
    await at_work(client, "anna")
    answer = await client.post(ACTIONS, json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert await states(client) == {"anna": "RUNNING"}


async def test_only_an_operator_of_all_queues_may(server: Running) -> None:
    body = {"filter": "", "action": "pause"}
    for role, queues in ((Role.VIEWER, ()), (Role.RUNNER, ()), (Role.OPERATOR, ("mail",))):
        client = server.client(await server.token(role, f"a-{role}-{len(queues)}", queues=queues))
        assert (await client.post(ACTIONS, json=body)).status_code == 403
    operator = server.client(await server.token(Role.OPERATOR, "o"))
    assert (await operator.post(ACTIONS, json=body)).status_code == 200
