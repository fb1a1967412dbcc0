"""No wrapped line is taken for something else by the site.

There every line of a list that begins with a marker is an item, also where a sentence was wrapped before a
number, which is lost then; and a list directly after a paragraph is part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("**/*.md"),
    *(ROOT / name / "README.md" for name in ("bench", "verification")),
    ROOT / "bench" / "FIGURES.md",
]
FENCE = re.compile(r"^( *)```.*?^\1```$", re.S | re.M)
NUMBERED = re.compile(r" *\d+[.)] ")
BULLET = re.compile(r" *[-*+] ")
HEADING = re.compile(r"#")


def paragraphs(text: str) -> Iterator[list[str]]:
    """Yield the lines between blank lines, headings and blocks of code."""
    lines: list[str] = []
    for line in [*FENCE.sub("", text).splitlines(), ""]:
        if HEADING.match(line) and not lines:
            continue
        if line.strip():
            lines.append(line)
        elif lines:
            yield lines
            lines = []


def faults(text: str) -> list[str]:
    """Return the wrapped lines that begin a list or a heading, or are not below the line before."""
    return [line for lines in paragraphs(text) for line in wrong_lines(lines)]


def wrong_lines(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a paragraph that do not continue it."""
    first = lines[0]
    for line in lines[1:]:
        if marker(line):
            right = is_item(line, first)
        else:
            right = indent(line) == text_column(first) and not HEADING.match(line)
        if not right:
            yield line


def marker(line: str) -> re.Pattern[str] | None:
    return next((kind for kind in (NUMBERED, BULLET) if kind.match(line)), None)


def is_item(line: str, first: str) -> bool:
    """Return whether a line is an item of the list that begins with another."""
    return marker(line) is marker(first) and indent(line) == indent(first)


def text_column(line: str) -> int:
    """Return where the text of a paragraph or of an item begins."""
    found = NUMBERED.match(line) or BULLET.match(line)
    return found.end() if found else indent(line)


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def test_every_wrapped_line_continues_its_paragraph_on_the_site_as_well() -> None:
    """One test for all pages, as for links."""
    found = {str(page.relative_to(ROOT)): faults(page.read_text(encoding="utf-8")) for page in PAGES}
    assert {page: lines for page, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "text",
    [
        "- Metrics are on port\n  9103. They need no token.",
        "1. Metrics are on port\n   9103. They need no token.",
        "**A store**\n1. The table.\n",
        "A store needs:\n- a table",
        "- Ports of workers,\n        with metrics.",
        "Repeat the request\n#1 names the second.",
    ],
)
def test_a_line_that_the_site_takes_for_something_else_is_noticed(text: str) -> None:
    assert len(faults(text)) == 1


def test_lists_and_wrapped_lines_are_no_faults() -> None:
    text = "# Stores\n1. The table,\n   and a row.\n2. A folder.\n\n- Ports, as\n  9103 and 9104.\n- Units.\n"
    assert faults(text) == []
