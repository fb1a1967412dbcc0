"""Claim and complete with a short queue and with a long one: the cost shall not grow.

Both queues are in the same database server, and are filled through the store; the journal of the long
one is lengthened with refusals. What a turn takes is put back before the next.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

from bench.report import Section
from bench.rounds import Pace, Raced, race_evenly
from bench.stores.claims import lines_of, preparing
from bench.stores.databases import Database, databases
from bench.stores.errand import BATCH
from bench.stores.ours import Ours

SHORT = 10_000
AIM, HELD_FROM = 1.2, 1_000_000
"""How many times as much a record may cost in the long queue, and how long that has to be."""


def run(pace: Pace) -> Section:
    """Fill, then measure, the databases one after the other."""
    short, long = f"{SHORT:,} ready", f"{pace.crowd:,} ready"
    with databases() as all_of_them, asyncio.Runner() as runner:
        filled: list[str] = []
        raced = {
            database.name: _raced(database, runner, pace, (short, long), filled) for database in all_of_them
        }
    ratios = {name: one.taken[long].ratio(one.taken[short]) for name, one in raced.items()}
    return Section(
        f"Stores: {pace.crowd:,} ready records and {pace.history:,} journal entries",
        short,
        lines=tuple(line for name, one in raced.items() for line in lines_of(name, one)),
        notes=tuple(filled),
        missed=tuple(
            f"on {name} a record should cost at most {AIM:g} times as much as in the short queue, "
            f"and costs {ratio:.2f} times as much."
            for name, ratio in ratios.items()
            if ratio > AIM and pace.crowd >= HELD_FROM
        ),
    )


def _raced(
    database: Database, runner: asyncio.Runner, pace: Pace, names: tuple[str, str], filled: list[str]
) -> Raced:
    crowds = dict(zip(names, (SHORT, pace.crowd), strict=True))
    queues = {name: runner.run(Ours.made(database.new_store())) for name in crowds}
    try:
        start = perf_counter()
        for name, crowd in crowds.items():
            runner.run(queues[name].fill(range(crowd)))
        runner.run(queues[names[1]].lengthen(pace.history - pace.crowd, range(pace.crowd)))
        filled.append(f"{database.name}: filled in {perf_counter() - start:.0f} s.")
        prepared = {name: preparing(queue, database, runner, crowds[name]) for name, queue in queues.items()}
        return race_evenly(
            prepared, pace.store_rounds, pace.store_batches, operations=BATCH, used_s=database.used_s
        )
    finally:
        for queue in queues.values():
            runner.run(queue.close())
