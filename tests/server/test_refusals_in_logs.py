"""What refusals leave in the log: the first few, and then how many more there were."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

from tests.server.dripping import by_hand
from tests.server.running import Running, any_port, running

from interlock.api.server import Alive
from interlock.server import logs
from interlock.server.logs import ServerLog, libraries_logging
from interlock.server.routes import Call, Route
from interlock.server.settings import Rate
from interlock.wire.access import Role

MANY = 60


def lines(stream: io.StringIO, **wanted: Any) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in entries if wanted.items() <= line.items()]


async def counted(server: Running, status: int) -> float:
    page = (await server.client(await server.token(Role.VIEWER, f"v{status}")).get("/metrics")).text
    samples = [line for line in page.splitlines() if f'status="{status}"' in line and "_total{" in line]
    return sum(float(line.rpartition(" ")[2]) for line in samples)


async def test_refusals_do_not_fill_the_log_and_are_counted_all_the_same() -> None:
    settings = any_port(tokens_required=True, stranger_rate=Rate(1e-6, 30))
    async with running(settings=settings) as server:
        client = server.client("il_nonsense")
        for _ in range(MANY):
            await client.get("/api/jobs")
        assert len(lines(server.log, status=401)) == len(lines(server.log, status=429)) == logs.FIRST
        assert (await counted(server, 401), await counted(server, 429)) == (30, 30)
    notices = [line for line in lines(server.log, address="127.0.0.1") if "more like this" in line["message"]]
    assert {(line["message"], line["code"]) for line in notices} == {
        ("20 more like this in the last 60 s", "not_signed_in"),
        ("20 more like this in the last 60 s", "too_many_requests"),
    }


async def test_only_the_first_malformed_http_requests_are_logged_but_all_are_counted(server: Running) -> None:
    for _ in range(MANY):
        async with by_hand(server.address) as client:
            client.say(b"\x16\x03\x01\r\n\r\n")
            await client.all()
    assert len(lines(server.log, level="warning")) == logs.FIRST
    assert await counted(server, 400) == MANY


async def test_faults_of_the_server_do_not_fill_the_log() -> None:
    async def fail(_: Call) -> Alive:
        raise LookupError("a fault")

    broken = Route(
        request="GET /api/x", name="x", summary="Fail.", handler=fail, role=Role.VIEWER, output=Alive
    )
    async with running(more=[broken]) as server:
        for _ in range(MANY):
            assert (await server.client().get("/api/x")).status_code == 500
        faults = lines(server.log, message="unexpected")
        assert len(faults) == logs.FIRST
        assert "a fault" in faults[0]["trace"]


async def test_every_successful_request_is_logged(server: Running) -> None:
    for _ in range(MANY):
        await server.client().post("/api/jobs", json={"task": "a.b"})
    assert len(lines(server.log, status=201)) == MANY


def test_after_a_minute_the_first_are_written_again() -> None:
    now = 0.0
    stream = io.StringIO()
    log = ServerLog("info", "json", stream, monotonic=lambda: now)
    for _ in range(logs.FIRST + 3):
        log.seldom("request", {"code": "a"}, code="a")
    log.seldom("request", {"code": "b"}, code="b")
    assert (len(lines(stream, code="a")), len(lines(stream, code="b"))) == (logs.FIRST, 1)
    now = logs.WITHIN_S
    log.seldom("request", {"code": "a"}, code="a")
    assert lines(stream, message="3 more like this in the last 60 s", code="a")
    assert len(lines(stream, code="a", message="request")) == logs.FIRST + 1


def test_however_different_refusals_are_the_log_stays_bounded() -> None:
    stream = io.StringIO()
    log = ServerLog("info", "json", stream)
    for number in range(logs.MAX_ALIKE * 10):
        log.seldom("request", {"address": f"10.0.0.{number}"}, number=number)
    assert len(lines(stream)) == logs.MAX_ALIKE + logs.FIRST
    log.summarise(ending=True)
    assert len(lines(stream, alike="others")) == 1


def test_repeated_log_messages_of_libraries_are_limited_to_the_first_few() -> None:
    stream = io.StringIO()
    with libraries_logging(ServerLog("info", "json", stream)):
        for number in range(MANY):
            logging.getLogger("some.library").warning("no luck with %s", number)
    assert len(lines(stream)) == logs.FIRST
