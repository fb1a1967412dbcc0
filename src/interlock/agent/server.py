"""The gRPC server of an agent: its calls, addresses, TLS, tokens and users, health and reflection.

`AgentService` serves the controller's calls and sends its messages; the workload itself is in `state`.

A controller that disappears without closing its connection (a cut cable, a power failure) is detected by
pings on the connection; the call that holds its workload then breaks, and the workload is stopped.

Over loopback, `Peers` determines which user of this machine owns a connection. TCP carries no
credentials, but the kernel's table of connections names the owner of each. The client's end of a connection
is in it for as long as the client keeps it open, and no other user can make an entry for that pair of
addresses meanwhile. The kernel shows a closed end as user 0's, so only established ones with an inode count,
and the table is read twice.

Why: decisions 0227 and 0232.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

import grpc
import msgspec
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from hdrh.histogram import HdrHistogram
from structlog.typing import FilteringBoundLogger

from interlock.agent.load import LONGEST_NS
from interlock.agent.port import offered_kinds
from interlock.agent.settings import AgentSettings
from interlock.agent.state import AgentState, Message
from interlock.agent.validation import RequestedWorkload
from interlock.errors import InterlockError, InvalidSettings
from interlock.lifecycles.workload import Status
from interlock.wire.fleet import fleet_pb2 as wire
from interlock.wire.fleet.fleet_pb2_grpc import AgentServicer, add_AgentServicer_to_server
from interlock.wire.tls import authorities, check_pair

PROBLEM = "interlock-problem-bin"
"""Metadata key of the complete problem, as JSON."""

_CODES = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    503: grpc.StatusCode.UNAVAILABLE,
}


async def refuse(context: aio.ServicerContext[Any, Any], error: InterlockError) -> NoReturn:
    """End the call with an error."""
    problem = msgspec.json.encode(error.as_dict(), enc_hook=str)
    code = _CODES.get(error.status, grpc.StatusCode.INTERNAL)
    await context.abort(code, error.sentence, ((PROBLEM, problem),))


SIGNIFICANT_DIGITS = 3


def stats_of(workload_id: str, message: Message, at_unix_ns: int) -> wire.WorkloadStats:
    """Return the message for the controller, with the agent's wall clock."""
    sent, started, totals, since = message.report, message.started, message.totals, message.since
    return wire.WorkloadStats(
        workload_id=workload_id,
        sequence=message.sequence,
        status=wire.Status.ValueType(sent.status),
        completed=sent.completed,
        at_unix_ns=at_unix_ns,
        started_at_unix_ns=started.at_unix_ns if started is not None else 0,
        late_ns=started.late_ns if started is not None else 0,
        elapsed_ns=totals.elapsed_ns,
        operations=totals.operations,
        errors=totals.errors,
        bytes=totals.size,
        interval_ns=message.interval_ns,
        interval_operations=since.operations,
        interval_errors=since.errors,
        interval_bytes=since.size,
        histogram=encoded(since.counts),
        coalesced=since.samples,
        error=sent.error or "",
        error_samples=since.error_samples,
        preparing=sent.status is Status.RUNNING and started is None,
        backlog=totals.backlog,
    )


def encoded(counts: Mapping[int, int]) -> bytes:
    """Return durations and their counts as a compressed V2 histogram.

    Durations are in nanoseconds. Without any, it is empty.
    """
    if not counts:
        return b""
    histogram = HdrHistogram(1, LONGEST_NS, SIGNIFICANT_DIGITS)
    for value, count in counts.items():
        histogram.record_value(value, count)
    # Without base64 the library would also omit the header.
    return base64.b64decode(histogram.encode())


LONGEST_WAIT_S = 60.0


