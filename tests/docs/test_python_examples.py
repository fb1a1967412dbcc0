"""The examples of the Python API run and print what they say, and each public name has one."""

from __future__ import annotations

import ast
import asyncio
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from enum import StrEnum
from importlib import import_module
from inspect import CO_COROUTINE
from pathlib import Path
from types import CodeType
from typing import Any

import msgspec
import pytest
from docs import python_pages

import interlock.sync
from interlock import django, notebook
from interlock.agent.port import Load, Workload
from interlock.errors import StoreUnavailable
from interlock.machine import Machine, command, end, on, state
from interlock.testing import in_memory, in_memory_sync
from interlock.testing.at_work import at_work
from interlock.testing.workloads import try_workload
from interlock.worker.middleware import NO_MIDDLEWARE
from interlock.worker.tasks import DEFAULT

EXAMPLES = python_pages.EXAMPLES
PRELUDE = EXAMPLES["prelude"]
MODULES = {name: examples for name, examples in EXAMPLES.items() if name != "prelude"}
NAMES = {name: getattr(interlock, name) for name in interlock.__all__}
OF_TESTS = "interlock.testing"
"""Examples of these modules make the client themselves, and use names of all of them."""
IMPORTED = {
    "UTC": UTC,
    "asyncio": asyncio,
    "closing": closing,
    "Iterator": Iterator,
    "Load": Load,
    "Machine": Machine,
    "Path": Path,
    "StoreUnavailable": StoreUnavailable,
    "StrEnum": StrEnum,
    "Workload": Workload,
    "command": command,
    "datetime": datetime,
    "end": end,
    "msgspec": msgspec,
    "on": on,
    "sqlite3": sqlite3,
    "state": state,
    "sync": interlock.sync,
    "time": time,
    "try_workload": try_workload,
}
KIND = MODULES["interlock"]["kind"]
"""Declares what the examples of records need."""


def names_of(module: str) -> dict[str, Any]:
    """Return the public names of a module, as the page says that they are imported."""
    modules = [each for each in python_pages.PROMISED if each.startswith(OF_TESTS)]
    homes = modules if module in modules else [module]
    return {
        name: getattr(import_module(home), name) for home in homes for name in python_pages.PROMISED[home]
    }


def compiled(text: str) -> CodeType:
    """Compile an example, in which `await` may stand outside of a function."""
    code: CodeType = compile(text, "an example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return code


def shown(text: str) -> str:
    """Return an example as a page has it."""
    return re.sub(r"\n{3,}", "\n\n", text.strip())


REAL_TIME = {"simulations", "sqlite3", "try_workload"}
"""An example with one of these needs a clock that goes by itself."""


async def run(code: CodeType, names: dict[str, Any]) -> None:
    """Run an example in an event loop, with a client."""
    async with at_work() if REAL_TIME & {*code.co_names} else in_memory() as il:
        returned = eval(code, {**names, "il": il})
        if code.co_flags & CO_COROUTINE:
            await returned


SYNCHRONOUS = ("interlock.sync", "interlock.sync_resources", "SyncComposition", "SyncTransactionClient")


class Blank:
    """A cell of a notebook that nobody looks at."""

    def update(self, shown: object, /) -> None:
        """Show nothing."""


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module, examples in MODULES.items() for name in examples if name != "prelude"],
)
def test_an_example_prints_what_it_says(
    module: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for each in ("_tasks", "schedules", "limits"):
        monkeypatch.setattr(DEFAULT, each, {})
    monkeypatch.setattr(DEFAULT, "chain", NO_MIDDLEWARE)
    monkeypatch.setattr(notebook, "_display", Blank)
    monkeypatch.setattr(django, "_settings", lambda: {"URL": "sqlite:///shop.db"})
    monkeypatch.setattr(django, "_opened", None)
    monkeypatch.chdir(tmp_path)
    text = MODULES[module][name]
    names: dict[str, Any] = {"__name__": "an_example", **NAMES, **IMPORTED, **names_of(module)}
    exec(compiled(PRELUDE), names)
    exec(compiled(MODULES[module].get("prelude", "")), names)
    if "TICKETS" in text and name != "kind":
        exec(compiled(KIND), names)
    if module.startswith(OF_TESTS):
        if "TICKET" in text:
            names |= names_of("interlock.machine")
            exec(compiled(MODULES["interlock.machine"]["prelude"]), names)
        returned = eval(compiled(text), names)
        if returned is not None:
            asyncio.run(returned)
    elif module in SYNCHRONOUS or name in SYNCHRONOUS:
        with in_memory_sync() as il:
            exec(compiled(text), {**names, "il": il})
    else:
        asyncio.run(run(compiled(text), names))
    if django._opened is not None:
        django._opened[1].close()
    assert capsys.readouterr().out.splitlines() == re.findall(r"print\(.*\)  # (.*)", text)


def test_every_public_name_has_an_example_on_its_page() -> None:
    without = []
    pages = python_pages.python_pages()
    for place, page in python_pages.PYTHON_PAGES.items():
        chapters = re.split(r"^## ", pages[f"reference/{place}.md"], flags=re.M)[1:]
        assert [chapter.split("\n", 1)[0] for chapter in chapters] == list(page.modules)
        for module, chapter in zip(page.modules, chapters, strict=True):
            for section in re.split(r"^### ", chapter, flags=re.M)[1:]:
                name = section.split("\n", 1)[0].strip("`")
                examples = [each for each in MODULES[module] if each.partition(".")[0] == name]
                if not examples or not all(shown(MODULES[module][each]) in section for each in examples):
                    without.append(f"{module}.{name}")
    assert without == []


def test_an_example_of_no_name_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODULES["interlock"], "Interlock.erase", "pass")
    with pytest.raises(LookupError, match=r"Interlock\.erase"):
        python_pages.python_pages()
