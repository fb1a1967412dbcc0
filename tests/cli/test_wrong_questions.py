"""What somebody is told whose question cannot be answered: one sentence, and what to do next."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from interlock.cli.errors import print_error, print_unexpected
from interlock.errors import CannotLoad, InterlockError, TransitionNotAllowed, UnknownState

Ask = Callable[..., CompletedProcess[str]]


@pytest.mark.parametrize(
    ("name", "sentence", "todo"),
    [
        ("jbo", "There is no machine 'jbo'. Did you mean job?", "Use one of: run, job,"),
        ("nowhere:X", "there is no module nowhere.", "Modules are looked up in"),
        ("job:X", "there is no module job.", "A built-in machine has no colon: job."),
        ("doors:DOR", "there is no 'DOR' in it. Did you mean DOOR?", "Use one of: DOOR."),
        ("doors:Door", "it is not a Machine but of type EnumType.", "Give module:object"),
        ("doors:", "it is not of the form module:object.", "Give module:object"),
        ("door.py:DOOR", "there is no such file", "Files are looked up from "),
        ("broken:X", "it raises ZeroDivisionError: division by zero (", "Correct the module"),
        ("quitting:X", "it raises SystemExit: enough (", "Correct the module"),
        (
            "missing.json",
            "Cannot load missing.json: No such file or directory.",
            "Give an exported blueprint",
        ),
    ],
)
def test_a_name_that_cannot_be_loaded_says_why_and_what_to_do(
    ask: Ask, name: str, sentence: str, todo: str
) -> None:
    answer = ask("machine", "show", name)
    first, *_, last = answer.stderr.removeprefix("a module that talks\n").splitlines()
    assert (answer.returncode, answer.stdout) == (2, "")
    assert sentence in first
    assert last.startswith(f"→ {todo}")


def test_check_of_a_module_that_cannot_be_imported_is_a_wrong_question(ask: Ask) -> None:
    assert ask("machine", "check", "broken:X").returncode == 2


def test_showing_a_malformed_machine_lists_its_faults(ask: Ask) -> None:
    answer = ask("machine", "show", "faulty:DOOR")
    assert answer.returncode == 2
    assert "unexplained: the state open has no description" in answer.stderr


def test_a_file_that_is_no_blueprint_says_what_is_wrong_with_it(ask: Ask, folder: Path) -> None:
    (folder / "bad.json").write_text('{"machine": 3}', encoding="utf-8")
    answer = ask("machine", "diff", "bad.json", "job")
    assert answer.returncode == 2
    assert "bad.json is not the blueprint of a machine" in answer.stderr


def test_a_wrong_command_is_answered_with_the_nearest_one(ask: Ask) -> None:
    answer = ask("machine", "lst")
    assert answer.returncode == 2
    assert "Did you mean 'list'?" in answer.stderr


def test_loading_leaves_the_import_path_as_it_was(ask: Ask) -> None:
    before = list(sys.path)
    ask("machine", "show", "doors:DOOR")
    ask("machine", "show", "broken:X")
    assert sys.path == before


def test_an_error_says_nothing_twice(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(UnknownState("opne", ("open", "closed"), where="door"), as_json=False)
    assert capsys.readouterr().err == (
        "Error: There is no state 'opne' of door. Did you mean open?\n→ Use one of: open, closed.\n"
    )


def test_an_error_shows_what_is_allowed_and_its_facts_only_when_asked_to(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = TransitionNotAllowed(
        "It cannot be opened.", allowed=("remove",), todo="Wait.", facts={"door": "front", "since": None}
    )
    assert print_error(error, as_json=False) == 2
    assert capsys.readouterr().err == "Error: It cannot be opened.\n  allowed: remove\n→ Wait.\n"
    monkeypatch.setenv("INTERLOCK_DEBUG", "1")
    print_error(error, as_json=False)
    assert "  door: front\n  allowed: remove\n" in capsys.readouterr().err


def test_an_error_without_advice_ends_with_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(InterlockError("No."), as_json=False)
    assert capsys.readouterr().err == "Error: No.\n"


def test_what_nobody_foresaw_is_one_line_and_how_to_see_more(capsys: pytest.CaptureFixture[str]) -> None:
    code = print_unexpected(KeyError("x"), ["machine", "list"], as_json=False)
    assert code == 70
    assert capsys.readouterr().err == (
        "Error: Unexpected KeyError: 'x'.\n"
        "→ To see where it happened: INTERLOCK_DEBUG=1 interlock machine list\n"
    )


def test_an_unforeseen_error_in_a_command_reaches_no_user_as_a_traceback(
    ask: Ask, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "odd.py").write_text("class O:\n  def __getattr__(self, n): raise OSError('odd')\no = O()\n")
    answer = ask("machine", "show", "odd:o.x")
    assert answer.returncode == 70
    assert "Unexpected OSError: odd." in answer.stderr
    assert "Traceback" not in answer.stderr
    monkeypatch.delitem(sys.modules, "odd")


def test_the_same_error_for_a_program_has_the_same_words(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(CannotLoad("Cannot load x.", todo="Try y."), as_json=True)
    said = capsys.readouterr()
    assert said.err == ""
    assert '"error": "Cannot load x."' in said.out
    assert '"todo": "Try y."' in said.out
