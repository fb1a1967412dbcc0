"""A pause that grows from try to try is made by `interlock.backoff`, and by no arithmetic elsewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sources import statements

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "verification/src")
HOME = ROOT / "src" / "interlock" / "backoff.py"

GROWING = re.compile(r"\*\*|\b2(?:\.0)? \* |\* 2(?:\.0)?\b|\*= ")
"""Text without which no pause is doubled; most files are not parsed."""
OF_PAUSES = re.compile(r"pause|back_?off|delay|wait|retr(?:y|ies)|(?<!n)tries|failures|doublings", re.I)

COMPUTING = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)


def hand_written(source: str) -> list[int]:
    """Return the lines of a source in which a pause is doubled or has an exponent."""
    if not GROWING.search(source):
        return []
    found = (one for one in statements(ast.parse(source)) if isinstance(one, COMPUTING))
    return sorted({one.lineno for one in found if _grows_a_pause(one)})


def _grows_a_pause(statement: ast.stmt) -> bool:
    inside = list(ast.walk(statement))
    return any(map(_grows, inside)) and any(OF_PAUSES.search(name) for name in _names(inside))


def _grows(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=ast.Pow(), right=exponent):
            return not isinstance(exponent, ast.Constant)
        case ast.AugAssign(op=ast.Mult(), value=ast.Constant()):
            return True
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            return any(isinstance(side, ast.Constant) and side.value == 2 for side in (left, right))
    return False


def _names(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name


def test_no_pause_is_doubled_by_hand() -> None:
    files = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.py") if path != HOME]
    assert len(files) > 400
    found = {
        path.relative_to(ROOT).as_posix(): lines
        for path in files
        if (lines := hand_written(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "pause_s = min(2 * pause_s, LONGEST_PAUSE_S)",
        "self._pause_s = min(max(FIRST_S, self._pause_s * 2), LONGEST_S)",
        "return min(self._every_s * 2.0 ** self._failures, LONGEST_PAUSE_S)",
        "delay *= 1.5",
        "wait_s: float = first_s * settings.factor ** tries",
        "await asyncio.sleep(0.1 * 2 ** tries)",
    ],
)
def test_a_planted_backoff_is_found(line: str) -> None:
    planted = f"async def connect(self):\n    while True:\n        {line}\n"
    assert hand_written(planted) == [3]


@pytest.mark.parametrize(
    "line", ["page *= 2", "bucket_s = 2.0 ** bucket", "pause_s = backoff.next_s()", "until = now + pause_s"]
)
def test_other_arithmetic_is_left_alone(line: str) -> None:
    assert hand_written(f"def run():\n    {line}\n") == []
