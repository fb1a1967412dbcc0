"""An agent without a token lets in its own user alone: who else is on the machine is refused."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc import aio
from tests.agent.controller import Controller
from tests.waiting import PROGRAM_S

from interlock.agent import server
from interlock.agent.server import Peers
from interlock.agent.settings import AgentSettings
from interlock.errors import InvalidSettings
from interlock.testing.agent_process import running_agent

NOBODY = 65_534
ASK = """
import os, sys
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from interlock.wire.fleet import fleet_pb2 as wire
from interlock.wire.fleet.fleet_pb2_grpc import AgentStub
os.setuid(int(sys.argv[2]))
channel = grpc.insecure_channel(sys.argv[1])
agent, health = AgentStub(channel), health_pb2_grpc.HealthStub(channel)
reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
question = reflection_pb2.ServerReflectionRequest(list_services="")
workload = wire.WorkloadRequest(workload_id="theirs", kind="command", spec=b'{"command": ["true"]}')
calls = {
    "health": lambda: health.Check(health_pb2.HealthCheckRequest(), timeout=60),
    "status": lambda: agent.GetStatus(wire.StatusRequest(), timeout=60),
    "run": lambda: next(agent.RunWorkloadWithLiveStats(workload, timeout=60)),
    "abort": lambda: agent.AbortWorkload(wire.AbortRequest(workload_id="mine"), timeout=60),
    "reflection": lambda: list(reflection.ServerReflectionInfo(iter([question]), timeout=60)),
}
for name, call in calls.items():
    try:
        call()
        print(name, "OK")
    except grpc.RpcError as error:
        print(name, error.code().name, error.details())
"""
CONNECT = """
import encodings.idna, os, socket, sys
os.setuid(int(sys.argv[2]))
connection = socket.create_connection((sys.argv[3], int(sys.argv[1])))
print(connection.getsockname()[1], flush=True)
sys.stdin.readline()
connection.close()
print("closed", flush=True)
sys.stdin.readline()
"""
root = pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")


def asked_as(uid: int, address: str) -> dict[str, str]:
    result = subprocess.run(
        [sys.executable, "-c", ASK, address, str(uid)],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return dict(line.split(" ", 1) for line in result.stdout.splitlines())


@root
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_another_user_of_the_machine_is_refused(tmp_path: Path, host: str) -> None:
    with running_agent(tmp_path, "--host", host) as agent:
        own = asked_as(os.getuid(), agent.address)
        others = asked_as(NOBODY, agent.address)
    assert set(own.values()) == {"OK"}, own
    assert others.pop("health") == "OK"
    for answer in others.values():
        assert answer.startswith("PERMISSION_DENIED")
        assert f"user {os.getuid()}" in answer
        assert "--token-file" in answer


@root
def test_with_insecure_every_user_of_the_machine_is_let_in(tmp_path: Path) -> None:
    with running_agent(tmp_path, "--insecure") as agent:
        assert set(asked_as(NOBODY, agent.address).values()) == {"OK"}


async def test_an_agent_with_a_token_requires_the_token_on_loopback_too(tmp_path: Path) -> None:
    with running_agent(tmp_path, env={"INTERLOCK_AGENT_TOKEN": "a-secret"}) as agent:
        controller = Controller(aio.insecure_channel(agent.address))
        with pytest.raises(aio.AioRpcError, match="requires a token") as refused:
            await controller.status()
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        await controller.close()


@contextmanager
def connected(uid: int, listener: socket.socket, host: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process of another user with a connection to us, and its port."""
    with subprocess.Popen(
        [sys.executable, "-c", CONNECT, str(listener.getsockname()[1]), str(uid), host],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


@root
def test_the_owner_of_a_connection_is_known_until_it_is_closed() -> None:
    """A connection that was closed belongs to nobody, and the kernel shows that as user 0."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = Peers("127.0.0.1", listener.getsockname()[1])
        with connected(NOBODY, listener, "127.0.0.1") as (process, port):
            accepted, _ = listener.accept()
            assert found.uid_of(f"ipv4:127.0.0.1:{port}") == NOBODY
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "closed\n"
            assert found.uid_of(f"ipv4:127.0.0.1:{port}") is None
            accepted.close()


def test_a_connection_over_a_mapped_address_is_found() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_INET6) as client,
    ):
        client.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
        found = Peers("localhost", listener.getsockname()[1])
        assert found.uid_of(f"ipv4:127.0.0.1:{client.getsockname()[1]}") == os.getuid()


@pytest.mark.parametrize(
    "peer", ["", "unix:", "ipv4:127.0.0.1", "ipv4:127.0.0.1:1", "ipv4:nonsense:1", "ipv6:[::1]:x", "ipv4::"]
)
def test_a_connection_that_is_not_in_the_table_has_no_owner(peer: str) -> None:
    assert Peers("127.0.0.1", 7_167).uid_of(peer) is None


@pytest.mark.parametrize(
    ("state", "uid", "inode", "owner"),
    [("01", "7", "99", 7), ("01", "0", "0", None), ("05", "0", "0", None), ("06", "7", "99", None)],
)
def test_only_a_living_connection_has_an_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, uid: str, inode: str, owner: int | None
) -> None:
    table = tmp_path / "tcp"
    table.write_text(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        f"   1: 0100007F:1BFF 0100007F:C350 01 00000000:00000000 00:00000000 00000000     5        0 11 1\n"
        f"   2: 0100007F:C350 0100007F:1BFF {state} 00000000:00000000 00:00000000 00000000     {uid}"
        f"        0 {inode} 1 0000000000000000 20 0 0 10 -1\n"
    )
    monkeypatch.setattr(server, "TABLES", (table,))
    assert Peers("127.0.0.1", 7_167).uid_of("ipv4:127.0.0.1:50000") == owner


def test_an_agent_requires_a_token_where_the_kernel_does_not_show_connection_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "TABLES", (tmp_path / "none",))
    with pytest.raises(InvalidSettings, match="cannot tell") as refused:
        server.check_table()
    assert "--token-file" in refused.value.todo


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "agent.example.org"])
def test_a_token_does_not_travel_in_plain_text(host: str) -> None:
    with pytest.raises(InvalidSettings, match="plain text") as refused:
        AgentSettings(host=host, tokens=("secret",))
    assert "--tls-cert" in refused.value.todo
    assert AgentSettings(host=host, tokens=("secret",), certificate="c", key="k").host == host
    assert AgentSettings(host=host, tokens=("secret",), insecure=True).tokens == ("secret",)
    assert AgentSettings(host="127.0.0.1", tokens=("secret",)).certificate is None
