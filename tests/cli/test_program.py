"""The installed program as a user meets it: exit codes, streams, colours, and never a traceback."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tests.effort import pick
from tests.waiting import PROGRAM_S

RunCli = Callable[..., CompletedProcess[str]]

SCRIPT = Path(sys.executable).with_name("interlock")


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """What the program writes when its output is a terminal."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", **environment}
    with subprocess.Popen([SCRIPT, *arguments], stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        written = b""
        while more := _read(ours):
            written += more
        process.wait(timeout=PROGRAM_S)
    os.close(ours)
    return written.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # how Linux says that the other side is closed
        return b""


@pytest.fixture
def program(folder: Path) -> RunCli:
    """Run the installed console script, and not only what it runs."""

    def run(*arguments: str, **environment: str) -> CompletedProcess[str]:
        return subprocess.run(
            [SCRIPT, *arguments],
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            encoding="utf-8",
            timeout=PROGRAM_S,
        )

    return run


def test_a_good_question_is_answered_on_stdout_with_code_0(program: RunCli) -> None:
    answer = program("machine", "list")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert [line.split("\t")[0] for line in answer.stdout.splitlines()] == [
        "run", "job", "attempt", "lease", "worker", "process", "task", "workload", "simulation", "schedule",
    ]  # fmt: skip


def test_invalid_usage_exits_with_code_2_and_suggests_valid_names(program: RunCli) -> None:
    answer = program("machine", "show", "jbo")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "There is no machine 'jbo'. Did you mean job?" in answer.stderr
    assert "→ Use one of: run, job, attempt" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_wrong_question_with_json_is_answered_in_json(program: RunCli) -> None:
    answer = program("machine", "show", "jbo", "--json")
    assert (answer.returncode, answer.stderr) == (2, "")
    error = json.loads(answer.stdout)["error"]
    assert error["code"] == "unknown_machine"
    assert "job" in error["allowed"]


def test_a_check_that_finds_something_is_code_1(program: RunCli) -> None:
    answer = program("machine", "check", "faulty:DOOR")
    assert answer.returncode == 1
    assert "fault\tdoor\tno-stop-event\t" in answer.stdout
    assert "Traceback" not in answer.stderr


def test_a_module_that_fails_becomes_one_line_and_no_traceback(program: RunCli) -> None:
    answer = program("machine", "show", "broken:DOOR")
    assert answer.returncode == 2
    first = answer.stderr.splitlines()[0]
    assert first.startswith("Error: Cannot load broken: it raises ZeroDivisionError: division by zero (")
    assert first.endswith("broken.py line 1).")
    assert "Traceback" not in answer.stderr


def test_the_traceback_is_shown_on_request(program: RunCli) -> None:
    answer = program("machine", "show", "broken:DOOR", INTERLOCK_DEBUG="1")
    assert answer.returncode == 2
    assert "Traceback" in answer.stderr
    assert "broken.py" in answer.stderr


def test_ctrl_c_ends_quietly_with_code_130(program: RunCli) -> None:
    answer = program("machine", "check", "interrupted:DOOR")
    assert (answer.returncode, answer.stdout, answer.stderr) == (130, "", "")


@pytest.mark.parametrize(
    "command",
    [("machine", "list"), pytest.param(("machine", "draw", "run"), marks=pytest.mark.long), ("--help",)],
)
def test_a_closed_output_pipe_ends_the_program_with_code_141_and_no_error_message(
    command: tuple[str, ...],
) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # gone before the first word
    with os.fdopen(writing, "w") as gone:
        answer = subprocess.run(
            [SCRIPT, *command],
            stdout=gone,
            stderr=subprocess.PIPE,
            check=False,
            encoding="utf-8",
            timeout=PROGRAM_S,
        )
    assert (answer.returncode, answer.stderr) == (141, "")


def test_a_pipe_gets_no_escape_sequences_even_when_colour_is_forced(program: RunCli) -> None:
    for command in pick(("diff job run",), ("list", "check", "diff job run")):
        answer = program("machine", *command.split(), FORCE_COLOR="1")
        assert answer.stdout, command
        assert "\x1b" not in answer.stdout, command


def test_a_terminal_gets_tables_with_headings_and_colours() -> None:
    shown = on_a_terminal("machine", "show", "job")
    assert "\x1b[" in shown
    assert "Transitions" in shown
    assert "24 h since" in shown


@pytest.mark.parametrize(
    "command", ["show job", pytest.param("diff job run", marks=pytest.mark.long), "show nothing"]
)
def test_no_color_keeps_every_escape_sequence_off_a_terminal(command: str) -> None:
    shown = on_a_terminal("machine", *command.split(), NO_COLOR="1")
    assert shown
    assert "\x1b" not in shown


def test_machine_show_prints_valid_json_to_an_output_with_ascii_encoding(program: RunCli) -> None:
    answer = program("machine", "show", "job", "--json", PYTHONIOENCODING="ascii")
    assert answer.returncode == 0
    assert json.loads(answer.stdout)["machine"] == "job"


def test_the_version_is_the_installed_one(program: RunCli) -> None:
    answer = program("--version")
    assert answer.returncode == 0
    assert answer.stdout.startswith("interlock 0.")


def test_help_needs_neither_rich_nor_the_lifecycles() -> None:
    script = """
import sys
from interlock.cli.main import main
main(["machine", "--help"])
print(sorted({"rich", "msgspec", "interlock.lifecycles", "interlock.machine"} & set(sys.modules)))
"""
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, encoding="utf-8", timeout=PROGRAM_S
    )
    assert answer.stdout.splitlines()[-1] == "[]"


OWN, FOREIGN, ALL = 18, 32, 160
"""Modules that a help text of typer may import: ours, those of other packages, and with those of Python.

Python 3.14 has more of them. The text is printed on narrow terminals; `tests/test_imports.py` has the modules
of other help texts.
"""


@pytest.mark.parametrize("words", [["--help"], ["job", "list", "--help"]], ids=" ".join)
def test_a_help_text_of_typer_imports_a_small_number_of_modules(words: list[str]) -> None:
    script = (
        "import sys\nbefore = {*sys.modules}\nfrom interlock.cli.main import main\ncode = main(%r)\n"
        "print(*sorted({*sys.modules} - before), file=sys.stderr)\nsys.exit(code)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script % words],
        capture_output=True,
        check=True,
        encoding="utf-8",
        timeout=PROGRAM_S,
    )
    loaded = answer.stderr.split()
    packages = [name.partition(".")[0] for name in loaded]
    foreign = [name for name in packages if name not in sys.stdlib_module_names and name != "interlock"]
    assert "Usage: interlock" in answer.stdout
    assert 10 < packages.count("interlock") <= OWN, loaded
    assert len(foreign) <= FOREIGN, loaded
    assert len(loaded) <= ALL, loaded


def test_a_fault_in_a_built_in_machine_is_a_finding_and_not_an_accident(folder: Path) -> None:
    script = """
import importlib.util, sys
from interlock.cli.main import main

class FaultyLifecycles:
    def find_spec(self, name, path=None, target=None):
        if name == "interlock.lifecycles":
            return importlib.util.spec_from_file_location(name, "faulty.py")

sys.meta_path.insert(0, FaultyLifecycles())
sys.exit(main(["machine", "check"]))
"""
    answer = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=PROGRAM_S,
    )
    assert (answer.returncode, answer.stderr) == (1, "")
    assert answer.stdout.startswith("fault\tdoor\tunexplained\t")
