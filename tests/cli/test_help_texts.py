"""Help texts are verb phrases in plain words, short enough for the list of commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from interlock.cli import verify
from interlock.cli.main import HOMES, app

LONGEST_SUMMARY = 66
DIALECT = re.compile(
    r"\b(somebody|nobody|whoever|anybody|everybody|one's own|answers? with|answer in|go(es)? on|so many)\b"
    r"|\b(for people|asked to|number of them|that is away|any ?more)\b|^(its|their|higher|only those) "
    r"|\b(how (many|often|much|far|long it)|which (workers|jobs|runs|one)|the question was wrong)\b",
    re.IGNORECASE,
)


def faults_in(name: str, text: str) -> Iterator[str]:
    """Yield what is wrong with the help text of a command or an option."""
    if not text:
        yield f"{name}: there is no text"
        return
    first = text.strip().split("\n\n")[0]
    if not (first[0].isupper() or first[0].isdigit()) or not first.rstrip().endswith("."):
        yield f"{name}: not a sentence: {first!r}"
    if found := DIALECT.search(text):
        yield f"{name}: {found[0]!r} in {text!r}"


def faults_of(command: Any, name: str) -> Iterator[str]:
    """Yield what is wrong with the help of a command, its options, and the commands below it."""
    yield from faults_in(name, command.help or "")
    summary = (command.help or "").strip().split("\n\n")[0]
    if len(" ".join(summary.split())) > LONGEST_SUMMARY and not summary.startswith("A work orchestrator"):
        yield f"{name}: {len(summary)} characters are more than a list of commands shows: {summary!r}"
    for option in command.params:
        if getattr(option, "help", None) is not None or option.param_type_name == "option":
            yield from faults_in(f"{name} {option.name}", getattr(option, "help", "") or "")
    if found := DIALECT.search(command.epilog or ""):
        yield f"{name}: {found[0]!r} in the text below its options"
    for below, each in getattr(command, "commands", {}).items():
        whole = typer.main.get_command(verify.commands()) if below == "verify" else each
        yield from faults_of(whole, f"{name} {below}")


def test_every_command_and_option_has_a_plain_text() -> None:
    assert list(faults_of(typer.main.get_command(app), "interlock")) == []


def test_the_list_of_commands_has_the_summary_of_each() -> None:
    """The list is printed without importing the commands: their modules have the same text again."""
    program: Any = typer.main.get_command(app)
    own = {
        name: " ".join(each.help.strip().split("\n\n")[0].split()) for name, each in program.commands.items()
    }
    assert own == {name: summary for name, (_, summary) in HOMES.items()}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "what to do.",
        "No full stop",
        "Start it, and work until somebody asks it to go.",
        "How many at most.",
        "Its arguments.",
        "Maximum number of them in threads.",
        "Also those that do not wait any more.",
    ],
)
def test_a_text_in_another_voice_would_be_noticed(text: str) -> None:
    assert list(faults_in("interlock job", text))


@pytest.mark.parametrize(
    "text", ["Submit a job and print its id.", "Number of concurrent tasks (default 10)."]
)
def test_a_plain_text_is_left_alone(text: str) -> None:
    assert not list(faults_in("interlock submit", text))
