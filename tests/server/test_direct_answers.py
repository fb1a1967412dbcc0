"""Claims and messages that are answered without a task: the same answers, refusals, log lines and numbers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from tests.server.dripping import ByHand, by_hand
from tests.server.runners import done
from tests.server.running import FOR_EVER_S, Running, any_port, running
from tests.waiting import until

from interlock.errors import StoreUnavailable
from interlock.server import connections
from interlock.server.connections import BoundedConnection
from interlock.server.cycle import Cycle
from interlock.server.middleware import Gate
from interlock.server.settings import Rate
from interlock.systems.orchestrator.orchestrator import Orchestrator
from interlock.wire.access import Role
from interlock.wire.runner import Answer, Message

LEASE, ACK, COMPLETE, MESSAGES = (f"/api/runner/{name}" for name in ("lease", "ack", "complete", "messages"))
UNKNOWN = "j_000000000000.1.1." + "0" * 32


def request(
    path: str, body: Any, *lines: str, method: str = "POST", media: str = "application/json"
) -> bytes:
    """A request in one piece."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = (f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Type: {media}", *lines)
    return "\r\n".join((*lines, f"Content-Length: {len(content)}", "", "")).encode() + content


async def read(client: ByHand) -> tuple[int, dict[str, str], bytes]:
    """The next answer on a connection."""
    await until(lambda: b"\r\n\r\n" in client.heard, "there is an answer")
    head, _, rest = client.heard.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    length = int(headers["content-length"])
    await until(lambda: len(client.heard) >= len(head) + 4 + length, "all of it has arrived")
    client.heard = client.heard[len(head) + 4 + length :]
    return int(status.split()[1]), headers, rest[:length] if len(rest) >= length else rest


