"""Pages import what a reference describes: other modules and names may change without notice."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs.python_pages import PROMISED
from tests.docs.test_every_block import blocks_of

import interlock.errors

ROOT = Path(__file__).parents[2]
FOR_DEVELOPERS = ROOT / "docs" / "decisions"
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if not page.is_relative_to(FOR_DEVELOPERS)),
]
ERRORS = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8"), re.M)
DESCRIBED = {**PROMISED, "interlock.errors": tuple(ERRORS)}
"""The names that the references describe, by the module to import them from."""
IN_A_COMMAND = re.compile(r"from (interlock[\w.]*) import ([\w, ]+)")


def imported(language: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the names of Interlock that a block imports, each with its module; of a module no name."""
    try:
        tree = ast.parse(text if language in ("python", "py") else "!")
    except SyntaxError:  # a command, or a signature in a reference
        for module, names in IN_A_COMMAND.findall(text):
            yield from ((module, name.split()[0]) for name in names.split(","))
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and is_ours(node.module or ""):
            yield from ((str(node.module), each.name) for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names if is_ours(each.name))


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == "interlock"


def undescribed(language: str, text: str) -> list[str]:
    """Return the imports of a block that no reference describes."""
    paths = [
        (module, name, f"{module}.{name}" if name else module) for module, name in imported(language, text)
    ]
    return [
        path
        for module, name, path in paths
        if path not in DESCRIBED and name not in DESCRIBED.get(module, ())
    ]


def test_every_import_on_a_page_is_of_a_name_that_a_reference_describes() -> None:
    blocks = [block for page in PAGES for block in blocks_of(page)]
    found = {(str(block.page), each) for block in blocks for each in undescribed(block.language, block.text)}
    assert sorted(found) == []
    assert sum(len([*imported(block.language, block.text)]) for block in blocks) > 150


def test_every_error_of_the_reference_is_in_the_module_that_it_names() -> None:
    assert len(ERRORS) > 100
    assert [name for name in ERRORS if not hasattr(interlock.errors, name)] == []


@pytest.mark.parametrize(
    ("language", "text", "name"),
    [
        ("python", "from interlock.wire.runs import Plan", "interlock.wire.runs.Plan"),
        ("py", "def f():\n    from interlock import Interlock, Secret", "interlock.Secret"),
        ("python", "import interlock.store.memory as memory", "interlock.store.memory"),
        ("python", "from interlock.errors import Secret", "interlock.errors.Secret"),
        ("python", "from interlock import store", "interlock.store"),
        (
            "console",
            '$ python -c "from interlock.store.sqlite import Sqlite"',
            "interlock.store.sqlite.Sqlite",
        ),
    ],
)
def test_an_import_of_an_internal_name_is_noticed(language: str, text: str, name: str) -> None:
    assert undescribed(language, text) == [name]


@pytest.mark.parametrize(
    "text",
    [
        "import asyncio, interlock.sync",
        "from interlock import Interlock as Client, notebook",
        "from interlock.errors import WaitTimeout",
        "from interlocked import anything",
    ],
)
def test_a_public_name_and_a_module_of_public_names_are_left_alone(text: str) -> None:
    assert undescribed("python", text) == []