class AgentService(AgentServicer):
    """The gRPC service of an agent."""

    def __init__(self, agent: AgentState, instance: str) -> None:
        self._agent = agent
        self._instance = instance

    async def RunWorkloadWithLiveStats(  # noqa: N802 - the proto's name
        self, request: wire.WorkloadRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[wire.WorkloadStats]:
        """Run a workload and stream its statistics; stop it when the call breaks."""
        try:
            outbox = self._agent.request(_requested(request))
        except InterlockError as error:
            await refuse(context, error)
        try:
            while (message := await outbox.next()) is not None:
                yield stats_of(request.workload_id, message, self._agent.clocks.wall_ns())
        finally:
            # Also after the last message, when the table ignores it.
            self._agent.disconnected(request.workload_id)

    async def StartWorkload(  # noqa: N802
        self, request: wire.StartRequest, context: aio.ServicerContext[Any, Any]
    ) -> wire.StartAnswer:
        """Set the start time of a READY workload."""
        try:
            late_ns = self._agent.start(request.workload_id, request.start_at_unix_ns)
        except InterlockError as error:
            await refuse(context, error)
        return wire.StartAnswer(late_ns=late_ns)

    async def AbortWorkload(  # noqa: N802
        self, request: wire.AbortRequest, context: aio.ServicerContext[Any, Any]
    ) -> wire.AbortAnswer:
        """Abort the workload with this id, if there is one."""
        del context
        accepted = self._agent.abort(request.workload_id, request.reason)
        await self._agent.until_left()
        return wire.AbortAnswer(accepted=accepted, state=self._agent.state)

    async def Ping(  # noqa: N802
        self, request: wire.PingRequest, context: aio.ServicerContext[Any, Any]
    ) -> wire.PingAnswer:
        """Return the time of the agent."""
        received = self._agent.clocks.wall_ns()
        del context
        answer = wire.PingAnswer(sent_unix_ns=request.sent_unix_ns, received_unix_ns=received)
        answer.answered_unix_ns = self._agent.clocks.wall_ns()
        return answer

    async def GetStatus(  # noqa: N802
        self, request: wire.StatusRequest, context: aio.ServicerContext[Any, Any]
    ) -> wire.StatusAnswer:
        """Return the state of the agent, with `wait_idle_s` once it is idle."""
        del context
        if request.wait_idle_s > 0:
            await self._agent.until_idle(min(request.wait_idle_s, LONGEST_WAIT_S))
        agent, record = self._agent, self._agent.record
        return wire.StatusAnswer(
            state=agent.state,
            workload_id=record.workload_id or "",
            final=wire.Status.ValueType(record.final or 0),
            error=record.error or "",
            controller=agent.controller,
            version=version("interlock"),
            instance=self._instance,
            host=socket.gethostname(),
            kinds=list(agent.kinds),
            since_s=agent.since_s,
            sample_every_s=agent.sample_every_s,
        )


def _requested(request: wire.WorkloadRequest) -> RequestedWorkload:
    return RequestedWorkload(
        workload_id=request.workload_id,
        kind=request.kind,
        spec=request.spec,
        start_at_unix_ns=request.start_at_unix_ns if request.HasField("start_at_unix_ns") else None,
        duration_s=request.duration_s,
        rate=request.rate,
        concurrency=request.concurrency,
        max_operations=request.max_operations,
        prepare_s=request.prepare_s if request.HasField("prepare_s") else None,
        controller=request.controller[:200],
    )


TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
UID_MAP = Path("/proc/self/uid_map")
ESTABLISHED = "01"
TRIES = 3
"""Number of reads of the table, because an entry can be missed while the table changes."""
_ALL_USERS = ["0", "0", "4294967295"]
_UNKNOWN_USER = 65_534
"""User id that the kernel shows for users without one in this namespace."""


class Peers:
    """The users behind connections to one address of this machine."""

    def __init__(self, host: str, port: int = 0) -> None:
        self._host = host
        self.port = port
        self._all_known = _knows_all_users()

    def is_own(self, peer: str) -> bool:
        """Return whether a gRPC peer belongs to the user of this process."""
        own = os.getuid()
        if own == _UNKNOWN_USER and not self._all_known:
            return False
        return self.uid_of(peer) == own and self.uid_of(peer) == own

    def uid_of(self, peer: str) -> int | None:
        """Return the user at the client's end of a connection, or None."""
        try:
            ends = list(self._ends(peer))
        except ValueError:
            return None
        for _ in range(TRIES):
            for table in TABLES:
                if (found := _owner(_read(table), ends)) is not None:
                    return found
        return None

    def _ends(self, peer: str) -> Iterator[bytes]:
        """Yield both ends as the tables show them.

        A client may map IPv4 into IPv6.
        """
        _, _, place = unquote(peer).partition(":")
        host, _, port = place.rpartition(":")
        theirs = ipaddress.ip_address(host.strip("[]"))
        ours = self._address(theirs.version)
        ports = int(port), self.port
        yield _row((theirs, ours), ports)
        if isinstance(theirs, ipaddress.IPv4Address) and isinstance(ours, ipaddress.IPv4Address):
            yield _row((_mapped(theirs), _mapped(ours)), ports)

    def _address(self, version: int) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        if self._host == "localhost":
            return ipaddress.ip_address("127.0.0.1" if version == 4 else "::1")
        return ipaddress.ip_address(self._host)


def check_table() -> None:
    """Raise where the kernel does not show the owners of connections."""
    if not any(map(_read, TABLES)):
        raise InvalidSettings(
            f"This agent has no token, and cannot tell users of this machine apart: there is no {TABLES[0]}.",
            todo="Give it --token-file (or INTERLOCK_AGENT_TOKEN), or serve without one with --insecure.",
        )


def _owner(table: bytes, ends: list[bytes]) -> int | None:
    for row in ends:
        _, found, rest = table.partition(row)
        if not found:
            continue
        fields = rest.split(None, 6)  # queues, timer, retransmits, user, timeout, inode
        if len(fields) > 5 and fields[5] != b"0":
            return int(fields[3])
    return None


def _row(
    addresses: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...], ports: tuple[int, int]
) -> bytes:
    ends = (f"{_words(address.packed)}:{port:04X}" for address, port in zip(addresses, ports, strict=True))
    return f": {' '.join(ends)} {ESTABLISHED} ".encode()


