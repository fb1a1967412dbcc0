"""Modules import each other in one direction; two that need each other are one subject, or lack a third."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.sources import tree_of

SRC = Path(__file__).parents[2] / "src"
LATE = {
    "interlock.cli.completion": "completes the options, and is a command with options itself",
    "interlock.cli.options": "the same circle",
    "interlock.cli.output": "loads the tables of a terminal, and with them rich, when there is one",
    "interlock.cli.tables": "the same circle",
    "interlock.systems.runs.workflows.git": "loads what reads workflow files with the first one",
    "interlock.systems.runs.workflows.planner": "the same circle",
    "interlock.systems.runs.workflows.workflow": "the same circle",
}
"""Modules in a circle that is closed by an import within a function, and why."""


def modules(folder: Path) -> dict[str, Path]:
    """Return the files of all modules by name."""
    paths = (path.relative_to(folder).with_suffix("") for path in folder.rglob("*.py"))
    return {".".join(path.parts).removesuffix(".__init__"): folder / path for path in paths}


def imports_of(tree: ast.AST, *, late: bool) -> Iterator[ast.ImportFrom]:
    """Yield the imports at the top of a module; with `late` those of its functions as well."""
    open_ones: list[ast.AST] = [tree]
    while open_ones:
        for node in ast.iter_child_nodes(open_ones.pop()):
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            if isinstance(node, ast.ImportFrom):
                yield node
            elif isinstance(node, ast.stmt) and not for_types and (late or not function):
                open_ones.append(node)


def graph_of(folder: Path, *, late: bool) -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    known = modules(folder)
    graph: dict[str, set[str]] = {name: set() for name in known}
    for name, path in known.items():
        for node in imports_of(tree_of(path.with_suffix(".py")), late=late):
            for each in node.names:
                full = f"{node.module}.{each.name}"
                graph[name] |= {full if full in known else str(node.module)} & known.keys()
    return graph


def in_circles(graph: Mapping[str, set[str]]) -> set[str]:
    """Return the modules that import themselves by way of others."""
    return {name for name in graph if name in reached_from(name, graph)}


def reached_from(name: str, graph: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    open_ones = list(graph[name])
    while open_ones:
        each = open_ones.pop()
        if each not in reached:
            reached.add(each)
            open_ones += graph[each]
    return reached


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = graph_of(SRC, late=False)
    assert len(graph) > 400
    assert in_circles(graph) == set()


def test_circles_that_are_closed_by_a_late_import_have_a_reason() -> None:
    assert in_circles(graph_of(SRC, late=True)) == LATE.keys()


def test_a_circle_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("from two import a\nif TYPE_CHECKING:\n    from four import b\n")
    (tmp_path / "two.py").write_text("from three import b\n")
    (tmp_path / "three.py").write_text("def f():\n    from one import c\n")
    (tmp_path / "four.py").write_text("from one import c\n")
    assert in_circles(graph_of(tmp_path, late=False)) == set()
    assert in_circles(graph_of(tmp_path, late=True)) == {"one", "two", "three"}
