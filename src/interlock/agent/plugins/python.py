"""`python`: a function of yours, called at a rate.

A blocking function is called in threads, an async one in an event loop. A class is instantiated once,
before the start, and its instance is called; it may have `close`. A return value that is a number counts as
bytes; an exception is a failure.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, ClassVar

import msgspec

from interlock.agent.port import Load, Workload


class PythonSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The function and its arguments."""

    target: str
    """`package.module:function`, or `package.module:Class`."""
    arguments: dict[str, Any] = {}
    """Arguments of the function at each call, or of the class."""
    path: tuple[str, ...] = ()
    """Directories to search first for the module."""


class Python(Workload[PythonSpec]):
    """A workload whose operations are calls of a function."""

    kind = "python"
    spec_type: ClassVar[type[msgspec.Struct]] = PythonSpec
    prepare_s: ClassVar[float] = 2.0
    _call: Callable[..., Any]
    _made: object = None

    @classmethod
    def check(cls, spec: PythonSpec) -> None:
        """Check the form of the target, which only the workload's process imports."""
        module, colon, name = spec.target.partition(":")
        names = (*module.split("."), *name.split("."))
        if not colon or not all(part.isidentifier() for part in names):
            raise ValueError(f"target must look like package.module:function, and is {spec.target!r}")

    async def prepare(self) -> None:
        """Import the target; instantiate a class."""
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
        """Call the function repeatedly."""
        call, arguments = self._call, {} if self._made is not None else self.spec.arguments
        if not inspect.isroutine(call):
            call = getattr(call, "__call__", call)  # noqa: B004 - calling the method is faster
        if inspect.iscoroutinefunction(call):
            await load.drive(partial(call, **arguments) if arguments else call)
        else:
            await load.drive_in_threads(partial(call, **arguments) if arguments else call)

    async def cleanup(self) -> None:
        """Close the instance, if it can be closed."""
        closing = getattr(self._made, "close", None)
        closed = closing() if closing is not None else None
        if inspect.isawaitable(closed):
            await closed
