"""Who is let in to an agent, what strangers are told, and what everybody may ask."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.agent.conftest import OFTEN, Connect
from tests.agent.controller import Controller, now_ns
from tests.waiting import PROGRAM_S

from interlock.agent.server import PROBLEM
from interlock.agent.settings import AgentSettings
from interlock.errors import InvalidSettings
from interlock.testing.agent_process import AgentProcess, running_agent
from interlock.wire.fleet import fleet_pb2 as wire


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=PROGRAM_S)


def certify(folder: Path) -> tuple[Path, Path]:
    """A certificate that vouches for itself, and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=agent"
    names = ("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    run(*new.split(), "-keyout", str(key), "-out", str(cert), *names)
    return cert, key


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AgentProcess, Path, Path]]:
    """An agent with TLS, whose controllers need a token and a certificate."""
    folder = tmp_path_factory.mktemp("guarded")
    cert, key = certify(folder)
    (folder / "tokens").write_text("first-token\nsecond-token\n")
    options = ("--token-file", str(folder / "tokens"), "--tls-cert", str(cert), "--tls-key", str(key))
    with running_agent(folder / "agent", *OFTEN, *options, "--tls-client-ca", str(cert)) as agent:
        yield agent, cert, key


def channel_to(guarded: tuple[AgentProcess, Path, Path], *, certificate: bool = True) -> aio.Channel:
    agent, cert, key = guarded
    own = (key.read_bytes(), cert.read_bytes()) if certificate else (None, None)
    return aio.secure_channel(agent.address, grpc.ssl_channel_credentials(cert.read_bytes(), *own))


@pytest.mark.parametrize("token", ["first-token", "second-token"])
async def test_a_client_with_a_token_and_a_certificate_is_accepted(
    guarded: tuple[AgentProcess, Path, Path], token: str
) -> None:
    controller = Controller(channel_to(guarded), (("authorization", f"Bearer {token}"),))
    assert (await controller.status()).state == "IDLE"
    call = await controller.started(f"with-{token}", "sleep", {}, max_operations=1)
    assert (await call.last()).status == wire.COMPLETED
    await controller.close()


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", "Bearer wrong"),),
        (("authorization", "first-token"),),
        (("token", "first-token"),),
    ],
)
async def test_a_client_without_a_valid_token_is_refused_because_the_agent_requires_a_token(
    guarded: tuple[AgentProcess, Path, Path], metadata: tuple[tuple[str, str], ...]
) -> None:
    controller = Controller(channel_to(guarded), metadata)
    with pytest.raises(aio.AioRpcError, match="requires a token") as refused:
        await controller.status()
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    call = controller.run("stranger", "sleep", {})
    assert (await call.refused()).code() is grpc.StatusCode.UNAUTHENTICATED
    await controller.close()


async def test_a_client_without_a_certificate_cannot_connect(
    guarded: tuple[AgentProcess, Path, Path],
) -> None:
    controller = Controller(
        channel_to(guarded, certificate=False), (("authorization", "Bearer first-token"),)
    )
    with pytest.raises(aio.AioRpcError) as refused:
        await controller.status()
    assert refused.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    await controller.close()


async def test_the_health_check_needs_no_token(guarded: tuple[AgentProcess, Path, Path]) -> None:
    async with channel_to(guarded) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest(service="interlock.fleet.v1.Agent"))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_an_agent_lists_its_grpc_services_by_server_reflection(controller: Controller) -> None:
    channel: Any = controller.channel  # the stubs of the library know nothing of asyncio
    reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    answer = [one async for one in reflection.ServerReflectionInfo(iter([question]))]
    names = {one.name for one in answer[0].list_services_response.service}
    assert {"interlock.fleet.v1.Agent", "grpc.health.v1.Health"} <= names


async def test_a_busy_agent_refuses_a_second_workload_and_names_the_current_one_and_its_controller(
    controller: Controller, connect: Connect, agent: AgentProcess
) -> None:
    call = controller.run("mine", "sleep", {})
    await call.until_status(wire.READY)
    error = await connect(agent.address).run("yours", "no such kind", {}).refused()
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "the agent is busy" in (error.details() or "")
    problem = msgspec.json.decode(dict(error.trailing_metadata())[PROBLEM])
    assert problem["code"] == "transition_not_allowed"
    assert problem["facts"]["workload_id"] == "mine"
    assert problem["facts"]["controller"] == "a test"


async def test_a_start_that_cannot_be_is_refused_with_its_reason(controller: Controller) -> None:
    call = controller.run("ahead", "sleep", {})
    await call.until_status(wire.READY)
    with pytest.raises(aio.AioRpcError) as refused:
        await controller.start("ahead", now_ns() + 3_600 * 10**9)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "ahead" in (refused.value.details() or "")
    assert (await controller.status()).state == "READY"


async def test_a_ping_returns_the_receive_and_answer_timestamps_of_the_agent(controller: Controller) -> None:
    before = now_ns()
    answer = await controller.stub.Ping(wire.PingRequest(sent_unix_ns=before))
    assert answer.sent_unix_ns == before <= answer.received_unix_ns
    assert answer.received_unix_ns <= answer.answered_unix_ns <= now_ns()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "agent.example.org"])
def test_an_address_that_others_can_reach_needs_a_token(host: str) -> None:
    with pytest.raises(InvalidSettings, match="no token") as refused:
        AgentSettings(host=host)
    assert "--token-file" in refused.value.todo
    assert AgentSettings(host=host, tokens=("secret",), certificate="c", key="k").host == host
    assert AgentSettings(host=host, insecure=True).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_an_agent_on_a_loopback_address_requires_no_token(host: str) -> None:
    assert AgentSettings(host=host).tokens == ()


def test_settings_that_cannot_be_are_reported_all_at_once() -> None:
    with pytest.raises(InvalidSettings) as refused:
        AgentSettings(certificate="cert.pem", port=70_000, drain_s=0.0)
    assert refused.value.facts["faults"] == [
        "TLS needs both a certificate and its key",
        "drain_s must be more than 0",
        "there is no port 70000",
    ]