def _words(packed: bytes) -> str:
    """Return an address as the kernel prints it.

    It has words of 32 bits, in the byte order of this machine.
    """
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return "".join(f"{word:08X}" for word in words)


def _mapped(address: ipaddress.IPv4Address) -> ipaddress.IPv6Address:
    return ipaddress.IPv6Address(b"\0" * 10 + b"\xff" * 2 + address.packed)


def _read(table: Path) -> bytes:
    try:
        return table.read_bytes()
    except OSError:
        return b""


def _knows_all_users() -> bool:
    try:
        return UID_MAP.read_text().split() == _ALL_USERS
    except OSError:
        return False


SERVICE = wire.DESCRIPTOR.services_by_name["Agent"].full_name
HEALTH = f"/{health.SERVICE_NAME}/"
MAX_CALLS = 256
GRACE_S = 15.0
"""Time for calls to end when the agent is stopped, so that the controller receives the final message."""


@asynccontextmanager
async def serving(settings: AgentSettings, log: FilteringBoundLogger) -> AsyncIterator[str]:
    """Run an agent within the context, and stop its workload at the end."""
    agent = AgentState(settings, offered_kinds(settings.workloads), log)
    gate = _gate(settings)
    server = aio.server(
        interceptors=[] if gate is None else [gate],
        options=_options(settings),
        maximum_concurrent_rpcs=MAX_CALLS,
    )
    add_AgentServicer_to_server(AgentService(agent, secrets.token_hex(8)), server)
    watch = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(watch, server)
    reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    address = _listen(server, settings)
    if isinstance(gate, _OwnUser):
        gate.peers.port = int(address.rpartition(":")[2])
    await server.start()
    for name in ("", SERVICE):
        await watch.set(name, health_pb2.HealthCheckResponse.SERVING)
    log.info(
        "agent_listens",
        address=address,
        tls=settings.certificate is not None,
        lets_in=_let_in(settings),
        kinds=list(agent.kinds),
    )
    try:
        yield address
    finally:
        await watch.enter_graceful_shutdown()
        await agent.close()
        await server.stop(GRACE_S)
        log.info("agent_stopped")


def _options(settings: AgentSettings) -> Sequence[tuple[str, Any]]:
    keepalive_ms = round(settings.keepalive_s * 1000)
    return (
        ("grpc.so_reuseport", 0),  # two agents on one port would share the calls
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", keepalive_ms),
        ("grpc.http2.ping_timeout_ms", keepalive_ms),  # the wait for an answer; a minute by default
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
        ("grpc.max_receive_message_length", 2 * 1024 * 1024),
    )


