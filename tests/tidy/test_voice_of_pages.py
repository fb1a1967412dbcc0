"""Pages for users are in plain words: subjects are components and users, never "somebody" or a riddle.

Headings, code, text in backticks and labels at the beginning of a paragraph are left out.
`tests/cli/test_help_texts.py` reads the help texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md")),
    *(
        page
        for name in ("guides", "tutorials", "coming-from")
        for page in sorted((ROOT / "docs" / name).glob("*.md"))
    ),
]
DIALECT = re.compile(
    r"\b(somebody|nobody|whoever|anybody|everybody|whatever|one's\s+own|whose\s+turn|is\s+no\s+more|are\s+no\s+dead)\b"
    r"|\b(answers?\s+with|go(es)?\s+on|(is|are|was|were)\s+told|gives?\s+way|stands?\s+still)\b"
    r"|\bwho\s+(has|have|is|are|was|may|must|executes|asks|decides|acts|waits|runs)\b"
    r"|\bwhat\s+(a|an|the|they|it|is|are|was|were|has|have|can|may|must)\b"
    r"|\bwhat\s+(waits|runs|happens|to\s+do|each|every|one)\b",
    re.IGNORECASE,
)
CODE = re.compile(r"^```.*?^```$|^#.*?$|<!--.*?-->|`[^`]*`|^\*\*.*?\*\*", re.DOTALL | re.MULTILINE)


def dialect_of(text: str) -> Iterator[str]:
    """Yield each sentence part in the dialect, with the number of its line."""
    prose = CODE.sub(lambda found: "\n" * found[0].count("\n"), text)
    for found in DIALECT.finditer(prose):
        line = prose.count("\n", 0, found.start()) + 1
        yield f"{line}: {' '.join(found[0].split())}"


def test_no_page_for_users_is_in_the_dialect() -> None:
    """One test for all pages, as for links."""
    found = {
        page.relative_to(ROOT).as_posix(): list(dialect_of(page.read_text(encoding="utf-8")))
        for page in PAGES
    }
    assert {page: faults for page, faults in found.items() if faults} == {}
    assert len(PAGES) > 45


@pytest.mark.parametrize(
    "text",
    [
        "It waits until somebody answers.",
        "A limit stays, whatever programs declare.",
        "The page names who has to act.",
        "`job explain` shows what a job waits for.",
        "The dashboard shows what runs.",
        "Jobs of a run are no dead letters.",
        "The worker is told and\ngoes on.",
    ],
)
def test_a_sentence_in_the_dialect_is_noticed(text: str) -> None:
    assert len(list(dialect_of(f"# A page\n\n{text}\n"))) >= 1


@pytest.mark.parametrize(
    "text",
    [
        "The worker stops, and its jobs return to the queue.",
        "## What you can rely on",
        "```py\nnobody = 1  # what is here\n```",
        "The approval is `what is it`.",
    ],
)
def test_plain_sentences_headings_and_code_are_left_alone(text: str) -> None:
    assert list(dialect_of(text)) == []
