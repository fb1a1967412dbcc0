"""From the name that somebody typed to a task.

shop.tasks:send           a function with @task in a module; also shop/tasks.py:send
shop.tasks.send           the same, as workers call it
send, with a module       a task of that module, by its name or the end of it
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from interlock.errors import CannotLoad, UnknownTask
from interlock.worker.imports import import_named
from interlock.worker.tasks import Registry, Task, load_tasks

MOST_FILES = 200
SHELL_NAME = "interlock.shell"
"""The task that every worker has."""


class TaskNames:
    """Tasks by the names that people type, each looked up once."""

    def __init__(self, module: str | None) -> None:
        self._module = module
        self._registry: Registry | None = None
        self._known: dict[str, Task[..., Any]] = {}

    def find(self, name: str) -> Task[..., Any]:
        """The task that a name means."""
        if name not in self._known:
            self._known[name] = self._found(name)
        return self._known[name]

    def _found(self, name: str) -> Task[..., Any]:
        found = _shell() if name == SHELL_NAME else self._registered(name) or _in_module(name)
        if found is None:
            raise _unknown(name, self._registry)
        return found

    def _registered(self, name: str) -> Task[..., Any] | None:
        if self._module is None:
            return None
        registry = self._registry = self._registry or load_tasks(self._module)
        names = [known for known in registry.names() if known == name or known.endswith(f".{name}")]
        if name in registry:
            return registry.get(name)
        return registry.get(names[0]) if len(names) == 1 else None


def _shell() -> Task[..., Any]:
    from interlock.worker.executors.shell import SHELL  # it needs what only workers need

    return SHELL


def _in_module(name: str) -> Task[..., Any] | None:
    """The task `module:function` or `module.function`; None when it cannot be that."""
    module_name, separator, path = name.partition(":") if ":" in name else name.rpartition(".")
    if not (separator and module_name and path):
        return None
    try:
        module = import_named(module_name)
    except CannotLoad as error:
        if ":" not in name and isinstance(error.__cause__, ModuleNotFoundError):
            return None
        raise
    thing: object = module
    for part in path.split("."):
        thing = getattr(thing, part, None)
    if isinstance(thing, Task):
        return thing
    raise _not_in(module, path)


def _not_in(module: ModuleType, path: str) -> UnknownTask:
    known = [name for name, value in vars(module).items() if isinstance(value, Task)]
    error = UnknownTask(path, known, where=module.__name__)
    if not known:
        error.todo = f"Decorate a function in {module.__name__} with @task."
    return error


def _unknown(name: str, registry: Registry | None) -> UnknownTask:
    names = registry.names() if registry is not None else ()
    error = UnknownTask(name, names)
    rest = "it as module:function, or say --unchecked if only the workers know it."
    error.todo = f"Use one of: {', '.join(names)}; or name {rest}" if names else f"Name {rest}"
    if here := _functions_here(name):
        error.todo = f"Did you mean {' or '.join(here)}? Otherwise name {rest}"
    return error


def _functions_here(name: str) -> list[str]:
    """Return `module:name` for each file of the current directory with such a task, read and not imported."""
    if not name.isidentifier():
        return []
    function = re.compile(rf"^(?:async )?def {name}\(", re.MULTILINE)
    found = []
    for path in sorted(Path.cwd().glob("*.py"))[:MOST_FILES]:
        with suppress(OSError, UnicodeDecodeError):
            text = path.read_text(encoding="utf-8")
            if "@task" in text and function.search(text):
                found.append(f"{path.stem}:{name}")
    return found
