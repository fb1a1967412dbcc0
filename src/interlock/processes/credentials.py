"""The credentials of this process, out of reach of other processes.

A token or secret in an environment variable would be inherited by every command that this process starts, and
could be read from `/proc/PID/environ` by every process of the same user. `take` moves it into memory, wipes
the variable, and `make_private` forbids other processes of the user to read that memory (`PR_SET_DUMPABLE`;
root needs CAP_SYS_PTRACE for it, which commands do not get).

Why: decision 0303.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
from collections import ChainMap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

TOKEN = "INTERLOCK_TOKEN"
SECRET = "INTERLOCK_SECRET_"
OURS = "INTERLOCK_"
HANDED = "INTERLOCK_CREDENTIALS_FD"
"""Names the descriptor on which a parent process hands over its credentials."""
FAMILY = "INTERLOCK_FAMILY"
"""Environment variable of a command, by which it is found if its warden is gone."""
PIPE_BYTES = 1024 * 1024
_SET_DUMPABLE = 4

_held: dict[str, str] = {}

ENVIRONMENT: Mapping[str, str] = ChainMap(_held, os.environ)
"""The environment of this process, with the credentials that were taken out of it."""


def take() -> None:
    """Take the credentials out of the environment of this process.

    Other processes cannot reach them any more. Variables of Interlock that are no credentials (the URL of a
    store may have a password) stay set, but are not shown in `/proc/PID/environ` any more.
    """
    for name in [name for name in os.environ if name.startswith(OURS) and name != FAMILY]:
        value = os.environ[name]
        _wipe(name)
        if _is_credential(name):
            _held[name] = value
            del os.environ[name]
        else:
            os.environ[name] = value
    if (handed := os.environ.pop(HANDED, "")).isdigit():
        with os.fdopen(int(handed), "rb") as pipe:
            variables = json.loads(pipe.read() or b"{}")
        for name, value in variables.items():
            (_held if _is_credential(name) else os.environ)[name] = value


def hold(name: str, value: str) -> None:
    """Keep a credential that came another way.

    It came from a file or on the command line, where it is wiped.
    """
    _held[name] = value
    hide_argument(value)


def hide_password(url: str) -> None:
    """Overwrite the password of a URL on this process's command line.

    It may not have come there.
    """
    if password := urlsplit(url).password:
        hide_argument(password)


def hide_argument(value: str) -> None:
    """Overwrite a part of this process's command line.

    Every process of the machine can read the command line.
    """
    fields = Path("/proc/self/stat").read_bytes().rpartition(b") ")[2].split()
    first, last = int(fields[45]), int(fields[46])  # arg_start and arg_end, proc(5)
    if not 0 < first < last:
        return
    shown, wanted = ctypes.string_at(first, last - first), os.fsencode(value)
    at = shown.find(wanted) if wanted else -1
    while at >= 0:
        ctypes.memset(first + at, ord("*"), len(wanted))
        at = shown.find(wanted, at + 1)


def held() -> Mapping[str, str]:
    """Return the taken credentials, by the name of their variable."""
    return _held


def token() -> str | None:
    """Return the access token of this process."""
    return ENVIRONMENT.get(TOKEN) or None


def make_private() -> None:
    """Forbid this user's other processes to read this one.

    They could read its memory and environment.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_SET_DUMPABLE, 0, 0, 0, 0)


@contextlib.contextmanager
def handed_over(
    more: Mapping[str, str] = MappingProxyType({}), *, own: bool = True
) -> Iterator[tuple[dict[str, str], int]]:
    """Yield the environment and a descriptor for a child process.

    A child that calls `take` gets with them the variables of Interlock of this process, and `more` of them;
    with `own` also the credentials.

    They go through a pipe that the child empties: as variables, or on its command line, they could be read
    from its `/proc`.
    """
    theirs, filled = os.pipe2(os.O_CLOEXEC)
    try:
        ours = {n: value for n, value in os.environ.items() if n.startswith(OURS) and n != FAMILY}
        others = {name: value for name, value in os.environ.items() if name not in ours}
        content = json.dumps({**ours, **(_held if own else {}), **more}).encode()
        if len(content) > select.PIPE_BUF:  # less fits into every pipe
            fcntl.fcntl(filled, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.set_blocking(filled, False)
        if os.write(filled, content) < len(content):
            raise OSError("the credentials do not fit into a pipe")
        os.close(filled)
        filled = -1
        yield {**others, HANDED: str(theirs)}, theirs
    finally:
        os.close(theirs)
        if filled >= 0:
            os.close(filled)


def _is_credential(name: str) -> bool:
    return name == TOKEN or name.startswith(SECRET)


def _wipe(name: str) -> None:
    """Overwrite the value that the kernel shows.

    The variable is set again or removed next.
    """
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    place = getenv(os.fsencode(name))
    if place:
        ctypes.memset(place, 0, len(os.fsencode(os.environ[name])))
