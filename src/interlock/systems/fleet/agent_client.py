"""The gRPC client of one agent, with a deadline on every call."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NoReturn

import grpc
import msgspec
from grpc import aio

from interlock.errors import AgentRefused, AgentUnavailable, InterlockError, InvalidSettings
from interlock.lifecycles.workload import Status
from interlock.systems.fleet.clocks import ClockExchange, Offset, offset_of
from interlock.systems.fleet.member import ABORT_S, ANSWER_S, EXCHANGES, ClientFactory, ReferenceClock
from interlock.systems.fleet.results import AgentReport
from interlock.wire.fleet import fleet_pb2 as wire
from interlock.wire.fleet.fleet_pb2_grpc import AgentStub
from interlock.wire.tls import authorities, check_pair
from interlock.wire.workloads import (
    WorkloadSpec,
)

PROBLEM = "interlock-problem-bin"
_SILENT = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
)
_STATUSES = frozenset(map(int, Status))
PING_EVERY_S = 5.0
TOKEN, CA, CERT, KEY = (f"INTERLOCK_AGENT_{name}" for name in ("TOKEN", "CA", "CERT", "KEY"))
"""The environment variables of a controller; all but the token name files."""
_OPTIONS_OF_TLS = {
    "ca": f"--tls-ca (or {CA})",
    "certificate": f"--tls-cert (or {CERT})",
    "key": f"--tls-key (or {KEY})",
}
_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", 4 * 1_048_576),
    ("grpc.enable_http_proxy", 0),
)


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The credentials of a controller for agents."""

    token: str = ""
    ca: str = ""
    """The file of CA certificates for agents; it enables TLS."""
    certificate: str = ""
    """The file of the controller's certificate, for agents with `--tls-client-ca`."""
    key: str = ""
    """The file of its private key."""
    silence_s: float = 20.0
    """An agent that does not answer a ping for this long is lost."""

    def __repr__(self) -> str:
        files = f"ca={self.ca!r}, certificate={self.certificate!r}, key={self.key!r}"
        return f"Access(token={'…' if self.token else ''}, {files})"

    def check(self) -> Access:
        """Return it; raise `InvalidSettings` if a file is missing or invalid."""
        if bool(self.certificate) != bool(self.key):
            raise InvalidSettings(
                "A client certificate needs both a certificate and its key.",
                todo=f"Give {_OPTIONS_OF_TLS['certificate']} and {_OPTIONS_OF_TLS['key']}.",
            )
        if self.certificate and not self.ca:
            raise InvalidSettings(
                "A client certificate is only used over TLS, and no authority of the agents is given.",
                todo=f"Give {_OPTIONS_OF_TLS['ca']} as well.",
            )
        if self.ca:
            authorities(self.ca)
        if self.certificate:
            check_pair(self.certificate, self.key)
        return self


NOTHING_NEEDED = Access()


def over_grpc(access: Access) -> ClientFactory:
    """Return the factory of gRPC connections with these credentials."""

    def line(agent: str, reference: ReferenceClock) -> AgentConnection:
        return AgentConnection(agent, reference, access)

    return line


class AgentConnection:
    """A connection to one agent; see `AgentClient`. Close it after use."""

    def __init__(
        self,
        agent: str,
        reference: ReferenceClock,
        access: Access = NOTHING_NEEDED,
        channel: aio.Channel | None = None,
    ) -> None:
        self.agent = agent
        self._reference = reference
        self._access = access
        self._metadata = (("authorization", f"Bearer {access.token}"),) if access.token else ()
        self._channel = channel or _channel(agent, access)
        self._stub = AgentStub(self._channel)

    async def close(self) -> None:
        """Close the connection; the agent stops a running workload."""
        await self._channel.close()

    async def status(self, *, within_s: float = ANSWER_S, wait_idle_s: float = 0.0) -> wire.StatusAnswer:
        """Return the status of the agent, optionally once it is idle."""
        request = wire.StatusRequest(wait_idle_s=wait_idle_s)
        answer: wire.StatusAnswer = await self._call(self._stub.GetStatus, request, within_s + wait_idle_s)
        return answer

    async def offset(self, exchanges: int = EXCHANGES, *, within_s: float = ANSWER_S) -> Offset:
        """Return the offset of the agent's clock, from several round trips."""
        found = []
        for _ in range(exchanges):
            sent = self._reference.now_ns()
            answer = await self._call(self._stub.Ping, wire.PingRequest(sent_unix_ns=sent), within_s)
            found.append(
                ClockExchange(
                    sent_ns=sent,
                    received_ns=answer.received_unix_ns,
                    answered_ns=answer.answered_unix_ns,
                    returned_ns=self._reference.now_ns(),
                )
            )
        return offset_of(found)

    async def run(self, workload_id: str, spec: WorkloadSpec, controller: str) -> AsyncIterator[AgentReport]:
        """Run one workload, and yield its reports from READY to the last."""
        request = wire.WorkloadRequest(
            workload_id=workload_id,
            kind=spec.kind,
            spec=msgspec.json.encode(spec.spec),
            duration_s=spec.duration_s,
            rate=spec.rate,
            concurrency=spec.concurrency,
            max_operations=spec.operations,
            prepare_s=spec.lead_s,  # as soon as the start is known: lead is the time to prepare
            controller=controller,
        )
        call = self._stub.RunWorkloadWithLiveStats(request, metadata=self._metadata)
        try:
            async for stats in call:
                yield report_of(self.agent, stats)
        except aio.AioRpcError as error:
            self._raise(error)
        finally:
            call.cancel()

    async def start(self, workload_id: str, at_ns: int) -> int:
        """Send the start by the agent's clock.

        Return how late it was, in nanoseconds.
        """
        request = wire.StartRequest(workload_id=workload_id, start_at_unix_ns=at_ns)
        answer: wire.StartAnswer = await self._call(self._stub.StartWorkload, request, ANSWER_S)
        return answer.late_ns

    async def abort(self, workload_id: str, reason: str) -> None:
        """Stop only that workload."""
        request = wire.AbortRequest(workload_id=workload_id, reason=reason[:200])
        await self._call(self._stub.AbortWorkload, request, ABORT_S)

    async def _call(self, method: Any, request: Any, within_s: float) -> Any:
        try:
            return await method(request, timeout=within_s, metadata=self._metadata)
        except aio.AioRpcError as error:
            self._raise(error)

    def _raise(self, error: aio.AioRpcError) -> NoReturn:
        raise error_of_call(self.agent, error, self._access) from None


