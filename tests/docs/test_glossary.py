"""The glossary explains words that are used, each of them once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY, CONCEPTS = ROOT / "docs" / "glossary.md", ROOT / "docs" / "concepts.md"
OF_THE_FIELD = "field's word"
HEADWORD = re.compile(r"\*\*([^*]+)\*\*(?: \(([^)]*)\))?")


class Explained(NamedTuple):
    """A row of a table: its words, each with what it is of, and what others call it."""

    words: tuple[tuple[str, str], ...]
    synonyms: tuple[str, ...]


def explained_in(text: str) -> Iterator[Explained]:
    """Yield the rows of all tables of words."""
    columns: Sequence[str] = ()
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells[:1] in (["word"], ["role"]):
            columns = cells
        elif cells and (words := HEADWORD.findall(cells[0])):
            named = cells[columns.index(OF_THE_FIELD)] if OF_THE_FIELD in columns else ""
            yield Explained(tuple(words), tuple(filter(None, named.split(", "))))


def explained_twice(rows: Iterable[Explained]) -> set[str]:
    """Return the words with several rows, unless each says of what it is; and synonyms that are words."""
    rows = list(rows)
    heads = [head for row in rows for head in row.words]
    times = Counter(word for word, _ in heads)
    twice = {head for head, number in Counter(heads).items() if number > 1}
    unclear = {head for head in heads if times[head[0]] > 1 and not head[1]}
    others = {synonym for row in rows for synonym in row.synonyms} & {word for word, of in heads if not of}
    return {word for word, _ in twice | unclear} | others


@cache
def everything() -> str:
    """Return the sources and the documentation, without the glossaries."""
    folders = ("src", "verification/src", "web/src", "docs")
    files = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    texts = (
        path.read_text(encoding="utf-8")
        for path in files
        if path.suffix in (".py", ".md", ".ts", ".tsx") and path not in (GLOSSARY, CONCEPTS)
    )
    return plain(" ".join(texts))


def plain(text: str) -> str:
    """Return the words of a text or of names in it, with one space before each."""
    return re.sub(r"[^a-z0-9]+", " ", f" {re.sub(r'(?<=[a-z])(?=[A-Z])', ' ', text)}".lower())


def is_used(word: str) -> bool:
    """Return whether a word occurs, in a sentence or in a name."""
    return any(f"{plain(word)}{ending} " in everything() for ending in ("", "s", "es", "d", "ed"))


@pytest.mark.parametrize("page", [GLOSSARY, CONCEPTS], ids=lambda page: page.stem)
def test_every_word_and_every_synonym_is_used_in_code_or_documentation(page: Path) -> None:
    rows = list(explained_in(page.read_text(encoding="utf-8")))
    words = {word for row in rows for word, _ in row.words} | {each for row in rows for each in row.synonyms}
    assert len(rows) > 30
    assert sorted(word for word in words if not is_used(word)) == []


@pytest.mark.parametrize("page", [GLOSSARY, CONCEPTS], ids=lambda page: page.stem)
def test_no_word_is_explained_twice(page: Path) -> None:
    assert explained_twice(explained_in(page.read_text(encoding="utf-8"))) == set()


def test_words_of_the_field_that_the_code_uses_are_explained() -> None:
    words = {word for row in explained_in(GLOSSARY.read_text(encoding="utf-8")) for word, _ in row.words}
    assert {"dead letter", "notifier", "reconciler", "backoff", "long poll", "lease", "outbox"} <= words


@pytest.mark.parametrize(
    "rows",
    [
        "| **gap** | | A hole. |\n| **gap** | | A pause. |",
        "| **gap** | | A hole. |\n| **gap** (of a log) | | Lost lines. |",
        "| **gap** (of a log) | | A hole. |\n| **gap** (of a log) | | Lost lines. |",
        "| **hole** | gap | Lost lines. |\n| **gap** | | A pause. |",
    ],
)
def test_a_word_that_is_explained_twice_would_be_noticed(rows: str) -> None:
    table = f"| word | {OF_THE_FIELD} | meaning |\n|---|---|---|\n{rows}"
    assert explained_twice(explained_in(table)) == {"gap"}


def test_a_word_that_nothing_uses_would_be_noticed() -> None:
    assert not is_used("cours")
    assert not is_used("quondam leg")
    assert is_used("dead-letter")
