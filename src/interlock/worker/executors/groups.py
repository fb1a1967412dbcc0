"""Processes in groups of their own: what they write, and how they are ended with all their kin."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

MAX_LINE_BYTES = 8 * 1024
DRAIN_S = 1.0
"""How long the output of a process is read after its end: somebody else may hold the pipe open."""


class Group:
    """A process that leads a group and a session, and everything that it starts."""

    def __init__(self, process: Process, hear: Callable[[str, str], None]) -> None:
        self.process = process
        self.pid = process.pid
        self._killing: asyncio.TimerHandle | None = None
        self._readers = [
            asyncio.create_task(_hear_lines(stream, name, hear))
            for stream, name in ((process.stdout, "stdout"), (process.stderr, "stderr"))
            if stream is not None
        ]

    @classmethod
    async def start(
        cls,
        arguments: Sequence[str],
        hear: Callable[[str, str], None],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Group:
        """Start it; `hear` is given each line it writes, and whether to stdout or stderr."""
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            cwd=cwd,
            env=env,
            pass_fds=pass_fds,
            start_new_session=True,
        )
        return cls(process, hear)

    async def ended(self) -> int:
        """Wait for its end and its last words; what it has left behind is killed. Gives the exit code."""
        try:
            code = await self.process.wait()
            kill_group(self.pid, signal.SIGKILL)
            await asyncio.wait(self._readers, timeout=DRAIN_S)
        finally:
            for reader in self._readers:
                reader.cancel()
            if self._killing is not None:
                self._killing.cancel()
        return code

    def terminate(self, grace_s: float) -> None:
        """Ask it to end, and kill it when it has not after a while."""
        if self._killing is None and self.process.returncode is None:
            self._signal(signal.SIGTERM)
            self._killing = asyncio.get_running_loop().call_later(grace_s, self.kill)

    def kill(self) -> None:
        """End it now, with everything it has started."""
        if self.process.returncode is None:
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


async def _hear_lines(stream: asyncio.StreamReader, name: str, hear: Callable[[str, str], None]) -> None:
    """Each line as it comes; one that is too long, or has no end yet when the stream ends, in parts."""
    rest = b""
    while chunk := await stream.read(65_536):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            hear(line.rstrip(b"\r").decode(errors="replace"), name)
        while len(rest) > MAX_LINE_BYTES:
            hear(rest[:MAX_LINE_BYTES].decode(errors="replace"), name)
            rest = rest[MAX_LINE_BYTES:]
    if rest:
        hear(rest.decode(errors="replace"), name)
