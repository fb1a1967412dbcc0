"""What somebody is told whose question cannot be answered: one sentence, and what to do next."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from interlock.cli.errors import print_error, print_unexpected
from interlock.errors import CannotLoad, InterlockError, TransitionNotAllowed, UnknownState

RunCli = Callable[..., CompletedProcess[str]]


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
def test_the_error_for_a_machine_that_cannot_be_loaded_gives_the_reason_and_the_remedy(
    cli: RunCli, name: str, sentence: str, todo: str
) -> None:
    answer = cli("machine", "show", name)
    first, *_, last = answer.stderr.removeprefix("a module that talks\n").splitlines()
    assert (answer.returncode, answer.stdout) == (2, "")
    assert sentence in first
    assert last.startswith(f"→ {todo}")


def test_check_of_a_module_that_cannot_be_imported_is_a_wrong_question(cli: RunCli) -> None:
    assert cli("machine", "check", "broken:X").returncode == 2


def test_showing_a_malformed_machine_lists_its_faults(cli: RunCli) -> None:
    answer = cli("machine", "show", "faulty:DOOR")
    assert answer.returncode == 2
    assert "unexplained: the state open has no description" in answer.stderr


def test_a_file_that_is_not_a_blueprint_is_refused_with_an_error_that_names_it(
    cli: RunCli, folder: Path
) -> None:
    (folder / "bad.json").write_text('{"machine": 3}', encoding="utf-8")
    answer = cli("machine", "diff", "bad.json", "job")
    assert answer.returncode == 2
    assert "bad.json is not the blueprint of a machine" in answer.stderr


def test_a_wrong_command_is_answered_with_the_nearest_one(cli: RunCli) -> None:
    answer = cli("machine", "lst")
    assert answer.returncode == 2
    assert "Did you mean 'list'?" in answer.stderr


def test_loading_leaves_the_import_path_as_it_was(cli: RunCli) -> None:
    before = list(sys.path)
    cli("machine", "show", "doors:DOOR")
    cli("machine", "show", "broken:X")
    assert sys.path == before


def test_an_error_does_not_repeat_the_allowed_names_of_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(UnknownState("opne", ("open", "closed"), where="door"), as_json=False)
    assert capsys.readouterr().err == (
        "Error: There is no state 'opne' of door. Did you mean open?\n→ Use one of: open, closed.\n"
    )


def test_an_error_always_lists_the_allowed_events_and_shows_its_facts_only_in_debug_mode(
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


def test_an_unexpected_exception_prints_one_line_and_the_command_for_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = print_unexpected(KeyError("x"), ["machine", "list"], as_json=False)
    assert code == 70
    assert capsys.readouterr().err == (
        "Error: Unexpected KeyError: 'x'.\n"
        "→ To see where it happened: INTERLOCK_DEBUG=1 interlock machine list\n"
    )


def test_an_unforeseen_error_in_a_command_reaches_no_user_as_a_traceback(
    cli: RunCli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "odd.py").write_text("class O:\n  def __getattr__(self, n): raise OSError('odd')\no = O()\n")
    answer = cli("machine", "show", "odd:o.x")
    assert answer.returncode == 70
    assert "Unexpected OSError: odd." in answer.stderr
    assert "Traceback" not in answer.stderr
    monkeypatch.delitem(sys.modules, "odd")


def test_an_error_as_json_has_the_same_message_and_remedy_and_is_printed_on_stdout(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_error(CannotLoad("Cannot load x.", todo="Try y."), as_json=True)
    captured = capsys.readouterr()
    assert captured.err == ""
    assert '"error": "Cannot load x."' in captured.out
    assert '"todo": "Try y."' in captured.out
