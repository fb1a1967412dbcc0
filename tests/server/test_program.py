"""`interlock server` as a program: it starts soon, says what it is, and ends in good order."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import subprocess
from pathlib import Path

import httpx2
import pytest
from tests.programs import run
from tests.server.running import ANY_PORT, any_port, program, running
from tests.waiting import PATIENCE_S, until, until_so

from interlock import Interlock
from interlock.api.server import Alive
from interlock.cli.main import main
from interlock.errors import CannotListen, InvalidSettings, StoreUnavailable
from interlock.server.routes import Call, Route
from interlock.server.settings import ServerSettings
from interlock.server.sockets import (
    bind,
)
from interlock.wire.access import Role
from interlock.wire.runner import ClaimRequest
from interlock.worker.http import HttpOrchestrator


def interlock(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The program, run to its end."""
    return run(*arguments, folder=folder)


def asking(url: str) -> httpx2.Client:
    return httpx2.Client(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_S)


def is_shut(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=PATIENCE_S).close()
    except ConnectionError:
        return True
    return False


def test_a_server_prints_its_url_store_and_access_and_exits_with_code_0_on_sigterm(tmp_path: Path) -> None:
    with program(folder=tmp_path) as (process, url, output), asking(url) as client:
        assert client.get("/readyz").status_code == 200
        assert client.post("/api/jobs", json={"task": "a.b"}).status_code == 201
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=PATIENCE_S)[1]
        assert process.returncode == 0, errors
        assert f"{tmp_path}/interlock.db" in output
        assert "without a token" in output
        assert f"curl {url}/api/jobs" in output
        assert "Traceback" not in errors


def test_a_request_that_has_begun_is_finished_after_sigterm(tmp_path: Path) -> None:
    body = b'{"task": "a.b"}'
    with program(folder=tmp_path) as (process, url, _):
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        with socket.create_connection(address, timeout=PATIENCE_S) as half:
            head = f"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            half.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body[:5])
            with asking(url) as client:
                client.get("/healthz")  # by now the half of the other request has been read
            process.send_signal(signal.SIGTERM)
            until_so(lambda: is_shut(address), "the door is shut")
            half.sendall(body[5:])
            assert half.recv(12) == b"HTTP/1.1 201"
        assert process.wait(PATIENCE_S) == 0


def test_an_accepted_job_is_still_pending_after_the_server_is_killed_and_restarted(tmp_path: Path) -> None:
    with program(folder=tmp_path) as (process, url, _):
        with asking(url) as client:
            job_id = client.post("/api/jobs", json={"task": "a.b"}).json()["id"]
        process.kill()
        process.wait(PATIENCE_S)
    with program(folder=tmp_path) as (_, url, _), asking(url) as client:
        assert client.get(f"/api/jobs/{job_id}").json()["state"] == "PENDING"


