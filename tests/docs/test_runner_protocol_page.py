"""The page of the runner protocol is a conversation; here it is had with a real server."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from tests.server.running import Running, running
from tests.waiting import PATIENCE_S

from interlock.lifecycles.durations import Durations
from interlock.systems.settings import Settings
from interlock.wire.access import Role

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "runner-protocol.md"
EXAMPLE = ROOT / "examples" / "runner.py"
TELLING = {"state", "answer", "code", "cancel_requested", "protocol", "acknowledged", "task", "status"}
"""What must be the very same as on the page; of the rest the names and the types."""

TALKATIVE = Settings(
    durations=Durations(heartbeat_every_s=0.1, cancel_deadline_s=100, shutdown_deadline_s=100)
)
"""Runners give signs of life often, so they soon hear of a cancel, and have all the time to stop."""

_PIECE = re.compile(r"^<!-- (?P<direction>\w+) -->$|^```(?P<kind>http|json)\n(?P<text>.*?)^```$", re.S | re.M)


def pieces() -> Iterator[tuple[str, str]]:
    """Stage directions, requests and answers, in the order of the page."""
    for found in _PIECE.finditer(PAGE.read_text(encoding="utf-8")):
        yield (found["kind"], found["text"]) if found["kind"] else ("direction", found["direction"])


class Stage:
    """The conversation, as far as it has come."""

    def __init__(self, server: Running) -> None:
        self._server = server
        self._client = server.client()
        self._token = ""
        self._job_id = ""
        self.answer: Any = None

    async def direct(self, direction: str) -> None:
        """Something happens."""
        if direction == "job":
            self._job_id = await self._server.submit(
                "interlock.shell", input=msgspec.Raw(b'{"run":"make test"}'), retries=0
            )
        else:
            assert direction == "cancel"
            await self._server.parts.runtime.jobs.cancel(self._job_id)

    async def ask(self, text: str) -> None:
        """A request as it stands on the page."""
        head, _, body = text.partition("\n\n")
        method, path = head.split()
        sent = body.replace("TOKEN", self._token)
        headers = {"Content-Type": "application/json"} if body else {}
        response = await self._client.request(method, path, content=sent, headers=headers)
        assert response.status_code in (200, 409), response.text
        self.answer = response.json()
        if path.endswith("/lease"):
            (grant,) = self.answer["grants"]
            self._token = grant["token"]


def shape(value: Any, name: str = "") -> Any:
    """What is compared."""
    if isinstance(value, dict):
        return {key: shape(inner, key) for key, inner in value.items() if key != "facts"}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    if name in TELLING:
        return value
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


async def test_the_server_responds_to_every_request_on_the_page_as_documented() -> None:
    answered = 0
    async with running() as server:
        stage = Stage(server)
        for kind, text in pieces():
            if kind == "direction":
                await stage.direct(text)
            elif kind == "http":
                await stage.ask(text)
            else:
                assert shape(stage.answer) == shape(msgspec.json.decode(text)), text
                answered += 1
    assert answered == 12


def test_the_page_names_every_address_of_the_protocol() -> None:
    from interlock.api import runner
    from interlock.api.table import declared_in

    text = PAGE.read_text(encoding="utf-8")
    for route in declared_in(runner):
        assert f"{route.method} {route.path}\n" in text, route.path


# The example


def test_the_example_is_short_and_needs_nothing_but_python() -> None:
    source = EXAMPLE.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 60
    imported = re.findall(r"^(?:import|from) (\w+)", source, re.M)
    assert set(imported) <= set(sys.stdlib_module_names)


@pytest.fixture
def start(request: pytest.FixtureRequest) -> Any:
    def run(server: Running, token: str = "") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, EXAMPLE, server.url, "builds"],
            env={"INTERLOCK_TOKEN": token, "PATH": "/usr/bin:/bin"},
            stderr=subprocess.PIPE,
            text=True,
        )

        def end() -> None:
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=PATIENCE_S)

        request.addfinalizer(end)
        return process

    return run


async def test_the_example_does_shell_jobs(start: Any) -> None:
    async with running() as server:
        client = server.client(await server.token(Role.OPERATOR))
        start(server, await server.token(Role.RUNNER, queues=["builds"]))
        for command, state in (("echo hello", "COMPLETED"), ("echo no >&2; exit 3", "FAILED")):
            view = await _ended(server, client, command)
            assert view["state"] == state
        assert view["failure"]["exit_code"] == 3
        assert view["failure"]["details"] == "no\n"


async def _ended(server: Running, client: httpx2.AsyncClient, command: str) -> Any:
    job = {"task": "interlock.shell", "input": {"run": command}, "queue": "builds", "retries": 0}
    job_id = (await client.post("/api/jobs", json=job)).json()["id"]
    await asyncio.wait_for(server.parts.runtime.waiting.ended(job_id), PATIENCE_S)
    return (await client.get(f"/api/jobs/{job_id}")).json()


async def test_the_example_runner_stops_a_cancelled_job_without_a_forced_cancel(
    start: Any, tmp_path: Path
) -> None:
    async with running(orchestration=TALKATIVE) as server:
        start(server)
        began = tmp_path / "began"
        os.mkfifo(began)
        order = msgspec.Raw(msgspec.json.encode({"run": f"echo > {began}; sleep 300"}))
        job_id = await server.submit("interlock.shell", queue="builds", input=order, retries=0)
        jobs = server.parts.runtime.jobs
        await asyncio.wait_for(asyncio.to_thread(began.read_text), PATIENCE_S)
        await jobs.cancel(job_id)
        record = await asyncio.wait_for(server.parts.runtime.waiting.ended(job_id), PATIENCE_S)
        assert record.state == "CANCELED"
        (attempt,) = (await jobs.get(job_id)).attempts
        assert not attempt.forced


async def test_the_example_ends_with_a_sentence_when_it_is_not_let_in(start: Any) -> None:
    async with running() as server:
        process = start(server, await server.token(Role.VIEWER))
        _, stderr = await asyncio.to_thread(process.communicate, timeout=PATIENCE_S)
        assert process.returncode == 1
        assert "this needs runner" in stderr
