"""Bytes that are no text: refused with 400 wherever a request is read, and never a fault of the server."""

from __future__ import annotations

import pytest
from tests.server.running import Running

from interlock.server.app import every_route
from interlock.server.routes import Route

JSON = {"Content-Type": "application/json"}
READING = [route for route in every_route() if route.bodies and not route.signed]
BAD = b'{"token":"\xff","runner_id":"r","task":"a.\xff","input":"\xc3","name":"\xed\xa0\x80"}'
MESSAGES = ("ack", "heartbeat", "log", "complete", "cancel-ack", "release")


def path_of(route: Route) -> str:
    return route.path.replace("{", "x_").replace("}", "")


@pytest.mark.parametrize("route", READING, ids=lambda route: route.name)
async def test_a_body_that_is_not_utf_8_is_refused_on_every_route(server: Running, route: Route) -> None:
    answer = await server.client().request(route.method, path_of(route), content=BAD, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (400, "not_utf8"), answer.text
    assert "unexpected" not in server.log.getvalue()


@pytest.mark.parametrize("what", MESSAGES)
@pytest.mark.parametrize(
    "body",
    [
        b'{"token":"\xff","runner_id":"r"}',
        b'{"messages":[{"token":"\xff","runner_id":"r"}]}',
        b'{"type":"heartbeat","token":"\xff","runner_id":"r"}',
        b'{"token":"t","runner_id":"r","input":{"a":"\xff"}}',
    ],
)
async def test_a_message_of_a_runner_that_is_not_utf_8_is_refused(
    server: Running, what: str, body: bytes
) -> None:
    answer = await server.client().post(f"/api/runner/{what}", content=body, headers=JSON)
    assert answer.status_code == 400, answer.text
    assert '"level":"error"' not in server.log.getvalue()


@pytest.mark.parametrize("first", [b"!", b"[", b'"', b"x", b"\x00"])
@pytest.mark.parametrize("what", MESSAGES)
async def test_a_message_of_a_runner_begins_like_json(server: Running, what: str, first: bytes) -> None:
    body = first + b'"token":"t","runner_id":"r","outcome":{"outcome":"succeeded"}}'
    answer = await server.client().post(f"/api/runner/{what}", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_request"), answer.text


@pytest.mark.parametrize("value", [b'"\xff"', b'["a","\xc3\x28"]', b'{"\xff":1}', b'"\xed\xa0\x80"'])
@pytest.mark.parametrize("field", [b"input", b"labels", b"description"])
async def test_a_job_with_invalid_utf_8_in_its_input_labels_or_description_is_refused(
    server: Running, field: bytes, value: bytes
) -> None:
    client = server.client()
    body = b'{"task":"a.b","%s":%s}' % (field, value)
    answer = await client.post("/api/jobs", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (400, "not_utf8"), answer.text
    assert (await client.get("/api/jobs")).json()["jobs"] == []


@pytest.mark.parametrize("query", ["q=%ff", "q=%c3%28", "%ff=1", "cursor=%ff", "limit=%ff"])
async def test_a_query_that_is_not_utf_8_is_refused(server: Running, query: str) -> None:
    answer = await server.client().get(f"/api/jobs?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "not_utf8"), answer.text


@pytest.mark.parametrize(
    "path", ["/api/jobs/%ff", "/api/jobs/%00", "/api/jobs/%ed%a0%80/history", "/api/webhooks/generic/%ff"]
)
async def test_an_address_with_bad_bytes_is_no_fault_of_the_server(server: Running, path: str) -> None:
    method = "POST" if "webhooks" in path else "GET"
    answer = await server.client().request(method, path)
    assert answer.status_code in (400, 404, 422), answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": b"Bearer \xff\xfe"},
        {"Authorization": b"\xff"},
        {"Idempotency-Key": b"\xff\xfe"},
        {"Idempotency-Key": b"\x01"},
        {"Last-Event-ID": b"\xff"},
        {"Content-Type": b"\xff"},
        {"Content-Encoding": b"\xff"},
    ],
)
async def test_a_header_with_bad_bytes_is_no_fault_of_the_server(
    server: Running, headers: dict[str, bytes]
) -> None:
    client = server.client()
    for method, path in (("POST", "/api/jobs"), ("GET", "/api/events?after=x")):
        sent = [(name.encode(), value) for name, value in headers.items()]
        if "Content-Type" not in headers:
            sent.append((b"Content-Type", b"application/json"))
        answer = await client.request(method, path, content=b'{"task":"a.b"}', headers=sent)
        assert answer.status_code < 500, answer.text
    assert '"level":"error"' not in server.log.getvalue()
