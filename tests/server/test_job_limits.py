"""Limits over HTTP: declare one, see who holds its slots and who waits, and delete it."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from tests.server.runners import Runner, done
from tests.server.running import Running

from interlock.errors import InvalidLimit, UnknownLimit
from interlock.remote.services import RemoteOrchestrator
from interlock.wire.access import Role
from interlock.wire.jobs import JobSpec
from interlock.wire.limits import LimitSpec


async def settled(server: Running) -> None:
    while await server.parts.runtime.limits.keep():
        pass


async def shown(client: httpx2.AsyncClient, name: str) -> dict[str, Any]:
    answer = await client.get("/api/limits/show", params={"limit": name})
    view: dict[str, Any] = answer.json()
    return view


async def test_a_limit_is_declared_held_shown_and_deleted(
    server: Running, client: httpx2.AsyncClient
) -> None:
    body = {"limit": "vendor-x", "spec": {"max": 1}, "request_id": "one"}
    answer = await client.post("/api/limits", json=body)
    assert (answer.status_code, answer.json()["spec"]) == (200, {"max": 1})
    ids = [await server.submit(limits=("vendor-x",)) for _ in range(2)]
    await settled(server)
    runner = Runner(client)
    grant = await runner.grant()
    assert grant["job_id"] == ids[0]
    (key,) = (await shown(client, "vendor-x"))["keys"]
    assert (key["used"], key["waiting"], key["holders"][0]["job_id"]) == (1, 1, ids[0])
    (listed,) = (await client.get("/api/limits")).json()["limits"]
    assert (listed["name"], listed["source"]) == ("vendor-x", "api")
    await runner.say("complete", grant["token"], **done())
    await settled(server)
    assert (await runner.grant())["job_id"] == ids[1]
    gone = await client.post("/api/limits/delete", json={"limit": "vendor-x"})
    assert gone.status_code == 200
    assert (await client.post("/api/limits/delete", json={"limit": "vendor-x"})).status_code == 404


async def test_a_client_of_a_server_has_the_same_limits(server: Running) -> None:
    remote = RemoteOrchestrator(server.url)
    await remote.connect()
    try:
        limits = remote.services.limits
        await limits.set("tenant:*", LimitSpec(max=2))
        job_id = await remote.services.jobs.submit(JobSpec(task="call", limits=("tenant:a",), weight=2))
        await settled(server)
        (key,) = (await limits.get("tenant:*")).keys
        assert (key.key, key.used, [holder.job_id for holder in key.holders]) == ("tenant:a", 2, [job_id])
        assert [view.name for view in await limits.list()] == ["tenant:*"]
        with pytest.raises(UnknownLimit):
            await remote.services.jobs.submit(JobSpec(task="call", limits=("vendor-x",)))
        with pytest.raises(InvalidLimit):
            await limits.set("vendor-x", LimitSpec(max=0))
        assert (await limits.delete("tenant:*")).name == "tenant:*"
    finally:
        await remote.disconnect()


async def test_a_limit_declared_in_code_does_not_replace_one_set_through_the_api(
    server: Running, client: httpx2.AsyncClient
) -> None:
    for source, most in (("code", 3), ("code", 4), ("api", 1), ("code", 5)):
        await client.post("/api/limits", json={"limit": "x", "spec": {"max": most}, "source": source})
    assert (await shown(client, "x"))["spec"] == {"max": 1}


async def test_only_an_operator_declares_limits(server: Running) -> None:
    for role, status in ((Role.VIEWER, 403), (Role.SUBMITTER, 403), (Role.OPERATOR, 200)):
        client = server.client(await server.token(role))
        answer = await client.post("/api/limits", json={"limit": "x", "spec": {"max": 1}})
        assert answer.status_code == status, role
