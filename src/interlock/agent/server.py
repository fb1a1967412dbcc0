"""An agent that can be reached: addresses, TLS, tokens and users, health and reflection, silent controllers.

A controller that has vanished without a word (a cut cable, a machine without power) is found out by
pings on the connection; the call that holds its workload then breaks, and the workload is stopped.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from interlock.agent.desk import Desk
from interlock.agent.execution import Log
from interlock.agent.kinds import offered_kinds
from interlock.agent.peers import Peers, check_table
from interlock.agent.service import AgentService
from interlock.agent.settings import AgentSettings
from interlock.errors import InvalidSettings
from interlock.wire.fleet import fleet_pb2 as wire
from interlock.wire.fleet.fleet_pb2_grpc import add_AgentServicer_to_server
from interlock.wire.trust import authorities, check_pair

SERVICE = wire.DESCRIPTOR.services_by_name["Agent"].full_name
HEALTH = f"/{health.SERVICE_NAME}/"
MAX_CALLS = 256
GRACE_S = 15.0
"""How long calls may take to end when the agent is stopped: a controller is to hear the last word."""


@asynccontextmanager
async def serving(settings: AgentSettings, log: Log) -> AsyncIterator[str]:
    """An agent while this lasts, at the address that is given; in the end its workload is stopped."""
    desk = Desk(settings, offered_kinds(settings.workloads), log)
    gate = _gate(settings)
    server = aio.server(
        interceptors=[] if gate is None else [gate],
        options=_options(settings),
        maximum_concurrent_rpcs=MAX_CALLS,
    )
    add_AgentServicer_to_server(AgentService(desk, secrets.token_hex(8)), server)
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
        kinds=list(desk.kinds),
    )
    try:
        yield address
    finally:
        await watch.enter_graceful_shutdown()
        await desk.close()
        await server.stop(GRACE_S)
        log.info("agent_stopped")


def _options(settings: AgentSettings) -> Sequence[tuple[str, Any]]:
    keepalive_ms = round(settings.keepalive_s * 1000)
    return (
        ("grpc.so_reuseport", 0),  # two agents on one port would share the calls between them
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", keepalive_ms),
        ("grpc.http2.ping_timeout_ms", keepalive_ms),  # which is what a ping waits for, and is a minute
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
        ("grpc.max_receive_message_length", 2 * 1024 * 1024),
    )


def _listen(server: aio.Server, settings: AgentSettings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    asked = f"{host}:{settings.port}"
    try:
        if settings.certificate is None:
            port = server.add_insecure_port(asked)
        else:
            port = server.add_secure_port(asked, _credentials(settings))
    except RuntimeError:
        raise InvalidSettings(
            f"The agent cannot listen on {asked}: the port is taken, or the address is not of this machine.",
            todo="Choose another one with --host and --port, or stop whoever has it.",
            facts={"address": asked},
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
            f"A file for TLS cannot be read: {error}.", todo="Check the path, and who may read it."
        ) from None
    # The library says of what it cannot use only that it cannot listen.
    check_pair(settings.certificate, settings.key)
    if settings.client_ca is not None:
        authorities(settings.client_ca)
    return grpc.ssl_server_credentials([pair], root_certificates=ca, require_client_auth=ca is not None)


def _gate(settings: AgentSettings) -> aio.ServerInterceptor | None:
    """Return what decides about calls; None if everybody who can connect is let in."""
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
    """Lets in connections of the agent's own user; everybody may ask whether it is healthy."""

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
        """Answer the call once it is known whose it is."""
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(HEALTH):
            return handler
        return _checked(handler, self._check)

    async def _check(self, context: aio.ServicerContext[Any, Any]) -> None:
        if not self.peers.is_own(context.peer()):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, self._refusal)


class _Tokens(aio.ServerInterceptor):
    """Lets in controllers that have a token; everybody may ask whether the agent is healthy."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._expected = [f"Bearer {token}".encode() for token in tokens]

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Answer the call, or refuse it in a way that fits it."""
        handler = await continuation(handler_call_details)
        if handler_call_details.method.startswith(HEALTH) or self._knows(handler_call_details):
            return handler
        return _refusing(handler)

    def _knows(self, call: grpc.HandlerCallDetails) -> bool:
        given = dict(call.invocation_metadata or ()).get("authorization", "")
        said = given if isinstance(given, bytes) else given.encode()
        found = [hmac.compare_digest(said, expected) for expected in self._expected]
        return any(found)


def _refusing(handler: Any) -> Any:
    """A handler of the same shape that lets nobody in."""

    async def refused(_request: Any, context: aio.ServicerContext[Any, Any]) -> None:
        await context.abort(
            grpc.StatusCode.UNAUTHENTICATED,
            "This agent asks for a token: send 'authorization: Bearer …' with one that it knows.",
        )

    return None if handler is None else _like(handler, refused)


def _checked(handler: Any, check: Callable[[aio.ServicerContext[Any, Any]], Awaitable[None]]) -> Any:
    """A handler of the same shape that lets a check come first."""
    asked = next(
        one
        for one in (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
        if one is not None
    )

    async def answered(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
        await check(context)
        return await asked(request, context)

    async def streamed(request: Any, context: aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        await check(context)
        async for message in asked(request, context):
            yield message

    return _like(handler, streamed if handler.response_streaming else answered)


def _like(handler: Any, behaviour: Any) -> Any:
    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[handler.request_streaming, handler.response_streaming]
    return make(behaviour, handler.request_deserializer, handler.response_serializer)
