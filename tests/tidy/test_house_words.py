"""What is in the source is done: nothing is left to do later, and nothing pretends to exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC, VERIFICATION = ROOT / "src", ROOT / "verification" / "src"
MADE = ("_pb2.py", "_pb2_grpc.py")  # by `make proto`, not by us
BANNED = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b")


def unfinished_in(folder: Path) -> list[str]:
    """Every line with a word that says that something is not finished."""
    found = []
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    for path in sorted(path for path in files if not path.name.endswith(MADE)):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        found += [
            f"{path.name}:{number}: {line.strip()}"
            for number, line in enumerate(lines, 1)
            if BANNED.search(line)
        ]
    return found


def test_nothing_in_the_source_is_left_for_later() -> None:
    assert unfinished_in(SRC) + unfinished_in(VERIFICATION) == []


@pytest.mark.parametrize(
    "line",
    [
        "# TODO: the rest",
        "x = 1  # FIXME",
        "// XXX look here",
        "# HACK, sorry",
        "raise NotImplementedError",
        "raise NotImplementedError('soon')",
    ],
)
def test_something_left_for_later_would_be_noticed(line: str, tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "later.js").write_text(f"fine\n{line}\n")
    assert unfinished_in(tmp_path) == [f"later.js:2: {line}"]


@pytest.mark.parametrize("line", ["todo = 'Mend it.'", "error.todo", "return NotImplemented", "XXXL"])
def test_words_that_only_resemble_a_banned_word_are_not_reported(line: str, tmp_path: Path) -> None:
    (tmp_path / "fine.py").write_text(line)
    assert unfinished_in(tmp_path) == []
