"""`interlock agent` as people start it: what it says, and what keeps it from starting."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.agent.conftest import Connect
from tests.agent.own import Nap
from tests.agent.test_access import certify
from tests.waiting import PATIENCE_S, PROGRAM_S, until_so

from interlock.cli import agent as agent_process
from interlock.cli.main import main
from interlock.testing import watchdog
from interlock.testing.agent_process import running_agent
from interlock.wire.fleet import fleet_pb2 as wire

Refused: TypeAlias = Callable[..., str]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Refused:
    """What somebody is told whose agent does not start."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def refused(*words: str) -> str:
        assert main(["agent", *words]) == 2
        return capsys.readouterr().err

    return refused


def test_an_open_agent_does_not_start(refused: Refused) -> None:
    stderr = refused("--host", "0.0.0.0")
    assert "no token" in stderr
    assert "--token-file" in stderr


def test_a_port_that_is_taken_is_reported(refused: Refused) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "the port is taken" in refused("--port", str(taken.getsockname()[1]))


def test_files_that_are_not_there_are_reported(refused: Refused) -> None:
    assert "cannot be read" in refused("--token-file", "nowhere")
    assert "cannot be read" in refused("--port", "0", "--tls-cert", "no.pem", "--tls-key", "no.pem")


def test_a_file_that_is_no_certificate_is_reported_and_not_taken_for_a_port(
    refused: Refused, tmp_path: Path
) -> None:
    (tmp_path / "junk.pem").write_text("no certificate")
    stderr = refused("--port", "0", "--tls-cert", "junk.pem", "--tls-key", "junk.pem")
    assert "The certificate junk.pem and its key junk.pem cannot be used" in stderr
    assert "port" not in stderr
    cert, key = certify(tmp_path)
    tls = ("--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", "junk.pem")
    assert "The certificates in junk.pem cannot be used" in refused("--port", "0", *tls)


def test_a_token_file_without_a_token_is_reported(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("\n")
    assert "no token in" in refused("--token-file", "tokens")


def test_a_workload_that_is_none_is_reported(refused: Refused) -> None:
    assert "There is no workload at 'nowhere:Nothing'" in refused(
        "--port", "0", "--workload", "nowhere:Nothing"
    )


def test_an_agent_without_its_libraries_names_them_and_the_install_command(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_process, "NEEDED", ("grpc", "not_there_at_all", "google.not_there"))
    stderr = refused()
    assert "not_there_at_all, google.not_there" in stderr
    assert "pip install 'interlock[fleet]'" in stderr


def test_its_help_needs_nothing_of_a_fleet() -> None:
    program = (
        "import sys\nfrom interlock.cli.main import main\ncode = main(['agent', '--help'])\n"
        "loaded = {'grpc', 'google.protobuf', 'hdrh', 'interlock.agent'} & set(sys.modules)\n"
        "sys.exit(code or bool(loaded))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PROGRAM_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--token-file" in done.stdout
    assert "Examples:" in done.stdout


async def test_a_workload_does_not_see_the_token_of_its_agent(tmp_path: Path, connect: Connect) -> None:
    note = tmp_path / "note"
    env = {"INTERLOCK_AGENT_TOKEN": "a-secret", "GREETING": "hello"}
    with running_agent(tmp_path / "agent", env=env) as agent:
        controller = connect(agent.address, token="a-secret")
        spec = {"command": f"env > {note}", "env": {"MORE": "of it"}}
        last = await (await controller.started("env", "command", spec)).last()
        assert (last.status, last.errors) == (wire.COMPLETED, 0)
        assert "a-secret" not in agent.log.read_text()
    seen = note.read_text().splitlines()
    assert {"GREETING=hello", "MORE=of it"} <= set(seen)
    assert not [line for line in seen if "a-secret" in line]


async def test_a_kind_of_ones_own_is_offered_and_run(tmp_path: Path, connect: Connect) -> None:
    env = {"PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    home = f"{Nap.__module__}:{Nap.__name__}"
    with running_agent(tmp_path / "agent", "--workload", home, env=env) as agent:
        controller = connect(agent.address)
        last = await (await controller.started("nap", "sleep", {})).last()
        assert (last.status, last.operations, last.bytes) == (wire.COMPLETED, 1, 5)
        lines = [json.loads(line) for line in agent.log.read_text().splitlines()]
    steps = [(line["from_state"], line["to_state"]) for line in lines if "from_state" in line]
    assert steps == [("IDLE", "READY"), ("READY", "RUNNING"), ("RUNNING", "IDLE")]


OWNER = """
import sys
from pathlib import Path
from interlock.testing.agent_process import running_agent
with running_agent(Path(sys.argv[1])) as agent:
    print(agent.pid, flush=True)
    sys.stdin.read()
"""


def test_an_agent_is_gone_with_the_process_that_started_it(tmp_path: Path) -> None:
    """A test run that was killed used to leave its agents running."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "agent")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    with owner.stdin, owner.stdout:
        agent = int(owner.stdout.readline())
        assert watchdog.alive(agent)
        owner.kill()
        owner.wait(PATIENCE_S)
    until_so(lambda: not watchdog.alive(agent), "the agent is gone with its owner")
