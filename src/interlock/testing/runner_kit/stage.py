"""One runner at one desk: its process, its work, and waiting for what it should do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from interlock.testing.runner_kit.desk import Desk, Lease

QUICK = "echo ran >> '{ran}'"
SLOW = f"{QUICK}; echo $$ > '{{pid}}.new'; mv '{{pid}}.new' '{{pid}}'; exec sleep 600"
LAST_BYTES = 2_000
LOOK_EVERY_S = 0.05
"""How often files and processes are looked at, which call nobody."""


class Broken(Exception):
    """The runner has not done what it should."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner is given to do. In the texts `{ran}` is a file to which the work adds a line when it
    begins, and `{pid}` one that it puts the number of its process into."""

    task: str = "interlock.shell"
    quick: dict[str, Any] = msgspec.field(default_factory=lambda: {"run": QUICK})
    slow: dict[str, Any] = msgspec.field(default_factory=lambda: {"run": SLOW})


class Piece:
    """One job, and what can be seen of its execution."""

    def __init__(self, folder: Path, number: int) -> None:
        self.ran_file, self.pid_file = folder / f"{number}.ran", folder / f"{number}.pid"

    @property
    def times(self) -> int:
        """How often it was begun."""
        return len(self.ran_file.read_text().splitlines()) if self.ran_file.exists() else 0

    @property
    def begun(self) -> bool:
        """Whether it has said which its process is, which may have ended since."""
        return self.pid_file.exists()

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        try:
            stat = Path(f"/proc/{int(self.pid_file.read_text())}/stat").read_text()
        except (OSError, ValueError):
            return False
        return stat.rpartition(") ")[2][:1] not in "ZX"


class Stage:
    """Where a scenario is played."""

    def __init__(self, desk: Desk, folder: Path, work: Work, command: Sequence[str]) -> None:
        self.desk, self.folder, self.command = desk, folder, tuple(command)
        self.remarks: list[str] = []
        self._work = work
        self._pieces = 0
        self._may_go = False
        self._process: asyncio.subprocess.Process | None = None

    # The runner

    async def start(self, url: str, environment: Mapping[str, str]) -> None:
        """Start the runner; the address of the server stands for `{url}`."""
        if self.command:
            output = (self.folder / "output").open("wb")
            with output:
                self._process = await asyncio.create_subprocess_exec(
                    *(word.replace("{url}", url) for word in self.command),
                    env={**os.environ, **environment},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )

    async def end(self) -> None:
        """Whatever is left of the runner and of its work ends."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        for file in self.folder.glob("*.pid"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(file.read_text()), signal.SIGKILL)

    def ask_to_go(self) -> None:
        """SIGTERM."""
        assert self._process is not None
        self._may_go = True
        self._process.terminate()

    @property
    def gone(self) -> bool:
        """Whether the runner has ended."""
        return self._process is not None and self._process.returncode is not None

    @property
    def _exit_code(self) -> int | None:
        return None if self._process is None else self._process.returncode

    @property
    def last_words(self) -> str:
        """What the runner has written last."""
        file = self.folder / "output"
        return file.read_bytes()[-LAST_BYTES:].decode(errors="replace").strip() if file.exists() else ""

    # Its work

    def quick(self) -> Piece:
        """There is something to do that takes no time."""
        return self._put(self._work.quick)

    def slow(self) -> Piece:
        """There is something to do that does not end by itself."""
        return self._put(self._work.slow)

    def _put(self, arguments: dict[str, Any]) -> Piece:
        self._pieces += 1
        piece = Piece(self.folder, self._pieces)
        text = msgspec.json.encode(arguments).decode()
        text = text.replace("{ran}", str(piece.ran_file)).replace("{pid}", str(piece.pid_file))
        self.desk.put(self._work.task, msgspec.json.decode(text))
        return piece

    # Waiting

    async def until(self, holds: Callable[[], object], what: str, within_s: float | None = None) -> None:
        """Wait until something holds; it is a fault of the runner when it does not in time."""
        within_s = self.desk.pace.patience_s if within_s is None else within_s
        until = self.desk.clock() + within_s
        while not holds():
            if self.desk.clock() >= until:
                raise Broken(f"{what} within {within_s:g} s")
            if self.gone and not self._may_go:
                raise Broken(f"It has ended by itself, with exit code {self._exit_code}")
            await self._a_moment()

    async def for_a_while(self, seconds: float) -> None:
        """Let time pass."""
        until = self.desk.clock() + seconds
        while self.desk.clock() < until:
            await self._a_moment()

    async def polled(self) -> None:
        """Wait until it has asked for work."""
        await self.until(lambda: self.desk.claims, "It has not asked for work", self.desk.pace.start_s)

    async def lease(self) -> Lease:
        """The first lease, once there is one."""
        await self.until(
            lambda: self.desk.leases, "It has not asked for the work that there is", self.desk.pace.start_s
        )
        return next(iter(self.desk.leases.values()))

    async def at_work(self) -> tuple[Lease, Piece]:
        """A slow job that is being done."""
        piece = self.slow()
        lease = await self.lease()
        await self.until(
            lambda: piece.begun, "It has not begun the work that it was given", self.desk.pace.start_s
        )
        return lease, piece

    async def _a_moment(self) -> None:
        changed = self.desk.changed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY_S):
                await changed.wait()
