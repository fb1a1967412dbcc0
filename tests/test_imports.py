"""What an import of Interlock loads, and what the help of its program does: as little as it can."""

from __future__ import annotations

import json
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
    "import json, sys\nbefore = {*sys.modules}\nfrom interlock.cli.main import main\ncode = main(%r)\n"
    "print(json.dumps(sorted({*sys.modules} - before)), file=sys.stderr)\nsys.exit(code)"
)
OF_THE_PROGRAM = {
    "interlock",
    "interlock.cli",
    "interlock.cli.completion",
    "interlock.cli.errors",
    "interlock.cli.forms",
    "interlock.cli.main",
    "interlock.cli.options",
}


def loaded_by(*words: str) -> set[str]:
    """Return the modules that a call of the program imports."""
    done = subprocess.run(
        [sys.executable, "-c", HELPED % (list(words),)],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Usage: interlock" in done.stdout
    return set(json.loads(done.stderr))


@pytest.mark.parametrize(
    ("words", "modules"),
    [
        (["--help"], set()),
        (["job", "--help"], {"interlock.cli.nouns.jobs"}),
        (["job", "list", "--help"], {"interlock.cli.nouns.jobs"}),
        (["submit", "--help"], {"interlock.cli.nouns.jobs"}),
        (["demo", "--help"], {"interlock.cli.programs"}),
        (["worker", "start", "--help"], {"interlock.cli.nouns.workers"}),
    ],
    ids=" ".join,
)
def test_help_imports_the_module_of_its_command_and_of_no_other(words: list[str], modules: set[str]) -> None:
    loaded = loaded_by(*words)
    assert loaded & SLOW == set()
    declared = {name for name in loaded if name.startswith("interlock.cli") or name == "interlock"}
    assert declared == OF_THE_PROGRAM | modules | {name.rpartition(".")[0] for name in modules}
    others = {name for name in loaded if name.startswith("interlock.")} - declared
    assert {name.split(".")[1] for name in others} == {"errors", "processes", "text"}
