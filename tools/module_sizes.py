"""Print the sizes of the modules of the package, as the table of decision 0454.

python tools/module_sizes.py                 this tree
python tools/module_sizes.py --at REVISION   an earlier one, such as that of the review
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SRC = "src/interlock"
MADE = ("_pb2.py", "_pb2_grpc.py", "remote/interfaces.py", "sync_resources.py")
"""Modules that are generated."""
LATER = re.compile(
    r"schedule|calendar|fires|(?<!server/)(?<!store/)(?<!blobs/)(?<!contract/)limits|limit_views|uniqueness"
    r"|dead_letter|batches|composition|approval|waits|wait_records|(?<!agent/)(?<!planning/)kinds|queue_retention"
    r"|(?<!store/)records|transaction|overview|completion|task_files|doctor|forms|hyperlinks|pager"
    r"|profiles|config|(^|/)top|django|notebook|pytest_plugin"
)
"""Modules of features that are younger than the review: a part of a path, matched without the suffix."""
SMALL = 60


class Module(NamedTuple):
    """A module, and what its lines are."""

    path: str
    lines: int
    docstrings: int
    blank: int

    @property
    def package(self) -> str:
        """The first folder, or the package itself."""
        folder, slash, _ = self.path.partition("/")
        return folder if slash else "."


def measured(path: str, text: str) -> Module:
    """Return what the lines of a module are."""
    lines = text.splitlines()
    docstrings = sum(
        node.end_lineno - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and node.end_lineno is not None
    )
    return Module(path, len(lines), docstrings, sum(not line.strip() for line in lines))


def modules(revision: str | None = None) -> Iterator[Module]:
    """Yield the modules of this tree, or of an earlier one."""
    if revision is None:
        for file in sorted((ROOT / SRC).rglob("*.py")):
            yield measured(file.relative_to(ROOT / SRC).as_posix(), file.read_text(encoding="utf-8"))
        return
    names = _git("ls-tree", "-r", "--name-only", revision, SRC).splitlines()
    for name in names:
        if name.endswith(".py"):
            yield measured(name.removeprefix(f"{SRC}/"), _git("show", f"{revision}:{name}"))


def table(found: list[Module]) -> Iterator[str]:
    """Yield a row for each package, the largest first, one for all, and one for features after the review."""
    yield "| package | modules | lines | docstrings | blank | median | below 60 |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    packages: dict[str, list[Module]] = {}
    for module in found:
        packages.setdefault("generated" if module.path.endswith(MADE) else module.package, []).append(module)
    for name, own in sorted(packages.items(), key=lambda item: -sum(each.lines for each in item[1])):
        yield _row("(top)" if name == "." else name, own)
    yield _row("all", found)
    if later := [each for each in found if LATER.search(each.path.removesuffix(".py"))]:
        yield _row("of which later features", later)


def _row(name: str, own: list[Module]) -> str:
    lines, docstrings = sum(each.lines for each in own), sum(each.docstrings for each in own)
    cells = (
        name,
        f"{len(own)}",
        f"{lines:,}",
        f"{docstrings:,}",
        f"{sum(each.blank for each in own):,}",
        f"{median(each.lines for each in own):.0f}",
        f"{sum(each.lines < SMALL for each in own)}",
    )
    return f"| {' | '.join(cells)} |"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, encoding="utf-8").stdout


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Print the sizes of the modules of the package.")
    parser.add_argument("--at", metavar="REVISION", help="Measure this revision (default: the files here).")
    print("\n".join(table(list(modules(parser.parse_args().at)))))


if __name__ == "__main__":
    main()