def _listen(server: aio.Server, settings: AgentSettings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    place = f"{host}:{settings.port}"
    try:
        if settings.certificate is None:
            port = server.add_insecure_port(place)
        else:
            port = server.add_secure_port(place, _credentials(settings))
    except RuntimeError:
        raise InvalidSettings(
            f"The agent cannot listen on {place}: the port is taken, or the address is not of this machine.",
            todo="Choose another one with --host and --port, or stop the process that uses it.",
            facts={"address": place},
        ) from None
    return f"{host}:{port}"


def _credentials(settings: AgentSettings) -> grpc.ServerCredentials:
    assert settings.certificate is not None
    assert settings.key is not None
    try:
        pair = (Path(settings.key).read_bytes(), Path(settings.certificate).read_bytes())
        ca = None if settings.client_ca is None else Path(settings.client_ca).read_bytes()
    except OSError as error:
        raise InvalidSettings(
            f"A file for TLS cannot be read: {error}.", todo="Check the path and its permissions."
        ) from None
    # For unusable files the library only reports that it cannot listen.
    check_pair(settings.certificate, settings.key)
    if settings.client_ca is not None:
        authorities(settings.client_ca)
    return grpc.ssl_server_credentials([pair], root_certificates=ca, require_client_auth=ca is not None)


def _gate(settings: AgentSettings) -> aio.ServerInterceptor | None:
    """Return the interceptor that authorizes calls, or None to allow all."""
    if settings.tokens:
        return _Tokens(settings.tokens)
    if settings.insecure or settings.client_ca is not None:
        return None
    check_table()
    return _OwnUser(Peers(settings.host))


def _let_in(settings: AgentSettings) -> str:
    if settings.tokens:
        return "controllers with a token"
    if settings.client_ca is not None:
        return "controllers with a certificate"
    return "everybody" if settings.insecure else f"user {os.getuid()} of this machine"


class _OwnUser(aio.ServerInterceptor):
    """Authorizes connections of the agent's own user; health checks are open to all."""

    def __init__(self, peers: Peers) -> None:
        self.peers = peers
        self._refusal = (
            f"This agent has no token, so that only user {os.getuid()} of this machine is let in. "
            "Run the controller as that user, or start the agent with --token-file."
        )

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Serve the call after checking its user."""
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(HEALTH):
            return handler
        return _checked(handler, self._check)

    async def _check(self, context: aio.ServicerContext[Any, Any]) -> None:
        if not self.peers.is_own(context.peer()):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, self._refusal)


class _Tokens(aio.ServerInterceptor):
    """Authorizes controllers with a token; health checks are open to all."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._expected = [f"Bearer {token}".encode() for token in tokens]

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Serve the call, or refuse it with a handler of the same type."""
        handler = await continuation(handler_call_details)
        if handler_call_details.method.startswith(HEALTH) or self._knows(handler_call_details):
            return handler
        return _refusing(handler)

    def _knows(self, call: grpc.HandlerCallDetails) -> bool:
        given = dict(call.invocation_metadata or ()).get("authorization", "")
        presented = given if isinstance(given, bytes) else given.encode()
        found = [hmac.compare_digest(presented, expected) for expected in self._expected]
        return any(found)


def _refusing(handler: Any) -> Any:
    """Return a handler of the same type that refuses the call."""

    async def refused(_request: Any, context: aio.ServicerContext[Any, Any]) -> None:
        await context.abort(
            grpc.StatusCode.UNAUTHENTICATED,
            "This agent requires a token: send 'authorization: Bearer …' with one of its tokens.",
        )

    return None if handler is None else _method_like(handler, refused)


def _checked(handler: Any, check: Callable[[aio.ServicerContext[Any, Any]], Awaitable[None]]) -> Any:
    """Return a handler of the same type that runs a check first."""
    method = next(
        one
        for one in (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
        if one is not None
    )

    async def answered(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
        await check(context)
        return await method(request, context)

    async def streamed(request: Any, context: aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        await check(context)
        async for message in method(request, context):
            yield message

    return _method_like(handler, streamed if handler.response_streaming else answered)


def _method_like(handler: Any, behaviour: Any) -> Any:
    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[handler.request_streaming, handler.response_streaming]
    return make(behaviour, handler.request_deserializer, handler.response_serializer)
