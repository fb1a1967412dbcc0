"""Claims and lists beside many concurrency keys in use, and beside a long history of ended jobs.

Each case has a database of its own on the same server. A key is in use when a running job holds one of its
slots. Ended jobs were submitted, claimed and completed as usual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from bench.report import Line, Section
from bench.rounds import Pace, Raced, race_evenly
from bench.scheduling.houses import BATCH, claim, draining, end, is_chosen, opened, repeating
from bench.stores.databases import Database, databases
from interlock.lifecycles import job
from interlock.store.records import Query
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.runtime import Runtime
from interlock.wire.jobs import JobSpec
from interlock.wire.limits import LimitSpec

EMPTY, FEW, MANY = "no keys", "10 keys", "10,000 keys"
_KEYS = {FEW: 10, MANY: 10_000}
_PAGES = 50
"""Pages of a list in one turn."""
_VACUUMED = 250_000
"""Number of jobs after which a server tidies up, as it would by itself."""


def aims(ended: str) -> dict[str, float]:
    """How many times as much a claim, or a page, may cost."""
    return {EMPTY: 1.2, FEW: 1.5, MANY: 2.0, ended: 1.2}


def run(pace: Pace) -> Section:
    """Fill, then measure, the databases one after the other."""
    ended = f"{pace.history:,} ended"
    lines: list[Line] = []
    with databases() as all_of_them, asyncio.Runner() as runner:
        for database in all_of_them:
            if is_chosen(database, pace):
                lines += _lines(database, runner, pace, ended)
    return Section(
        f"Scheduling: claims of {BATCH} jobs, and pages of 50",
        EMPTY,
        lines=tuple(lines),
        missed=tuple(sentence for line in lines for sentence in missed_in(line, aims(ended))),
    )


def missed_in(line: Line, aims: Mapping[str, float]) -> list[str]:
    """A sentence for each aim that was missed on the processors."""
    if "processors" not in line.measure:
        return []
    ratios = {name: line.ratio(name, EMPTY) for name in line.figures}
    return [
        f"{line.measure} with {name} should cost at most {aims[name]:g} times as much, and costs {ratio:.2f}."
        for name, ratio in ratios.items()
        if ratio > aims[name]
    ]


def _lines(database: Database, runner: asyncio.Runner, pace: Pace, ended: str) -> list[Line]:
    ports = {name: runner.run(opened(database)) for name in (EMPTY, FEW, MANY, ended)}
    try:
        for name, number in _KEYS.items():
            runner.run(_use_keys(ports[name].services, number))
        for start in range(0, pace.history, _VACUUMED):
            runner.run(end(ports[ended].services, min(_VACUUMED, pace.history - start)))
            runner.run(database.settle())  # claims would walk past all that was claimed before
        claims = race_evenly(
            {name: draining(port, database, runner) for name, port in ports.items()},
            pace.store_rounds,
            pace.store_batches // 4,
            operations=BATCH,
            used_s=database.used_s,
        )
        return [
            *_both(f"{database.name}, claim and complete", "µs a job", claims),
            *_both(f"{database.name}, a page of jobs", "µs", _pages(database, runner, pace, ports, ())),
            *_both(
                f"{database.name}, a page of failed jobs",
                "µs",
                _pages(database, runner, pace, ports, (job.FAILED,)),
            ),
        ]
    finally:
        for port in ports.values():
            runner.run(port.disconnect())


def _pages(
    database: Database,
    runner: asyncio.Runner,
    pace: Pace,
    ports: Mapping[str, EmbeddedOrchestrator],
    states: tuple[str, ...],
) -> Raced:
    query = Query(kind="job", states=states, limit=50)
    contenders = {
        name: repeating(runner, lambda port=port: port.services.jobs.find(query))  # type: ignore[misc]
        for name, port in ports.items()
    }
    return race_evenly(contenders, pace.store_rounds, _PAGES, operations=1, used_s=database.used_s)


def _both(measure: str, unit: str, raced: Raced) -> tuple[Line, Line]:
    return Line(measure, unit, raced.taken), Line(f"  {measure}, on the processors", "µs", raced.used)


async def _use_keys(house: Runtime, number: int) -> None:
    """Have a running job under each of so many keys."""
    await house.limits.declare("tenant:*", LimitSpec(max=2), source="bench")
    specs = [JobSpec(task="bench", queue="held", limits=(f"tenant:{key}",)) for key in range(number)]
    await house.jobs.submit_many(specs)
    running = 0
    while running < number:
        await house.limits.keep()
        running += len(await claim(house, 500, "held"))
