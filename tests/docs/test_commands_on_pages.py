"""Every command of `interlock` on a page is one that the program accepts, in blocks and between words.

Commands of `console` blocks are also run, by `test_pages_tell_the_truth.py`. Those of other blocks need a
server, a second host, or the answer of a person, which a page cannot bring along.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.deploy.files import commands_in, parsed
from typer.exceptions import TyperException

from interlock.cli.main import app

ROOT = Path(__file__).parents[2]
GENERATED = "reference/command-line"  # the help itself, and sessions that are replayed
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "ARCHITECTURE.md")),
    *(
        page
        for page in sorted(ROOT.glob("docs/**/*.md"))
        if page.parent.name != "decisions" and GENERATED not in page.as_posix()
    ),
    *(ROOT / folder / "README.md" for folder in ("bench", "verification")),
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
PUNCTUATION = str.maketrans("", "", "[]\\")
"""[What may be left out] is there; in tables, a bar has a backslash."""
ABBREVIATED = ("MissingParameter", "BadOptionUsage", "NoArgsIsHelpError")
"""Between words a command may stand without its arguments: `interlock queue pause`."""


def in_blocks(text: str) -> Iterator[list[str]]:
    """Yield the commands of blocks; in those that show output, only the lines that begin with a prompt."""
    for language, block in BLOCK.findall(text):
        if language in ("sh", "console", ""):
            yield from commands_in(block)
        elif language == "text":
            for line in re.findall(r"^\$ (.*)$", block, re.M):
                yield from commands_in(line)


def between_words(text: str) -> Iterator[list[str]]:
    """Yield the commands in the prose; `list|show` are two."""
    for command in re.findall(r"`(interlock [^`]+)`", BLOCK.sub("", text)):
        whole = " ".join(command.split()).translate(PUNCTUATION)
        *others, last = (re.search(r"\S*\|\S*", whole) or [""])[0].split("|")
        for choice in (*others, last):
            yield from commands_in(whole.replace("|".join((*others, last)), choice))


def refusals(text: str) -> list[str]:
    """Return what the program says about the commands of a page that it does not accept."""
    complete: tuple[str, ...] = ()
    found = [(words, complete) for words in in_blocks(text)]
    found += [(words, ABBREVIATED) for words in between_words(text)]
    refused = []
    for words, borne in found:
        try:
            parsed(words)
        except typer.Exit:
            pass  # it has printed its help
        except TyperException as error:
            if type(error).__name__ not in borne:
                refused.append(f"interlock {' '.join(words)}: {error}")
    known: Any = typer.main.get_command(app)
    lines = [
        *re.findall(r"^(?:\$ )?interlock ([a-z]\S*)", text, re.M),
        *re.findall(r"`interlock ([a-z][^\s`]*)", text),
    ]
    return refused + [f"interlock {word}: unknown" for word in lines if word not in known.commands]


def test_the_program_accepts_every_command_of_the_pages() -> None:
    """One test for all pages, as for links."""
    refused = {str(page.relative_to(ROOT)): refusals(page.read_text(encoding="utf-8")) for page in PAGES}
    assert {page: commands for page, commands in refused.items() if commands} == {}


@pytest.mark.parametrize(
    "text",
    [
        "```sh\ninterlock job show\n```",
        "```sh\ninterlock jobs list &\n```",
        "```text\n$ interlock job list --colour\na row\n```",
        "See `interlock job erase ID`.",
        "See `interlock approval list|reply`.",
        "See `interlock submit\n--on queue`.",
    ],
)
def test_a_command_that_does_not_exist_is_noticed(text: str) -> None:
    assert len(refusals(text)) == 1


def test_commands_may_be_abbreviated_between_words() -> None:
    assert (
        refusals("`interlock queue pause`, `interlock token rotate NAME [--overlap 1h]`, `interlock job`")
        == []
    )
    assert refusals("`interlock completion bash|zsh|fish`, `interlock batch list|show|wait|cancel`") == []
