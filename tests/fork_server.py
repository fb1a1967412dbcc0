"""A process with `interlock` imported, which forks one process for each order that comes through a socket.

An order is a JSON object with four file descriptors: standard input, output and error of the new process,
and a pipe to which the exit code is written at its end. The answer to an order is the process id.

Run as a script, by `tests.programs` alone. It ends when the socket is closed, however that came about, and
the kernel ends all that it has forked.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import selectors
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

# What `worker start`, `server`, `supervisor`, `agent` and the commands about jobs import. Nothing that
# declares tasks: a worker executes whatever is declared. gRPC starts threads with a server or channel.
PRELOADED = (
    "anyio._backends._asyncio",
    "encodings.idna",
    "httpcore2",
    "interlock.agent.server",
    "interlock.cli.agent",
    "interlock.cli.nouns.worker_start_burst",
    "interlock.cli.connection",
    "interlock.cli.project_ci",
    "interlock.cli.logs",
    "interlock.cli.nouns.job_views",
    "interlock.__main__",
    "interlock.cli.main",
    "interlock.cli.nouns.job_submit",
    "interlock.cli.nouns.worker_start",
    "interlock.cli.nouns.job_watch",
    "interlock.engine.unit_of_work",
    "interlock.engine.audit",
    "interlock.remote.workers",
    "interlock.server.sockets",
    "interlock.store.postgres",
    "interlock.store.redis",
    "interlock.store.sqlite",
    "interlock.systems.embedded",
    "interlock.worker.entry",
    "interlock.worker.http",
    "uvicorn.lifespan.off",
)
READ_AT_START = ("GRPC_", "LANG", "LC_", "LD_", "MALLOC_", "OTEL_", "PROMETHEUS_", "PYTHON", "TZ")
"""Beginnings of names of variables that only a fresh process takes notice of."""
LARGEST_ORDER = 1_048_576
STREAMS = 3
_PR_SET_PDEATHSIG = 1
_PRCTL = ctypes.CDLL(None).prctl


class ForkServer:
    """Forks, waits, and passes on exit codes. It has one thread and no signal handler."""

    def __init__(self, orders: socket.socket, environment: dict[str, str]) -> None:
        """Serve orders; `environment` is that before anything was imported."""
        self._orders = orders
        self._pid = os.getpid()
        self._environment = environment
        self._set_by_imports = {name: os.environ[name] for name in os.environ.keys() - environment.keys()}
        self._path = list(sys.path)
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is for the others
        self._selector = selectors.DefaultSelector()
        self._selector.register(orders, selectors.EVENT_READ)

    def serve(self) -> int:
        """Serve until the socket is closed; in a forked process, run the program and return its exit code."""
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._bury(key.fd, *key.data)
                    continue
                message, descriptors, _, _ = socket.recv_fds(self._orders, LARGEST_ORDER, STREAMS + 1)
                if not message:
                    return 0
                if not self._fork(descriptors):
                    return self._become(json.loads(message), descriptors[:STREAMS])

    def _fork(self, descriptors: list[int]) -> int:
        """Return the process id; 0 in the new process."""
        pid = os.fork()
        if pid:
            self._orders.send(str(pid).encode())
            *streams, ended = descriptors
            for stream in streams:
                os.close(stream)
            self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, ended))
        return pid

    def _bury(self, pidfd: int, pid: int, ended: int) -> None:
        """Pass on how a process has ended."""
        self._selector.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(BrokenPipeError):  # the test has let go of it
            os.write(ended, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(ended)

    def _become(self, order: dict[str, Any], streams: list[int]) -> int:
        """Make this process what a fresh one would be, and run the program."""
        _die_with(self._pid)
        if order["new_session"]:
            os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        self._selector.close()
        self._orders.detach()
        os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
        os.chdir(order["folder"])
        environment: dict[str, str] = order["environment"]
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        words: list[str] = order["words"]
        if order["program"] or self._needs_a_fresh_process(environment):
            _execute([*(order["program"] or [_script()]), *words], environment)
        os.environ.clear()
        os.environ.update(self._set_by_imports | environment)
        search = environment.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:] = [str(Path(_script()).parent), *filter(None, search), *self._path]
        sys.argv[:] = [_script(), *words]
        _open_standard_streams()

        from interlock.__main__ import main

        code = main()
        _end(code)
        return code

    def _needs_a_fresh_process(self, environment: dict[str, str]) -> bool:
        changed = dict(set(environment.items()) ^ set(self._environment.items()))
        return any(name.startswith(READ_AT_START) for name in changed if name != "PYTHONPATH")


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when the fork server ends."""
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(1)


def _execute(command: list[str], environment: dict[str, str]) -> NoReturn:
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        os.write(STREAMS - 1, f"{command[0]}: {error}\n".encode())
        os._exit(127)


def _end(code: int) -> None:
    """End as the interpreter does, but leave what was imported to the kernel: to free it takes 100 ms."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _script() -> str:
    return str(Path(sys.executable).with_name("interlock"))


def _open_standard_streams() -> None:
    """Open them as Python does: by lines on a terminal, and errors by lines anywhere."""
    for number, (name, mode) in enumerate({"stdin": "rb", "stdout": "wb", "stderr": "wb"}.items()):
        old: io.TextIOWrapper = getattr(sys, name)  # the same encoding, and the same variables have been read
        unbuffered = old.write_through
        buffering = 0 if unbuffered and mode == "wb" else -1
        buffer: Any = os.fdopen(number, mode, buffering, closefd=False)
        getattr(buffer, "raw", buffer).name = f"<{name}>"
        stream: Any = io.TextIOWrapper(
            buffer,
            old.encoding,
            old.errors,
            line_buffering=not unbuffered and (name == "stderr" or os.isatty(number)),
            write_through=unbuffered,
        )
        stream.mode = mode[0]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _only_thread() -> bool:
    return len(list(Path("/proc/self/task").iterdir())) == 1


def main() -> int:
    """Import everything once, and serve."""
    del sys.path[0]  # the folder of this file
    environment = dict(os.environ)
    for module in PRELOADED:
        importlib.import_module(module)
    program = importlib.import_module("interlock.cli.main")
    for command in program.HOMES:
        program.command(command)
    if not _only_thread():
        sys.exit("A module that is imported here starts a thread, which no forked process would have.")
    gc.collect()
    gc.freeze()  # so that no forked process goes through, and copies, what it has in common with the others
    return ForkServer(socket.socket(fileno=int(sys.argv[1])), environment).serve()


if __name__ == "__main__":
    sys.exit(main())
