"""Through the API: what others could not read is answered with 4xx, and lists stay readable."""

from __future__ import annotations

import json

import httpx2
import pytest
from tests.server.runners import Runner
from tests.server.running import Running

from interlock.systems.runtime import Runtime

UNREADABLE = {
    "not finite": b"1e999",
    "5,000 digits": b"9" * 5_000,
    "not UTF-8": b'"\xff"',
    "too deep": b"[" * 65 + b"]" * 65,
    "far too deep": b"[" * 100_000 + b"]" * 100_000,
    "half a character": b'"\\ud800"',
}


@pytest.fixture(params=UNREADABLE.values(), ids=list(UNREADABLE))
def raw(request: pytest.FixtureRequest) -> bytes:
    value: bytes = request.param
    return value


async def posted(client: httpx2.AsyncClient, path: str, body: bytes) -> httpx2.Response:
    return await client.post(path, content=body, headers={"content-type": "application/json"})


async def test_an_unreadable_input_is_refused_and_the_list_stays_readable(
    client: httpx2.AsyncClient, raw: bytes
) -> None:
    bodies = {
        "/api/jobs": (
            b'{"task":"shop.send","input":{"a":%s}}' % raw,
            b'{"jobs":[{"task":"shop.send"},{"task":"shop.send","input":%s}]}' % raw,
        ),
        "/api/simulations": (b'{"task":"flu","total_steps":1,"input":%s}' % raw,),
        "/api/runs": (b'{"plan":{"jobs":[{"name":"a","task":"shop.send","input":%s}]}}' % raw,),
    }
    for path, tried in bodies.items():
        for body in tried:
            answer = await posted(client, path, body)
            assert answer.status_code == (422 if raw.isascii() else 400), answer.text
            assert answer.json()["code"]
        listed = await client.get(path)
        assert listed.status_code == 200
        json.loads(listed.content)
    assert (await client.get("/api/jobs")).json()["jobs"] == []


async def test_an_unreadable_result_is_refused_and_the_attempt_can_report_a_failure(
    server: Running, client: httpx2.AsyncClient, raw: bytes
) -> None:
    job_id = await server.submit()
    runner = Runner(client)
    token = (await runner.grant())["token"]
    prefix = b'{"token":"%s","runner_id":"%s","sequence":2,' % (token.encode(), runner.name.encode())
    for path, rest in (
        ("complete", b'"outcome":{"outcome":"succeeded","result":%s}}' % raw),
        ("heartbeat", b'"checkpoint":%s}' % raw),
    ):
        answer = await posted(client, f"/api/runner/{path}", prefix + rest)
        assert 400 <= answer.status_code < 500, answer.text
    runtime: Runtime = server.parts.runtime
    assert (await runtime.jobs.get(job_id)).state == "RUNNING"
    ended = await runner.say("complete", token, 3, outcome={"outcome": "failed", "error": "no result"})
    assert ended.status_code == 200, ended.text
