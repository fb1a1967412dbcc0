"""One name means one class, so that a search for it finds one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
SHARED = {
    "Entry": "public: a row of a table as a page shows it, and a note as the journal keeps it",
    "Failed": "on the wire: how an attempt, and how a simulation, reports its failure",
    "Fault": "public: a mistake in a table, and a failure that a test injects",
    "Interlock": "public: the client, with and without await",
    "Plan": "public and on the wire: the faults of a test, and the jobs of a run",
}
"""Names of several classes, with why none of them can change."""


def shared_names(files: Iterable[Path]) -> dict[str, list[str]]:
    """Return the names of more than one class, with the files that define them.

    Events do not count: an event has the name that its table gives it, such as `Heartbeat` of leases and of
    workers.
    """
    homes: dict[str, list[str]] = defaultdict(list)
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not _is_event(node):
                homes[node.name].append(path.name)
    return {name: sorted(found) for name, found in homes.items() if len(found) > 1}


def _is_event(node: ast.ClassDef) -> bool:
    return any(ast.unparse(each).startswith("event(") for each in node.decorator_list)


def test_no_two_classes_share_a_name() -> None:
    shared = shared_names(sorted(SRC.rglob("*.py")))
    assert {name: files for name, files in shared.items() if name not in SHARED} == {}


def test_no_exception_outlives_its_reason() -> None:
    assert sorted(shared_names(sorted(SRC.rglob("*.py")))) == sorted(SHARED)


def test_a_second_class_of_a_name_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class A: ...\nclass B: ...\n")
    (tmp_path / "two.py").write_text("def f():\n    class A: ...\n@event(Kind.TIMER)\nclass B: ...\n")
    assert shared_names(sorted(tmp_path.iterdir())) == {"A": ["one.py", "two.py"]}
