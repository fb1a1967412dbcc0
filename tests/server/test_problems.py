"""Every error is problem+json, with the same words as everywhere, and never with a trace."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from tests.server.running import Running, any_port, running

from interlock.errors import StoreUnavailable
from interlock.server.problems import every_error
from interlock.server.routes import Call, Route
from interlock.store.contract import Store

FIELDS = {"type", "title", "status", "code", "error", "facts", "allowed", "todo", "request"}


def problem(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """The problem, which has to be one."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    body: dict[str, Any] = answer.json()
    assert set(body) == FIELDS
    assert (answer.status_code, body["status"], body["code"]) == (status, status, code), body
    assert body["type"] == f"/docs#{code}"
    assert body["request"] == answer.headers["x-request-id"]
    return body


async def test_an_address_that_does_not_exist(client: httpx2.AsyncClient) -> None:
    for path in ("/nowhere", "/api", "/api/jobs/", "/api/jobs/a/b/c"):
        problem(await client.get(path), 404, "unknown_page")


async def test_a_job_that_does_not_exist(client: httpx2.AsyncClient) -> None:
    for name in ("j_000000000000", "j%00", "x" * 300, "%F0%9F%92%A5", "a b"):
        details = problem(await client.get(f"/api/jobs/{name}"), 404, "unknown_job")
        assert details["todo"]
    problem(await client.get("/api/attempts/j_000000000000.1.1"), 404, "unknown_attempt")
    problem(await client.get("/api/machines/jab"), 404, "unknown_machine")


async def test_a_405_response_lists_the_allowed_methods(client: httpx2.AsyncClient) -> None:
    answer = await client.delete("/api/jobs")
    details = problem(answer, 405, "method_not_allowed")
    assert details["allowed"] == ["GET", "HEAD", "POST"]
    assert answer.headers["allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize(
    ("body", "facts", "words"),
    [
        (b'{"task": "a",\n "queue": }', {"byte": 24, "line": 2, "column": 11}, "line 2, column 11"),
        (b'{"task": "a"', {"byte": 12, "line": 1, "column": 13}, "truncated"),
        (b"", {"byte": 0, "line": 1, "column": 1}, "truncated"),
        (b'{"task": 17}', {"where": "body", "path": "$.task"}, "expected str, got int"),
        (b'{"task": "a", "que": "b"}', {"where": "body", "path": "$"}, "unknown field que"),
        (b'{"jobs": []}', {"where": "body", "path": "$.jobs"}, "length >= 1"),
        (b'{"jobs": [{"task": "a"}, {"task": 1}]}', {"where": "body", "path": "$.jobs[1].task"}, "got int"),
        (b"[]", {"where": "body", "path": "$"}, "expected object"),
    ],
)
async def test_an_invalid_body_is_refused_with_the_position_or_path_of_the_error(
    client: httpx2.AsyncClient, body: bytes, facts: dict[str, Any], words: str
) -> None:
    answer = await client.post("/api/jobs", content=body, headers={"Content-Type": "application/json"})
    details = problem(answer, 422, "bad_request")
    assert words in details["error"]
    assert details["facts"] == facts


@pytest.mark.parametrize("body", [b"\xff\xfe", b'{"task": "\xff"}'])
async def test_invalid_utf_8_is_refused_with_its_own_code_and_position(
    client: httpx2.AsyncClient, body: bytes
) -> None:
    answer = await client.post("/api/jobs", content=body, headers={"Content-Type": "application/json"})
    details = problem(answer, 400, "not_utf8")
    assert "not UTF-8" in details["error"]
    assert details["facts"] == {"where": "body", "byte": body.index(b"\xff")}
    assert problem(await client.get("/api/jobs?q=%FF"), 400, "not_utf8")["facts"]["where"] == "query"


