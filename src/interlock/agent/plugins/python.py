"""`python`: a function of yours, called at a rate.

A function that blocks is called in threads, one that is async in an event loop. A class is made once,
before the start, and what it is then is called; it may have `close`. What a call answers is a number of
bytes, if it is a number; what it raises makes the operation a failed one.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import msgspec

from interlock.agent.port import Load, Workload


class PythonSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which function, and with what."""

    target: str
    """`package.module:function`, or `package.module:Class`."""
    arguments: dict[str, Any] = {}
    """Given to the function at each call, or to the class once."""
    path: tuple[str, ...] = ()
    """Folders in which the module is looked for first."""


class Python(Workload[PythonSpec]):
    """Each operation is one call of a function."""

    kind = "python"
    spec_type = PythonSpec
    prepare_s = 2.0
    _call: Callable[..., Any]
    _made: object = None

    @classmethod
    def check(cls, spec: PythonSpec) -> None:
        """Whether the target could be one; it is imported by the workload's own process alone."""
        module, colon, name = spec.target.partition(":")
        names = (*module.split("."), *name.split("."))
        if not colon or not all(part.isidentifier() for part in names):
            raise ValueError(f"target must look like package.module:function, and is {spec.target!r}")

    async def prepare(self) -> None:
        """Import it; a class is made."""
        sys.path[:0] = self.spec.path
        module, _, name = self.spec.target.partition(":")
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        if isinstance(found, type):
            self._made = self._call = found(**self.spec.arguments)
        else:
            self._call = found

    async def run(self, load: Load) -> None:
        """Call it again and again."""
        call, arguments = self._call, {} if self._made is not None else self.spec.arguments
        if not inspect.isroutine(call):
            call = getattr(call, "__call__", call)  # noqa: B004 - a method is called more quickly than what has it
        if inspect.iscoroutinefunction(call):
            await load.drive(partial(call, **arguments) if arguments else call)
        else:
            await load.drive_in_threads(partial(call, **arguments) if arguments else call)

    async def cleanup(self) -> None:
        """Close what was made, if it can be closed."""
        closing = getattr(self._made, "close", None)
        closed = closing() if closing is not None else None
        if inspect.isawaitable(closed):
            await closed
