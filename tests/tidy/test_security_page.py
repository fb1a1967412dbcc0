"""SECURITY.md: the checklist has every requirement of ASVS 4.0.3 level 2, and the tests it names exist."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

from tests.sources import statements

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")

LEVEL_2 = """
1.1.1-7 1.2.1-4 1.4.1 1.4.4-5 1.5.1-4 1.6.1-4 1.7.1-2 1.8.1-2 1.9.1-2 1.10.1 1.11.1-2 1.12.2 1.14.1-6
2.1.1-12 2.2.1-3 2.3.1-3 2.4.1-6 2.5.1-7 2.6.1-3 2.7.1-6 2.8.1-7 2.9.1-3 2.10.1-4
3.1.1 3.2.1-4 3.3.1-4 3.4.1-5 3.5.1-3 3.7.1
4.1.1-3 4.1.5 4.2.1-2 4.3.1-3
5.1.1-5 5.2.1-8 5.3.1-10 5.4.1-3 5.5.1-4
6.1.1-3 6.2.1-6 6.3.1-2 6.4.1-2
7.1.1-4 7.2.1-2 7.3.1 7.3.3-4 7.4.1-3
8.1.1-4 8.2.1-3 8.3.1-8
9.1.1-3 9.2.1-4
10.2.1-2 10.3.1-3
11.1.1-8
12.1.1-3 12.2.1 12.3.1-6 12.4.1-2 12.5.1-2 12.6.1
13.1.1 13.1.3-5 13.2.1-3 13.2.5-6 13.3.1-2 13.4.1-2
14.1.1-4 14.2.1-6 14.3.2-3 14.4.1-7 14.5.1-4
"""
"""All that are asked for at level 2, without those that were deleted; from the standard's own list."""

_ROW = re.compile(r"^\| (\d[^|]*) \| ([^|]+) \| (yes|n/a|partly|no) \| (.+) \|$", re.MULTILINE)
_NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def numbers(text: str) -> list[str]:
    """Return the requirements that a text names: `1.4.1, 1.4.4-1.4.5` or `1.4.4-5`."""
    found: list[str] = []
    for part in re.split(r"[,\s]+", text.strip()):
        first, _, last = part.partition("-")
        section, _, start = first.rpartition(".")
        end = last.rpartition(".")[2] or start
        found += [f"{section}.{number}" for number in range(int(start), int(end) + 1)]
    return found


@cache
def defined_in(path: str) -> frozenset[str]:
    """Return the names of the tests in a file; none when there is no such file."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in statements(tree) if isinstance(node, functions))


def missing(page: str) -> list[str]:
    """Return the tests that a page names and that do not exist."""
    return [
        f"{path}::{name}" if name else path
        for path, name in _NAMED.findall(page)
        if not defined_in(path) or (name and name not in defined_in(path))
    ]


def faults(page: str) -> list[str]:
    """Return what is wrong with a checklist."""
    listed = Counter(number for cell, *_ in _ROW.findall(page) for number in numbers(cell))
    wanted = numbers(" ".join(LEVEL_2.split()))
    found = [f"{number} is missing" for number in wanted if not listed[number]]
    found += [f"{number} is there {times} times" for number, times in listed.items() if times > 1]
    found += [f"{number} is no requirement of level 2" for number in listed if number not in wanted]
    found += [
        f"{cell} holds, and nothing says why"
        for cell, _, verdict, why in _ROW.findall(page)
        if verdict == "yes" and len(why) < 10
    ]
    return found


def test_every_requirement_of_level_2_is_in_the_checklist_once() -> None:
    assert faults(PAGE) == []


def test_every_test_that_the_page_names_exists() -> None:
    assert missing(PAGE) == []
    assert len(set(_NAMED.findall(PAGE))) > 60


def test_every_test_that_the_page_about_compatibility_names_exists() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    assert missing(page) == []
    assert len(_NAMED.findall(page)) > 5


def test_every_requirement_that_is_met_names_a_test_except_for_two_listed_ones() -> None:
    """Few rows are held by something else than a test, and each says by what."""
    untested = [
        cell for cell, _, verdict, why in _ROW.findall(PAGE) if verdict == "yes" and "`tests/" not in why
    ]
    assert untested == ["8.3.4", "14.2.2"]


def test_a_page_with_faults_would_be_noticed() -> None:
    assert missing("`tests/tidy/test_security_page.py::test_of_nothing`") != []
    assert missing("`tests/nowhere.py`") != []
    row = "| 4.2.1 | a | yes | `tests/tidy/test_lock.py::test_x` |"
    assert "4.2.1 is there 2 times" in faults(PAGE + "\n" + row)
    assert "1.1.1 is missing" in faults(row)
    assert "1.11.3 is no requirement of level 2" in faults("| 1.11.3 | a | n/a | for a reason |")