async def test_a_body_with_another_content_type_or_content_encoding_returns_415(
    client: httpx2.AsyncClient,
) -> None:
    for headers in ({"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}):
        answer = await client.post("/api/jobs", content=b'{"task":"a"}', headers=headers)
        problem(answer, 415, "unsupported_media")
    zipped = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    problem(await client.post("/api/jobs", content=b"x", headers=zipped), 415, "unsupported_media")


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=many", "limit=1&limit=2", "colour=red", "cursor=" + "x" * 300],
)
async def test_a_query_that_makes_no_sense(client: httpx2.AsyncClient, query: str) -> None:
    problem(await client.get(f"/api/jobs?{query}"), 422, "bad_request")


async def test_a_filter_and_a_cursor_that_make_no_sense(client: httpx2.AsyncClient) -> None:
    details = problem(await client.get("/api/jobs", params={"q": "state:faild"}), 422, "bad_filter")
    assert details["facts"]["position"] == 1
    problem(await client.get("/api/jobs", params={"cursor": "nonsense"}), 422, "invalid_record")
    problem(await client.get("/api/journal", params={"after": "nonsense"}), 422, "invalid_record")
    problem(await client.get("/api/journal", params={"kind": "jab"}), 422, "unknown_kind")
    problem(await client.get("/api/journal", params={"id": "j_000000000000"}), 422, "bad_request")
    problem(await client.get("/api/machines/job.svg", params={"state": "asleep"}), 422, "unknown_state")


async def test_a_refused_transition_returns_409_with_the_state_the_event_and_the_allowed_events(
    server: Running, client: httpx2.AsyncClient
) -> None:
    job_id = await server.submit()
    details = problem(await client.post(f"/api/jobs/{job_id}/retry"), 409, "transition_not_allowed")
    assert (details["facts"]["state"], details["allowed"]) == ("PENDING", ["cancel"])
    await server.work(job_id)
    details = problem(await client.post(f"/api/jobs/{job_id}/cancel"), 409, "terminal_state")
    assert (details["facts"]["state"], details["facts"]["asked"]) == ("COMPLETED", "cancel")


async def test_an_invalid_job_is_refused_with_all_of_its_faults(client: httpx2.AsyncClient) -> None:
    wrong = {"task": "a.b", "worker_count": 11, "delay_s": -1}
    details = problem(await client.post("/api/jobs", json=wrong), 422, "invalid_job")
    assert len(details["facts"]["faults"]) == 2
    parent = {"task": "a.b", "parent_job_id": "j_000000000000"}
    problem(await client.post("/api/jobs", json=parent), 404, "unknown_job")
    queue = {"task": "a.b", "queue": "q" * 100}
    problem(await client.post("/api/jobs", json=queue), 422, "invalid_job")


async def _stumble(_: Call) -> None:
    raise ZeroDivisionError("the secret of the house")


STUMBLE = Route(request="GET /api/stumble", name="stumble", summary="Fall.", handler=_stumble, role=None)


async def test_a_fault_of_the_server_shows_no_trace_and_is_in_the_log() -> None:
    async with running(more=[STUMBLE]) as one:
        answer = await one.client().get("/api/stumble")
        details = problem(answer, 500, "unexpected")
        assert "secret" not in answer.text
        assert "Traceback" not in answer.text
        logged = one.log.getvalue()
        assert "ZeroDivisionError: the secret of the house" in logged
        assert details["request"] in logged


async def test_a_store_that_is_away_is_503_and_the_server_is_not_ready(
    server: Running, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("The database does not answer.", todo="Wait.")

    store: Store = server.parts.store
    monkeypatch.setattr(store, "load", away)
    monkeypatch.setattr(store, "now", away)
    answer = await client.get("/api/jobs/j_000000000000")
    problem(answer, 503, "store_unavailable")
    assert answer.headers["retry-after"] == "1"
    problem(await client.get("/readyz"), 503, "not_ready")


async def test_an_answer_that_takes_too_long_is_given_up_on() -> None:
    import asyncio

    cancelled = asyncio.Event()

    async def never(_: Call) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    slow = Route(request="GET /api/slow", name="slow", summary="Wait.", handler=never, role=None)
    async with running(settings=any_port(request_s=0.05), more=[slow]) as one:
        problem(await one.client().get("/api/slow"), 504, "took_too_long")
        assert cancelled.is_set()


async def test_every_code_is_explained_on_the_page_that_problems_lead_to(client: httpx2.AsyncClient) -> None:
    page = (await client.get("/docs")).text
    for kind in every_error():
        assert f'id="{kind.code}"' in page