async def asked(server: Running, *parts: bytes) -> tuple[int, dict[str, str], bytes]:
    """The answer to a request on a connection of its own."""
    async with by_hand(server.address) as client:
        client.say(*parts)
        return await read(client)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether each whole request was begun without a task."""
    found: list[bool] = []
    begin = Gate.begin

    def noted(gate: Gate, cycle: Cycle) -> bool:
        found.append(begin(gate, cycle))
        return found[-1]

    monkeypatch.setattr(Gate, "begin", noted)
    return found


_VOLATILE = (
    (re.compile(r"[a-z]_[0-9a-z]{12}"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\b[0-9a-f]{16,64}\b"), "HEX"),
    (re.compile(r"Wait for \d+ s"), "Wait for long"),
    (re.compile(r"localhost:\d+|127\.0\.0\.1:\d+"), "ADDRESS"),
)


def masked(text: str) -> str:
    for pattern, name in _VOLATILE:
        text = pattern.sub(name, text)
    return text


SETTINGS = any_port(
    runner_rate=Rate(0.001, 100), max_body_bytes=4_000, allowed_origins=("https://ours.example",)
)


def said(token: str, **more: Any) -> dict[str, Any]:
    """A message of a runner."""
    return {"token": token, "runner_id": "r", **more}


class Story:
    """All that a server answers to a list of requests."""

    def __init__(self, server: Running, token: str) -> None:
        self.server = server
        self.token = token
        self.answers: list[tuple[Any, ...]] = []

    async def ask(self, path: str, body: Any, *lines: str, token: str | None = None, **how: Any) -> Any:
        """Send a request in one piece, and keep what does not differ each time of its answer."""
        token = self.token if token is None else token
        sent = (*lines, *((f"Authorization: Bearer {token}",) if token else ()))
        status, headers, content = await asked(self.server, request(path, body, *sent, **how))
        request_id = headers.pop("x-request-id")
        assert (
            request_id in self.server.log.getvalue()
            if status < 400
            else re.fullmatch("[0-9a-f]{16}", request_id)
        )
        for name in {"date", "content-length", "retry-after"} & headers.keys():
            headers[name] = ""  # they may differ
        self.answers.append((path, status, headers, masked(content.decode())))
        return json.loads(content)

    async def work(self) -> None:
        """A runner does two jobs, and says everything that it can say, some of it too late or twice."""
        claim = {"runner_id": "r", "limit": 2, "acknowledge": False}
        first, second = (await self.ask(LEASE, claim))["grants"]
        for _ in range(2):
            await self.ask(ACK, said(first["token"], sequence=1))
        await self.ask("/api/runner/heartbeat", said(first["token"], sequence=2, progress={"fraction": 0.5}))
        for result in (1, 1, 2):
            await self.ask(COMPLETE, said(first["token"], sequence=3, **done(result)))
        await self.ask(ACK, {**said(second["token"]), "runner_id": "another"})
        await self.ask(COMPLETE, {"messages": [said(second["token"], **done()), said(UNKNOWN, **done())]})
        both = [said(second["token"], type="ack"), said(UNKNOWN, type="ack")]
        await self.ask(MESSAGES, {"messages": both})
        await self.ask(MESSAGES, {"messages": both * 251})
        await self.ask(ACK, said(UNKNOWN), token=first["token"])

    async def claim(self) -> None:
        """It claims in all ways, good and bad."""
        terms: tuple[dict[str, Any], ...] = (
            {"wait_s": 0.01, "queues": ["none"]},
            {"claim_id": "c" * 32},
            {"tell_under_way": True},
            {"worker_id": "w_000000000000"},
            {"queues": ["none"]},
            {"limit": 0},
            {"limit": 501},
            {"queues": []},
            {"labels": ["x" * 201]},
            {"runner_id": "r" * 201},
        )
        for each in terms:
            await self.ask(LEASE, {"runner_id": "r", **each})

    async def be_refused(self, tokens: Sequence[str]) -> None:
        """It has no right to, or its requests are not as they should be."""
        for token in tokens:
            await self.ask(LEASE, {"runner_id": "r"}, token=token)
            await self.ask(LEASE, {"runner_id": "r", "queues": ["mail"]}, token=token)
            await self.ask(ACK, said(UNKNOWN), token=token)
        bodies = (b"", b"{", b"[]", b'{"runner_id":1}', b'{"runner_id":"\xff"}', b"[" * 200 + b"]" * 200)
        for body in bodies:
            await self.ask(LEASE, body)
            await self.ask(ACK, body)
        await self.ask(ACK, said("x" * 5_000))
        await self.ask(ACK, said(UNKNOWN), media="text/plain")
        for line in (
            "Content-Encoding: gzip",
            "Origin: https://evil.example",
            "Origin: https://ours.example",
            "Host: localhost",
            f"X: {'x' * 17_000}",
            "Connection: close",
        ):
            await self.ask(ACK, said(UNKNOWN), line)
        await self.ask(ACK, said(UNKNOWN), method="PUT")
        await self.ask(f"{ACK}?x=1", said(UNKNOWN))
        await self.ask("/api/runner/nothing", said(UNKNOWN))

    def counted(self) -> list[object]:
        """What the server has counted."""
        metrics = self.server.parts.metrics
        refused = [
            (*sample.labels.values(), sample.value)
            for family in metrics._refused.collect()
            for sample in family.samples
            if sample.name.endswith("_total")
        ]
        return [dict(metrics._requests.times), sorted(refused)]

    def logged(self) -> list[object]:
        """What it has logged."""
        shown = ("level", "method", "path", "status", "actor", "code")
        lines = [json.loads(line) for line in self.server.log.getvalue().splitlines()]
        return [[line.get(name) for name in shown] for line in lines if line["message"] == "request"]


def is_idle(server: Running) -> bool:
    """Return whether no request has a place, a deadline or a connection of its own."""
    app: Any = server.listener.config.loaded_app
    endpoints = [endpoint for endpoint, _ in app._direct.values()]
    crowds = [way.crowd for _, way in app._direct.values()]
    connections = server.parts.connections
    return (
        not any(crowd._inside or crowd._by_name for crowd in crowds)
        and not any(endpoint.limits.answers._running for endpoint in endpoints)
        and not server.listener.server_state.tasks
        and len(connections._idle) == len(connections)
    )


async def story(begin: Callable[[], None]) -> tuple[list[object], ...]:
    """Return what a server answers to a list of requests, counts and logs."""
    async with running(settings=SETTINGS) as server:
        runner, viewer = await server.token(Role.RUNNER), await server.token(Role.VIEWER)
        confined = await server.token(Role.RUNNER, "confined", queues=("mail",))
        for _ in range(4):
            await server.submit()
        begin()
        told = Story(server, runner)
        await told.work()
        await told.claim()
        await told.be_refused((viewer, confined, "", "il_nonsense", f"il_{'0' * 16}_{'0' * 64}"))
        while told.answers[-1][1] != 429:
            await told.ask(ACK, said(UNKNOWN))
        await until(lambda: is_idle(server), "all places are free")
        return [*told.answers], told.counted(), told.logged()


async def test_the_answers_the_log_and_the_metrics_are_those_of_requests_in_tasks(
    begun: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    directly = await story(begun.clear)
    assert begun.count(True) > 60, "most of them were answered without a task"
    assert begun.count(False) > 20, "the others were not"
    monkeypatch.setattr(Gate, "begin", lambda *_: False)
    in_tasks = await story(begun.clear)
    for ours, theirs in zip(directly, in_tasks, strict=True):
        assert ours == theirs
    statuses = {answer[1] for answer in directly[0] if isinstance(answer, tuple)}
    assert statuses >= {200, 400, 401, 403, 404, 405, 409, 413, 415, 422, 429}, statuses


def expects_a_body(server: Running) -> bool:
    return any(
        isinstance(each, BoundedConnection) and each._body_timer is not None
        for each in server.listener.server_state.connections
    )


async def test_a_request_whose_body_follows_its_head_needs_no_task(
    server: Running, begun: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BODY_FOLLOWS_S", FOR_EVER_S)
    head, _, body = request(LEASE, {"runner_id": "r"}).partition(b"\r\n\r\n")
    async with by_hand(server.address) as client:
        for _ in range(2):
            client.say(head, b"\r\n\r\n")
            await until(lambda: expects_a_body(server), "the head is there")
            client.say(body[:3])
            client.say(body[3:])
            assert (await read(client))[0] == 200
            assert not expects_a_body(server)
    assert begun == [True, True]


async def test_a_client_that_goes_before_the_body_of_its_request_leaves_nothing(
    server: Running, begun: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BODY_FOLLOWS_S", FOR_EVER_S)
    async with by_hand(server.address) as client:
        client.say(request(LEASE, {"runner_id": "r"})[:-5])
        await until(lambda: expects_a_body(server), "the head is there")
    await until(lambda: not server.listener.server_state.connections, "the connection is gone")
    assert begun == []
    assert not server.listener.server_state.tasks
    assert "failed" not in server.log.getvalue()


async def test_a_large_body_is_read_in_a_task_at_once(
    server: Running, begun: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BODY_FOLLOWS_S", FOR_EVER_S)
    whole = request(LEASE, {"runner_id": "r" * 200_000})
    async with by_hand(server.address) as client:
        client.say(whole[:-5])
        await until(lambda: bool(server.listener.server_state.tasks), "a task waits for the rest")
        client.say(whole[-5:])
        assert (await read(client))[0] == 422
    assert begun == []


async def test_a_request_that_arrives_slowly_is_answered_in_a_task(
    server: Running, begun: list[bool]
) -> None:
    whole = request(LEASE, {"runner_id": "r"})
    async with by_hand(server.address) as client:
        client.say(whole[:-5])
        await until(lambda: bool(server.listener.server_state.tasks), "a task waits for the rest")
        client.say(whole[-5:])
        assert (await read(client))[0] == 200
        assert begun == []
        client.say(whole)
        assert (await read(client))[0] == 200
        assert begun == [True]


async def test_requests_in_one_piece_are_answered_in_their_order(server: Running, begun: list[bool]) -> None:
    for _ in range(3):
        await server.submit()
    lease, health = request(LEASE, {"runner_id": "r"}), request("/healthz", b"", method="GET")
    async with by_hand(server.address) as client:
        client.say(lease, health, lease, request(ACK, {"token": UNKNOWN, "runner_id": "r"}), lease)
        kinds = [json.loads((await read(client))[2]) for _ in range(5)]
    assert [next(iter(kind)) for kind in kinds] == ["grants", "status", "grants", "type", "grants"]
    assert len({grant["job_id"] for kind in kinds if "grants" in kind for grant in kind["grants"]}) == 3


class Held:
    """Reports that are under way until they are let go, of servers that start after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.arrived = asyncio.Event()
        self.go = asyncio.Event()
        self.error: Exception | None = None
        report = Orchestrator.report

        async def held(orchestrator: Orchestrator, messages: Sequence[Message]) -> list[Answer]:
            self.arrived.set()
            await self.go.wait()
            if self.error is not None:
                raise self.error
            return await report(orchestrator, messages)

        monkeypatch.setattr(Orchestrator, "report", held)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


