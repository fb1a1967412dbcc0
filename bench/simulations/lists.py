"""A page of a hundred thousand simulations, by status, on Redis and on SQLite."""

from __future__ import annotations

import asyncio
import tempfile
from statistics import median
from time import perf_counter

from bench.report import Line, Section
from bench.rounds import Figure, Pace
from interlock.store.records import Commit
from interlock.store.urls import store_for
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.runtime import Runtime
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.systems.simulations.aggregate import SimulationAggregate
from interlock.testing.servers import redis_server
from interlock.wire.simulations import SimulationFilter, SimulationSpec

STORED, QUICK, BATCH, ASKED = 100_000, 10_000, 500, 100
NAME = "interlock"


def run(pace: Pace) -> Section:
    """Fill a store, then ask for the newest fifty that wait, again and again."""
    stored = STORED if pace.store_rounds > 3 else QUICK
    with tempfile.TemporaryDirectory() as folder, redis_server(append_only="no") as server:
        urls = {"Redis": server.url, "SQLite": f"sqlite:///{folder}/bench.db"}
        taken = {name: asyncio.run(_ask(url, stored)) for name, url in urls.items()}
    return Section(
        f"Simulations: p50 of the newest 50 that are pending, of {stored:,}",
        NAME,
        lines=tuple(Line(name, "ms", {NAME: Figure((each,))}) for name, each in taken.items()),
    )


async def _ask(url: str, stored: int) -> float:
    store = store_for(url, CATALOGUE, timeout_s=60.0)
    await store.open()
    house = Runtime(store, DEFAULT_SETTINGS)
    try:
        await _fill(house, stored)
        times = []
        for _ in range(ASKED):
            began = perf_counter()
            await house.simulations.list_runs(SimulationFilter(statuses=("pending",)), limit=50)
            times.append((perf_counter() - began) * 1e3)
        return median(times)
    finally:
        await house.close()


async def _fill(house: Runtime, stored: int) -> None:
    now = await house.store.now()
    for start in range(0, stored, BATCH):
        commits: list[Commit] = []
        for number in range(start, min(start + BATCH, stored)):
            spec = SimulationSpec(scenario_name=f"bench {number}")
            draft = SimulationAggregate.new(f"b{number:08}", spec, now, DEFAULT_SETTINGS.simulations)
            commits.append(draft.commit(commit_id=f"m{number}", actor="bench"))
        await house.store.commit(commits)
