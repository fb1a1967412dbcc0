"""One worker process of a pool, which says when it has begun.

Starting takes as long as importing the tasks takes, so no span of time tells whether a worker has
begun. It says so itself: its end of a pipe is named in its environment, and it writes its incarnation there
once its tasks are loaded. A pipe that closes without a word belongs to one that never began.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from interlock.processes import credentials
from interlock.worker.executors.kin import descendants

URL = "INTERLOCK_URL"
POOL = "INTERLOCK_POOL"
"""In the environment of a worker in a pool: the process of the pool."""
ABOUT = "INTERLOCK_POOL_ABOUT"
"""What the worker says of its pool when it registers: a JSON object of texts."""
READY = "INTERLOCK_POOL_READY"
"""The descriptor on which it says that it has begun."""


class Child:
    """A worker process."""

    def __init__(self, process: Process, ready: int, changed: Callable[[], None]) -> None:
        self.process = process
        self.begun = False
        """It has loaded its tasks."""
        self.incarnation = ""
        """How its leases tell it from others under its name; empty while it has not said so."""
        self._ready = ready
        self._changed = changed
        self._settled = asyncio.Event()
        asyncio.get_running_loop().add_reader(ready, self._heard)
        self._waiting = asyncio.create_task(self._wait())

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it lives."""
        return self.process.returncode

    async def begins(self, within_s: float) -> bool:
        """Wait until it has begun, or is known not to; who takes too long has not."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._settled.wait()
        return self.begun and self.exit_code is None

    def ask_to_go(self) -> None:
        """As a person would."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """With everything that it has started."""
        for pid in (*descendants(self.pid), self.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    async def gone(self) -> None:
        """Wait for its end."""
        await asyncio.wait([self._waiting])

    async def _wait(self) -> None:
        await self.process.wait()
        self._close()
        self._changed()

    def _heard(self) -> None:
        said = os.read(self._ready, 64)
        self.begun = bool(said)
        self.incarnation = said.decode("ascii", "replace") if len(said) > 1 else ""
        self._close()
        self._changed()

    def _close(self) -> None:
        self._settled.set()
        ready, self._ready = self._ready, -1
        if ready >= 0:
            asyncio.get_running_loop().remove_reader(ready)
            os.close(ready)


Start: TypeAlias = Callable[[str, Callable[[], None]], Awaitable[Child]]
"""Starts a worker under a name; the other is called when something has become of it."""


def started_with(command: Sequence[str], url: str, about: Mapping[str, str] | None = None) -> Start:
    """Workers that are started like this, with their name behind it; `about` is what they say of their pool.

    They are not told the URL of the store or server on their command line: every process can read that.
    """

    told = {ABOUT: msgspec.json.encode(about).decode()} if about else {}

    async def start(name: str, changed: Callable[[], None]) -> Child:
        ours, theirs = os.pipe()
        try:
            with credentials.handed_over({URL: url}) as (environment, pipe):
                # A group of its own: Ctrl-C is for the pool, which passes it on once.
                process = await asyncio.create_subprocess_exec(
                    *(*command, "--name", name),
                    process_group=0,
                    env={**environment, **told, POOL: str(os.getpid()), READY: str(theirs)},
                    pass_fds=(theirs, pipe),
                )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return Child(process, ours, changed)

    return start


def say_ready(incarnation: str) -> None:
    """Called in a worker that has loaded its tasks: its pool, if it has one, learns who it is."""
    named = os.environ.pop(READY, "")
    if named.isdigit():
        with contextlib.suppress(OSError):
            os.write(int(named), incarnation.encode())
            os.close(int(named))


def about_pool() -> dict[str, str]:
    """Return what this worker says of its pool; nothing where it is in none."""
    with contextlib.suppress(msgspec.MsgspecError):
        return msgspec.json.decode(os.environ.get(ABOUT, "{}"), type=dict[str, str])
    return {}


def pool_of_this_process() -> str:
    """The process of the pool that has started this worker; empty when there is none."""
    return os.environ.get(POOL, "")
