"""Servers under people who mean them no good, and servers that are killed under those who need them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.server.fleet import Fleet, at_work
from tests.server.running import Running, program, running

from interlock.engine.audit import audit
from interlock.server.settings import ServerSettings
from interlock.store.urls import store_for
from interlock.systems.catalogue import CATALOGUE, JOURNALLED

RUNNERS, JOBS = 50, 300
QUIET = ("--log-level", "warning")
"""What a server writes nobody reads here, and a pipe holds only so much."""
LASTING = """\
[durations]
ack_window_s = 10
lease_ttl_s = 20
heartbeat_every_s = 5
sweep_every_s = 0.2
cancel_deadline_s = 5
shutdown_soft_s = 2
shutdown_deadline_s = 6
abort_warning_s = 1
abort_kill_s = 2
"""


# Killed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project whose leases are short, but longer than a server is away."""
    (tmp_path / "interlock.toml").write_text(LASTING)
    return tmp_path


async def test_a_server_that_is_killed_under_fifty_runners_and_comes_back_loses_nothing(folder: Path) -> None:
    with ExitStack() as servers:
        process, url, _ = servers.enter_context(program(*QUIET, folder=folder))
        await submit(url, JOBS)
        async with at_work(RUNNERS, [url], JOBS) as fleet:
            await fleet.until_done(JOBS // 3)
            await fleet.all_hold(RUNNERS)
            fleet.up.clear()
            process.kill()
            await asyncio.to_thread(process.wait, 20)
            port = url.rpartition(":")[2]
            await asyncio.to_thread(servers.enter_context, program(*QUIET, "--port", port, folder=folder))
            fleet.up.set()
            fleet.go_on()
        assert fleet.unanswered, "nobody noticed"
        check_done_once(fleet, await jobs_at(url))
    assert await faults(folder) == []


async def test_when_one_of_two_servers_is_killed_its_runners_go_on_with_the_other(folder: Path) -> None:
    with program(*QUIET, folder=folder) as (one, first, _), program(*QUIET, folder=folder) as (_, second, _):
        await submit(first, JOBS)
        async with at_work(RUNNERS, [first, second], JOBS) as fleet:
            await fleet.until_done(JOBS // 3)
            await fleet.all_hold(RUNNERS)
            one.kill()
            await asyncio.to_thread(one.wait, 20)
            fleet.go_on()
        assert fleet.unanswered, "nobody noticed"
        check_done_once(fleet, await jobs_at(second))
    assert await faults(folder) == []


async def submit(url: str, number: int) -> None:
    async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=20.0) as client:
        answer = await client.post("/api/jobs", json={"jobs": [{"task": "a.b"}] * number})
        assert answer.status_code == 201, answer.text


async def jobs_at(url: str) -> list[dict[str, Any]]:
    async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=20.0) as client:
        found: list[dict[str, Any]] = (await client.get("/api/jobs?limit=1000")).json()["jobs"]
        return found


def check_done_once(fleet: Fleet, jobs: list[dict[str, Any]]) -> None:
    """Everything is done, and once: whatever a runner was given it could keep, and nobody else got it."""
    assert fleet.refused == []
    assert {job["state"] for job in jobs} == {"COMPLETED"}
    assert set(fleet.done.values()) == {1}
    assert len(fleet.done) == len(jobs) == JOBS
    assert set(fleet.told.values()) == {1}
    assert [job["id"] for job in jobs if job.get("losses", 0) or len(job["attempts"]) > 1] == []


async def faults(folder: Path) -> list[object]:
    """Where the journal and the records disagree."""
    store = store_for(f"sqlite:///{folder}/interlock.db", CATALOGUE)
    await store.open()
    try:
        return list((await audit(store, JOURNALLED, ["job"])).faults)
    finally:
        await store.close()
