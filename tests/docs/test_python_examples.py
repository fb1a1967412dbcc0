"""The examples of the Python API run and print what they say, and each public name has one."""

from __future__ import annotations

import ast
import asyncio
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from inspect import CO_COROUTINE
from types import CodeType
from typing import Any

import msgspec
import pytest
from docs import references

import interlock
from interlock.machine import Machine, command, end, on, state
from interlock.testing import in_memory, in_memory_sync
from interlock.testing.at_work import at_work
from interlock.worker.middleware import NO_MIDDLEWARE
from interlock.worker.tasks import DEFAULT

EXAMPLES = references.EXAMPLES
PRELUDE = EXAMPLES["prelude"]
MODULES = {name: examples for name, examples in EXAMPLES.items() if name != "prelude"}
NAMES = {name: getattr(interlock, name) for name in interlock.__all__}
IMPORTED = {
    "UTC": UTC,
    "Iterator": Iterator,
    "Machine": Machine,
    "StrEnum": StrEnum,
    "command": command,
    "datetime": datetime,
    "end": end,
    "msgspec": msgspec,
    "on": on,
    "state": state,
    "time": time,
}
KIND = MODULES["interlock"]["kind"]
"""Declares what the examples of records need."""


def compiled(text: str) -> CodeType:
    """Compile an example, in which `await` may stand outside of a function."""
    code: CodeType = compile(text, "an example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return code


def shown(text: str) -> str:
    """Return an example as a page has it."""
    return re.sub(r"\n{3,}", "\n\n", text.strip())


async def run(code: CodeType, names: dict[str, Any]) -> None:
    """Run an example in an event loop, with a client; simulations need a clock that goes by itself."""
    async with at_work() if "simulations" in code.co_names else in_memory() as il:
        returned = eval(code, {**names, "il": il})
        if code.co_flags & CO_COROUTINE:
            await returned


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, examples in MODULES.items() for name in examples]
)
def test_an_example_prints_what_it_says(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in ("_tasks", "schedules", "limits"):
        monkeypatch.setattr(DEFAULT, each, {})
    monkeypatch.setattr(DEFAULT, "chain", NO_MIDDLEWARE)
    text = MODULES[module][name]
    names: dict[str, Any] = {"__name__": "an_example", **NAMES, **IMPORTED}
    exec(compiled(PRELUDE), names)
    if "TICKETS" in text and name != "kind":
        exec(compiled(KIND), names)
    if module == "interlock.sync":
        with in_memory_sync() as il:
            exec(compiled(text), {**names, "il": il})
    else:
        asyncio.run(run(compiled(text), names))
    assert capsys.readouterr().out.splitlines() == re.findall(r"print\(.*\)  # (.*)", text)


def test_every_public_name_has_an_example_on_the_page() -> None:
    page = references.reference_pages()["reference/python-api.md"]
    without = []
    for chapter in re.split(r"^## ", page, flags=re.M)[1:]:
        module = chapter.split("\n", 1)[0]
        for section in re.split(r"^### ", chapter, flags=re.M)[1:]:
            name = section.split("\n", 1)[0].strip("`")
            examples = [each for each in MODULES[module] if each.partition(".")[0] == name]
            if not examples or not all(shown(MODULES[module][each]) in section for each in examples):
                without.append(f"{module}.{name}")
    assert without == []


def test_an_example_of_no_name_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODULES["interlock"], "Interlock.erase", "pass")
    with pytest.raises(LookupError, match=r"Interlock\.erase"):
        references.reference_pages()
