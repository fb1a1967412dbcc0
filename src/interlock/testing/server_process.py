"""One server process: started in a folder of its own, ended with its owner, stopped and hurt at will."""

from __future__ import annotations

import itertools
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias, TypeVar

from interlock.testing import watchdog
from interlock.testing.binaries import environment
from interlock.testing.guard import Guard, unprivileged
from interlock.testing.wire import ServerRefused

_START_S = 120.0
_STOP_S = 120.0

Around: TypeAlias = Callable[[Path], Mapping[str, str]]
"""Environment variables for a server, given its folder, which its unprivileged user can read."""


class ServerFailed(Exception):
    """A server did not start or stop; its log says why."""


class Server(ABC):
    """A process of a server, in a folder of its own."""

    def __init__(self, *, tcp: bool, around: Around | None = None) -> None:
        self.guard = Guard()
        self.folder = self.guard.folder
        self.log = self.folder / "log"
        self.port = _free_port() if tcp else 0
        self.names = itertools.count(1)
        self._around = around(self.folder) if around else {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def address(self) -> Path | tuple[str, int]:
        """Where it listens."""

    @abstractmethod
    def command(self) -> list[str]:
        """How it is started."""

    @abstractmethod
    def ask(self) -> None:
        """Ask it something that it answers once it is up; raises until then."""

    @property
    def pid(self) -> int:
        """The process that is the parent of all the others of this server."""
        if self._process is None:
            raise ServerFailed("The server is not running.")
        return self._process.pid

    def start(self) -> None:
        """Start it, and come back when it answers."""
        owner = unprivileged()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=self.folder,
                env=environment({**self.environment(), **self._around}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=owner.pw_uid if owner else None,
                group=owner.pw_gid if owner else None,
                extra_groups=[] if owner else None,
            )
        self.guard.watch(self._process.pid)
        self._wait_until_up(self._process)

    def environment(self) -> Mapping[str, str]:
        """What its programs need beyond the usual."""
        return {}

    def stop(self) -> None:
        """End it as an operator would, with everything written; safe when it is not running."""
        self._end(self.stop_signal)

    stop_signal = signal.SIGTERM

    def kill(self) -> None:
        """End it as a crash would: `kill -9`, it and all its children at once."""
        if self._process is None:
            return
        family = watchdog.tree(self.pid)
        watchdog.send(family, signal.SIGSTOP)  # or children would see their parent die and tidy up
        watchdog.send(family, signal.SIGKILL)
        self._wait(self._process)
        _wait_until_gone(family)

    def restart(self) -> None:
        """Stop it, unless it is down already, and start it on the same data and the same address."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop the clock for it: it keeps its connections and says nothing."""
        watchdog.send(watchdog.tree(self.pid), signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        watchdog.send(watchdog.tree(self.pid), signal.SIGCONT)

    def discard(self) -> None:
        """End it and remove everything that it has written."""
        self.guard.close()
        if self._process is not None:
            self._process.wait(_STOP_S)
            self._process = None

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self.resume()
        self._process.send_signal(how)
        self._wait(self._process)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"The server does not stop.\n{self._words()}") from None
        self._process = None
        self.guard.watch(0)

    def _wait_until_up(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_S
        while process.poll() is None and time.monotonic() < deadline:
            try:
                self.ask()
            except (OSError, ServerRefused):
                time.sleep(0.005)
            else:
                return
        raise ServerFailed(f"The server does not start: {' '.join(self.command())}\n{self._words()}")

    def _words(self) -> str:
        return self.log.read_text(errors="replace")[-4_000:] if self.log.exists() else ""


AnyServer = TypeVar("AnyServer", bound=Server)


@contextmanager
def running(server: AnyServer) -> Iterator[AnyServer]:
    """The server, started; it is discarded at the end."""
    try:
        server.start()
        yield server
    finally:
        server.discard()


def _wait_until_gone(pids: Sequence[int]) -> None:
    deadline = time.monotonic() + _STOP_S
    while any(watchdog.alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            raise ServerFailed(f"The processes {', '.join(map(str, pids))} do not end.")
        time.sleep(0.002)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
