"""The server of the runner kit: it grants work, receives messages and records everything.

On request it misbehaves: it answers slowly, falls silent or closes the connection.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import h11
import msgspec

from interlock.wire.runner import (
    CancelAck,
    ClaimRequest,
    Complete,
    Grant,
    Greeting,
    Heartbeat,
    Message,
    Release,
)
from interlock.worker.host import AwakeTime


class KitRequest(msgspec.Struct, frozen=True):
    """A request."""

    method: str
    path: str
    token: str
    body: bytes


class Reply(msgspec.Struct, frozen=True):
    """An answer."""

    status: int
    body: object
    headers: tuple[tuple[str, str], ...] = ()


class HangUp(Exception):
    """The connection is closed without an answer."""


Answering: TypeAlias = Callable[[KitRequest], Awaitable[Reply]]


class KitServer:
    """The HTTP server: it listens, and passes requests on."""

    def __init__(self, answer: Answering) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self.url: str = ""

    async def open(self, host: str, port: int) -> None:
        """Listen at an address; port 0 is any free port."""
        self._server = await asyncio.start_server(self._accept, host, port)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://{host}:{port}"

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        if self._server is not None:
            self._server.close()
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = asyncio.ensure_future(self._converse(reader, writer))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(HangUp, ConnectionError, h11.RemoteProtocolError, asyncio.CancelledError):
                connection = h11.Connection(h11.SERVER)
                while (request := await _read(connection, reader)) is not None:
                    await _write(connection, writer, await self._answer(request))
                    if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                        return
                    connection.start_next_cycle()
        finally:
            writer.close()


async def _read(connection: h11.Connection, reader: asyncio.StreamReader) -> KitRequest | None:
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(65_536))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
            token = headers.get("authorization", "").removeprefix("Bearer ")
            path = head.target.decode("latin-1").partition("?")[0]
            return KitRequest(head.method.decode(), path, token, bytes(body))
        else:
            return None


async def _write(connection: h11.Connection, writer: asyncio.StreamWriter, reply: Reply) -> None:
    body = msgspec.json.encode(reply.body)
    kind = "application/json" if reply.status < 400 else "application/problem+json"
    headers = [("Content-Type", kind), ("Content-Length", str(len(body))), *reply.headers]
    for event in (
        h11.Response(status_code=reply.status, headers=headers),
        h11.Data(data=body),
        h11.EndOfMessage(),
    ):
        writer.write(connection.send(event) or b"")
    await writer.drain()


UNDER_WAY_S = 2.0
"""Delay after which a message that was sent before the answer to another one can no longer arrive."""
PREFIX = "/api/runner"
_KINDS = {"log": "heartbeat"}
SUPERVISED = "/api/workers"
"""Path at which a worker registers with a supervisor; not part of the runner protocol."""
_PATHS = ("ack", "heartbeat", "log", "complete", "cancel-ack", "release", "messages")

BeforeReply: TypeAlias = Callable[[KitRequest, str], Awaitable[Reply | None]]
"""Callback for each request; it answers in place of the server, or closes the connection."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of the kit."""

    ttl_s: float = 60.0
    heartbeat_every_s: float = 1.0
    ack_window_s: float = 45.0
    silence_ttl_s: float = 6.0
    """Time to live of a lease in scenarios in which the runner has to notice its end by itself."""
    late_s: float = 15.0
    """Tolerance for a runner that must stop at once, because other programs may delay it."""
    start_s: float = 60.0
    """Maximum time for a runner to start, ask for work and begin it."""
    patience_s: float = 60.0
    """Maximum time for an expected action of a runner."""
    idle_s: float = 2.0
    """Time for which the requests of a runner without work, or without a valid token, are counted."""
    requests_per_s: float = 10.0
    """Maximum rate of these requests."""


class KitLease(msgspec.Struct):
    """A lease, and the messages under it."""

    grant: Grant
    runner_id: str
    renewed_at: float
    ttl_s: float
    state: str = "live"
    """live, ended (by the runner), or revoked."""
    stale_at: float | None = None
    """Time of the first answer to the runner that the lease has ended."""
    ended_at: float | None = None
    """Time at which the end was acknowledged; None while that answer is lost."""
    cancel: bool = False
    renewals: int = 0
    """Number of heartbeats that have renewed it."""
    messages: list[Message] = []
    by_number: dict[tuple[str, int], Message] = {}

    @property
    def ends_at(self) -> float:
        """The time at which it ends, by the clock of the server, unless it is renewed."""
        return self.renewed_at + self.ttl_s

    def last(self, kind: type[Message]) -> Any:
        """Return the last message of a type, or None."""
        return next((message for message in reversed(self.messages) if isinstance(message, kind)), None)


