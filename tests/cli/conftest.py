"""A folder with declared machines; the command line in this process (`cli`), and as a program."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tests import programs
from tests.cli.shop import TASKS, Shop

from interlock.cli.main import main
from interlock.worker import entry, tasks
from interlock.worker.tasks import DEFAULT

RunCli = Callable[..., CompletedProcess[str]]

DOOR = """
from enum import StrEnum
from interlock.machine import Machine, command, end, on, rest, state

class Door(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    GONE = "gone"

close = command("close", "Somebody closes it.", by="visitor")
open_ = command("open", "Somebody opens it.", by="visitor")
remove = command("remove", "The house is torn down.", by="builder")

DOOR = Machine[Door, None](
    "door",
    "A door. It opens and closes.",
    initial=Door.CLOSED,
    states=(
        rest(Door.CLOSED, "Shut."),
        state(Door.OPEN, "Open.", turn="visitor"),
        end(Door.GONE, "Not there any more."),
    ),
    rows=(
        on(open_, Door.CLOSED, Door.OPEN, owner="visitor", why="People come in."),
        on(close, Door.OPEN, Door.CLOSED, owner="visitor", why="It is cold."),
        on(remove, (Door.OPEN, Door.CLOSED), Door.GONE, owner="builder", why="Nothing lasts."),
    ),
    stop=(remove,),
)
"""

MODULES = {
    "doors": f'print("a module that talks")\n{DOOR}',
    "faulty": DOOR.replace('"Open.", turn="visitor"', '"", turn="nobody"').replace("stop=(remove,),", ""),
    # Where doors are never left ajar: OPEN is not a state any more.
    "strict": DOOR.replace('    OPEN = "open"\n', "")
    .replace('        state(Door.OPEN, "Open.", turn="visitor"),\n', "")
    .replace('        on(open_, Door.CLOSED, Door.OPEN, owner="visitor", why="People come in."),\n', "")
    .replace('        on(close, Door.OPEN, Door.CLOSED, owner="visitor", why="It is cold."),\n', "")
    .replace("(Door.OPEN, Door.CLOSED)", "Door.CLOSED"),
    "broken": "1 / 0\n",
    "quitting": "raise SystemExit('enough')\n",
    "interrupted": "raise KeyboardInterrupt\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with modules in it: doors, faulty, strict, broken, quitting, interrupted."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INTERLOCK_DEBUG", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def cli(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> RunCli:
    """Run a command line in this process, with everything that `main` does about errors.

    A worker calms the garbage collector of its process, which is that of the tests.
    """
    monkeypatch.setattr(entry, "calm_collector", lambda: None)

    def run(*arguments: str) -> CompletedProcess[str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return CompletedProcess(arguments, code, captured.out, captured.err)

    return run


@pytest.fixture
def program(folder: Path) -> RunCli:
    """Run a command line as a process of its own."""

    def run(*arguments: str, **environment: str) -> CompletedProcess[str]:
        return programs.run(*arguments, folder=folder, environment={**os.environ, **environment})

    return run


@pytest.fixture
def shop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A project with tasks and a database of its own; `cli` and `program` use it."""
    (folder / "shop_tasks.py").write_text(TASKS, encoding="utf-8")
    there = Shop(folder)
    monkeypatch.setenv("INTERLOCK_URL", there.url)
    monkeypatch.setattr(tasks.DEFAULT, "_tasks", {})  # other tests of this process declare tasks, too
    paths = list(sys.path)
    yield there
    sys.path[:] = paths
    sys.modules.pop("shop_tasks", None)
    for name in [name for name in DEFAULT.names() if name.startswith("shop_tasks.")]:
        del DEFAULT._tasks[name]
