"""The process between a worker and a command: no child process of the command outlives it.

    python -I -S warden.py REPORT-FD PASSED-FD...

Orders come on standard input: first one line of JSON with the command, then single bytes, `T` to terminate
and `K` to kill. When that stream ends the worker is gone, which means kill.

A process that leaves its group and its session, and whose parent ends, is adopted by the nearest ancestor
that is a subreaper. That is this process, so all processes of the command stay among its descendants, and
when it has no child left there is none of them anywhere. The report has the end of the command, and the
processes that could not be killed.

It does not import the package, because each command waits for it. The command can inspect it through `/proc`,
so it holds no secrets: its environment has only the search path, and its memory, which has contained the
command's environment, is private.

Why: decision 0185.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import sys
import time
import warnings  # noqa: F401 - `os.execvpe` imports it as a user who may read no modules
from collections.abc import Iterator
from contextlib import suppress
from json import dumps, loads
from typing import Any, NoReturn

SET_CHILD_SUBREAPER = 36
SET_DUMPABLE = 4
SET_NO_NEW_PRIVS = 38
DROP_FROM_BOUNDING_SET = 24
CAP_SYS_PTRACE = 19
PATIENCE_S = 5.0
"""Time to wait for unkillable processes, such as those in a disk or driver operation."""
DEAF = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)
"""Signals to a whole session or control group are for the command; the warden has to clean up."""


def main() -> None:
    """Start the command, attend to it, clean up after it, and report."""
    report, *passed = map(int, sys.argv[1:])
    os.set_inheritable(report, False)
    _control(SET_DUMPABLE, 0)
    order = loads(_line())
    _control(SET_CHILD_SUBREAPER, 1)
    for number in DEAF:
        signal.signal(number, signal.SIG_IGN)
    wakeup = _wakeup_pipe()
    try:
        command = _start(order)
    except OSError as error:
        _report(report, {"errno": error.errno, "what": error.filename})
    _let_go(passed)
    code = _attend(command, wakeup, order.get("spared", ""))
    killed, left = _clear_up(wakeup)
    _report(report, {"code": code, "killed": killed, "left": left})


def _line() -> bytes:
    """Return exactly the first line: the following bytes are polled for."""
    line = bytearray()
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            os._exit(1)  # the worker has gone before it gave an order
        line += byte
    return bytes(line)


def _wakeup_pipe() -> int:
    """Return a descriptor that becomes readable when a child has ended."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading


def _start(order: dict[str, Any]) -> int:
    """Return the process of the command; raise if it cannot be started."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if not child:
        _become(order, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as words:
        trouble = words.read()
    if trouble:
        os.waitpid(child, 0)
        number, what = loads(trouble)
        raise OSError(number, os.strerror(number), what)
    return child


def _become(order: dict[str, Any], write_end: int) -> NoReturn:
    what = order["cwd"]
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in (*DEAF, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        _give_up_privileges(order.get("user"))
        if what is not None:
            os.chdir(what)
        what = order["arguments"][0]
        os.execvpe(what, order["arguments"], order["env"])
    except OSError as error:
        os.write(write_end, dumps([error.errno, what]).encode())
    except (ImportError, TypeError, ValueError) as error:  # unreported it looks like an exit of the command
        os.write(write_end, dumps([errno.ENOEXEC, f"{what} ({error!r})"]).encode())
    finally:
        os._exit(127)


def _give_up_privileges(user: int | None) -> None:
    """Become another user, if one is given.

    The capability to inspect other processes is dropped.
    """
    if os.geteuid() == 0:
        _control(DROP_FROM_BOUNDING_SET, CAP_SYS_PTRACE)
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        _control(SET_NO_NEW_PRIVS, 1)


def _control(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _let_go(passed: list[int]) -> None:
    """Close the outputs, which end with the command."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    for descriptor in passed:
        os.close(descriptor)


def _attend(command: int, wakeup: int, spared: str) -> int:
    """Forward orders until the command has ended.

    Adopted processes are reaped on the way. Processes named `spared` are not terminated: the end of a sandbox
    would end everything in it.
    """
    poll = select.poll()
    poll.register(wakeup, select.POLLIN)
    poll.register(0, select.POLLIN)
    while (code := _fetch(command)) is None:
        for descriptor, _ in poll.poll():
            if descriptor == wakeup:
                _drain(wakeup)
                continue
            order = os.read(0, 1)
            if order == b"T":
                _signal_all(signal.SIGTERM, spared)
            else:
                _signal_all(signal.SIGKILL)
            if not order:
                poll.unregister(0)
                return _end(command, wakeup)
    return code


def _end(command: int, wakeup: int) -> int:
    """Kill repeatedly until the command has ended, since the worker is gone."""
    while (code := _fetch(command)) is None:
        _signal_all(signal.SIGKILL)
        _wait_a_moment(wakeup)
    return code


def _fetch(command: int) -> int | None:
    """Reap ended children; return the exit code of the command, if it ended."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if not pid:
            return code
        if pid == command:
            code = os.waitstatus_to_exitcode(status)


def _clear_up(wakeup: int) -> tuple[int, list[int]]:
    """Kill the remaining processes; return their number.

    Return also those that did not die.
    """
    until = time.monotonic() + PATIENCE_S
    seen: set[int] = set()
    while _has_children() and time.monotonic() < until:
        seen.update(_signal_all(signal.SIGKILL))
        _wait_a_moment(wakeup)
        _fetch(-1)
    return len(seen), list(_descendants()) if _has_children() else []


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _signal_all(number: signal.Signals, spared: str = "") -> list[int]:
    family = list(_descendants(spared))
    for pid in family:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return family


def _descendants(spared: str = "") -> Iterator[int]:
    """Yield all descendants of this process, except those named `spared`."""
    children: dict[int, list[int]] = {}
    named: dict[int, bytes] = {}
    # Importing pathlib would take longer than everything else before the command starts.
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123
            before, _, after = stat.read().rpartition(b") ")
            children.setdefault(int(after.split()[1]), []).append(int(name))
            named[int(name)] = before.partition(b"(")[2]
    family = children.get(os.getpid(), [])
    for pid in family:
        if not spared or named[pid] != spared.encode():
            yield pid
        family.extend(children.get(pid, ()))


def _wait_a_moment(wakeup: int) -> None:
    select.select([wakeup], [], [], 0.02)
    _drain(wakeup)


def _drain(wakeup: int) -> None:
    with suppress(BlockingIOError):
        os.read(wakeup, 4096)


def _report(descriptor: int, report: dict[str, Any]) -> NoReturn:
    os.write(descriptor, dumps(report).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