class KitOrchestrator:
    """The orchestrator that a runner talks to."""

    def __init__(self, pace: Pace, token: str) -> None:
        self.pace: Pace = pace
        self.token: str = token
        self.clock: AwakeTime = AwakeTime()
        """Clock that stops with this process, so that no runner is judged while nothing runs."""
        self.before: BeforeReply | None = None
        self.more: dict[str, Any] = {}
        """Unknown fields, added to every answer."""
        self.waiting: list[tuple[str, dict[str, Any]]] = []
        self.leases: dict[str, KitLease] = {}
        self.claims: list[ClaimRequest] = []
        self.requests: list[str] = []
        self.faults: list[str] = []
        self._answered: dict[tuple[str, str], list[Grant]] = {}
        self.changed: asyncio.Event = asyncio.Event()
        self._numbers = 0

    def put(self, task: str, arguments: dict[str, Any]) -> None:
        """Add a job."""
        self.waiting.append((task, arguments))
        self.change()

    def change(self) -> None:
        """Wake all waiters."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def answer(self, request: KitRequest) -> Reply:
        """Answer as a correct server would, unless the scenario overrides it."""
        what = request.path.removeprefix(f"{PREFIX}/") if request.path != PREFIX else "greet"
        self.requests.append(what)
        self.change()
        if self.token and request.token != self.token:
            return problem(401, "unauthorized", "The token is not the one that the runner was given.")
        if self.before is not None and (instead := await self.before(request, what)) is not None:
            return instead
        return await self.respond(request, what)

    async def respond(self, request: KitRequest, what: str) -> Reply:
        """Answer a request as a correct server would."""
        if what == "greet":
            return self._ok(self._greeting())
        try:
            if what == "lease":
                return self._ok(await self._lease(msgspec.json.decode(request.body, type=ClaimRequest)))
            if what in _PATHS:
                return self._receive(what, msgspec.json.decode(request.body, type=dict[str, Any]))
        except msgspec.DecodeError as error:
            self.fault(f"It has sent an invalid request to {what}: {error}")
            return problem(422, "invalid_request", str(error))
        if not request.path.startswith(SUPERVISED):
            self.fault(
                f"It asks for {request.method} {request.path}, which is not an address of the protocol."
            )
        return problem(404, "not_found", "There is nothing here.")

    def fault(self, sentence: str) -> None:
        """Record a violation of the protocol by the runner."""
        if sentence not in self.faults:
            self.faults.append(sentence)
        self.change()

    # Grants

    def _greeting(self) -> Greeting:
        pace = self.pace
        return Greeting(
            now=datetime.now(UTC),
            lease_ttl_s=pace.ttl_s,
            heartbeat_every_s=pace.heartbeat_every_s,
            ack_window_s=pace.ack_window_s,
            max_grants=500,
            max_messages=500,
            max_wait_s=30.0,
        )

    async def _lease(self, claim: ClaimRequest) -> dict[str, Any]:
        self.claims.append(claim)
        self._judge_claim(claim)
        name = (claim.runner_id, claim.claim_id)
        until = self.clock() + min(claim.wait_s, 30.0)
        while not self.waiting and name not in self._answered and self.clock() < until:
            await self._something_happens(until - self.clock())
        if not claim.claim_id or name not in self._answered:
            given = [self._grant(claim) for _ in range(min(claim.limit, len(self.waiting)))]
            if claim.claim_id and given:
                self._answered[name] = given
        else:
            given = self._answered[name]
            for grant in given:
                self.leases[grant.token].renewed_at = self.clock()
        self.change()
        return {"grants": [self._more(grant) for grant in given], "now": datetime.now(UTC)}

    def _judge_claim(self, claim: ClaimRequest) -> None:
        if not 1 <= len(claim.runner_id) <= 200:
            self.fault("Its runner_id does not have 1 to 200 characters.")
        if not claim.queues:
            self.fault("It names no queue.")
        if not 1 <= claim.limit <= 500:
            self.fault(f"It asks for {claim.limit} grants; 1 to 500 are allowed.")

    def _grant(self, claim: ClaimRequest) -> Grant:
        task, arguments = self.waiting.pop(0)
        self._numbers += 1
        job_id = f"j_{self._numbers:012x}"
        now = datetime.now(UTC)
        alive_s = self.pace.ttl_s if claim.acknowledge else self.pace.ack_window_s
        grant = Grant(
            token=f"{job_id}.1.1.{secrets.token_hex(16)}",
            job_id=job_id,
            task=task,
            input=msgspec.Raw(msgspec.json.encode(arguments)),
            fence=self._numbers,
            queue=claim.queues[0] if claim.queues else "default",
            acknowledged=claim.acknowledge,
            granted_at=now,
            expires_at=now + timedelta(seconds=alive_s),
            ttl_s=self.pace.ttl_s,
            heartbeat_every_s=self.pace.heartbeat_every_s,
            timeout_s=3_600.0,
        )
        self.leases[grant.token] = KitLease(grant, claim.runner_id, self.clock(), alive_s)
        return grant

    async def _something_happens(self, within_s: float) -> None:
        changed = self.changed
        try:
            async with asyncio.timeout(max(0.0, within_s)):
                await changed.wait()
        except TimeoutError:
            return

    # Messages under a lease

    def _receive(self, what: str, body: dict[str, Any]) -> Reply:
        several = body.get("messages")
        kind = None if what == "messages" else _KINDS.get(what, what)
        if several is None:
            status, answer = self._receive_one(_message(body, kind))
            return Reply(status, answer) if status != 200 else self._ok(answer)
        answers = [self._receive_one(_message(each, kind))[1] for each in several]
        return self._ok({"answers": [_in_a_batch(each) for each in answers], "now": datetime.now(UTC)})

    def _receive_one(self, message: Message) -> tuple[int, dict[str, Any]]:
        lease = self.leases.get(message.token)
        if lease is None:
            self.fault("It uses a token that it was not given.")
            return 409, _stale("UNKNOWN_LEASE")
        self._judge(lease, message)
        if lease.state == "live" and self.clock() >= lease.ends_at:
            lease.state = "expired"
        if lease.state != "live" and not self._is_repeat(lease, message):
            if not self._was_under_way(lease, message):
                lease.stale_at = lease.stale_at or self.clock()
            return 409, _stale("LEASE_EXPIRED" if lease.state == "expired" else "LEASE_REVOKED")
        lease.messages.append(message)
        if isinstance(message, Complete | CancelAck | Release):
            lease.ended_at = self.clock()
        if lease.by_number.get(_number(message)) == message:
            return 200, self._accepted(lease)  # a repeat renews nothing
        lease.by_number[_number(message)] = message
        if isinstance(message, Complete | CancelAck | Release):
            lease.state = "ended"
        else:
            lease.renewed_at, lease.ttl_s = self.clock(), self.pace.ttl_s
            lease.renewals += isinstance(message, Heartbeat)
        self.change()
        return 200, self._accepted(lease)

    def _judge(self, lease: KitLease, message: Message) -> None:
        kind = str(message.__struct_config__.tag)
        if message.runner_id != lease.runner_id:
            self.fault(f"Its {kind} has another runner_id than the claim.")
        if isinstance(message, CancelAck) and not lease.cancel:
            self.fault("It has sent a cancel-ack without a cancel request.")
        if message.sequence < 1:
            self.fault(f"Its {kind} has the sequence {message.sequence}; the first one is 1.")
        known = lease.by_number.get(_number(message))
        if known is not None and known != message:
            self.fault(f"It has used the sequence {message.sequence} for two different messages ({kind}).")
        if lease.stale_at is not None and self.clock() > lease.stale_at + UNDER_WAY_S:
            self.fault(f"It has sent a {kind} after the lease had ended and it knew that.")
        if lease.state == "ended" and known is None and not self._was_under_way(lease, message):
            self.fault(f"It has sent a {kind} after it had reported how the attempt ended.")

    def _was_under_way(self, lease: KitLease, message: Message) -> bool:
        """Return whether a heartbeat may have been sent before the runner's end.

        The runner did not know by then that its end was accepted.
        """
        unknown = lease.ended_at is None or self.clock() <= lease.ended_at + UNDER_WAY_S
        return lease.state == "ended" and isinstance(message, Heartbeat) and unknown

    def _is_repeat(self, lease: KitLease, message: Message) -> bool:
        return lease.state == "ended" and lease.by_number.get(_number(message)) == message

    def _accepted(self, lease: KitLease) -> dict[str, Any]:
        if lease.state == "ended":
            return {"answer": "heard", "state": "SUCCEEDED"}
        answer = {"answer": "heard", "state": "RUNNING", "ttl_s": self.pace.ttl_s}
        answer["expires_at"] = datetime.now(UTC) + timedelta(seconds=self.pace.ttl_s)
        return answer | ({"cancel_requested": True, "state": "CANCEL_REQUESTED"} if lease.cancel else {})

    def _more(self, value: object) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
        return fields | self.more

    def _ok(self, value: object) -> Reply:
        fields = self._more(value) if isinstance(value, Greeting) else value
        assert isinstance(fields, dict)
        return Reply(200, fields | self.more)


def _message(body: dict[str, Any], kind: str | None) -> Message:
    raw = msgspec.json.encode({"type": kind, **body} if kind is not None else body)
    message: Message = msgspec.json.decode(raw, type=Message)
    return message


def _number(message: Message) -> tuple[str, int]:
    return str(message.__struct_config__.tag), message.sequence


def _stale(code: str) -> dict[str, Any]:
    todo = "Stop the work; ask for new work."
    return {"code": code, "error": "The lease is over.", "todo": todo, "status": 409}


def _in_a_batch(answer: dict[str, Any]) -> dict[str, Any]:
    return answer if answer.get("answer") else {"answer": "stale", **answer}


def problem(status: int, code: str, error: str) -> Reply:
    fields = {"status": status, "code": code, "error": error, "todo": "", "title": error, "facts": {}}
    return Reply(status, fields)
