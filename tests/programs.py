"""`interlock` as a process of its own, started in milliseconds.

The process is forked from one that has imported everything, see `tests.fork_server`, and is like a fresh one
in all but that: process id, signals, environment, folder, standard streams, exit code, end of the
interpreter. It does not outlive this process. Tests about the installed script start that instead.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess, TimeoutExpired
from types import TracebackType
from typing import IO, Any, Self

from tests import fork_server
from tests.waiting import PROGRAM_S

LONGEST_LINE = 1024 * 1024
Stream = int | IO[Any] | None
"""As for `subprocess.Popen`: a descriptor, a file, DEVNULL, PIPE, or None for that of this process."""


class Program:
    """A running `interlock WORDS`, or another `program` that is given these words."""

    def __init__(
        self,
        *words: str,
        folder: Path | str = ".",
        environment: Mapping[str, str] | None = None,
        stdin: Stream = DEVNULL,
        stdout: Stream = PIPE,
        stderr: Stream = PIPE,
        new_session: bool = False,
        program: Sequence[str] = (),
    ) -> None:
        self.words = words
        order = {
            "words": words,
            "program": program,
            "folder": str(Path(folder).absolute()),
            "environment": dict(os.environ if environment is None else environment),
            "new_session": new_session,
        }
        with ExitStack() as given:
            self._ended, ended = os.pipe()
            weakref.finalize(self, os.close, self._ended)
            given.callback(os.close, ended)
            self.stdout, out = _ends(stdout, 1, given)
            self.stderr, err = _ends(stderr, 2, given)
            _, source = _ends(stdin, 0, given)
            self.pid = _fork_server().fork(order, [source, out, err, ended])
        self._exit_code: int | None = None
        self._transports: list[asyncio.ReadTransport] = []
        self._reading = threading.Lock()

    # Its end

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        with self._reading:
            if self._exit_code is None and _is_readable(self._ended, 0):
                data = os.read(self._ended, 16)
                if not data:
                    raise RuntimeError("The fork server has ended, and every process that came from it.")
                self._exit_code = int(data)
            return self._exit_code

    def wait(self, timeout: float = PROGRAM_S) -> int:
        """Wait for its end; return its exit code."""
        _is_readable(self._ended, timeout)
        code = self.returncode
        if code is None:
            raise TimeoutExpired(self.words, timeout)
        return code

    async def ended(self) -> int:
        """Wait for its end on an event loop; return its exit code."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        own = os.dup(self._ended)  # a loop has one reader for each descriptor
        loop.add_reader(own, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(own)
            os.close(own)
        code = self.returncode
        assert code is not None
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended; its end may be known a moment later than it is true."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """`kill -9`."""
        self.send_signal(signal.SIGKILL)

    # What it writes

    def communicate(self, timeout: float = PROGRAM_S) -> tuple[str, str]:
        """Read the rest of its output and its errors, and wait for its end."""
        errors: list[str] = []
        aside = threading.Thread(target=lambda: errors.append(_rest(self.stderr)), daemon=True)
        output: list[str] = []
        reading = threading.Thread(target=lambda: output.append(_rest(self.stdout)), daemon=True)
        for thread in (aside, reading):
            thread.start()
        for thread in (aside, reading):
            thread.join(timeout)
            if thread.is_alive():
                raise TimeoutExpired(self.words, timeout)
        self.wait(timeout)
        return output[0], errors[0]

    async def reader(self, stream: IO[str] | None) -> asyncio.StreamReader:
        """Have one of its streams read by the event loop from now on."""
        assert stream is not None
        reader = asyncio.StreamReader(limit=LONGEST_LINE)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stream)
        self._transports.append(transport)
        return reader

    def stop_reading(self) -> None:
        """Close what the event loop reads, also where a process that it has started holds it open."""
        while self._transports:
            self._transports.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave nothing of it behind; what ended well has ended by now."""
        self.kill()
        self.communicate()


def run(*words: str, **how: Any) -> CompletedProcess[str]:
    """Run `interlock WORDS` to its end."""
    started = Program(*words, **how)
    try:
        out, err = started.communicate()
    finally:
        started.kill()
    return CompletedProcess(words, started.wait(), out, err)


def _rest(stream: IO[str] | None) -> str:
    if stream is None or stream.closed:
        return ""
    with stream:
        return stream.read()


def _is_readable(descriptor: int, timeout_s: float) -> bool:
    poll = select.poll()  # unlike `select`, it takes any number
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _ends(stream: Stream, number: int, given: ExitStack) -> tuple[IO[str] | None, int]:
    """Return our end of a stream, if there is one, and theirs."""
    match stream:
        case None:
            return None, number
        case subprocess.DEVNULL:
            theirs = os.open(os.devnull, os.O_RDWR)
            given.callback(os.close, theirs)
            return None, theirs
        case subprocess.PIPE:
            ours, theirs = os.pipe()
            given.callback(os.close, theirs)
            return os.fdopen(ours, encoding="utf-8"), theirs
        case int():
            return None, stream
        case _:
            return None, stream.fileno()


class _ForkServer:
    """The process from which all others come."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._one_at_a_time = threading.Lock()
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, fork_server.__file__, str(theirs.fileno())],
                stdin=DEVNULL,
                env=inherited,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._close)

    def fork(self, order: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        """Return the process id of what was ordered."""
        with self._one_at_a_time:
            socket.send_fds(self._orders, [json.dumps(order).encode()], descriptors)
            answer = self._orders.recv(16)
        if not answer:
            raise RuntimeError(f"The fork server has ended with {self._process.wait()}.")
        return int(answer)

    def _close(self) -> None:
        self._orders.close()
        self._process.wait()


_fork_server: Callable[[], _ForkServer] = functools.cache(_ForkServer)
