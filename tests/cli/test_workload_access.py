"""`interlock workload run` against agents that ask for a token, TLS and a client certificate."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.shop import RunCli, Shop
from tests.waiting import PROGRAM_S

from interlock.testing.agent_process import AgentProcess, running_agent

LOAD = """\
kind: sleep
operations: 5
duration: 10m
lead: 500ms
skew-limit: 60s
ready-within: 60s
lost-after: 60s
"""
TOKEN = "a-token-of-the-fleet"
NEW_KEY = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=PROGRAM_S)


class Certificates:
    """An authority, and the certificates that it has signed: of an agent and of a controller."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca, self._ca_key = folder / "ca.pem", folder / "ca.key"
        own = ("-x509", "-days", "1", "-subj", "/CN=authority")
        run(*NEW_KEY.split(), *own, "-keyout", str(self._ca_key), "-out", str(self.ca))
        self.agent = self._signed("agent")
        self.controller = self._signed("controller")

    def _signed(self, name: str) -> tuple[Path, Path]:
        """The certificate of a name, and its key."""
        cert, key, request = (self.folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
        run(*NEW_KEY.split(), "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request))
        names = self.folder / f"{name}.ext"
        names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
        by = ("-CA", str(self.ca), "-CAkey", str(self._ca_key), "-days", "1", "-extfile", str(names))
        run("openssl", "x509", "-req", "-in", str(request), *by, "-out", str(cert))
        return cert, key


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def guarded(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    """An agent that wants a token and a client certificate, over TLS."""
    cert, key = certificates.agent
    options = ("--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(certificates.ca))
    env = {"INTERLOCK_AGENT_TOKEN": TOKEN}
    with running_agent(tmp_path_factory.mktemp("guarded"), *options, env=env) as agent:
        yield agent


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    """An agent that wants a token, without TLS."""
    env = {"INTERLOCK_AGENT_TOKEN": TOKEN}
    with running_agent(tmp_path_factory.mktemp("plain"), env=env) as agent:
        yield agent


@pytest.fixture
def load(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> str:
    (shop.folder / "load.yml").write_text(LOAD)
    monkeypatch.setenv("INTERLOCK_AGENT_TOKEN", TOKEN)
    return "load.yml"


def test_an_agent_accepts_the_client_certificate_given_on_the_command_line(
    cli: RunCli, load: str, guarded: AgentProcess, certificates: Certificates
) -> None:
    cert, key = map(str, certificates.controller)
    tls = ("--tls-ca", str(certificates.ca), "--tls-cert", cert, "--tls-key", key)
    done = cli("workload", "run", load, "--agents", guarded.address, *tls, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["operations"] == 5


def test_a_client_certificate_of_the_environment_opens_it_as_well(
    cli: RunCli, load: str, guarded: AgentProcess, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that drive fleets are given it so."""
    for name, file in zip(("CERT", "KEY"), certificates.controller, strict=True):
        monkeypatch.setenv(f"INTERLOCK_AGENT_{name}", str(file))
    monkeypatch.setenv("INTERLOCK_AGENT_CA", str(certificates.ca))
    done = cli("workload", "run", load, "--agents", guarded.address, "--json")
    assert done.returncode == 0, done.stderr


def test_the_error_for_a_missing_client_certificate_names_the_options_that_set_one(
    cli: RunCli, load: str, guarded: AgentProcess, certificates: Certificates
) -> None:
    refused = cli("workload", "run", load, "--agents", guarded.address, "--tls-ca", str(certificates.ca))
    assert refused.returncode == 2
    assert "closed the connection" in refused.stderr
    assert "--tls-cert" in refused.stderr
    assert "INTERLOCK_AGENT_CERT" in refused.stderr


def test_a_controller_without_tls_is_informed_that_the_agent_may_want_it(
    cli: RunCli, load: str, guarded: AgentProcess
) -> None:
    refused = cli("workload", "run", load, "--agents", guarded.address)
    assert refused.returncode == 2
    assert "closed the connection" in refused.stderr
    assert "INTERLOCK_AGENT_CA" in refused.stderr
    assert "the only agent is missing" in refused.stderr


def test_a_controller_with_tls_is_informed_that_the_agent_has_none(
    cli: RunCli, load: str, plain: AgentProcess, certificates: Certificates
) -> None:
    refused = cli("workload", "run", load, "--agents", plain.address, "--tls-ca", str(certificates.ca))
    assert refused.returncode == 2
    assert f"{plain.address} does not use TLS" in refused.stderr


def test_the_error_for_an_untrusted_agent_certificate_names_the_agent_and_the_ca_file(
    cli: RunCli, load: str, guarded: AgentProcess, certificates: Certificates, tmp_path: Path
) -> None:
    stranger = Certificates(tmp_path / "stranger")
    refused = cli("workload", "run", load, "--agents", guarded.address, "--tls-ca", str(stranger.ca))
    assert refused.returncode == 2
    assert f"The certificate of {guarded.address} is not signed by" in refused.stderr
    assert str(stranger.ca) in refused.stderr


@pytest.mark.parametrize(("token", "words"), [("", "is not set"), ("wrong", "does not accept")])
def test_the_error_for_a_missing_or_wrong_token_names_its_environment_variable(
    cli: RunCli, load: str, plain: AgentProcess, monkeypatch: pytest.MonkeyPatch, token: str, words: str
) -> None:
    monkeypatch.setenv("INTERLOCK_AGENT_TOKEN", token)
    refused = cli("workload", "run", load, "--agents", plain.address)
    assert refused.returncode == 2
    assert words in refused.stderr
    assert "INTERLOCK_AGENT_TOKEN" in refused.stderr
    assert "authorization" not in refused.stderr


def test_unusable_tls_files_are_reported_before_a_workload_is_created(
    cli: RunCli, load: str, plain: AgentProcess, certificates: Certificates, tmp_path: Path
) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    (cert, key), (_, other_key) = certificates.controller, certificates.agent
    ca = ("--tls-ca", str(certificates.ca))
    for words, expected in (
        (("--tls-ca", str(junk)), f"The certificates in {junk} cannot be used"),
        (("--tls-ca", "nowhere.pem"), "The certificates in nowhere.pem cannot be used"),
        ((*ca, "--tls-cert", str(junk), "--tls-key", str(key)), f"The certificate {junk} and its key"),
        ((*ca, "--tls-cert", str(cert), "--tls-key", str(other_key)), "cannot be used"),
        ((*ca, "--tls-cert", str(cert)), "--tls-key"),
        (("--tls-cert", str(cert), "--tls-key", str(key)), "--tls-ca"),
    ):
        refused = cli("workload", "run", load, "--agents", plain.address, *words)
        assert refused.returncode == 2
        assert expected in refused.stderr
    assert json.loads(cli("workload", "list", "--json").stdout) == {"workloads": []}
