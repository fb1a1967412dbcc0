"""The units of systemd: it reads all of them, their commands exist, and they stop later than the programs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from grpc import aio
from tests.agent.controller import Controller
from tests.agent.test_access import certify
from tests.debian import unpacked
from tests.deploy.files import DEPLOY, MARGIN_S, STOPS_S, parsed, variables
from tests.waiting import PROGRAM_S

from interlock.cli import project
from interlock.lifecycles.durations import DEFAULTS
from interlock.testing.agent_process import running_agent

FOLDER = DEPLOY / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
PROGRAM = "/opt/interlock/bin/interlock"
AGENT = FOLDER / "interlock-agent.service"
ON_A_STORE = [unit for unit in UNITS if unit != AGENT]
REPEATED = ("LoadCredential",)
"""Settings that systemd collects when they are written several times."""


def sections(path: Path) -> dict[str, dict[str, str]]:
    """Return the settings of a unit by section; a setting that is written twice is refused."""
    found: dict[str, dict[str, str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("[") and line.endswith("]"):
            section = found.setdefault(line[1:-1], {})
        elif line and not line.startswith("#"):
            name, equals, value = line.partition("=")
            assert equals, line
            assert name in REPEATED or name not in section, f"{name} is set twice"
            section[name] = f"{section[name]} {value}" if name in section else value
    return found


def starts(path: Path) -> list[str]:
    """Return the words after `interlock`, for the instance 01 of a template."""
    program, *words = shlex.split(sections(path)["Service"]["ExecStart"])
    assert program == PROGRAM
    return [word.replace("%i", "01").replace("%H", "host") for word in words]


def faults_of(service: dict[str, str], program: str) -> list[str]:
    """What keeps a program from ending by itself, or what it could harm."""
    stop_s = float(service.get("TimeoutStopSec", 0))
    needs_s = STOPS_S[program] + MARGIN_S
    faults = [f"killed after {stop_s:g} s, and may take {needs_s:g}"] if stop_s < needs_s else []
    if stop_s >= DEFAULTS.lease_ttl_s:
        faults.append("its leases expire before it is killed")
    if service.get("KillMode") != "mixed":
        faults.append("steps and processes of tasks are sent SIGTERM too")
    if service.get("User", "root") in ("root", "0"):
        faults.append("runs as root")
    if service.get("Restart") != "on-failure":
        faults.append("not restarted, or also when it was drained")
    return faults


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_starts_a_command_that_there_is_and_outlasts_its_shutdown(unit: Path) -> None:
    words = starts(unit)
    parsed(words)
    found = sections(unit)
    assert faults_of(found["Service"], words[0]) == []
    assert found["Unit"]["StartLimitIntervalSec"] == "0", "a store may be away for long"
    assert found["Install"]["WantedBy"] == "multi-user.target"


def test_there_is_a_unit_for_each_program_that_keeps_running() -> None:
    assert {starts(unit)[0] for unit in UNITS} == {"server", "worker", "supervisor", "agent"}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"TimeoutStopSec": "30"}, "killed after 30 s, and may take 35"),
        ({"TimeoutStopSec": "120"}, "its leases expire before it is killed"),
        ({"KillMode": "control-group"}, "steps and processes of tasks are sent SIGTERM too"),
        ({"User": "root"}, "runs as root"),
        ({"Restart": "always"}, "not restarted, or also when it was drained"),
    ],
)
def test_a_unit_that_would_do_harm_is_found_out(change: dict[str, str], fault: str) -> None:
    service = sections(FOLDER / "interlock-worker@.service")["Service"]
    assert faults_of({**service, **change}, "worker") == [fault]


def test_instances_of_the_template_have_names_and_ports_of_their_own() -> None:
    values = parsed(starts(FOLDER / "interlock-worker@.service"))
    assert (values["name"], values["metrics_port"]) == ("host-01", 9101)


def test_the_environment_file_sets_variables_that_there_are() -> None:
    text = (FOLDER / "interlock.env.example").read_text(encoding="utf-8")
    named = set(re.findall(r"^(\w+)=", text, re.M))
    assert "INTERLOCK_URL" in named <= variables()
    files = {sections(unit)["Service"]["EnvironmentFile"] for unit in ON_A_STORE}
    assert files == {"/etc/interlock/interlock.env"}, "without a dash: a missing file is an error"


def test_an_agent_has_a_user_of_its_own_and_nothing_of_the_store() -> None:
    service = sections(AGENT)["Service"]
    assert "EnvironmentFile" not in service
    others = [sections(unit)["Service"] for unit in ON_A_STORE]
    for name in ("User", "Group", "StateDirectory", "WorkingDirectory"):
        assert service[name] not in {other[name] for other in others}, name


def test_units_differ_in_no_setting_of_their_hardening() -> None:
    """What follows the times and limits is the same in each unit, with the same reasons."""
    parts = {unit.read_text("utf-8").partition("NoNewPrivileges=")[2] for unit in UNITS}
    settings = {re.sub(r"^#.*\n", "", part, flags=re.M) for part in parts}
    assert len(settings) == 1
    assert "SystemCallFilter=" in settings.pop()


async def test_the_agent_of_the_unit_listens_with_its_credentials_and_stops_on_sigterm(
    tmp_path: Path,
) -> None:
    token, (cert, key) = "a-token-of-the-controller", certify(tmp_path)
    (tmp_path / "token").write_text(token)
    found = dict(one.split(":") for one in sections(AGENT)["Service"]["LoadCredential"].split())
    (tmp_path / "cert").write_bytes(cert.read_bytes())
    (tmp_path / "key").write_bytes(key.read_bytes())
    words = starts(AGENT)
    named = [word.rpartition("/")[2] for word in words if "${CREDENTIALS_DIRECTORY}/" in word]
    assert named == list(found) == ["token", "cert", "key"]
    placed = [word.replace("${CREDENTIALS_DIRECTORY}", str(tmp_path)) for word in words]
    with running_agent(tmp_path / "home", *placed[1:]) as agent:
        address = f"127.0.0.1:{agent.address.rpartition(':')[2]}"
        trusted = grpc.ssl_channel_credentials(cert.read_bytes())
        async with aio.secure_channel(address, trusted) as channel:
            with pytest.raises(aio.AioRpcError) as refused:
                await Controller(channel).status()
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            known = Controller(channel, (("authorization", f"Bearer {token}"),))
            assert (await known.status()).state == "IDLE"
        assert agent.stop() == 0


def test_the_settings_are_read_and_their_module_is_there() -> None:
    settings = project.read_file(DEPLOY / "interlock.toml")
    assert settings.worker.module == "interlock.demo.tasks"


def test_systemd_understands_every_setting_of_the_units(tmp_path: Path) -> None:
    assert verify(tmp_path, "") == []
    (complaint,) = verify(tmp_path, "ProtectEverything=yes\n")
    assert "ProtectEverything" in complaint


def systemd_analyze() -> tuple[str, dict[str, str]]:
    """Return the program, installed or out of Debian's packages, and its environment."""
    installed = shutil.which("systemd-analyze")
    if installed:
        return installed, dict(os.environ)
    root = unpacked("systemd")
    program = root / "usr" / "bin" / "systemd-analyze"
    assert program.exists(), "systemd-analyze cannot be had: apt-get install systemd"
    libraries = sorted({str(path.parent) for path in root.rglob("*.so*")})
    units = [str(path) for path in root.glob("**/lib/systemd/system")]
    added = {"LD_LIBRARY_PATH": ":".join(libraries), "SYSTEMD_UNIT_PATH": ":".join(units)}
    return str(program), {**os.environ, **added}


def verify(folder: Path, more: str) -> list[str]:
    """Return what systemd says about the units, with more settings in the server's."""
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8").replace(PROGRAM, sys.executable)
        if unit.stem == "interlock-server":
            text = text.replace("[Service]\n", f"[Service]\n{more}")
        (folder / unit.name).write_text(text, encoding="utf-8")
    names = [str(folder / unit.name.replace("@.", "@01.")) for unit in UNITS]
    program, environment = systemd_analyze()
    result = subprocess.run(
        [program, "verify", "--man=no", *names],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    return [line for line in result.stderr.splitlines() if "interlock" in line]
