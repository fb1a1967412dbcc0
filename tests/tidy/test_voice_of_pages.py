"""Pages and the dashboard are in plain words: subjects are components and users, no "somebody", no riddle.

Headings, code, text in backticks and labels at the beginning of a paragraph are left out. Of the dashboard
comments are read, too. `tests/cli/test_help_texts.py` reads the help texts, and `test_docstrings.py` reads
docstrings and messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
    *sorted((ROOT / "bench").glob("*.md")),
    *sorted((ROOT / "verification").glob("*.md")),
]
"""All that people read, also what is generated from lifecycles, docstrings and declarations."""
WHOLE = [
    ROOT / "src" / "interlock" / "cli" / "help.txt",
    *(
        path
        for folder in ("examples", "deploy", "docs/sessions/files")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ),
]
"""The help texts, and files that people copy: their code and comments are read as a whole."""
DASHBOARD = [
    path
    for path in sorted((ROOT / "web" / "src").rglob("*.ts*"))
    if path.name not in ("schema.ts", "roles.ts")  # generated from the API
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
    yield from places_in(without(CODE, text))


def places_in(text: str) -> Iterator[str]:
    for found in DIALECT.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield f"{line}: {' '.join(found[0].split())}"


def without(part: re.Pattern[str], text: str) -> str:
    """Return a text without the parts that match, and with all its lines."""
    return part.sub(lambda found: "\n" * found[0].count("\n"), text)


def faults_of(paths: Iterable[Path], faults_in: Callable[[str], Iterable[str]]) -> dict[str, list[str]]:
    """Return what is found in each file that has faults."""
    found = {path.relative_to(ROOT).as_posix(): list(faults_in(path.read_text("utf-8"))) for path in paths}
    return {path: faults for path, faults in found.items() if faults}


def test_no_page_is_in_the_dialect() -> None:
    """One test for all pages, as for links."""
    assert faults_of(PAGES, dialect_of) == {}
    assert len(PAGES) > 150


def test_no_help_text_example_or_file_for_a_deployment_is_in_the_dialect() -> None:
    assert faults_of(WHOLE, places_in) == {}
    assert len(WHOLE) > 15


def test_the_dashboard_does_not_speak_the_dialect() -> None:
    assert faults_of(DASHBOARD, places_in) == {}
    assert len(DASHBOARD) > 70


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


@pytest.mark.parametrize(
    "text",
    [
        "<th>Whose turn</th>",
        "done={`${one.name} goes on with its next fire.`}",
        "<p>\n  The server shows what\n  was last known.\n</p>",
        'const there = "https://example.com"; const todo = "what to do";',
        "/** What it\n * does. */",
        "draw(); // what an act changes",
    ],
)
def test_a_text_of_the_dashboard_in_the_dialect_is_noticed(text: str) -> None:
    assert len(list(places_in(text))) == 1


def test_plain_texts_of_the_dashboard_are_left_alone() -> None:
    assert list(places_in("/** The table. */ <th>Acts next</th>")) == []
