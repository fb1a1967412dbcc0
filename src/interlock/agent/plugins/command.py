"""`command`: any program.

By default the program is the whole workload: it is started once in each lane, runs until it ends or the
time is over, and is one operation. With `repeat` it is started again and again, at the rate, and each
time is an operation. One that ends with another code than 0 has failed; at the end of the time it is
asked to end (SIGTERM), which is no failure.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from contextlib import suppress

import msgspec

from interlock.agent.port import Load, Workload
from interlock.agent.protocol import ERROR_LENGTH

LAST_WORDS_S = 0.2
END_S = 2.0
"""How long a program that is asked to end may take."""


class CommandSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which program, and how."""

    command: list[str] | str
    """The program and its arguments; a text is given to a shell."""
    repeat: bool = False
    env: dict[str, str] = {}
    """More variables for it."""
    cwd: str | None = None


class Command(Workload[CommandSpec]):
    """Each operation is one run of a program."""

    kind = "command"
    spec_type = CommandSpec

    def __init__(self, spec: CommandSpec) -> None:
        super().__init__(spec)
        self._running: set[Process] = set()

    @classmethod
    def check(cls, spec: CommandSpec) -> None:
        """There is something to run."""
        if not spec.command or not spec.command[0]:
            raise ValueError("command must name a program")

    async def run(self, load: Load) -> None:
        """Run it once in each lane until the time is over, or again and again."""
        if self.spec.repeat:
            await load.drive(self._once)
        else:
            await asyncio.gather(*(self._whole(load) for _ in range(load.concurrency)))

    async def cleanup(self) -> None:
        """End whatever still runs."""
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

    async def _once(self) -> None:
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
    """A program has ended with another code than 0."""


async def _ended(process: Process) -> str | None:
    """What went wrong, with the last line that it wrote about that."""
    last: deque[bytes] = deque(maxlen=2)
    reading = asyncio.create_task(_read(process, last))
    code = await process.wait()
    await asyncio.wait((reading,), timeout=LAST_WORDS_S)  # somebody whom it has started may hold the pipe
    reading.cancel()
    lines = b"".join(last).decode(errors="replace").split("\n")
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return None if code == 0 else f"ended with code {code}{': ' if said else ''}{said}"[:ERROR_LENGTH]


async def _read(process: Process, last: deque[bytes]) -> None:
    assert process.stderr is not None
    while chunk := await process.stderr.read(4096):
        last.append(chunk)


async def _end(process: Process) -> None:
    """Ask it to end, with what it has started, and kill all of that when it has not a little later."""
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
