"""CORS: pages of the origins that were named may use the API with a token, and no others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from tests.server.running import Running, any_port, running
from tests.server.test_direct_answers import ACK, LEASE, UNKNOWN, asked, request

from interlock.errors import InvalidSettings
from interlock.server import middleware
from interlock.server.app import every_route
from interlock.server.cross_origin import METHODS, SENT
from interlock.server.middleware import Gate
from interlock.server.settings import ServerSettings
from interlock.wire.access import Role

OURS, FOREIGN = "https://tools.example", "https://evil.example"
ASKED = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
SENT_BY_BROWSERS = {
    "content-encoding",
    "content-length",
    "cookie",
    "host",
    "origin",
    "sec-fetch-site",
    "transfer-encoding",
}
SENT_BY_HOOKS = {
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
    "x-github-event",
    "x-hub-signature-256",
}


@pytest.fixture
async def named() -> AsyncIterator[Running]:
    """A server that needs a token and names one origin."""
    async with running(settings=any_port(tokens_required=True, allowed_origins=(OURS,))) as one:
        yield one


def cors(answer: httpx2.Response) -> dict[str, str]:
    """The headers that let a page of another origin read an answer."""
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


async def preflight(server: Running, origin: str, path: str = "/api/jobs") -> httpx2.Response:
    return await server.client().request("OPTIONS", path, headers={"Origin": origin, **ASKED})


@pytest.mark.parametrize("path", ["/api/jobs", "/api/jobs/j_000000000000", LEASE, "/api/none"])
async def test_a_preflight_of_a_named_origin_is_answered_without_a_token(named: Running, path: str) -> None:
    answer = await preflight(named, OURS, path)
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == OURS
    assert answer.headers["access-control-allow-methods"] == ", ".join(METHODS)
    assert {"Authorization", "Content-Type", "Idempotency-Key"} <= {
        *answer.headers["access-control-allow-headers"].split(", ")
    }
    assert "access-control-allow-credentials" not in answer.headers
    assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize("origin", [FOREIGN, "null", f"{OURS}.evil.example", f"{OURS}:444", OURS.upper()])
async def test_other_origins_get_no_cors_headers_and_change_nothing(named: Running, origin: str) -> None:
    client = named.client(await named.token(Role.ADMIN))
    first, read = await preflight(named, origin), await client.get("/api/jobs", headers={"Origin": origin})
    changed = await client.post("/api/jobs", json={"task": "a.b"}, headers={"Origin": origin})
    assert [answer.status_code for answer in (first, read, changed)] == [401, 200, 403]
    for answer in (first, read, changed):
        assert cors(answer) == {}
        assert answer.headers["vary"] == "Origin"


async def test_a_page_of_a_named_origin_reads_answers_errors_and_streams(named: Running) -> None:
    client, stranger = named.client(await named.token(Role.ADMIN)), named.client()
    client.headers["Origin"] = stranger.headers["Origin"] = OURS
    answers = [
        await client.get("/api/jobs"),
        await client.post("/api/jobs", json={"task": "a.b"}),
        await client.get("/api/jobs/j_000000000000"),
        await client.post("/api/jobs", json={"task": 1}),
        await client.get("/api/none"),
        await client.request("DELETE", "/api/jobs"),
        await client.get("/api/jobs", headers={"Host": "evil.example"}),
        await stranger.get("/api/jobs"),
        await stranger.get("/healthz"),
    ]
    assert [each.status_code for each in answers] == [200, 201, 404, 422, 404, 405, 421, 401, 200]
    async with client.stream("GET", "/api/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        answers.append(stream)
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == OURS, answer.url
        assert "X-Request-ID" in answer.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in answer.headers
        assert "Origin" in answer.headers["vary"]


async def test_an_answer_without_a_task_has_the_headers_of_one_with_a_task(
    named: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = f"Authorization: Bearer {await named.token(Role.RUNNER)}"
    asks = [
        request(LEASE, {"runner_id": "r"}, f"Origin: {OURS}", token),
        request(ACK, {"token": UNKNOWN, "runner_id": "r"}, f"Origin: {OURS}", token),
        request(LEASE, {"runner_id": "r"}, token),
    ]
    await asked(named, asks[0])  # now the token is known
    begun: list[bool] = []
    begin = Gate.begin

    def noted(gate: Gate, cycle: Any) -> bool:
        begun.append(begin(gate, cycle))
        return begun[-1]

    monkeypatch.setattr(Gate, "begin", noted)
    directly = [(await asked(named, each))[1] for each in asks]
    assert begun == [True, True, True]
    monkeypatch.setattr(Gate, "begin", lambda *_: False)
    in_tasks = [(await asked(named, each))[1] for each in asks]
    origins = [headers.get("access-control-allow-origin") for headers in directly]
    assert origins == [OURS, OURS, None]
    for ours, theirs in zip(directly, in_tasks, strict=True):
        names = {name for name in theirs if name.startswith(("access-control-", "vary"))}
        assert {name: ours.get(name) for name in names} == {name: theirs[name] for name in names}
        assert ours["vary"] == "Origin"


async def test_a_page_of_a_named_origin_is_not_let_in_by_a_cookie(named: Running) -> None:
    token = await named.token(Role.ADMIN)
    signed_in = await named.client().post("/api/sessions", json={"token": token})
    assert signed_in.status_code == 200, signed_in.text
    cookie = signed_in.headers["set-cookie"].partition(";")[0]
    headers = {"Origin": OURS, "Sec-Fetch-Site": "cross-site", "Cookie": cookie}
    changed = await named.client().post("/api/jobs", json={"task": "a.b"}, headers=headers)
    assert (changed.status_code, changed.json()["code"]) == (403, "foreign_origin")
    read = await named.client().get("/api/jobs", headers=headers)
    assert "access-control-allow-credentials" not in read.headers  # the browser keeps it from the page


async def test_a_server_that_names_no_origin_sends_no_header_of_cors(server: Running) -> None:
    for answer in (
        await preflight(server, OURS),
        await server.client().get("/api/jobs", headers={"Origin": OURS}),
    ):
        assert cors(answer) == {}
        assert "vary" not in answer.headers
    assert (await preflight(server, OURS)).status_code == 405


async def test_an_options_request_without_a_method_to_ask_for_is_no_preflight(named: Running) -> None:
    answer = await named.client().request("OPTIONS", "/api/jobs", headers={"Origin": OURS})
    assert answer.status_code == 401


def test_every_method_and_every_header_that_the_api_reads_is_allowed() -> None:
    routes = every_route()
    assert {route.method for route in routes} | {"HEAD"} == set(METHODS)
    allowed = {name.lower() for name in SENT}
    assert {name.lower() for route in routes for name in route.headers} <= allowed
    assert allowed == middleware._ONCE - SENT_BY_BROWSERS - SENT_BY_HOOKS


@pytest.mark.parametrize(
    "wrong",
    ["*", "null", "", "tools.example", f"{OURS}/", f"{OURS}/a", f"{OURS}:443", "http://a:80", OURS.upper()],
)
def test_an_origin_that_no_browser_would_send_is_refused_at_the_start(wrong: str) -> None:
    with pytest.raises(InvalidSettings, match="is no origin as browsers send it"):
        ServerSettings(allowed_origins=(wrong,))


@pytest.mark.parametrize(
    "right", [OURS, "http://localhost:5173", "http://[::1]:8080", "chrome-extension://abcdef", "http://a:443"]
)
def test_an_origin_as_browsers_send_it_is_accepted(right: str) -> None:
    assert ServerSettings(allowed_origins=(right,)).allowed_origins == (right,)
