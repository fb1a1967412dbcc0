"""Reading the sources of the project: what the rules of the house are checked against."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")
"""Where a statement has statements of its own."""


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every statement at any depth, also definitions; `ast.walk` takes ten times as long."""
    open_ones = [tree]
    while open_ones:
        owner = open_ones.pop()
        for part in BLOCKS:
            # The body of a lambda or of a conditional expression is no list.
            if isinstance(inside := getattr(owner, part, None), list):
                yield from inside
                open_ones += inside


@cache
def tree_of(path: Path) -> ast.Module:
    """Return a parsed module. To parse all of them takes more than a second, and several rules read them."""
    return ast.parse(path.read_text(encoding="utf-8"), path.name)
