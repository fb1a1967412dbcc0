"""Public names are typed: every parameter and every result; and the clients by more than `Any`."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tools import sync_client

import interlock
import interlock.errors
import interlock.machine
import interlock.sync
import interlock.testing
from interlock import client_batches, client_controls, client_resources, sync_resources
from interlock import client_transactions as transactions
from interlock.worker.schedules import ScheduleOptions, schedule_spec
from interlock.worker.signatures import JobOptions
from interlock.worker.tasks import OPTIONS, REQUEST_ID

Function = ast.FunctionDef | ast.AsyncFunctionDef
CLIENTS = (
    interlock.Context,
    interlock.Interlock,
    interlock.JobHandle,
    interlock.Task,
    client_controls.ApprovalsClient,
    client_controls.DeadLettersClient,
    client_controls.LimitsClient,
    client_resources.RecordsClient,
    client_resources.RunsClient,
    client_resources.SimulationsClient,
    client_controls.SchedulesClient,
    client_batches.BatchesClient,
    interlock.sync.Interlock,
    *(getattr(sync_resources, client.name) for client in sync_client.CLIENTS),
    transactions.SyncTransactionClient,
    transactions.TransactionClient,
)
_ARGUMENTS = "arguments of a task that is known by name, or that come with a request id or a context by name"
_PARTIAL = "arguments of which one may be the result of another job"
_JSON = "plain JSON, if no type is asked for"
_PAYLOAD = "fields of a kind that the user has declared"
ANY = {
    "submit *args": _ARGUMENTS,
    "submit **kwargs": _ARGUMENTS,
    "submit_sync *args": _ARGUMENTS,
    "submit_sync **kwargs": _ARGUMENTS,
    "spec *args": _ARGUMENTS,
    "spec **kwargs": _ARGUMENTS,
    "s *args": _PARTIAL,
    "s **kwargs": _PARTIAL,
    "si *args": _PARTIAL,
    "si **kwargs": _PARTIAL,
    "map **kwargs": _PARTIAL,
    "start **arguments": "arguments of a simulation that may be known by name",
    "submit **inputs": "inputs of a flow, which come as text or JSON",
    "result as_type": "a union is no type[T]",
    "result return": _JSON,
    "restored type": "a union is no type[T]",
    "restored return": _JSON,
    "wait_for type": "a union is no type[T]",
    "wait_for return": _JSON,
    "wait_for_sync type": "a union is no type[T]",
    "wait_for_sync return": _JSON,
    "input return": _JSON,
    "create data": _PAYLOAD,
    "send **data": _PAYLOAD,
    "list **where": _PAYLOAD,
    "within transaction": "connections of five libraries, none of which is a dependency",
    "__init__ transaction": "connections of five libraries, none of which is a dependency",
    "__init__ **options": "the options of `@task`, which are typed there",
}
"""Where a client takes or returns `Any`, and why."""


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(Path(str(importlib.import_module(module).__file__)).read_text(encoding="utf-8"))


def definitions(module: str, name: str) -> list[ast.ClassDef | Function]:
    """Return the definitions of a name at the top of a module: several if it is overloaded."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in tree(module).body if isinstance(node, kinds) and node.name == name]


def functions(node: ast.ClassDef | Function) -> Iterator[Function]:
    """Yield a function itself, or the public and special methods of a class."""
    if isinstance(node, ast.ClassDef):
        for method in node.body:
            private = isinstance(method, Function) and method.name[0] == "_" and method.name[:2] != "__"
            if isinstance(method, Function) and not private:
                yield method
    else:
        yield node


def parameters(node: Function) -> Iterator[tuple[str, ast.expr | None]]:
    given = node.args
    yield from ((one.arg, one.annotation) for one in (*given.posonlyargs, *given.args, *given.kwonlyargs))
    if given.vararg:
        yield f"*{given.vararg.arg}", given.vararg.annotation
    if given.kwarg:
        yield f"**{given.kwarg.arg}", given.kwarg.annotation


def unannotated(node: Function) -> list[str]:
    names = [name for name, kind in parameters(node) if kind is None and name not in ("self", "cls")]
    return [f"{node.name} {name}" for name in [*names, *([] if node.returns else ["return"])]]


def bare_any(node: ast.ClassDef) -> set[str]:
    """Return the parameters and results that are `Any`; of an overloaded method those of its overloads."""
    methods = list(functions(node))
    overloaded = {one.name for one in methods if _is_overload(one)}
    shown = [one for one in methods if _is_overload(one) or one.name not in overloaded]
    annotations = [(one.name, [*parameters(one), ("return", one.returns)]) for one in shown]
    return {
        f"{method} {name}"
        for method, kinds in annotations
        for name, kind in kinds
        if kind is not None and ast.unparse(kind) == "Any"
    }


def _is_overload(node: Function) -> bool:
    return any(ast.unparse(one) == "overload" for one in node.decorator_list)


def public_things() -> Iterator[Any]:
    modules: tuple[ModuleType, ...] = (interlock, interlock.machine, interlock.testing)
    yield from (getattr(module, name) for module in modules for name in module.__all__)
    yield from (thing for thing in vars(interlock.errors).values() if inspect.isclass(thing))
    yield from CLIENTS


def any_of_clients() -> set[str]:
    """Return where the clients, and the classes that they are made of, take or return `Any`."""
    classes = {
        base for client in CLIENTS for base in client.__mro__ if base.__module__.startswith("interlock")
    }
    nodes = [node for one in classes for node in definitions(one.__module__, one.__name__)]
    return {fault for node in nodes if isinstance(node, ast.ClassDef) for fault in bare_any(node)}


def options_of(method: Any) -> set[str]:
    """Return the parameters that a method takes by name only."""
    parameters = inspect.signature(method).parameters.values()
    return {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}


def test_the_package_contains_the_py_typed_marker() -> None:
    assert Path(str(interlock.__file__)).with_name("py.typed").exists()


def test_every_public_name_has_complete_annotations() -> None:
    things = {thing for thing in public_things() if inspect.isclass(thing) or inspect.isfunction(thing)}
    ours = [thing for thing in things if thing.__module__.startswith("interlock")]
    assert len(ours) > 100
    nodes = [node for thing in ours for node in definitions(thing.__module__, thing.__name__)]
    assert [fault for node in nodes for each in functions(node) for fault in unannotated(each)] == []


def test_clients_take_and_return_any_only_where_a_reason_is_listed() -> None:
    assert any_of_clients() - ANY.keys() == set()


def test_a_reason_that_is_not_needed_any_more_is_struck_from_the_list() -> None:
    assert ANY.keys() - any_of_clients() == set()


def test_options_for_type_checkers_are_those_of_the_methods() -> None:
    assert ScheduleOptions.__optional_keys__ == options_of(schedule_spec)
    assert JobOptions.__optional_keys__ == {*OPTIONS, REQUEST_ID}


def test_missing_annotations_and_any_would_be_noticed() -> None:
    source = (
        "class A:\n def f(self, x, *, y: Any, **z: Any) -> Any: ...\n def _g(self, x): ...\n def h(self): ..."
    )
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.ClassDef)
    assert [fault for each in functions(node) for fault in unannotated(each)] == ["f x", "h return"]
    assert bare_any(node) == {"f y", "f **z", "f return"}


def test_an_overloaded_method_is_judged_by_its_overloads() -> None:
    source = "class A:\n @overload\n def f(self, x: int) -> int: ...\n def f(self, x: Any) -> Any: ..."
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.ClassDef)
    assert bare_any(node) == set()
