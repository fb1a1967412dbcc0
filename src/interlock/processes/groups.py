"""Commands with all their child processes: their output, and how all of them are ended.

Each runs under a *warden* (`warden.py`), a small process that inherits all processes that the command leaves
behind, even daemons that have left its group and session. So the end of a command is the end of all of them,
and a failure to do so, or the death of the warden itself, is reported.

`descendants` and `began` read the process tree from `/proc`. `Orphans` reaps ended processes that no other
code waits for: PID 1 inherits every orphan of its container. A child of this process is in its group or leads
its own; one in a third group was started by another program and is reaped at once, all others only after they
have waited for a minute, because their starter wants their exit code.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import TypeAlias

import msgspec

from interlock.processes.credentials import FAMILY
from interlock.processes.masks import NOTHING_SECRET, Mask, MaskedStream

WARDEN = str(Path(__file__).with_name("warden.py"))
MAX_LINE_BYTES = 8 * 1024
DRAIN_S = 1.0
"""Time for reading the output of a process after its end: another process may hold the pipe open."""
CLEAR_UP_S = 10.0
"""Time for a warden to kill its processes; then it is killed itself."""
TURNS = 8
"""Number of turns of a grace period."""


ReceiveLine: TypeAlias = Callable[[str, str], None]
"""Called with each line, and its stream: `stdout` or `stderr`."""


class End(msgspec.Struct, frozen=True):
    """The end of a command."""

    code: int
    """Its exit code; for a signal its number, negative."""
    confirmed_dead: bool
    """Whether all its child processes are known to have ended."""
    left: tuple[int, ...] = ()
    """Processes that have not ended."""


class _GroupReport(msgspec.Struct, frozen=True):
    code: int = -signal.SIGKILL
    killed: int = 0
    left: tuple[int, ...] = ()
    errno: int | None = None
    what: str | None = None


class _WardenReport:
    """The report of a warden, which it writes into a pipe before it ends."""

    def __init__(self, fd: int, mark: str) -> None:
        self._fd = fd
        self._mark = mark
        self._closed = False
        self.content: _GroupReport | None = None

    def read(self) -> None:
        """Read it as soon as the warden has ended.

        A command that has lost its warden would otherwise be waited for forever.
        """
        if self._closed:
            return
        try:
            self.content = msgspec.json.decode(os.read(self._fd, 65_536), type=_GroupReport)
        except (BlockingIOError, msgspec.DecodeError):
            # It was killed, so its processes are unknown; those that can be found are killed.
            hunt(self._mark)

    def close(self) -> None:
        """Close the pipe."""
        self._closed = True
        os.close(self._fd)


class Group:
    """A command that leads a group and a session, with all its child processes."""

    def __init__(
        self, transport: asyncio.SubprocessTransport, output: _Output, report: _WardenReport, mark: str
    ) -> None:
        self._transport = transport
        self._output = output
        self._report = report
        self.mark = mark
        """The mark by which processes are found if the warden is gone."""
        self._timers: list[asyncio.TimerHandle] = []

    @classmethod
    async def start(
        cls,
        arguments: Sequence[str],
        receive: ReceiveLine,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        mask: Mask = NOTHING_SECRET,
        user: int | None = None,
        spared: str = "",
    ) -> Group:
        """Start a command without input; its output is captured and masked.

        With `user` it runs as that user id. Processes named `spared` are not told to terminate.
        """
        mark = secrets.token_hex(8)
        ours, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        report = _WardenReport(ours, mark)
        try:
            transport, output = await asyncio.get_running_loop().subprocess_exec(
                lambda: _Output(receive, mask, report.read),
                *(sys.executable, "-I", "-S", WARDEN, str(theirs), *map(str, pass_fds)),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                pass_fds=(theirs, *pass_fds),
                start_new_session=True,
                env={"PATH": os.environ.get("PATH", os.defpath)},  # the command can read it
            )
        except BaseException:
            report.close()
            raise
        finally:
            os.close(theirs)
        group = cls(transport, output, report, mark)
        variables = {**(os.environ if env is None else env), FAMILY: mark}
        order = {"arguments": list(arguments), "env": variables, "cwd": cwd, "user": user, "spared": spared}
        group._order(json.dumps(order).encode() + b"\n")  # unlike msgspec it accepts lone surrogates
        return group

    async def ended(self) -> End:
        """Wait for its end, and that of its output and all child processes."""
        try:
            await self._output.exited.wait()
            await self._output.drain()
            return self._judge()
        finally:
            for timer in self._timers:
                timer.cancel()
            self._transport.close()
            self._report.close()

    def terminate(self, grace_s: float) -> None:
        """Terminate it, and kill it after the grace."""
        if not self._timers and not self._output.exited.is_set():
            self._order(b"T")
            self._call_later(grace_s, self.kill)

    def kill(self) -> None:
        """Kill it now, with all its child processes."""
        if not self._output.exited.is_set():
            self._order(b"K")
            self._call_later(CLEAR_UP_S, self._give_up)

    def _give_up(self) -> None:
        """Kill a warden that does not respond."""
        if not self._output.exited.is_set():
            self._transport.kill()

    def _call_later(self, seconds: float, act: Callable[[], None], turns: int = TURNS) -> None:
        """Act after a delay, waited for in turns.

        A stall of the host uses up only one of them.
        """
        then = act if turns == 1 else functools.partial(self._call_later, seconds, act, turns - 1)
        self._timers.append(asyncio.get_running_loop().call_later(seconds / TURNS, then))

    def _order(self, order: bytes) -> None:
        pipe = self._transport.get_pipe_transport(0)
        if isinstance(pipe, asyncio.WriteTransport) and not pipe.is_closing():
            pipe.write(order)

    def _judge(self) -> End:
        report = self._report.content
        if report is None:
            hunt(self.mark)
            return End(self._transport.get_returncode() or -signal.SIGKILL, confirmed_dead=False)
        if report.errno is not None:
            raise OSError(report.errno, os.strerror(report.errno), report.what)
        return End(report.code, confirmed_dead=not report.left, left=report.left)


def hunt(mark: str) -> int:
    """Kill processes with the mark in their environment; return their number."""
    found: set[int] = set()
    while new := set(marked(mark)) - found:
        found |= new
        for pid in new:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    return len(found)


def marked(mark: str) -> Iterator[int]:
    """Yield processes with the mark in their environment."""
    entry = f"{FAMILY}={mark}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if entry in (process / "environ").read_bytes().split(b"\0"):
                yield int(process.name)


class _Output(asyncio.SubprocessProtocol):
    """Splits the output into lines; one that is too long, or unfinished at the end, into parts."""

    def __init__(self, receive: ReceiveLine, mask: Mask, on_exit: Callable[[], None]) -> None:
        self._receive = receive
        self._on_exit = on_exit
        self._streams = {1: MaskedStream(mask), 2: MaskedStream(mask)}
        self._rest = {1: b"", 2: b""}
        self.exited: asyncio.Event = asyncio.Event()
        self.drained: asyncio.Event = asyncio.Event()

    async def drain(self) -> None:
        """Wait for the rest of the output, in turns.

        A stall of the host uses up only one of them.
        """
        for _ in range(TURNS):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_S / TURNS):
                    await self.drained.wait()
                    return
        for fd in list(self._rest):  # a process outside of the group holds the pipe open
            self.pipe_connection_lost(fd, None)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd in self._rest:
            self._take(fd, self._streams[fd].feed(data))

    def _take(self, fd: int, data: bytes) -> None:
        *lines, rest = (self._rest[fd] + data).split(b"\n")
        for line in lines:
            self._pass_on(fd, line.rstrip(b"\r"))
        while len(rest) > MAX_LINE_BYTES:
            self._pass_on(fd, rest[:MAX_LINE_BYTES])
            rest = rest[MAX_LINE_BYTES:]
        self._rest[fd] = rest

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        if fd not in self._rest:
            return  # its input, or an output that has ended
        self._take(fd, self._streams[fd].end())
        if rest := self._rest.pop(fd):
            self._pass_on(fd, rest)
        if not self._rest:
            self.drained.set()

    def process_exited(self) -> None:
        self.exited.set()
        self._on_exit()

    def _pass_on(self, fd: int, line: bytes) -> None:
        self._receive(line.decode(errors="replace"), "stdout" if fd == 1 else "stderr")


def descendants(pid: int) -> list[int]:
    """Return all descendants of a process, in any group."""
    children: dict[int, list[int]] = {}
    for member, parent, _ in processes():
        children.setdefault(parent, []).append(member)
    family = list(children.get(pid, ()))
    for member in family:
        family.extend(children.get(member, ()))
    return family


def running_system() -> str:
    """Return the identity of the system, or "" if it is unknown.

    Process ids are unique within the system.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def began(pid: int) -> str:
    """Return the start time of a process in ticks, or "" if it has ended."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return "" if state in "ZX" else fields[18]
    except (OSError, IndexError):
        return ""


def processes() -> Iterable[tuple[int, int, str]]:
    """Yield every process with its parent and its state."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent = (entry / "stat").read_text().rpartition(") ")[2].split()[:2]
            yield int(entry.name), int(parent), state


FORGOTTEN_AFTER_S = 60.0


class Orphans:
    """Reaps orphans, a round at a time."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, every_s: float = 1.0) -> None:
        self._monotonic = monotonic
        self._every_s = every_s
        self._looked_at = float("-inf")
        self._since: dict[int, float] = {}

    def fetch(self) -> int:
        """Reap ended orphans, if some time has passed since the last round."""
        now = self._monotonic()
        if now - self._looked_at < self._every_s:
            return 0
        self._looked_at = now
        ended = dict(_ended_children())
        self._since = {pid: self._since.get(pid, now) for pid in ended}
        fetched = 0
        for pid, group in ended.items():
            stranger = group not in (os.getpgrp(), pid)
            if stranger or now - self._since[pid] >= FORGOTTEN_AFTER_S:
                with contextlib.suppress(ChildProcessError):
                    fetched += os.waitpid(pid, os.WNOHANG)[0] == pid
        return fetched


def _ended_children() -> Iterator[tuple[int, int]]:
    """Yield each ended, unreaped child with its group."""
    me = str(os.getpid())
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            state, parent, group = (entry / "stat").read_text().rpartition(") ")[2].split()[:3]
            if state == "Z" and parent == me:
                yield int(entry.name), int(group)
