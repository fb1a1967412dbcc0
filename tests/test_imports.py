"""What an import of Interlock loads, and what the help of its program does: as little as it can."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from tests.waiting import PROGRAM_S

HEAVY = {
    "httpx2",
    "structlog",
    "rich",
    "starlette",
    "uvicorn",
    "prometheus_client",
    "grpc",
    "asyncpg",
    "redis",
}


def test_a_client_and_its_tasks_load_neither_http_nor_logging_nor_drivers_of_other_stores() -> None:
    script = f"import sys; from interlock import Interlock, task; print(*(sys.modules.keys() & {HEAVY!r}))"
    answer = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=True,
    )
    assert answer.stdout.split() == []


SLOW = {*HEAVY, "asyncio", "email", "importlib.metadata", "msgspec", "typer.rich_utils"}
HELPED = (
    "import json, sys\nbefore = {*sys.modules}\nfrom interlock.__main__ import main\ncode = main()\n"
    "print(json.dumps(sorted({*sys.modules} - before)), file=sys.stderr)\nsys.exit(code)"
)
OF_A_PAGE = {
    "interlock",
    "interlock.__main__",
    "interlock.cli",
    "interlock.cli.help_pages",
    "interlock.cli.streams",
    "interlock.processes",
    "interlock.processes.early_signals",
}
MODULES_OF_A_PAGE = 20
"""Most modules that a help text may import, with those of Python (here 7 of ours and `signal`).

`--help` should take less than 150 ms, which is held by modules: a time depends on the machine.
`python -m bench --only cli` measures it.
"""
OF_THE_PROGRAM = OF_A_PAGE | {
    "interlock.cli.completion",
    "interlock.cli.errors",
    "interlock.cli.forms",
    "interlock.cli.main",
    "interlock.cli.options",
}
COMMANDS = pytest.mark.parametrize(
    ("words", "modules"),
    [
        (["--help"], set()),
        (["job", "--help"], {"interlock.cli.nouns.jobs"}),
        (["job", "list", "--help"], {"interlock.cli.nouns.jobs"}),
        (["submit", "--help"], {"interlock.cli.nouns.jobs"}),
        (["demo", "--help"], {"interlock.cli.programs"}),
        (["worker", "start", "--help"], {"interlock.cli.nouns.workers"}),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)


def loaded_by(*words: str, columns: int) -> set[str]:
    """Return the modules that a call of the program imports."""
    done = subprocess.run(
        [sys.executable, "-c", HELPED, *words],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
        env={**os.environ, "COLUMNS": str(columns)},
    )
    assert done.returncode == 0, done.stderr
    assert "Usage: interlock" in done.stdout
    return set(json.loads(done.stderr))


@COMMANDS
def test_help_imports_neither_typer_nor_any_command(words: list[str], modules: set[str]) -> None:
    loaded = loaded_by(*words, columns=80)
    assert {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names} == OF_A_PAGE
    assert not loaded & modules
    assert len(loaded) <= MODULES_OF_A_PAGE, loaded


@COMMANDS
def test_help_on_a_narrow_terminal_imports_the_module_of_its_command_and_of_no_other(
    words: list[str], modules: set[str]
) -> None:
    loaded = loaded_by(*words, columns=79)
    assert loaded & SLOW == set()
    declared = {name for name in loaded if name.startswith("interlock.cli")}
    program = {name for name in OF_THE_PROGRAM if name.startswith("interlock.cli")}
    assert declared == program | modules | {name.rpartition(".")[0] for name in modules}
    others = {name for name in loaded if name.startswith("interlock.")} - declared - OF_A_PAGE
    assert {name.split(".")[1] for name in others} == {"errors", "processes", "text"}
