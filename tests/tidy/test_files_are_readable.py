"""A file is something a person reads in one go, and it opens with what it is for."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.sources import statements

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "verification/src")
SOURCE_LINES = 600
TEST_LINES = 500
PARAMETERS = 8
TEXT = frozenset({".py", ".sql", ".lua", ".js", ".css", ".html", ".proto", ".toml", ".md"})


def too_long(files: Iterable[Path], limit: int) -> list[str]:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    return [
        f"{path.name}: {length} lines, at most {limit}" for path, length in lengths.items() if length > limit
    ]


def without_docstring(files: Iterable[Path]) -> list[str]:
    return [str(path) for path in files if not _begins_with_a_docstring(path.read_text(encoding="utf-8"))]


def _begins_with_a_docstring(code: str) -> bool:
    """Return whether the module has a docstring; one that is at the top is found without parsing it all."""
    top = code.startswith('"""') and not code.startswith(('""""', '"""\n"""'))
    return top or bool(ast.get_docstring(ast.parse(code)))


def files_in(folder: Path) -> list[Path]:
    found = (path for path in folder.rglob("*") if path.suffix in TEXT and path.is_file())
    return sorted(path for path in found if "__pycache__" not in path.parts)


def modules_in(folder: Path) -> list[Path]:
    return [path for path in files_in(folder) if path.suffix == ".py"]


@pytest.mark.parametrize("folder", SOURCES)
def test_no_source_file_is_too_long_to_be_read(folder: str) -> None:
    assert too_long(files_in(ROOT / folder), SOURCE_LINES) == []


def test_no_test_file_is_too_long_to_be_read() -> None:
    assert too_long(files_in(ROOT / "tests"), TEST_LINES) == []


@pytest.mark.parametrize("folder", SOURCES)
def test_every_module_has_a_docstring(folder: str) -> None:
    assert without_docstring(modules_in(ROOT / folder)) == []


@pytest.mark.parametrize("folder", [*SOURCES, "tests"])
def test_there_are_files_to_look_at(folder: str) -> None:
    assert len(modules_in(ROOT / folder)) > 10


def test_a_file_that_is_one_line_too_long_would_be_noticed(tmp_path: Path) -> None:
    long, just_right = tmp_path / "long.py", tmp_path / "just_right.py"
    long.write_text("x = 1\n" * 401)
    just_right.write_text("x = 1\n" * 400)
    assert too_long(files_in(tmp_path), 400) == ["long.py: 401 lines, at most 400"]


def test_a_module_without_a_docstring_would_be_noticed(tmp_path: Path) -> None:
    silent, empty, fine = tmp_path / "silent.py", tmp_path / "__init__.py", tmp_path / "sub" / "fine.py"
    fine.parent.mkdir()
    silent.write_text("x = 1  # no docstring\n")
    empty.write_text("")
    fine.write_text('"""What it is for."""\n')
    assert without_docstring(modules_in(tmp_path)) == [str(empty), str(silent)]


def crowded_constructors(files: Iterable[Path], limit: int) -> list[str]:
    """Name the classes whose constructor takes more parameters than a caller can keep in mind."""
    found = []
    for path in files:
        code = path.read_text(encoding="utf-8")
        nodes = statements(ast.parse(code)) if "__init__(" in code else ()
        for kind in (node for node in nodes if isinstance(node, ast.ClassDef)):
            for made in (node for node in kind.body if isinstance(node, ast.FunctionDef)):
                taken = len(made.args.args) - 1 + len(made.args.kwonlyargs)
                if made.name == "__init__" and taken > limit:
                    found.append(f"{path.name}: {kind.name} takes {taken}")
    return found


@pytest.mark.parametrize("folder", SOURCES)
def test_no_constructor_takes_more_than_eight_parameters(folder: str) -> None:
    assert crowded_constructors(modules_in(ROOT / folder), PARAMETERS) == []


def test_a_crowded_constructor_would_be_noticed(tmp_path: Path) -> None:
    crowded, fine = tmp_path / "crowded.py", tmp_path / "fine.py"
    crowded.write_text("class A:\n    def __init__(self, a, b, *, c): ...\n")
    fine.write_text("class B:\n    def __init__(self, a, *, b): ...\n    def other(self, a, b, c): ...\n")
    assert crowded_constructors([crowded, fine], 2) == ["crowded.py: A takes 3"]
