"""Claim and complete in batches of 100, with a journal entry for each record and commit.

Ours goes through the machine, the engine and the store; theirs is a bare loop with the same driver
on the same server. Both leave the same states behind.
"""

from __future__ import annotations

import asyncio

from bench.report import Line, Section
from bench.rounds import Pace, Prepare, Raced, Work, race_evenly
from bench.stores.bare.loop import BareLoop
from bench.stores.databases import Database, databases
from bench.stores.errand import BATCH
from bench.stores.ours import Ours

US, BARE = "interlock", "bare loop"

AIMS = {"PostgreSQL": 0.5, "SQLite": 0.4, "Redis": 0.4, "Valkey": 0.4}
"""How much of the bare loop's speed has to be left."""


def run(pace: Pace) -> Section:
    """Measure the databases one after the other, and the contenders on each in turns."""
    with databases() as all_of_them, asyncio.Runner() as runner:
        raced = {database.name: _raced(database, runner, pace) for database in all_of_them}
    speeds = {name: one.taken[BARE].ratio(one.taken[US]) for name, one in raced.items()}
    return Section(
        f"Stores: claim and complete in batches of {BATCH}",
        BARE,
        lines=tuple(line for name, one in raced.items() for line in lines_of(name, one)),
        notes=tuple(
            f"{name}: {speed:.2f} of the bare loop's speed, the aim is {_aim(name)}; "
            f"by processor time {raced[name].used[BARE].ratio(raced[name].used[US]):.2f}."
            for name, speed in speeds.items()
        ),
        missed=tuple(
            f"on {name} the engine should have at least {_aim(name)} of the bare loop's speed, "
            f"and has {speed:.2f}."
            for name, speed in speeds.items()
            if speed < _aim(name)
        ),
    )


def _aim(name: str) -> float:
    return AIMS[name.split(maxsplit=1)[0]]


def _raced(database: Database, runner: asyncio.Runner, pace: Pace) -> Raced:
    bare = runner.run(database.new_bare())
    ours = runner.run(Ours.made(database.new_store()))
    try:
        contenders: dict[str, BareLoop] = {US: ours, BARE: bare}
        prepared = {name: preparing(loop, database, runner) for name, loop in contenders.items()}
        return race_evenly(
            prepared, pace.store_rounds, pace.store_batches, operations=BATCH, used_s=database.used_s
        )
    finally:
        runner.run(ours.close())
        runner.run(bare.close())


def lines_of(name: str, raced: Raced) -> tuple[Line, Line]:
    """The clock on the wall, and the processors: that of us and that of the server together."""
    return Line(name, "µs a record", raced.taken), Line("  on the processors", "µs", raced.used)


def preparing(loop: BareLoop, database: Database, runner: asyncio.Runner, first: int = 0) -> Prepare:
    """Each turn has as many ready records as it will take, and finds the rest as earlier turns left it."""
    next_name = first

    def prepare(batches: int) -> Work:
        nonlocal next_name
        names = range(next_name, next_name + batches * BATCH)
        next_name = names.stop
        runner.run(loop.fill(names))
        runner.run(database.settle())
        return lambda: runner.run(loop.drain(batches))

    return prepare
