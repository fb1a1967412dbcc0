"""Names of machines on the command line.

job                   one of the ten built-in machines
shop.orders:ORDER     an object in a module; the current directory is importable
shop/orders.py:ORDER  an object in a file
old-job.json          a blueprint exported earlier
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from interlock.cli.errors import one_line
from interlock.errors import CannotLoad
from interlock.lifecycles import COUPLINGS, MACHINES, machine_named
from interlock.machine import Blueprint, Machine, blueprint_of
from interlock.systems.kinds import DeclaredKind
from interlock.text import nearest
from interlock.worker.imports import import_named

AnyMachine = Machine[Any, Any]


def load_machine(name: str) -> AnyMachine:
    """Return a built-in machine, or the machine `module:object`."""
    if ":" in name:
        return _machine_in_module(name)
    return machine_named(name)


def load_kinds(names: Sequence[str]) -> tuple[DeclaredKind[Any], ...]:
    """Return the kinds of record that these modules or files declare."""
    found: dict[str, DeclaredKind[Any]] = {}
    for name in names:
        declared = [each for each in vars(_import_module(name)).values() if isinstance(each, DeclaredKind)]
        if not declared:
            raise _cannot_load(name, "it declares no kind", todo="Declare one: ORDERS = kind(ORDER, Order).")
        for each in declared:
            if found.setdefault(each.name, each) is not each:
                raise _cannot_load(
                    name,
                    f"a kind {each.name} is declared twice",
                    todo="Give one of the machines another name.",
                )
    return tuple(found.values())


def load_blueprint(name: str) -> Blueprint:
    """Return the blueprint of a machine or of an exported JSON file."""
    if Path(name).suffix == ".json" and ":" not in name:
        return _blueprint_in_file(Path(name))
    return blueprint_of(load_machine(name))


def consequences_of(blueprint: Blueprint) -> tuple[str, ...]:
    """Return the couplings of a built-in machine.

    Each is one sentence and its reason.
    """
    built_in = MACHINES.get(blueprint.machine)
    if built_in is None or blueprint_of(built_in) != blueprint:
        return ()
    causes = (coupling for coupling in COUPLINGS if coupling.cause is built_in)
    return tuple(f"{coupling.sentence}. {coupling.why}" for coupling in causes)


def _machine_in_module(name: str) -> AnyMachine:
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise _cannot_load(name, "it is not of the form module:object")
    thing: object = _import_module(module_name)
    for part in path.split("."):
        if not hasattr(thing, part):
            raise _no_such_object(name, part, thing)
        thing = getattr(thing, part)
    if not isinstance(thing, Machine):
        raise _cannot_load(name, f"it is not a Machine but of type {type(thing).__name__}")
    return thing


def _import_module(module_name: str) -> ModuleType:
    """Import a user's module and leave the import path as it was.

    A stray rich.py must not break us.
    """
    path = list(sys.path)
    try:
        return import_named(module_name)
    except CannotLoad as error:
        if module_name in MACHINES and isinstance(error.__cause__, ModuleNotFoundError):
            error.todo = f"A built-in machine has no colon: {module_name}."
        raise
    finally:
        sys.path[:] = path


def _no_such_object(name: str, part: str, owner: object) -> CannotLoad:
    machines = [key for key, value in vars(owner).items() if isinstance(value, Machine)]
    guess = nearest(part, machines)
    hint = f" Did you mean {guess}?" if guess else ""
    todo = f"Use one of: {', '.join(machines)}." if machines else ""
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
