"""What every way to run a handler does.

Each begins a handler and says once how it ended; the event loop hears it. What stopping means
differs: `told` is after the handler was asked to stop, `kill` is when it was asked for long enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from interlock.worker.outcomes import Outcome
from interlock.worker.running_task import RunningTask

Ended: TypeAlias = Callable[[RunningTask, Outcome], None]
"""Called in the event loop, once, when a handler has ended."""


class Executor(Protocol):
    """One way to run handlers."""

    def begin(self, running: RunningTask, ended: Ended) -> None:
        """Begin; `ended` may be called before this returns."""
        ...

    def told(self, running: RunningTask) -> None:
        """The handler was asked to stop, through its context: pass that on where it must be."""
        ...

    def kill(self, running: RunningTask) -> bool:
        """Stop it now, whatever it thinks; False when that cannot be done."""
        ...

    def leave(self, running: RunningTask) -> None:
        """Nobody waits for it any more, although it may go on."""
        ...

    async def close(self) -> None:
        """Leave nothing behind that can be ended."""
        ...
