"""Agents as processes of their own: started in a directory, identified by their address, killed at will.

They are gone with the process that started them, also after `kill -9`: a watchdog sees to that.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import IO

import msgspec

from interlock.lifecycles.durations import DEFAULTS, Durations
from interlock.testing import watchdog
from interlock.testing.process_control import DirectoryGuard

_START_S = 120.0
_STOP_S = 120.0


class AgentFailed(Exception):
    """An agent did not start or stop; the message contains its log."""


class AgentProcess:
    """An `interlock agent` on loopback, at a port of its own."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        durations: Durations = DEFAULTS,
        env: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        values = msgspec.structs.asdict(durations)
        lines = (f"{name} = {value}" for name, value in values.items())
        (folder / "interlock.toml").write_text("\n".join(("[durations]", *lines, "")))
        self.log: Path = folder / "agent.log"
        self._folder = folder
        self._options = options
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[str] | None = None
        self._guard: DirectoryGuard | None = None
        self.address: str = ""

    @property
    def pid(self) -> int:
        """The process id of the agent."""
        if self._process is None:
            raise AgentFailed("The agent is not running.")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started, and neither stopped nor killed since."""
        return self._process is not None

    @property
    def family(self) -> Sequence[int]:
        """The process ids of the agent and its descendants."""
        return watchdog.tree(self.pid)

    def start(self) -> None:
        """Start it, and return when it listens."""
        words = ["agent", "--port", "0", "--json", "--log-format", "json", *self._options]
        with self.log.open("ab") as log:
            self._process = self.launch(words, self._folder, self._env, log)
        self._guard = DirectoryGuard()
        self._guard.watch(self._process.pid)
        assert self._process.stdout is not None
        ready, _, _ = select([self._process.stdout], [], [], _START_S)
        line = self._process.stdout.readline() if ready else ""
        if not line.startswith("{"):
            self.kill()
            raise AgentFailed(f"The agent does not start.\n{line}{self.words()}")
        self.address = json.loads(line)["address"]

    @staticmethod
    def launch(
        words: Sequence[str], folder: Path, env: Mapping[str, str], log: IO[bytes]
    ) -> subprocess.Popen[str]:
        """Start `interlock WORDS` in a session of its own, with errors in the log."""
        return subprocess.Popen(
            [sys.executable, "-m", "interlock", *words],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop it with a signal and return its exit code."""
        if self._process is None:
            return 0
        self._process.send_signal(how)
        return self._wait(self._process)

    def kill(self) -> None:
        """Kill it as a crash would; safe when it is not running."""
        if self._process is not None:
            self._process.kill()
            self._wait(self._process)

    def pause(self) -> None:
        """Freeze it with SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue it after a pause."""
        os.kill(self.pid, signal.SIGCONT)

    def words(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-4_000:] if self.log.exists() else ""

    def _wait(self, process: subprocess.Popen[str]) -> int:
        try:
            code = process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AgentFailed(f"The agent does not stop.\n{self.words()}") from None
        finally:
            if process.stdout is not None:
                process.stdout.close()
            self._let_go()
        self._process = None
        return code

    def _let_go(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.watch(0)
            guard.close()


@contextmanager
def running_agent(
    folder: Path, *options: str, durations: Durations = DEFAULTS, env: Mapping[str, str] | None = None
) -> Iterator[AgentProcess]:
    """Run an agent within the context; kill it at the end if necessary."""
    agent = AgentProcess(folder, *options, durations=durations, env=env)
    agent.start()
    try:
        yield agent
    finally:
        agent.kill()
