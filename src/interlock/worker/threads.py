"""What a worker needs threads for, behind a port: whoever simulates workers has none.

The renewer has a loop of its own in a thread, so that a handler which blocks the event loop does not
hold it up, and so has whoever speaks with the supervisor of all workers; the worker's own supervisor looks
at all loops from a thread, because it has to look at blocked ones.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeAlias

Begins: TypeAlias = Callable[[asyncio.AbstractEventLoop], None]
"""Told the event loop in which something will run; what is put on it before it runs is not lost."""
Join: TypeAlias = Callable[[float], None]
"""Wait for the end, at most so many seconds; what hangs is left behind."""


class Threads(Protocol):
    """Where the loops beside the event loop run."""

    def serve(
        self, name: str, main: Callable[[], Coroutine[Any, Any, None]], begins: Begins | None = None
    ) -> Join:
        """Run a coroutine in an event loop of its own, until it ends by itself.

        Whoever wants to put something on that loop is told which it is (`begins`), before this returns.
        """
        ...

    def repeat(self, name: str, every_s: float, body: Callable[[], None]) -> Join:
        """Call something again and again, until it is joined."""
        ...


class MachineThreads:
    """Threads of this machine. They are daemons, so that none of them keeps a process from ending."""

    def serve(
        self, name: str, main: Callable[[], Coroutine[Any, Any, None]], begins: Begins | None = None
    ) -> Join:
        """A thread with an event loop."""
        runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        if begins is not None:
            begins(runner.get_loop())

        def run() -> None:
            with runner:
                runner.run(main())

        return _begun(name, run).join

    def repeat(self, name: str, every_s: float, body: Callable[[], None]) -> Join:
        """A thread that pauses between two calls."""
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(every_s):
                body()

        thread = _begun(name, run)

        def join(timeout_s: float) -> None:
            stop.set()
            thread.join(timeout_s)

        return join


MACHINE = MachineThreads()


def _begun(name: str, run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
