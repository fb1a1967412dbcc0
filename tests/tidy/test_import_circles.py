"""Modules import each other in one direction; two that need each other are one subject, or lack a third.

Imports within functions and imports for annotations alone (`if TYPE_CHECKING:`) count: they make a circle
run, and it is one all the same.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest
from tests.sources import tree_of

ROOT = Path(__file__).parents[2]
SRC, VERIFICATION = ROOT / "src", ROOT / "verification" / "src"
KEPT = {
    frozenset(
        f"interlock.worker.{name}"
        for name in ("child_jobs", "composition", "context", "functions", "middleware", "signatures", "tasks")
    ): (
        "A handler gets a `Context`, which submits tasks, which are made of handlers. Each class is in the "
        "annotations of the others, which type checkers of users read; a protocol would say `Context` twice."
    ),
}
"""Circles, by their modules, with why they stay."""


def modules(folder: Path) -> dict[str, Path]:
    """Return the files of all modules by name."""
    paths = (path.relative_to(folder).with_suffix("") for path in folder.rglob("*.py"))
    return {".".join(path.parts).removesuffix(".__init__"): folder / path for path in paths}


def imports_of(tree: ast.AST, *, deferred: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports that run with a module; with `deferred` those of functions and annotations too."""
    open_ones: list[ast.AST] = [tree]
    while open_ones:
        for node in ast.iter_child_nodes(open_ones.pop()):
            later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
                isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            )
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield node
            elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case) and (deferred or not later):
                open_ones.append(node)


def graph_of(folder: Path, *, deferred: bool) -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    known = modules(folder)
    graph: dict[str, set[str]] = {name: set() for name in known}
    for name, path in known.items():
        for node in imports_of(tree_of(path.with_suffix(".py")), deferred=deferred):
            for each in node.names:
                full = f"{node.module}.{each.name}" if isinstance(node, ast.ImportFrom) else each.name
                inside = str(node.module) if isinstance(node, ast.ImportFrom) else full
                graph[name] |= {full if full in known else inside} & known.keys()
    return graph


def circles_in(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Return the modules of each circle: those that import each other, also by way of others."""
    reached = {name: reached_from(name, graph) for name in graph}
    return {
        frozenset(each for each in found if name in reached[each])
        for name, found in reached.items()
        if name in found
    }


def reached_from(name: str, graph: Mapping[str, set[str]]) -> set[str]:
    """Return the modules that a module imports, also by way of others."""
    reached: set[str] = set()
    open_ones = list(graph[name])
    while open_ones:
        each = open_ones.pop()
        if each not in reached:
            reached.add(each)
            open_ones += graph[each]
    return reached


@pytest.mark.parametrize(("folder", "modules_at_least"), [(SRC, 400), (VERIFICATION, 60)])
def test_no_module_imports_itself_by_way_of_others(folder: Path, modules_at_least: int) -> None:
    graph = graph_of(folder, deferred=False)
    assert len(graph) > modules_at_least
    assert circles_in(graph) == set()


@pytest.mark.parametrize(("folder", "kept"), [(SRC, KEPT.keys()), (VERIFICATION, set())])
def test_circles_that_are_closed_by_a_deferred_import_have_a_reason(
    folder: Path, kept: Collection[frozenset[str]]
) -> None:
    assert circles_in(graph_of(folder, deferred=True)) == kept


def test_a_circle_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("from two import a\nif TYPE_CHECKING:\n    from four import b\n")
    (tmp_path / "two.py").write_text("from three import b\n")
    (tmp_path / "three.py").write_text("def f():\n    try: import one\n    except A: import five\n")
    (tmp_path / "four.py").write_text("from one import c\n")
    (tmp_path / "five.py").write_text("import six\n")
    (tmp_path / "six.py").write_text("import five\n")
    assert circles_in(graph_of(tmp_path, deferred=False)) == {frozenset({"five", "six"})}
    assert circles_in(graph_of(tmp_path, deferred=True)) == {
        frozenset({"one", "two", "three", "four"}),
        frozenset({"five", "six"}),
    }