def error_of_call(agent: str, error: aio.AioRpcError, access: Access = NOTHING_NEEDED) -> InterlockError:
    """Return the error of a failed call, in the agent's words if it has some."""
    for key, value in error.trailing_metadata() or ():
        if key == PROBLEM:
            problem = json.loads(value)
            return AgentRefused(
                f"{agent}: {problem.get('error', '')}",
                todo=str(problem.get("todo", "")),
                facts={"agent": agent, "code": problem.get("code", ""), **problem.get("facts", {})},
            )
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        return AgentRefused(
            f"{agent} does not accept the token in {TOKEN}."
            if access.token
            else f"{agent} requires a token, and {TOKEN} is not set.",
            todo=f"Set {TOKEN} to a token of the agent (its --token-file or {TOKEN}).",
            facts={"agent": agent},
        )
    if error.code() in _SILENT:
        why = (error.details() or error.code().name).rstrip(".")
        if refused := _refused_by_tls(agent, why, access):
            return refused
        return AgentUnavailable(
            f"{agent} does not answer: {why[:300]}.",
            todo=f"Is an agent there? On that machine: interlock agent --port {agent.rpartition(':')[2]}",
            facts={"agent": agent},
        )
    return AgentRefused(
        f"{agent}: {error.details() or error.code().name}",
        todo="Check the address and the token (INTERLOCK_AGENT_TOKEN).",
        facts={"agent": agent, "code": error.code().name},
    )


def _refused_by_tls(agent: str, why: str, access: Access) -> AgentRefused | None:
    """Return the likely cause of a TLS error, if its message has one."""
    ca, certificate, key = _OPTIONS_OF_TLS.values()
    if "CERTIFICATE_VERIFY_FAILED" in why:
        sentence = f"The certificate of {agent} is not signed by an authority in {access.ca}, or has expired."
        todo = f"Give the certificate of the authority that has signed it with {ca}."
    elif "WRONG_VERSION_NUMBER" in why:
        sentence = f"{agent} does not use TLS, and {ca} requires it."
        todo = "Start the agent with --tls-cert and --tls-key."
    elif "Socket closed" in why and "failed to connect" in why:
        sentence = f"{agent} closed the connection before it answered."
        if not access.ca:
            sentence += f" If it uses TLS, give {ca}."
        else:
            sentence += f" If it wants a client certificate, give one that it accepts: {certificate}, {key}."
        todo = "Check the options of the agent."
    else:
        return None
    return AgentRefused(sentence, todo=todo, facts={"agent": agent, "cause": why[:300]})


def report_of(agent: str, stats: wire.WorkloadStats) -> AgentReport:
    """Return a message of an agent as a report."""
    if stats.status not in _STATUSES:
        raise AgentRefused(
            f"{agent} reports the status {stats.status}, which this controller does not know.",
            todo="Use the same version on both.",
            facts={"agent": agent, "status": stats.status},
        )
    return AgentReport(
        agent=agent,
        sequence=stats.sequence,
        status=Status(stats.status),
        completed=stats.completed,
        elapsed_ns=stats.elapsed_ns,
        operations=stats.operations,
        errors=stats.errors,
        transferred=stats.bytes,
        interval_operations=stats.interval_operations,
        interval_errors=stats.interval_errors,
        histogram=stats.histogram,
        started_at_ns=stats.started_at_unix_ns,
        late_ns=stats.late_ns,
        backlog=stats.backlog,
        coalesced=stats.coalesced,
        error=stats.error,
        error_samples=tuple(stats.error_samples),
        size=stats.ByteSize(),
    )


def _channel(agent: str, access: Access) -> aio.Channel:
    silence_ms = round(access.silence_s * 1_000)
    options = (
        ("grpc.keepalive_time_ms", min(silence_ms, round(PING_EVERY_S * 1_000))),
        ("grpc.keepalive_timeout_ms", silence_ms),
        ("grpc.http2.ping_timeout_ms", silence_ms),  # the timeout of a ping, which is a minute by default
        *_OPTIONS,
    )
    access.check()
    if not access.ca:
        return aio.insecure_channel(agent, options=options)
    own = (Path(access.key).read_bytes(), Path(access.certificate).read_bytes()) if access.key else ()
    credentials = grpc.ssl_channel_credentials(Path(access.ca).read_bytes(), *own)
    return aio.secure_channel(agent, credentials, options=options)
