"""A function is named by what it does or returns, and not by a preposition or an adverb alone."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.sources import statements, tree_of

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "verification/src")
PREPOSITIONS = frozenset(
    {
        *("about", "above", "after", "against", "ahead", "around", "at", "before", "behind"),
        *("below", "beside", "between", "beyond", "by", "for", "from", "in", "inside", "into"),
        *("like", "near", "of", "off", "onto", "out", "outside", "over", "per", "since"),
        *("through", "to", "toward", "towards", "under", "up", "upon", "with", "within"),
        *("without"),
    }
)
ADVERBS = frozenset(
    {
        *("again", "alike", "alone", "anew", "apart", "away", "back", "clearly", "elsewhere"),
        *("exactly", "late", "once", "patiently", "soon", "still", "surely", "then", "there"),
        *("together", "well"),
    }
)
PROPERTIES = frozenset({"property", "cached_property", "getter", "setter"})
OF_A_LANGUAGE = {
    "toward": "public: a word of a table of transitions",
    "within": "public: a transaction, in which the client works",
}
LEFT = {
    "after": 6,
    "again": 2,
    "alike": 1,
    "alone": 4,
    "at": 3,
    "between": 1,
    "elsewhere": 4,
    "from": 1,
    "inside": 1,
    "into": 1,
    "of": 15,
    "over": 1,
    "since": 2,
    "soon": 1,
    "there": 1,
    "to": 1,
    "together": 1,
}
"""How often each such name is left from before. The numbers may only shrink."""


def named_by_a_particle(files: Iterable[Path]) -> dict[str, list[str]]:
    """Return the functions that are named only by a preposition or an adverb, with where they are.

    Properties are values and have the names of values, such as `since`.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for path in files:
        for node in statements(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_property(node):
                name = node.name.strip("_")
                if name in (PREPOSITIONS | ADVERBS) - OF_A_LANGUAGE.keys():
                    found[name].append(f"{path.name}:{node.lineno}")
    return dict(found)


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
    return bool(names & PROPERTIES)


def test_no_more_functions_are_named_by_a_preposition_or_an_adverb() -> None:
    files = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))]
    found = named_by_a_particle(files)
    more = {name: places for name, places in found.items() if len(places) > LEFT.get(name, 0)}
    assert more == {}, f"Name these by what they do or return, as CONTRIBUTING has it: {more}"


def test_the_command_line_has_no_such_names() -> None:
    assert named_by_a_particle((ROOT / "src" / "interlock" / "cli").rglob("*.py")) == {}


def test_a_function_named_by_a_preposition_would_be_noticed(tmp_path: Path) -> None:
    example = tmp_path / "example.py"
    example.write_text(
        "def _of(x): ...\nasync def surely(): ...\ndef state_of(x): ...\n"
        "class A:\n    @property\n    def since(self): ...\n    def apart(self): ...\n"
    )
    expected = {"of": ["example.py:1"], "surely": ["example.py:2"], "apart": ["example.py:7"]}
    assert named_by_a_particle([example]) == expected
