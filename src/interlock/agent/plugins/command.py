"""`command`: any program.

By default the program is the whole workload: it is started once in each lane, runs until it exits or the
time ends, and is one operation. With `repeat` it is started repeatedly, at the rate, and each run is an
operation. An exit code other than 0 is a failure; at the end of the time the program receives SIGTERM, which
is not a failure.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from contextlib import suppress
from typing import ClassVar

import msgspec

from interlock.agent.port import Load, Workload
from interlock.agent.protocol import ERROR_LENGTH

LAST_WORDS_S = 0.2
END_S = 2.0
"""Time for a program to exit after SIGTERM."""


class CommandSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The program and its options."""

    command: list[str] | str
    """Program and arguments; a string is passed to a shell."""
    repeat: bool = False
    env: dict[str, str] = {}
    """Additional environment variables."""
    cwd: str | None = None


class CommandWorkload(Workload[CommandSpec]):
    """A workload whose operations are runs of a program."""

    kind = "command"
    spec_type: ClassVar[type[msgspec.Struct]] = CommandSpec

    def __init__(self, spec: CommandSpec) -> None:
        super().__init__(spec)
        self._running: set[Process] = set()

    @classmethod
    def check(cls, spec: CommandSpec) -> None:
        """Check that there is a program."""
        if not spec.command or not spec.command[0]:
            raise ValueError("command must name a program")

    async def run(self, load: Load) -> None:
        """Run the program once in each lane until the time ends, or repeatedly."""
        if self.spec.repeat:
            await load.drive(self._run_once)
        else:
            await asyncio.gather(*(self._whole(load) for _ in range(load.concurrency)))

    async def cleanup(self) -> None:
        """End the running programs."""
        await asyncio.gather(*(_end(process) for process in list(self._running)))

    async def _whole(self, load: Load) -> None:
        began_ns = time.monotonic_ns()
        process = await self._start()
        ending, over = asyncio.create_task(_ended(process)), asyncio.create_task(load.until_over())
        await asyncio.wait((ending, over), return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        ended_itself = ending.done()
        if not ended_itself:
            await _end(process)
        trouble = await ending
        self._running.discard(process)
        load.record(time.monotonic_ns() - began_ns, error=trouble if ended_itself else None)

    async def _run_once(self) -> None:
        process = await self._start()
        try:
            if trouble := await _ended(process):
                raise CommandFailed(trouble)
        finally:
            await _end(process)
            self._running.discard(process)

    async def _start(self) -> Process:
        command, cwd = self.spec.command, self.spec.cwd
        env = {**os.environ, **self.spec.env}
        if isinstance(command, str):
            command = ["/bin/sh", "-c", command]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, env=env, cwd=cwd, start_new_session=True
        )
        self._running.add(process)
        return process


class CommandFailed(Exception):
    """A program has exited with a code other than 0."""


async def _ended(process: Process) -> str | None:
    """Return the error of a program and its last line, or None on success."""
    last: deque[bytes] = deque(maxlen=2)
    reading = asyncio.create_task(_read(process, last))
    code = await process.wait()
    await asyncio.wait((reading,), timeout=LAST_WORDS_S)  # a child of the program may hold the pipe open
    reading.cancel()
    lines = b"".join(last).decode(errors="replace").split("\n")
    last_line = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return (
        None if code == 0 else f"ended with code {code}{': ' if last_line else ''}{last_line}"[:ERROR_LENGTH]
    )


async def _read(process: Process, last: deque[bytes]) -> None:
    assert process.stderr is not None
    while chunk := await process.stderr.read(4096):
        last.append(chunk)


async def _end(process: Process) -> None:
    """Terminate a program and its children, and kill them shortly afterwards."""
    if process.returncode is not None:
        return
    _signal(process, signal.SIGTERM)
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        pass
    _signal(process, signal.SIGKILL)
    await process.wait()


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
