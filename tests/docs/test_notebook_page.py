"""The cell of the page about notebooks is executed as a kernel does, on a server that asks for a token."""

from __future__ import annotations

import ast
import asyncio
import sys
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from tests.docs.test_every_block import blocks_of
from tests.server.running import running
from tests.waiting import until

from interlock import notebook, task
from interlock.wire.access import Role
from interlock.worker.tasks import DEFAULT

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "notebooks.md"


class Screen:
    """The output of a cell."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, table: object, /) -> None:
        self.shown.append(repr(table))


def cell(server: str, token: str) -> CodeType:
    """Return the cell with the address of a server, and a token of it."""
    (block,) = [each.text for each in blocks_of(PAGE) if each.language == "py"]
    for printed, real in (("https://jobs.example.org", server), ('"…"', repr(token))):
        assert block.count(printed) == 1
        block = block.replace(printed, real)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: CodeType = compile(block, PAGE.name, "exec", flags, dont_inherit=True)
    return code


async def test_the_cell_of_the_page_shows_its_job_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DEFAULT, "_tasks", {})
    module, screen = ModuleType("my_tasks"), Screen()

    @task(name="models.train")
    async def train(epochs: int) -> int:
        return epochs

    vars(module)["train"] = train
    monkeypatch.setitem(sys.modules, "my_tasks", module)
    monkeypatch.setattr(notebook, "_display", lambda: screen)
    async with running() as server:
        names: dict[str, Any] = {"__name__": "__main__"}
        code = cell(server.url, await server.token(Role.OPERATOR))
        execution = asyncio.create_task(FunctionType(code, names)())
        try:
            await until(lambda: bool(screen.shown) or execution.done(), "the job is shown")
            assert not execution.done(), execution.exception()
            job = names["job"]
            grant = await server.work(job.id, result=b"20")
            assert (grant.task, bytes(grant.input)) == ("models.train", b'{"epochs":20}')
            await execution
            assert screen.shown[-1].startswith(f"{job.id}  COMPLETED")
            assert await job.result() == 20
        finally:
            execution.cancel()
            await asyncio.wait([execution])
            if "il" in names:
                await names["il"].close()
