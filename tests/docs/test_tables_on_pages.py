"""A table that a page shows below a command has the columns of the recorded session of that command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from docs import transcripts

ROOT = Path(__file__).parents[2]
PAGES = [page for name in ("guides", "tutorials") for page in sorted((ROOT / "docs" / name).glob("*.md"))]
BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.S | re.M)
RULE = "──"
TREE = ("├", "└")
"""What a line of a tree begins with; test_every_block.py compares these."""


def columns_in(line: str) -> list[str]:
    """Return the cells of a line of a table: two spaces or more are between them."""
    return re.split(r"\s{2,}", line.strip())


def tables(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the noun and verb of each command with a table below it, and the columns of the table."""
    for block in BLOCK.findall(text):
        command = ""
        for line in block.splitlines():
            if line.startswith("$ "):
                command = " ".join(line.split()[2:4])
            elif command and len(columns_in(line)) > 2 and not line.startswith(TREE):
                yield command, columns_in(line)
                command = ""


def recorded() -> dict[str, list[str]]:
    """Return the columns of the first table of each recorded session."""
    found: dict[str, list[str]] = {}
    for session in transcripts.sessions():
        headers = [above for above, line in pairwise(session.shown) if line.strip().startswith(RULE)]
        if headers:
            found[session.words] = columns_in(headers[0])
    return found


def strange_in(text: str) -> list[str]:
    """Return the tables of a page whose columns are others, or in another order."""
    known = recorded()
    strange = []
    for command, columns in tables(text):
        there = known.get(command, [])
        if [column for column in there if column in columns] != columns:
            strange.append(f"{command} shows {columns}, and not {there}")
    return strange


def test_tables_of_the_pages_have_the_columns_that_commands_print() -> None:
    assert [fault for page in PAGES for fault in strange_in(page.read_text(encoding="utf-8"))] == []
    shown = {command for page in PAGES for command, _ in tables(page.read_text(encoding="utf-8"))}
    assert {"approval list", "dead-letter list", "limit show", "schedule list"} <= shown


def test_a_column_that_no_command_prints_is_noticed() -> None:
    page = "```text\n$ interlock schedule list\nname    state   when       next\n```\n"
    assert len(strange_in(page)) == 1
