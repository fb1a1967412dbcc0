"""Each noun of the command line is one module of `cli/nouns`, and shared verbs are written once."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests.sources import tree_of

from interlock.cli import options
from interlock.cli.main import HOMES, app

NOUNS = Path(__file__).parents[2] / "src" / "interlock" / "cli" / "nouns"
WHOLE = 600
"""Lines up to which a noun is one module."""
SHARED = ("list", "show", "history", "explain")
OF_THEIR_OWN = {
    "batch show": "lists the jobs of the batch as well",
    "config list": "reads a file of the user: there is no store",
    "machine list": "reads the tables: there is no store",
    "machine show": "prints the tables of a lifecycle, also of one in a file",
    "record list": "is of one kind, which is an argument",
    "record history": "a record is named by kind and id, and its JSON is entries",
    "record explain": "names the events that a record of the user accepts",
    "schedule history": "a schedule has one machine, and its JSON is entries",
    "workload list": "a workload is a job with agents: its rows are of both",
    "workload show": "writes the files of the result as well",
}
FOLLOWS = {"job watch", "job wait"}
"""Commands that take a filter and change nothing."""


def commands_by_noun() -> dict[str, dict[str, Any]]:
    """Return the commands below each noun; `verify` has those of another distribution."""
    program: Any = typer.main.get_command(app)
    named = {name: getattr(each, "commands", None) for name, each in program.commands.items()}
    found = {name: dict(below) for name, below in named.items() if below and name != "verify"}
    found["job"]["submit"] = program.commands["submit"]
    return found


def homes() -> dict[str, str]:
    """Return the module of each noun."""
    return {name: HOMES[name][0].split(".")[1] for name in commands_by_noun()}


def misplaced(
    modules: Iterable[str], nouns: Mapping[str, Iterable[str]], home: Mapping[str, str]
) -> set[str]:
    """Return the modules that are neither a noun nor the views or a verb of one."""
    parts = tuple(
        f"{noun}_{part}".replace("-", "_") for noun, verbs in nouns.items() for part in ("views", *verbs)
    )
    found = {name for name in modules if name not in home.values()}
    return {name for name in found if not any(name == part or name.startswith(f"{part}_") for part in parts)}


def split_needlessly(lines: Mapping[str, int], home: Mapping[str, str]) -> set[str]:
    """Return the nouns in several modules that would be one of at most `WHOLE` lines."""
    found = set()
    for noun, module in home.items():
        own = [size for name, size in lines.items() if name == module or name.startswith(f"{noun}_")]
        if len(own) > 1 and sum(own) <= WHOLE:
            found.add(noun)
    return found


def uses(tree: ast.AST, name: str) -> bool:
    """Return whether a module imports a shared verb, or takes it from its module."""
    return any(
        (
            isinstance(node, ast.ImportFrom)
            and node.module == "interlock.cli.verbs"
            and name in {each.name for each in node.names}
        )
        or (isinstance(node, ast.Attribute) and ast.unparse(node) == f"verbs.{name}")
        for node in ast.walk(tree)
    )


def own_verbs() -> Iterator[str]:
    """Yield the commands that have a shared name, or take a filter, and are not made of the shared verbs."""
    for noun, commands in commands_by_noun().items():
        stem = noun.replace("-", "_")
        trees = [
            tree_of(path) for path in NOUNS.glob("*.py") if path.stem.startswith((homes()[noun], f"{stem}_"))
        ]
        for verb, command in commands.items():
            callback: Any = command.callback
            shared = callback.__module__ == options.__name__
            if verb == "list":
                shared = any(uses(tree, "list_records") for tree in trees)
            elif isinstance(command, options.FilterCommand):
                shared = shared or "act_on_all(" in inspect.getsource(callback)
            elif verb not in SHARED:
                continue
            if not shared:
                yield f"{noun} {verb}"


def test_a_module_of_the_folder_is_a_noun_or_the_views_or_a_verb_of_one() -> None:
    modules = {path.stem for path in NOUNS.glob("*.py")} - {"__init__"}
    assert misplaced(modules, commands_by_noun(), homes()) == set()
    assert set(homes().values()) <= modules


def test_a_noun_is_one_module_unless_that_would_have_more_than_600_lines() -> None:
    lines = {path.stem: len(path.read_text(encoding="utf-8").splitlines()) for path in NOUNS.glob("*.py")}
    assert split_needlessly(lines, homes()) == set()


def test_lists_views_and_actions_are_the_shared_verbs_except_where_a_reason_is_listed() -> None:
    assert set(own_verbs()) == OF_THEIR_OWN.keys() | FOLLOWS


@pytest.mark.parametrize("name", ["job_actions", "widgets", "queue_processes", "jobs_more"])
def test_a_module_of_another_name_would_be_noticed(name: str) -> None:
    assert misplaced([name, "job_watch", "jobs"], commands_by_noun(), homes()) == {name}


def test_a_small_noun_in_two_modules_would_be_noticed() -> None:
    lines = {"queues": 99, "queue_views": 500, "jobs": 480, "job_watch": 402}
    assert split_needlessly(lines, {"queue": "queues", "job": "jobs"}) == {"queue"}


def test_a_list_of_its_own_would_be_noticed() -> None:
    assert not uses(
        ast.parse("from interlock.cli.verbs import Noun\ndef list_records(): ..."), "list_records"
    )
    assert uses(ast.parse("def f():\n    verbs.list_records()"), "list_records")
    assert uses(ast.parse("def f():\n    from interlock.cli.verbs import list_records"), "list_records")
