"""Runtimes on fresh databases of one server, and a runner that claims and completes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from bench.rounds import Pace, Prepare, Work
from bench.stores.databases import Database
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.runtime import Runtime
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import ClaimRequest, Complete, Grant, Succeeded

BATCH = 100
RUNNER = "bench"
_NOTHING = msgspec.Raw(b"null")
_PORTION = 5_000
_CLAIMED = 500


async def opened(database: Database) -> EmbeddedOrchestrator:
    """Connect to a fresh database."""
    port = EmbeddedOrchestrator(database.name, store=lambda: database.new_store(CATALOGUE))
    await port.connect()
    return port


async def submit(house: Runtime, number: int, spec: JobSpec) -> None:
    """Submit the same job so many times."""
    for start in range(0, number, _PORTION):
        await house.jobs.submit_many([spec] * min(_PORTION, number - start))


async def claim(house: Runtime, limit: int, *queues: str) -> list[Grant]:
    """Claim up to so many jobs."""
    request = ClaimRequest(runner_id=RUNNER, limit=limit, queues=queues or ("default",))
    return await house.claim(request)


async def drain(house: Runtime, batches: int, size: int = BATCH) -> None:
    """Claim so many batches, and complete them."""
    for _ in range(batches):
        grants = await claim(house, size)
        assert len(grants) == size, f"{len(grants)} of {size} jobs were there"
        done = [Complete(token=one.token, runner_id=RUNNER, outcome=Succeeded(_NOTHING)) for one in grants]
        await house.orchestrator.report(done)


async def end(house: Runtime, number: int) -> None:
    """Leave so many completed jobs behind."""
    for start in range(0, number, _PORTION):
        some = min(_PORTION, number - start)
        await submit(house, some, JobSpec(task="bench"))
        await drain(house, some // _CLAIMED, _CLAIMED)


def draining(port: EmbeddedOrchestrator, database: Database, runner: asyncio.Runner) -> Prepare:
    """Return what submits as many jobs as a turn takes, and takes them."""

    def prepare(batches: int) -> Work:
        runner.run(submit(port.services, batches * BATCH, JobSpec(task="bench")))
        runner.run(database.settle())
        return lambda: runner.run(drain(port.services, batches))

    return prepare


def repeating(runner: asyncio.Runner, ask: Callable[[], object]) -> Prepare:
    """Return what asks again and again, one after the other."""

    async def several(number: int) -> None:
        for _ in range(number):
            await ask()  # type: ignore[misc]

    return lambda number: lambda: runner.run(several(number))


def is_chosen(database: Database, pace: Pace) -> bool:
    """Return whether a database was asked for; all are if none was named."""
    kind = database.name.split(maxsplit=1)[0].lower()
    return not pace.stores or {"valkey": "redis"}.get(kind, kind) in pace.stores
