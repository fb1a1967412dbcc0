"""A package that gives an order of reading names all of its modules, and no others."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "interlock"
ORDER = "eading order:"
FAMILY = "one module for each"
"""Packages of this kind name the first of many alike."""


def parts_of(folder: Path) -> set[str]:
    """Return the names of the modules and packages in a folder."""
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    return modules | {path.parent.name for path in folder.glob("*/__init__.py")}


def left_out(docstring: str, parts: set[str]) -> list[str]:
    order = docstring.partition(ORDER)[2]
    return sorted(name for name in parts if not re.search(rf"\b{name}\b", order))


def orders() -> dict[Path, str]:
    texts = {path.parent: ast.get_docstring(ast.parse(path.read_text())) for path in SRC.rglob("__init__.py")}
    return {folder: text for folder, text in texts.items() if text and ORDER in text and FAMILY not in text}


@pytest.mark.parametrize("folder", orders(), ids=lambda folder: folder.relative_to(SRC).as_posix())
def test_every_module_is_in_the_reading_order_of_its_package(folder: Path) -> None:
    assert left_out(orders()[folder], parts_of(folder)) == []


def test_a_module_that_is_left_out_is_noticed() -> None:
    assert left_out("Reading order:\n\n    body  the record", {"body", "jobs"}) == ["jobs"]
