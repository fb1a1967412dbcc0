"""Processes in groups of their own: what they write, and how they are ended with all their kin."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import TypeAlias

MAX_LINE_BYTES = 8 * 1024
DRAIN_S = 1.0
"""How long the output of a process is read after its end: somebody else may hold the pipe open."""


Hear: TypeAlias = Callable[[str, str], None]
"""Is given each line, and whether it was written to `stdout` or `stderr`."""


class Group:
    """A process that leads a group and a session, and everything that it starts."""

    def __init__(self, transport: asyncio.SubprocessTransport, output: _Output) -> None:
        self._transport = transport
        self._output = output
        self._killing: asyncio.TimerHandle | None = None
        self.pid = transport.get_pid()

    @classmethod
    async def start(
        cls,
        arguments: Sequence[str],
        hear: Hear,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Group:
        """Start it, with nothing to read and all it writes heard."""
        transport, output = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Output(hear),
            *arguments,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            cwd=cwd,
            env=env,
            pass_fds=pass_fds,
            start_new_session=True,
        )
        return cls(transport, output)

    async def ended(self) -> int:
        """Wait for its end and its last words; what it has left behind is killed. Gives the exit code."""
        try:
            await self._output.exited.wait()
            kill_group(self.pid, signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_S):
                    await self._output.drained.wait()
            return self._transport.get_returncode() or 0
        finally:
            if self._killing is not None:
                self._killing.cancel()
            self._transport.close()

    def terminate(self, grace_s: float) -> None:
        """Ask it to end, and kill it when it has not after a while."""
        if self._killing is None and not self._output.exited.is_set():
            self._signal(signal.SIGTERM)
            self._killing = asyncio.get_running_loop().call_later(grace_s, self.kill)

    def kill(self) -> None:
        """End it now, with everything it has started."""
        if not self._output.exited.is_set():
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        family = descendants(self.pid)  # found first: once their parent is dead nobody knows whose they are
        kill_group(self.pid, number)
        for member in family:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, number)


def kill_group(pid: int, number: signal.Signals) -> None:
    """Signal a group that may have ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have, whatever their group."""
    children: dict[int, list[int]] = {}
    for member, parent, _ in processes():
        children.setdefault(parent, []).append(member)
    family = list(children.get(pid, ()))
    for member in family:
        family.extend(children.get(member, ()))
    return family


def processes() -> Iterable[tuple[int, int, str]]:
    """Every process with its parent and its state."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent = (entry / "stat").read_text().rpartition(") ")[2].split()[:2]
            yield int(entry.name), int(parent), state


class _Output(asyncio.SubprocessProtocol):
    """Each line as it comes; one that is too long, or has no end when the stream ends, in parts."""

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._rest = {1: b"", 2: b""}
        self.exited = asyncio.Event()
        self.drained = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        *lines, rest = (self._rest[fd] + data).split(b"\n")
        for line in lines:
            self._say(fd, line.rstrip(b"\r"))
        while len(rest) > MAX_LINE_BYTES:
            self._say(fd, rest[:MAX_LINE_BYTES])
            rest = rest[MAX_LINE_BYTES:]
        self._rest[fd] = rest

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        if rest := self._rest.pop(fd, b""):
            self._say(fd, rest)
        if not self._rest:
            self.drained.set()

    def process_exited(self) -> None:
        self.exited.set()

    def _say(self, fd: int, line: bytes) -> None:
        self._hear(line.decode(errors="replace"), "stdout" if fd == 1 else "stderr")
