"""The pages of `help.txt` are what typer would print, and are printed only where they are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests.waiting import PROGRAM_S

from interlock.cli import help_pages, verify
from interlock.cli.main import app, main
from interlock_verification import cli as verification

JOB_LIST = "Usage: interlock job list [OPTIONS] [FILTER]...\n"


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command that has help of its own here."""
    yield words
    for name, each in getattr(command, "commands", {}).items():
        found = typer.main.get_command(verify.commands()) if (*words, name) == ("verify",) else each
        yield from commands(found, (*words, name))


def printed(*words: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run the program; its output is not a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "interlock", *words],
        capture_output=True,
        check=False,
        timeout=PROGRAM_S,
        env={**os.environ, **variables},
    )


@pytest.mark.parametrize("columns", ["80", "200", ""])
def test_every_command_has_the_page_that_typer_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("INTERLOCK_URL", "redis://localhost")
    monkeypatch.chdir(tmp_path)
    different = []
    every = [*commands(typer.main.get_command(app))]
    assert len(every) > 100
    for words in every:
        assert main([*words, "--help"]) == 0
        if capsys.readouterr().out != help_pages.find(words):
            different.append(" ".join(words))
    assert different == [], "make docs writes help.txt"


def test_the_file_has_no_pages_of_commands_that_are_gone() -> None:
    every = {*commands(typer.main.get_command(app))}
    homes = (help_pages.__file__, str(verification.__file__))
    files = [Path(home).with_name(help_pages.FILE) for home in homes]
    content = "".join(file.read_text(encoding="utf-8") for file in files)
    heads = [line.split()[2:] for line in content.splitlines() if line.startswith("%%% ")]
    assert {tuple(words) for words in heads} == every
    assert len(heads) == len(every)


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_a_page_is_printed_for_both_options(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert help_pages.print_page(["job", "list", option]) == 0
    assert capsys.readouterr().out == help_pages.find(["job", "list"])


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("job", "list"),
        ("job", "list", "--help", "--json"),
        ("job", "list", "state:failed", "--help"),
        ("--profile", "home", "job", "list", "--help"),
        ("job list", "--help", "x"),
        ("jobs", "--help"),
        ("verify", "models", "--help"),
    ],
    ids=" ".join,
)
def test_typer_answers_all_other_calls(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert help_pages.print_page(words) is None
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "value"), [("COLUMNS", "79"), ("_INTERLOCK_COMPLETE", "complete_zsh")], ids=["narrow", "TAB"]
)
def test_a_narrow_terminal_and_completion_are_left_to_typer(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert help_pages.print_page(["job", "list", "--help"]) is None


def test_a_missing_file_leaves_help_to_typer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(help_pages, "FILE", "gone.txt")
    assert help_pages.print_page(["job", "list", "--help"]) is None


@pytest.mark.parametrize("words", [("verify", "--help"), ("verify", "world", "-h")], ids=" ".join)
def test_help_of_verify_is_printed_without_its_package_only_where_that_is_installed(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert help_pages.print_page(words) == 0
    assert capsys.readouterr().out.startswith("Usage: interlock verify ")
    program = (
        f"import sys\nfrom interlock.cli import help_pages\nassert help_pages.print_page({words!r}) == 0\n"
        "assert not {'typer', 'interlock_verification', 'importlib.metadata'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PROGRAM_S, stdout=subprocess.DEVNULL)
    monkeypatch.setattr(help_pages, "VERIFICATION", "interlock_of_nobody")
    assert help_pages.print_page(words) is None


def test_a_terminal_is_as_wide_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((60, 24)))
    assert help_pages.print_page(["job", "list", "--help"]) is None


def test_the_program_prints_a_page_in_the_encoding_of_its_output() -> None:
    narrow = printed("job", "list", "--help", COLUMNS="79", PYTHONIOENCODING="ascii")
    wide = printed("job", "list", "--help", PYTHONIOENCODING="ascii")
    assert wide.returncode == narrow.returncode == 0
    assert wide.stdout.decode("ascii").startswith(JOB_LIST)
    assert narrow.stdout.decode("ascii").startswith(JOB_LIST)
    assert (wide.stderr, narrow.stderr) == (b"", b"")


def test_a_reader_that_goes_away_is_the_exit_code_of_a_page() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "interlock", "--help"],
            stdout=output,
            stderr=subprocess.PIPE,
            check=False,
            timeout=PROGRAM_S,
        )
    assert (done.returncode, done.stderr) == (141, b"")