def test_the_token_command_creates_lists_and_revokes_tokens_and_the_server_requires_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def say(*words: str) -> tuple[int, str, str]:
        return main(("token", *words)), *capsys.readouterr()

    code, out, errors = say("create", "ci", "--role", "viewer", "--expires", "30d")
    assert code == 0, errors
    token = out.strip()
    assert token.startswith("il_")
    assert "not shown again" in errors
    assert "require a token from now on" in errors
    assert "require a token" not in say("create", "other", "--role", "viewer")[2]
    assert say("revoke", "other")[0] == 0
    _, listed, _ = say("list")
    assert listed.startswith("ci\tviewer\tactive\tall\t")
    assert token not in listed
    with program(folder=tmp_path) as (_, url, _), asking(url) as client:
        assert client.get("/api/jobs").status_code == 401
        assert client.get("/api/jobs", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    assert say("create", "ci", "--role", "viewer")[0] == 2
    assert say("revoke", "ci", "--reason", "it was in a log")[1] == "ci (viewer) is revoked.\n"
    assert say("list")[1] == ""
    assert "revoked" in say("list", "--all", "--json")[1]
    assert say("revoke", "nobody")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--host", "0.0.0.0", "--no-token-required"), "other machines can reach 0.0.0.0"),
        (("--allow-host", "ci.example.org"), "there is no token in the store"),
        (
            ("--allow-host", "ci.example.org", "--no-token-required"),
            "other machines can reach it as ci.example.org",
        ),
        (("--polls-each", "0"), "polls_each is 0"),
        (("--host", "no.such.host.invalid"), "Cannot listen at no.such.host.invalid"),
        (("--store", "nonsense:"), "is not the URL of a store"),
        (("--tls-cert", "cert.pem"), "a certificate and its key are given together"),
        (("--tls-cert", "a.pem", "--tls-key", "b.pem"), "cannot be used"),
        (("--log-level", "loud"), "is not one of debug"),
    ],
)
def test_a_server_that_cannot_start_prints_the_reason_without_a_traceback(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = interlock("server", "--port", "0", *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_in_use_is_reported(tmp_path: Path) -> None:
    with bind(ANY_PORT) as taken:
        port = taken.getsockname()[1]
        done = interlock("server", "--port", str(port), folder=tmp_path)
        assert done.returncode == 2
        assert f"Cannot listen at 127.0.0.1:{port}: Address already in use." in done.stderr
        with pytest.raises(CannotListen):
            bind(ServerSettings(port=port))


async def test_requests_are_finished_and_new_ones_refused_while_a_server_ends() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(call: Call) -> Alive:
        begun.set()
        await go_on.wait()
        await call.parts.store.now()  # the store is still there
        return Alive(status="ok")

    slow = Route(request="GET /api/slow", name="slow", summary="Wait.", handler=wait, role=Role.VIEWER)
    async with running(more=[slow]) as one:
        waiting = asyncio.create_task(one.client().get("/api/slow"))
        await asyncio.wait_for(begun.wait(), PATIENCE_S)
        one.listener.stop()
        await until(lambda: is_shut(one.address), "the door is shut")
        go_on.set()
        assert (await waiting).json() == {"status": "ok"}


async def test_a_server_does_not_wait_for_ever_for_a_request_that_does_not_end() -> None:
    begun = asyncio.Event()

    async def never(_: Call) -> Alive:
        begun.set()
        await asyncio.Event().wait()
        return Alive(status="ok")

    slow = Route(request="GET /api/slow", name="slow", summary="Wait.", handler=never, role=Role.VIEWER)
    async with running(settings=any_port(shutdown_s=1.0), more=[slow]) as one:
        waiting = asyncio.create_task(one.client().get("/api/slow"))
        await asyncio.wait_for(begun.wait(), PATIENCE_S)
        one.listener.stop()
        answer = await waiting
        assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")


async def test_clients_trust_only_the_configured_certificate_authority(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (cert, key), (other, _) = certificate(tmp_path), certificate(tmp_path / "other")
    settings = any_port(tls_cert=str(cert), tls_key=str(key))
    async with running(settings=settings) as one:
        url = one.url.replace("127.0.0.1", "localhost")
        async with Interlock(url, ca=str(cert)) as il:
            assert (await il.job((await il.submit("a.b")).id)).state == "PENDING"
        port = HttpOrchestrator(url, names=lambda: "c", ca=str(cert))
        await port.connect()
        assert len(await port.claim(ClaimRequest(runner_id="r"))) == 1
        await port.disconnect()
        for ca in (None, str(other)):
            with pytest.raises(StoreUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
                await Interlock(url, ca=ca).open()
        with pytest.raises(InvalidSettings, match="cannot be used"):
            await Interlock(url, ca=str(key)).open()
        environment = {**os.environ, "INTERLOCK_URL": url, "INTERLOCK_CA": "", "NO_COLOR": "1"}
        words = ("--ca", str(cert), "job", "list", "--json")
        result = await asyncio.to_thread(run, *words, environment=environment)
        assert (result.returncode, result.stdout.count('"a.b"')) == (0, 1), result.stderr


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate that vouches for itself, and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    made = subprocess.run(
        [*words.split(), "-keyout", str(key), "-out", str(cert), *names], capture_output=True, check=False
    )
    assert made.returncode == 0, made.stderr
    return cert, key


async def test_a_server_with_a_certificate_serves_https(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    settings = any_port(tls_cert=str(cert), tls_key=str(key))
    async with running(settings=settings) as one:
        assert one.url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(cert))
        assert (await one.client(verify=trusting).get("/healthz")).json() == {"status": "ok"}
