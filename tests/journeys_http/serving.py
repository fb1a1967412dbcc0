"""A server as a process, and a crew behind it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from tests.journeys.crew import Crew, Worker, last_lines
from tests.programs import Program

from interlock.systems.access.tokens import Tokens
from interlock.testing.process_control import freeze
from interlock.wire.access import Role


class ServerProcess:
    """`interlock server` on a port of its own, which it keeps when it is started again."""

    def __init__(self, folder: Path, store: str) -> None:
        self.log = folder / "server.log"
        self._folder = folder
        self._store = store
        self._port = 0
        self.url = ""
        self._process: Program | None = None

    def start(self) -> None:
        """Start it, and come back when it answers."""
        with self.log.open("a") as log:
            self._process = Program(
                *("server", "--port", str(self._port), "--store", self._store, "--token-required"),
                folder=self._folder,
                environment={**os.environ, "INTERLOCK_URL": ""},
                stderr=log,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert "http://" in line, self.log.read_text()
        self.url = line.split()[-1]
        self._port = int(self.url.rpartition(":")[2])

    def signal(self, number: signal.Signals) -> int:
        """Send it a signal that ends it; its exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.communicate()
        return self._process.wait()

    async def freeze(self) -> None:
        """Stop it, as a host that is suspended does: its connections stay open, and nothing is answered."""
        assert self._process is not None
        await asyncio.to_thread(freeze, self._process.pid, self._store)

    def thaw(self) -> None:
        """It goes on, and does not know that time has passed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Leave nothing behind."""
        if self._process is not None and self._process.returncode is None:
            self.signal(signal.SIGKILL)


class Served(Crew):
    """Workers and a client that know a server and their tokens, and nothing of the store."""

    server: ServerProcess
    tokens: dict[str, str]

    async def serve(self) -> None:
        """Start the server; everybody has a token of their own."""
        tokens = Tokens(self.il.services.engine)
        self.tokens = {
            name: (await tokens.create(name, role)).token
            for name, role in (("somebody", Role.OPERATOR), ("runners", Role.RUNNER), ("boss", Role.ADMIN))
        }
        self.server = ServerProcess(self.folder, self.url)
        self.server.start()

    async def start(self, name: str = "anna", *options: str, **how: Any) -> Worker:
        """The same, with the address of the server."""
        return await super().start(name, "--server", self.server.url, *options, **how)

    def story(self) -> str:
        """The last words of everybody, and of the server."""
        return "\n".join(
            [super().story(), "--- the server", *last_lines(self.server.log.read_text().splitlines())]
        )

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "INTERLOCK_TOKEN": self.tokens["runners"]}
