"""The fixtures that pytest loads by itself, in a project of somebody else; and `drain`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from tests.waiting import PROGRAM_S

from interlock import Context, Registry
from interlock.testing import in_memory, in_memory_sync

PROJECT = """
import asyncio
import pytest
from interlock import task

@task
async def greet(name: str) -> str:
    await asyncio.sleep(60)
    return f"Hello {name}"

@task(queue="mail")
def send(text: str) -> str:
    return text

async def test_the_fixture_has_a_worker_and_virtual_time(il):
    assert await (await il.submit(greet, "Ada")).result() == "Hello Ada"

@pytest.mark.interlock(queues=("mail",))
def test_a_marker_gives_options(il_sync, interlock_options):
    job_id = il_sync.submit(send, "x")
    il_sync.drain()
    assert il_sync.result(job_id) == "x"
    assert interlock_options == {}

class TestWithOptionsOfItsOwn:
    @pytest.fixture
    def interlock_options(self):
        return {"queues": ("mail",)}

    def test_a_fixture_gives_options(self, il_sync):
        il_sync.result(il_sync.submit(send, "y"))

    @pytest.mark.interlock(queues=("default",))
    def test_a_marker_takes_precedence(self, il_sync):
        job_id = il_sync.submit(send, "z")
        il_sync.drain()
        assert il_sync.job(job_id).state == "PENDING"

def test_nothing_of_interlock_is_imported_for_other_tests():
    pass
"""


ASYNCIO = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")


def test_a_project_has_the_fixtures_without_a_line_of_configuration(tmp_path: Path) -> None:
    (tmp_path / "test_project.py").write_text(PROJECT)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"]
    answer = subprocess.run(
        [*command, "--strict-markers", *ASYNCIO, str(tmp_path)],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "5 passed" in answer.stdout


def test_loading_the_fixtures_imports_nothing_heavy() -> None:
    script = "import sys, interlock.testing.pytest_plugin as p; print('msgspec' in sys.modules, p.__name__)"
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PROGRAM_S, check=True
    )
    assert answer.stdout.split() == ["False", "interlock.testing.pytest_plugin"]


registry = Registry()


@registry.task
async def child(number: int) -> int:
    await asyncio.sleep(1_800)
    return number


@registry.task
async def parent(ctx: Context) -> None:
    await ctx.submit(child, 1)


@registry.task
async def waits(ctx: Context) -> None:
    await ctx.wait_for("paid", timeout="2d")


@registry.task(retries=1)
async def fails_once(ctx: Context) -> str:
    if ctx.attempt == 1:
        raise ValueError("not yet")
    return "done"


async def test_drain_runs_due_jobs_and_their_children_and_leaves_delayed_and_waiting_jobs() -> None:
    async with in_memory(registry) as il:
        began = il.clock.now
        top = await il.submit(parent)
        later = await il.submit(child.options(delay_s=5 * 86_400), 2)
        elsewhere = await il.submit(child.options(queue="mail"), 3)
        asking = await il.submit(waits)
        await il.drain()
        assert (await top.view()).state == "COMPLETED"
        assert [node.state for node in (await il.services.jobs.tree(top.id)).nodes] == ["COMPLETED"] * 2
        assert [(await each.view()).state for each in (later, elsewhere)] == ["PENDING", "PENDING"]
        assert (await asking.view()).state not in ("COMPLETED", "FAILED")
        assert (il.clock.now - began).total_seconds() < 2 * 3_600
        await il.drain()  # which changes nothing


async def test_drain_does_not_wait_for_a_worker_that_was_killed() -> None:
    async with in_memory(registry) as il:
        await il.worker.kill()
        job = await il.submit(child, 1)
        await il.drain()
        assert (await job.view()).state == "PENDING"


def test_drain_without_asyncio_leaves_a_retry_to_its_time() -> None:
    with in_memory_sync(registry) as il:
        job_id = il.submit(fails_once)
        il.drain()
        assert len(il.job(job_id).attempts) == 2
        il.clock.jump("1h")
        assert il.result(job_id) == "done"