@pytest.fixture
async def client(server: Running) -> AsyncIterator[ByHand]:
    async with by_hand(server.address) as one:
        yield one


STALE = request(ACK, {"token": UNKNOWN, "runner_id": "r"})


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StoreUnavailable("It is away.", todo="Wait."), 503, "store_unavailable"),
        (RuntimeError("a fault"), 500, "unexpected"),
    ],
)
async def test_an_error_of_all_messages_answers_each_and_releases_its_place(
    held: Held, server: Running, client: ByHand, error: Exception, status: int, code: str
) -> None:
    held.error = error
    async with by_hand(server.address) as other:
        for one in (client, other):
            one.say(STALE)
        await held.arrived.wait()
        assert not is_idle(server)
        held.go.set()
        for one in (client, other):
            answer = await read(one)
            assert (answer[0], json.loads(answer[2])["code"]) == (status, code)
        await until(lambda: is_idle(server), "all places are free")
    traces = [line for line in server.log.getvalue().splitlines() if '"trace"' in line]
    assert len(traces) == (2 if status == 500 else 0)


async def test_an_answer_that_takes_too_long_is_given_up_and_its_message_counts(
    held: Held,
) -> None:
    async with running(settings=any_port(request_s=0.05)) as server, by_hand(server.address) as client:
        client.say(STALE)
        answer = await read(client)
        assert (answer[0], json.loads(answer[2])["code"]) == (504, "took_too_long")
        await until(lambda: is_idle(server), "its place is free")
        held.go.set()
        client.say(request("/healthz", b"", method="GET"))
        assert (await read(client))[0] == 200, "the late answer was not sent"


