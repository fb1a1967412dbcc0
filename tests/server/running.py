"""A real server on a free port of this machine, in this process or as a program."""

from __future__ import annotations

import asyncio
import io
import os
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from tests.programs import Program
from tests.waiting import PATIENCE_S

from interlock.server.logs import ServerLog
from interlock.server.parts import Parts
from interlock.server.routes import Route
from interlock.server.settings import ServerSettings
from interlock.server.sockets import Listener, serve
from interlock.store.memory import MemoryStore
from interlock.systems.kinds import OURS, Lifecycles
from interlock.systems.settings import DEFAULT_SETTINGS, Settings
from interlock.wire.access import Role
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import ClaimRequest, Complete, Grant, LogLine, Succeeded

ANY_PORT = ServerSettings(
    port=0, header_s=PATIENCE_S, body_s=PATIENCE_S, request_s=PATIENCE_S, shutdown_s=PATIENCE_S
)
"""A server that gives up on nobody, however slow the machine is."""

FOR_EVER_S = 3_600.0
"""Longer than any test lasts."""


def any_port(**different: Any) -> ServerSettings:
    """Return settings that are patient but for what is different."""
    return msgspec.structs.replace(ANY_PORT, **different)


def path_of(route: Route, **names: str) -> str:
    """The address of a route, with ids that nothing has where none are given."""
    return route.path.format_map(defaultdict(lambda: "x_000000000000", names))


class Running:
    """A server, and how to ask it."""

    def __init__(self, listener: Listener, parts: Parts, log: io.StringIO) -> None:
        self.listener = listener
        self.parts = parts
        self.url = listener.url
        self.log = log
        self._clients: list[httpx2.AsyncClient] = []

    @property
    def address(self) -> tuple[str, int]:
        """For those who speak HTTP by hand."""
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    def client(self, token: str | None = None, **options: Any) -> httpx2.AsyncClient:
        """Somebody who asks; with a token when there is one. Whom to trust is read only where it matters."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        options.setdefault("verify", self.url.startswith("https:"))
        client = httpx2.AsyncClient(
            base_url=self.url, headers=headers, trust_env=False, timeout=PATIENCE_S, **options
        )
        self._clients.append(client)
        return client

    async def token(self, role: Role, name: str = "", queues: Sequence[str] = ()) -> str:
        """A new token."""
        issued = await self.parts.tokens.create(name or f"a-{role}", role, queues=queues)
        return issued.token

    async def submit(self, task: str = "shop.send", **spec: Any) -> str:
        """A job, past the API."""
        return await self.parts.runtime.jobs.submit(JobSpec(task=task, **spec), actor="test")

    async def work(self, job_id: str, *, result: bytes = b"null", lines: tuple[LogLine, ...] = ()) -> Grant:
        """Claim everything, and complete one job."""
        orchestrator = self.parts.runtime.orchestrator
        grants = await orchestrator.claim(ClaimRequest(runner_id="r", limit=100, queues=("default", "mail")))
        grant = next(grant for grant in grants if grant.job_id == job_id)
        message = Complete(
            token=grant.token,
            runner_id="r",
            sequence=1,
            outcome=Succeeded(msgspec.Raw(result)),
            log=lines,
        )
        await orchestrator.report([message])
        return grant

    async def hold(self, job_id: str, queue: str, runner_id: str = "r") -> Grant:
        """Claim a job that is alone in its queue, and keep it."""
        request = ClaimRequest(runner_id=runner_id, queues=(queue,))
        (grant,) = await self.parts.runtime.orchestrator.claim(request)
        assert grant.job_id == job_id
        return grant

    def jump(self, seconds: float) -> None:
        """Set the clock of a store in memory ahead, so that what lasts so long is over."""
        store = self.parts.store
        assert isinstance(store, MemoryStore)
        before = store._clock
        store._clock = lambda: before() + timedelta(seconds=seconds)

    async def close(self) -> None:
        """Nobody asks any more."""
        for client in self._clients:
            await client.aclose()


@asynccontextmanager
async def running(
    url: str = "memory:",
    settings: ServerSettings = ANY_PORT,
    *,
    orchestration: Settings = DEFAULT_SETTINGS,
    more: Sequence[Route] = (),
    lifecycles: Lifecycles = OURS,
) -> AsyncIterator[Running]:
    """A server in this process while this lasts."""
    ready: asyncio.Future[tuple[Listener, Parts]] = asyncio.get_running_loop().create_future()
    log = io.StringIO()
    serving = asyncio.create_task(
        serve(
            url,
            settings,
            orchestration=orchestration,
            log=ServerLog("debug", "json", log),
            more=more,
            lifecycles=lifecycles,
            started=lambda listener, parts: ready.set_result((listener, parts)),
            signals=False,
        )
    )
    futures: list[asyncio.Future[Any]] = [serving, ready]
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    if not ready.done():
        await serving
    server = Running(*ready.result(), log)
    try:
        yield server
    finally:
        await server.close()
        server.listener.stop()
        await serving


@contextmanager
def program(*arguments: str, folder: Path) -> Iterator[tuple[Program, str, str]]:
    """`interlock server` as a process of its own, its address, and all that it has said by then."""
    environment = {**os.environ, "INTERLOCK_URL": "", "NO_COLOR": "1"}
    with Program("server", "--port", "0", *arguments, folder=folder, environment=environment) as process:
        assert process.stdout is not None
        output = ""
        while "/docs" not in output and (line := process.stdout.readline()):
            output += line
        found = re.search(r"https?://\S+", output)
        assert found, output + process.communicate()[1]
        yield process, found[0], output
