"""The tests on the page about testing are collected by pytest in a project of their own, and pass."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs import test_pages_tell_the_truth
from tests.testing.test_pytest_plugin import ASYNCIO
from tests.waiting import PROGRAM_S

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "testing-your-jobs.md"
TASKS, SECTION = "# letters.py\n", re.compile(r"^## ", re.M)


def cases_in(source: str) -> set[str]:
    """Return the test functions of a source."""
    return {
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def called_in(source: str) -> set[str]:
    """Return the functions that a module calls by itself."""
    return {
        node.func.id
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Expr)
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


def imports_of(source: str) -> list[str]:
    found = ast.parse(source).body
    return [ast.unparse(node) for node in found if isinstance(node, ast.Import | ast.ImportFrom)]


def project(page: Path) -> dict[str, str]:
    """Return the files of a project: the tasks of a page, and a module of tests for each of its sections.

    A module imports the tasks and what sections before it import, as a reader's file does.
    """
    files: dict[str, str] = {}
    known = ["from letters import *"]
    for number, section in enumerate(SECTION.split(page.read_text(encoding="utf-8"))):
        blocks = re.findall(r"^```python\n(.*?)^```$", section, re.S | re.M)
        for block in [block for block in blocks if block.startswith(TASKS)]:
            files["letters.py"] = block
            blocks.remove(block)
        source = "\n".join(blocks)
        if cases_in(source):
            files[f"test_section_{number}.py"] = "\n".join([*known, source])
        known += imports_of(source)
    return files


def run_pytest(folder: Path, files: dict[str, str]) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", *ASYNCIO],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )


def test_every_test_on_the_page_passes_in_a_project_of_its_own(tmp_path: Path) -> None:
    files = project(PAGE)
    expected = sum(len(cases_in(source)) for source in files.values())
    assert expected == len(re.findall(r"^(?:async )?def test_", PAGE.read_text(encoding="utf-8"), re.M)) > 6
    done = run_pytest(tmp_path, files)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{expected} passed" in done.stdout, done.stdout


@pytest.mark.long  # starts pytest once more
def test_a_test_of_the_page_that_fails_is_noticed(tmp_path: Path) -> None:
    files = project(PAGE)
    (name,) = (name for name, source in files.items() if "il_sync.drain()  #" in source)
    broken = files[name].replace("    il_sync.drain()  #", "    #")
    done = run_pytest(tmp_path, {"letters.py": files["letters.py"], name: broken})
    assert "test_all_letters_are_sent" in done.stdout
    assert "1 failed, 2 passed" in done.stdout, done.stdout


def test_every_other_test_on_a_page_is_called_by_the_page() -> None:
    for page in test_pages_tell_the_truth.PAGES:
        source = "\n".join(test_pages_tell_the_truth.blocks(page, "python"))
        if page != PAGE:
            assert cases_in(source) <= called_in(source), page.name
