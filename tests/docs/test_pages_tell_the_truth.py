"""What the pages say is run: every Python block, every command, every link."""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import programs
from tests.effort import pick

from interlock.worker.middleware import NO_MIDDLEWARE
from interlock.worker.tasks import DEFAULT

ROOT = Path(__file__).parents[2]
FOLDERS = ("tutorials", "guides", "coming-from")
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    *(page for name in FOLDERS for page in sorted((ROOT / "docs" / name).glob("*.md"))),
    ROOT / "docs" / "reference" / "runner-protocol.md",
]
ALL_PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "bench" / "README.md",
    ROOT / "bench" / "FIGURES.md",
    ROOT / "verification" / "README.md",
    *ROOT.glob("docs/**/*.md"),
]
SOURCES = {".py", ".pyi", ".txt", ".toml", ".yaml", ".yml", ".service", ".example", ".ts", ".tsx"}
"""Endings of files that name pages to users."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.S | re.M)


def commands(page: Path) -> list[str]:
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def broken_links(page: Path) -> list[str]:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", prose)
    return [t for t in targets if "://" not in t and not (page.parent / t).exists()]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name
)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "\n".join(blocks(page, "python"))
    assert source
    monkeypatch.chdir(tmp_path)
    for name in ("_tasks", "schedules", "limits"):  # what a page declares is for the page alone
        monkeypatch.setattr(DEFAULT, name, {})
    monkeypatch.setattr(DEFAULT, "chain", NO_MIDDLEWARE)
    running: dict[str, Any] = {"__name__": "a_page", "__file__": str(tmp_path / "a_page.py")}
    exec(compile(source, str(page), "exec", dont_inherit=True), running)
    for value in running.values():
        if isinstance(value, sqlite3.Connection):  # a page may have one for as long as its program runs
            value.close()
    promised = re.findall(r"print\(.*\)  # (.*)", source)
    assert capsys.readouterr().out.splitlines() == promised


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command; in a quick run it is forked, since to start Python takes longer than most commands."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    return programs.run(*words[1:], folder=folder, environment=environment, program=pick((), words[:1]))


READ_FIRST = ("README.md", "tutorials", "guides/when-things-fail.md", "guides/your-own-ci.md")
"""Pages whose commands are run each time; those of the others in `make test-all`."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, marks=() if any(name in page.as_posix() for name in READ_FIRST) else pytest.mark.long
        )
        for page in PAGES
        if commands(page)
    ],
    ids=lambda page: page.name,
)
def test_every_interlock_command_of_a_page_succeeds(page: Path, tmp_path: Path) -> None:
    source = "".join(blocks(page, "python")[:1])
    named = re.match(r"# (\w+\.py)$", source, re.M)
    (tmp_path / (named[1] if named else "ticket.py")).write_text(source, encoding="utf-8")
    for block in blocks(page, "yaml"):
        if place := re.match(r"# (\S+\.yml)$", block, re.M):
            (tmp_path / place[1]).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / place[1]).write_text(block, encoding="utf-8")
    command_lines = [
        shlex.split(command, comments=True) for command in commands(page) if "interlock" in command
    ]
    assert command_lines
    for words in command_lines:
        words[0] = "interlock"
        done = run(words, tmp_path)
        assert done.returncode == 0, f"{words}: {done.stderr}"


def test_every_make_target_that_the_readme_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"make ([a-z]+)", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert {"demo", "test", "check", "docs", "bench"} <= named
    assert not {target for target in named if not re.search(rf"^{target}:", makefile, re.M)}


def test_no_link_of_a_page_leads_nowhere() -> None:
    """One test for all pages: there are 300, and to run a test takes longer than to read a page."""
    broken = {str(page.relative_to(ROOT)): broken_links(page) for page in ALL_PAGES}
    assert {page: links for page, links in broken.items() if links} == {}


def test_a_link_that_leads_nowhere_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[here](page.md) and [there](nowhere.md#top)", encoding="utf-8")
    assert broken_links(page) == ["nowhere.md"]


def pages_named_by(text: str) -> set[str]:
    """Return the paths of pages in a source, such as `docs/guides/fleet.md`."""
    return set(re.findall(r"\bdocs/[\w./-]+\.md\b", text))


def test_every_page_that_the_program_names_exists() -> None:
    sources = [
        path
        for folder in ("src", "verification/src", "deploy", "examples", "web/src")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SOURCES and "dashboard" not in path.parts
    ]
    named = {page: path for path in sources for page in pages_named_by(path.read_text(encoding="utf-8"))}
    assert len(named) > 8
    assert {page: path for page, path in named.items() if not (ROOT / page).is_file()} == {}


def test_pages_are_found_in_sentences_and_help_texts() -> None:
    text = '"Input; see docs/guides/agent.md." │ docs/reference/runner-protocol.md │ (docs/reliability.md).'
    assert pages_named_by(text) == {
        "docs/guides/agent.md",
        "docs/reference/runner-protocol.md",
        "docs/reliability.md",
    }


def test_the_readme_can_be_read_in_one_sitting() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200
