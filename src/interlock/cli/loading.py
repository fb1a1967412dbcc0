"""From what somebody typed to a machine or its blueprint.

job                 one of the nine built-in machines
shop.orders:ORDER   an object in a module; the current directory is importable
old-job.json        a blueprint exported earlier
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from interlock.cli.errors import one_line
from interlock.errors import CannotLoad, InterlockError
from interlock.guessing import nearest
from interlock.lifecycles import COUPLINGS, MACHINES, machine_named
from interlock.machine import Blueprint, Machine, blueprint_of

AnyMachine = Machine[Any, Any]


def load_machine(name: str) -> AnyMachine:
    """The built-in machine called `name`, or the machine that `module:object` names."""
    if ":" in name:
        return _machine_in_module(name)
    return machine_named(name)


def load_blueprint(name: str) -> Blueprint:
    """The blueprint of a machine, or one that was exported to a JSON file."""
    if Path(name).suffix == ".json" and ":" not in name:
        return _blueprint_in_file(Path(name))
    return blueprint_of(load_machine(name))


def consequences_of(blueprint: Blueprint) -> tuple[str, ...]:
    """What the steps of a built-in machine cause elsewhere, one sentence and its reason each."""
    built_in = MACHINES.get(blueprint.machine)
    if built_in is None or blueprint_of(built_in) != blueprint:
        return ()
    causes = (coupling for coupling in COUPLINGS if coupling.cause is built_in)
    return tuple(f"{coupling.sentence}. {coupling.why}" for coupling in causes)


def _machine_in_module(name: str) -> AnyMachine:
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise _cannot_load(name, "it is not of the form module:object")
    thing: object = _import_module(module_name, name)
    for part in path.split("."):
        if not hasattr(thing, part):
            raise _no_such_object(name, part, thing)
        thing = getattr(thing, part)
    if not isinstance(thing, Machine):
        raise _cannot_load(name, f"it is not a Machine but of type {type(thing).__name__}")
    return thing


def _import_module(module_name: str, name: str) -> ModuleType:
    """Import somebody's module. What it prints goes to stderr: stdout is for the answer.

    Its faulty tables and other errors of Interlock pass through; whatever else it raises becomes
    one line.
    """
    try:
        with _current_directory_importable(), contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module(module_name)
    except InterlockError:
        raise
    except (Exception, SystemExit) as error:
        raise _cannot_load(name, one_line(error), todo=_advice(module_name, error)) from error


@contextlib.contextmanager
def _current_directory_importable() -> Iterator[None]:
    """As with `python -m`, but only while importing: a stray rich.py must not break the answer."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _advice(module_name: str, error: BaseException) -> str:
    if "/" in module_name or module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        return f"Name the module, not the file: {dotted}:OBJECT."
    missing = isinstance(error, ModuleNotFoundError) and module_name.partition(".")[0] == error.name
    if missing and module_name in MACHINES:
        return f"A built-in machine has no colon: {module_name}."
    if missing:
        return f"Modules are looked up in {Path.cwd()} and among the installed packages."
    return "Mend the module; INTERLOCK_DEBUG=1 shows where it failed."


def _no_such_object(name: str, part: str, owner: object) -> CannotLoad:
    machines = [key for key, value in vars(owner).items() if isinstance(value, Machine)]
    guess = nearest(part, machines)
    hint = f" Did you mean {guess}?" if guess else ""
    todo = f"Use one of: {', '.join(machines)}." if machines else "It holds no machine."
    return _cannot_load(name, f"there is no {part!r} in it", hint, todo=todo, allowed=machines)


def _blueprint_in_file(path: Path) -> Blueprint:
    try:
        text = path.read_bytes()
    except OSError as error:
        why = error.strerror or one_line(error)
        todo = f"Give an exported blueprint, module:object, or one of: {', '.join(MACHINES)}."
        raise _cannot_load(str(path), why, todo=todo) from error
    return Blueprint.from_json(text, where=str(path))


def _cannot_load(
    name: str, why: str, hint: str = "", *, todo: str = "", allowed: list[str] | None = None
) -> CannotLoad:
    return CannotLoad(
        f"Cannot load {name}: {why}.{hint}",
        todo=todo or "Give module:object, such as shop.orders:ORDER, or the name of a built-in machine.",
        allowed=allowed or (),
        facts={"name": name, "cause": why},
    )
