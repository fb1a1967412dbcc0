"""Tasks in source files, which are parsed and never imported: for completion and `interlock dev`."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

MOST_FILES = 200


def file_of(name: str) -> Path | None:
    """Return the file of a module; None if that requires importing it."""
    if name.endswith(".py") or "/" in name:
        return Path(name)
    relative = Path(*name.split("."))
    for folder in (Path.cwd(), *map(Path, sys.path)):
        for file in (folder / relative.with_suffix(".py"), folder / relative / "__init__.py"):
            if file.is_file():
                return file
    return None


def dotted(module: str) -> str:
    """Return the name of a module.

    It may be given as a file or with its registry.
    """
    name = module.partition(":")[0]
    return name.removesuffix(".py").strip("./").replace("/", ".")


def tasks_in(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield functions with a `task` decorator, and their required arguments."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python prints those about the source
            tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return  # the worker reports it
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
            map(_is_task, node.decorator_list)
        ):
            wanted = node.args.args[: len(node.args.args) - len(node.args.defaults)]
            keywords = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            wanted += [argument for argument, default in keywords if default is None]
            yield node.name, [argument.arg for argument in wanted if argument.arg not in ("context", "ctx")]


def tasks_of(module: str) -> Iterator[str]:
    """Yield the tasks of a module or package, as `module:function`.

    Those of a package are in all of its modules.
    """
    name, file = dotted(module), file_of(module.partition(":")[0])
    if file is None:
        return
    yield from (f"{name}:{task}" for task, _ in tasks_in(file))
    if file.name == "__init__.py":
        for below in sorted(file.parent.rglob("*.py"))[:MOST_FILES]:
            parts = below.relative_to(file.parent).with_suffix("").parts
            if below != file and _may_have_tasks(below):
                path = ".".join((name, *parts)).removesuffix(".__init__")
                yield from (f"{path}:{task}" for task, _ in tasks_in(below))


def tasks_here() -> Iterator[str]:
    """Yield the tasks of files in this directory, as `module:function`."""
    for file in sorted(Path.cwd().glob("*.py"))[:MOST_FILES]:
        if file.stem.isidentifier() and _may_have_tasks(file):
            yield from (f"{file.stem}:{task}" for task, _ in tasks_in(file))


def _may_have_tasks(file: Path) -> bool:
    try:
        return b"task" in file.read_bytes()
    except OSError:
        return False


def _is_task(decorator: ast.expr) -> bool:
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(named, "id", getattr(named, "attr", "")) == "task"
