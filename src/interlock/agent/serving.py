"""An agent that can be reached: addresses, TLS and tokens, health and reflection, and silent controllers.

A controller that has vanished without a word (a cut cable, a machine without power) is found out by
pings on the connection; the call that holds its workload then breaks, and the workload is stopped.
"""

from __future__ import annotations

import hmac
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
from interlock.agent.service import AgentService
from interlock.agent.settings import AgentSettings
from interlock.errors import InvalidSettings
from interlock.wire.fleet import fleet_pb2 as wire
from interlock.wire.fleet.fleet_pb2_grpc import add_AgentServicer_to_server

SERVICE = wire.DESCRIPTOR.services_by_name["Agent"].full_name
HEALTH = f"/{health.SERVICE_NAME}/"
MAX_CALLS = 256
GRACE_S = 15.0
"""How long calls may take to end when the agent is stopped: a controller is to hear the last word."""


@asynccontextmanager
async def serving(settings: AgentSettings, log: Log) -> AsyncIterator[str]:
    """An agent while this lasts, at the address that is given; in the end its workload is stopped."""
    desk = Desk(settings, offered_kinds(settings.workloads), log)
    server = aio.server(
        interceptors=[_Gate(settings.tokens)] if settings.tokens else [],
        options=_options(settings),
        maximum_concurrent_rpcs=MAX_CALLS,
    )
    add_AgentServicer_to_server(AgentService(desk, secrets.token_hex(8)), server)
    watch = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(watch, server)
    reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    address = _listen(server, settings)
    await server.start()
    for name in ("", SERVICE):
        await watch.set(name, health_pb2.HealthCheckResponse.SERVING)
    log.info("agent_listens", address=address, tls=settings.certificate is not None, kinds=list(desk.kinds))
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
    return grpc.ssl_server_credentials([pair], root_certificates=ca, require_client_auth=ca is not None)


class _Gate(aio.ServerInterceptor):
    """Lets in whoever has a token; whether the agent is healthy everybody may ask."""

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

    if handler is None:
        return None
    many = handler.request_streaming, handler.response_streaming
    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[many]
    return make(refused, handler.request_deserializer, handler.response_serializer)
