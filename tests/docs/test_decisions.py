"""Every decision can be found by its number, and what the pages about decisions name exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from docs.decision_index import FOLDER, cited_in, index_page, linked_in, places

ROOT = Path(__file__).parents[2]
PAGES = [page for page in sorted((ROOT / FOLDER).glob("*.md")) if page.name != "README.md"]
TOPICS = [page for page in PAGES if not page.name[0].isdigit()]
CITING = ("src", "tests", "docs", "verification", "bench", "tools", "web/src", "examples")
CODE = (".py", ".sql", ".lua", ".ts", ".tsx")
SUFFIXES = frozenset({".py", ".md", ".toml", ".sql", ".lua", ".ts", ".tsx", ".yml"})
ALREADY_THERE_BELOW = ("", "src/interlock", "verification/src")
NOT_HERE = frozenset({"interlock.toml", "caches/", "node_modules/.bin", "src/interlock/server/dashboard"})
"""Files of users, and files that are built."""
WORDS = 1_500
"""About seven minutes. A subject that needs more is split by its parts, as the stores are."""
PAGES_AT_MOST = 36
"""More pages than that, and a reader no longer finds the one that has the subject."""
BEFORE_TOPICS = """\
1-14 16 18-27 30-31 34 37-41 44-48 50-53 101-138 140-145 148-153 156-167 170-201 205-208 212-215 218-221
227-236 240-245 248-250 254-255 258-260 265-266 271 274-287 290-292 295-306 314-315 322-324 330-331
338-342 346-348 351-378 380 384 388-398
"""
"""The decisions that were pages of their own: each is still found, also where another one has replaced it."""


def texts() -> Iterator[tuple[str, str]]:
    """Yield every file that may cite a decision, but this one, whose numbers are made up."""
    files = [*ROOT.glob("*.md"), *(path for folder in CITING for path in (ROOT / folder).rglob("*"))]
    for path in files:
        is_ours = path.suffix in SUFFIXES and path.is_file() and "node_modules" not in path.parts
        if is_ours and path != Path(__file__):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def named_files(page: Path) -> set[str]:
    """Return the files and folders that a page names in code marks."""
    found = re.findall(r"`([\w-]+/[\w./-]*|[\w-]+\.(?:py|md|toml|yml))`", page.read_text(encoding="utf-8"))
    return set(found) - NOT_HERE


def exists(name: str) -> bool:
    return any((ROOT / below / name).exists() for below in ALREADY_THERE_BELOW)


def test_every_decision_that_is_cited_stands_on_a_page() -> None:
    known = places(ROOT / FOLDER)
    cited = {(name, number) for name, text in texts() for number in cited_in(text)}
    assert len(cited) > 20
    assert {(name, number) for name, number in cited if number not in known} == set()


def test_a_link_with_the_number_of_a_decision_leads_to_its_page() -> None:
    known = {number: {place.page for place in found} for number, found in places(ROOT / FOLDER).items()}
    links = [(name, *link) for name, text in texts() if name.endswith(".md") for link in linked_in(text)]
    assert [link for link in links if link[2] not in known.get(link[1], set())] == []


def test_the_index_lists_every_page_and_every_number() -> None:
    index = (ROOT / FOLDER / "README.md").read_text(encoding="utf-8")
    assert {page.name for page in PAGES} <= set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert list(places(ROOT / FOLDER)) == re.findall(r"^\| (0\d{3}) \|", index, re.M)


def test_no_number_from_before_the_topics_is_lost() -> None:
    ends = [[int(end) for end in span.split("-")] for span in BEFORE_TOPICS.split()]
    numbers = {f"{number:04}" for span in ends for number in range(span[0], span[-1] + 1)}
    assert len(numbers) == 260
    assert numbers - set(places(ROOT / FOLDER)) == set()


def test_every_file_that_a_page_about_decisions_names_exists() -> None:
    named = {(page.name, name) for page in TOPICS for name in named_files(page)}
    assert len(named) > 100
    assert {(page, name) for page, name in named if not exists(name)} == set()


def test_a_topic_can_be_read_in_one_sitting() -> None:
    lengths = {page.name: len(page.read_text(encoding="utf-8").split()) for page in TOPICS}
    assert {name: length for name, length in lengths.items() if length > WORDS} == {}


def test_there_are_as_many_topics_as_a_reader_can_choose_from() -> None:
    assert 20 < len(TOPICS) <= PAGES_AT_MOST


def test_every_topic_is_cited_from_the_code_it_is_about() -> None:
    known = places(ROOT / FOLDER)
    code = [text for name, text in texts() if name.endswith(CODE) and not name.startswith("tests/")]
    cited = {place.page for text in code for number in cited_in(text) for place in known[number]}
    assert {page.name for page in TOPICS} - cited == set()


def test_citations_are_found_however_they_are_written() -> None:
    assert cited_in("see Decision 0131, and decisions 0396 and\n0397") == {"0131", "0396", "0397"}
    assert cited_in("([0150](../docs/decisions/x.md#y)) [decision 0163](x.md)") == {"0150", "0163"}
    assert cited_in("migration 0012, mode 0600, (0372)") == set()


def test_a_page_on_its_own_is_listed_beside_the_topics(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir(parents=True)
    for name, text in {
        tmp_path / "mkdocs.yml": "nav: [{Decisions: [{Core: [decisions/core.md]}]}]",
        folder / "core.md": "# Core\n\n## A kernel, of our own\n\nWe wrote it. (0101, 0102)\n",
        folder / "0399-use-x.md": "# 0399 · Use X\n\nBecause of (0101).\n",
    }.items():
        name.write_text(text, encoding="utf-8")
    index = index_page(tmp_path)
    assert "- [Core](core.md)" in index
    assert "- [0399 · Use X](0399-use-x.md)" in index
    assert "| 0102 | [Core: A kernel, of our own](core.md#a-kernel-of-our-own) |" in index
    assert "| 0399 | [0399 · Use X](0399-use-x.md) |" in index
    assert index.count("| 0101 |") == 1