async def test_a_server_that_ends_gives_up_what_is_not_answered(
    held: Held, server: Running, client: ByHand
) -> None:
    async with by_hand(server.address) as other:
        for one in (client, other):
            one.say(STALE)
        state = server.listener.server_state
        await until(lambda: len(state.tasks) == 2, "both requests have arrived")
        server.parts.stopping.set()
        for answer in state.tasks:  # as uvicorn does
            answer.cancel(msg="Task cancelled, timeout graceful shutdown exceeded")
        for one in (client, other):
            reply = await read(one)
            assert (reply[0], json.loads(reply[2])["code"]) == (503, "not_ready")
        await until(lambda: is_idle(server), "all places are free")
        held.go.set()


async def test_a_fault_in_one_answer_does_not_keep_others_from_theirs(
    held: Held, server: Running, client: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = server.parts.metrics.answered
    faults = iter([RuntimeError("a fault")])

    def failing(*facts: Any) -> None:
        if "/api/runner" in facts[1] and (fault := next(faults, None)) is not None:
            raise fault
        counted(*facts)

    monkeypatch.setattr(server.parts.metrics, "answered", failing)
    heartbeat = request("/api/runner/messages", {"messages": [said(UNKNOWN, type="ack")]})
    async with by_hand(server.address) as second, by_hand(server.address) as third:
        client.say(heartbeat)
        await held.arrived.wait()
        for one in (second, third):
            one.say(heartbeat)
        await until(lambda: len(server.listener.server_state.tasks) == 3, "all have arrived")
        held.go.set()
        for one in (client, second, third):
            assert (await read(one))[0] == 200
        await until(lambda: is_idle(server), "all places are free")
    assert "The application failed." in server.log.getvalue()


async def test_a_message_counts_though_its_client_has_gone(
    held: Held, server: Running, client: ByHand
) -> None:
    job_id = await server.submit()
    grant = await server.hold(job_id, "default")
    client.say(request(COMPLETE, {"token": grant.token, "runner_id": "r", **done()}))
    await held.arrived.wait()
    client.transport.abort()
    await until(lambda: len(server.parts.connections) == 0, "the server knows that it has gone")
    held.go.set()
    await until(lambda: is_idle(server), "its place is free")
    assert (await server.parts.runtime.jobs.get(job_id)).state == "COMPLETED"


async def test_a_request_is_counted_once_against_the_rate_of_its_token(begun: list[bool]) -> None:
    async with running(settings=any_port(runner_rate=Rate(0.001, 3))) as server:
        token = await server.token(Role.RUNNER)
        lines = (f"Authorization: Bearer {token}",)
        waits = request(LEASE, {"runner_id": "r", "tell_under_way": True}, *lines)
        whole = request(LEASE, {"runner_id": "r"}, *lines)
        statuses = [(await asked(server, each))[0] for each in (waits, waits, whole, whole)]
    assert statuses == [200, 200, 200, 429]
    assert begun == [False, False, True, False]


async def test_a_token_that_was_not_looked_up_yet_needs_a_task_and_then_none(begun: list[bool]) -> None:
    async with running() as server:
        lines = (f"Authorization: Bearer {await server.token(Role.RUNNER)}",)
        for _ in range(2):
            assert (await asked(server, request(LEASE, {"runner_id": "r"}, *lines)))[0] == 200
        assert begun == [False, True]
        server.parts.check.forget(next(iter(server.parts.check._known)))
        assert (await asked(server, request(LEASE, {"runner_id": "r"}, *lines)))[0] == 200
        assert begun == [False, True, False]
