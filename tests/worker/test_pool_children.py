"""The workers of a pool are told which pool they are of."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from interlock.worker.pool import ABOUT, PoolWorker, about_pool, started_with

SAYS = """
import sys, pathlib
from interlock.worker.pool import about_pool
pathlib.Path(sys.argv[1]).write_text(repr(about_pool()))
"""


async def test_a_pool_passes_its_name_to_the_workers_that_it_starts(tmp_path: Path) -> None:
    output = tmp_path / "said"
    start = started_with([sys.executable, "-c", SAYS, str(output)], "sqlite:///x.db", {"pool": "web"})
    child = await start("web-1", lambda: None)
    await child.gone()
    assert (child.exit_code, output.read_text()) == (0, "{'pool': 'web'}")


@pytest.mark.parametrize("text", ["", "no JSON", "[1]", '{"pool": 1}'])
def test_a_worker_ignores_pool_information_that_it_cannot_parse(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(ABOUT, text)
    assert about_pool() == {}


async def test_a_worker_that_has_ended_is_not_killed_because_its_id_may_be_in_use_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    ready, write = os.pipe()
    process = await asyncio.create_subprocess_exec("true")
    worker = PoolWorker(process, ready, lambda: None)
    os.close(write)
    await worker.gone()
    worker.kill()
    assert killed == []
