"""The type checker of `make check` reads the files beside this one; here, that nothing is left out."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.waiting import PROGRAM_S

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXPECTATIONS = [path for path in HERE.glob("*.py") if not path.name.startswith("test_")]
IGNORED = re.compile(r"# type: ignore(\[[a-z, -]+\])?")
METHODS = (
    "il.submit(",
    ".submit_sync(",
    "ctx.submit(",
    "within.submit(",
    "sync.submit(",
    ".spec(",
    ".options(",
)


def lines() -> list[str]:
    return [line for path in EXPECTATIONS for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_type_checker_reads_the_expectations_and_reports_those_that_are_not_met() -> None:
    mypy = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert mypy["strict"]  # and so it warns about an ignore without an error
    assert "warn_unused_ignores" not in mypy
    assert "tests" in mypy["files"]
    assert not [one for one in mypy.get("overrides", []) if "ignore_errors" in one]


def test_every_submit_method_has_an_expectation_with_a_valid_and_one_with_an_invalid_call() -> None:
    for method in METHODS:
        wrong = [bool(IGNORED.search(line)) for line in lines() if method in line]
        assert True in wrong, method
        assert False in wrong, method


@pytest.mark.long
def test_mypy_shows_the_signature_of_the_task_where_arguments_do_not_fit(tmp_path: Path) -> None:
    example = tmp_path / "example.py"
    example.write_text(
        "from interlock import Interlock, task\n"
        "@task\n"
        "async def double(x: int) -> int: return x\n"
        "async def use(il: Interlock) -> None:\n"
        "    await il.submit(double, 'two')\n"
    )
    words = ("--strict", "--config-file=", f"--cache-dir={ROOT / '.mypy_cache'}", str(example))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words], capture_output=True, text=True, timeout=PROGRAM_S, check=False
    )
    assert 'expected "TaskWithTheseArguments"' in done.stdout, done.stdout + done.stderr
    assert "def __call__(self, x: int)" in done.stdout
    assert "Found 1 error" in done.stdout


def test_every_type_error_that_is_expected_names_its_code() -> None:
    marks = [match for line in lines() if (match := IGNORED.search(line))]
    assert len(marks) > 25
    assert [mark for mark in marks if not mark[1]] == []
