"""A house with runs in it, and a crew in the same process that does nothing but claim and complete.

The crew costs the same whether jobs belong to a run or not, so what differs is the price of the run:
the words of its jobs, the orders that it gives them, and its own record. Everything is done in turns
by one task, so that processor time is comparable and nothing waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from time import perf_counter, process_time
from typing import Any, Self

import msgspec

from bench.rounds import Figure, Pace
from bench.runs.places import places
from bench.stores.bare.loop import Unexpected
from interlock.store.urls import store_for
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.runtime import Runtime
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import ClaimRequest, Complete, Succeeded
from interlock.wire.runs import Plan, PlannedJob, RunSpec

RUNNER = "bench"
BATCH = 200
NOTHING = msgspec.Raw(b"null")


class Measured(msgspec.Struct, frozen=True):
    """What one turn needed: microseconds of processor and of wall for each job."""

    used_us: float
    taken_us: float


class Driver:
    """One house on an empty store, driven to the end of whatever it is given."""

    def __init__(self, url: str) -> None:
        self._store = store_for(url, CATALOGUE)

    async def __aenter__(self) -> Self:
        await self._store.open()
        self.house = Runtime(self._store, DEFAULT_SETTINGS)
        self.house.runs.prompt = False
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.house.close()

    async def runs(self, plans: Sequence[Plan]) -> int:
        """Submit these at once, and see them through to their reports; answers how many jobs there were."""
        await asyncio.gather(*(self.house.runs.submit(RunSpec(plan=plan)) for plan in plans))
        while await self.house.runs.keep() + await self.work():
            pass
        ended, _ = await self.house.runs.find(limit=1_000)
        if {(each.state, each.outcome) for each in ended} != {("REPORTED", "SUCCESS")}:
            raise Unexpected("A run did not end as it should.")
        return sum(len(plan.jobs) for plan in plans)

    async def alone(self, layers: Sequence[int]) -> int:
        """The same jobs on their own: so many are submitted, done, and then the next so many.

        No claim is made that finds nothing, since jobs of runs are claimed once a layer as well.
        """
        for number in layers:
            await self.house.jobs.submit_many([JobSpec(task="noop") for _ in range(number)])
            for _ in range(0, number, BATCH):
                if not await self.work():
                    raise Unexpected("A job was not ready as soon as it was submitted.")
        return sum(layers)

    async def work(self) -> int:
        """One claim, and everything that it gave is done."""
        orchestrator = self.house.orchestrator
        given = await orchestrator.claim(ClaimRequest(runner_id=RUNNER, limit=BATCH))
        if given:
            done = [Complete(token=g.token, runner_id=RUNNER, outcome=Succeeded(NOTHING)) for g in given]
            await orchestrator.report(done)
        return len(given)


def layered(layers: int, width: int, *, all_of_them: bool = True) -> Plan:
    """Layers of jobs; each needs all of the layer before, or the one before it."""
    names = [[f"{layer}.{number}" for number in range(width)] for layer in range(layers)]

    def needs(layer: int, number: int) -> tuple[str, ...]:
        if not layer:
            return ()
        return tuple(names[layer - 1]) if all_of_them else (names[layer - 1][number],)

    jobs = [
        PlannedJob(name=names[layer][number], task="noop", needs=needs(layer, number))
        for layer in range(layers)
        for number in range(width)
    ]
    return Plan(jobs=tuple(jobs))


Turn = Callable[[Driver], Coroutine[Any, Any, int]]


def race(turns: Mapping[str, Turn], kinds: Sequence[str], pace: Pace) -> dict[str, dict[str, list[Measured]]]:
    """Each contender on each kind of store, in turns, every time on an empty one."""
    measured: dict[str, dict[str, list[Measured]]] = {kind: {name: [] for name in turns} for kind in kinds}
    with places(kinds) as fresh:
        for counts in (False, *(True,) * pace.job_rounds):
            for kind in kinds:
                for name, turn in turns.items():
                    with fresh(kind) as url:
                        taken = asyncio.run(_timed(url, turn))
                    if counts:
                        measured[kind][name].append(taken)
    return measured


async def _timed(url: str, turn: Turn) -> Measured:
    async with Driver(url) as driver:
        used, taken = process_time(), perf_counter()
        jobs = await turn(driver)
        return Measured((process_time() - used) * 1e6 / jobs, (perf_counter() - taken) * 1e6 / jobs)


def used(measured: Sequence[Measured]) -> Figure:
    """The processor time of each round."""
    return Figure(tuple(each.used_us for each in measured))


def taken(measured: Sequence[Measured]) -> Figure:
    """The time on the wall of each round."""
    return Figure(tuple(each.taken_us for each in measured))
