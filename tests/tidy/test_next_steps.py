"""Every error that the command line raises has a next step, which is printed after the sentence."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path

import interlock.errors
from interlock.errors import InterlockError

ROOT = Path(__file__).parents[2]
CLI = ROOT / "src/interlock/cli"
ERRORS = {
    name: kind
    for name, kind in vars(interlock.errors).items()
    if isinstance(kind, type) and issubclass(kind, InterlockError)
}
ALWAYS_KNOWN = {"records.py: UnknownState"}
"""Unknown names among others that there always are: the error lists those by itself."""


def errors_without_a_next_step(files: Iterable[Path]) -> list[str]:
    """Return the errors that are made without a next step, as `file: class`."""
    return [
        f"{path.name}: {name}"
        for path in files
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for name in _without_a_next_step(function)
    ]


def _without_a_next_step(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    nodes = list(_own_nodes(function))
    adds_one = any(isinstance(node, ast.Attribute) and node.attr == "todo" for node in _targets(nodes))
    for node in nodes:
        name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if not isinstance(node, ast.Call) or name not in (*ERRORS, "error"):
            continue
        makes_its_own = name != "error" and "todo" not in inspect.signature(ERRORS[name]).parameters
        steps = [each.value for each in node.keywords if each.arg == "todo"]
        is_empty = any(isinstance(step, ast.Constant) and not step.value for step in steps)
        if is_empty or (not steps and not (makes_its_own and adds_one)):
            yield name


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions in it."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _own_nodes(node)


def _targets(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        if isinstance(node, ast.Assign):
            yield from node.targets


def test_every_error_of_the_command_line_has_a_next_step() -> None:
    assert set(errors_without_a_next_step(sorted(CLI.rglob("*.py")))) == ALWAYS_KNOWN


def test_an_error_without_a_next_step_would_be_noticed(tmp_path: Path) -> None:
    example = tmp_path / "example.py"
    example.write_text(
        "def one(): raise InvalidArguments('No.', todo='')\n"
        "def two(): raise InvalidSettings('No.')\n"
        "def three(): raise UnknownProfile('a', ())\n"
        "def four(error): raise error('No.', facts={})\n"
        "def good():\n"
        "    error = UnknownProfile('a', ())\n"
        "    error.todo = 'Make it.'\n"
        "    raise InvalidArguments('No.', todo='Do this.') from error\n"
    )
    found = [line.partition(": ")[2] for line in errors_without_a_next_step([example])]
    assert found == ["InvalidArguments", "InvalidSettings", "UnknownProfile", "error"]
