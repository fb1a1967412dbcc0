"""64 callers with a commit each: gathered into one call of the store, or one at a time.

Each commit submits an errand. "All at once" is what callers do who know nothing of a group commit:
the store then does what its connections, or its writer thread, can do for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from itertools import count

from bench.report import Line, Section
from bench.rounds import Figure, Pace, Prepare, Work, race_evenly
from bench.stores.databases import Database, databases
from bench.stores.errand import submitted
from bench.stores.ours import Ours, check
from interlock.engine.committer import Committer, DirectCommitter, GroupCommit
from interlock.store.records import Commit

CALLERS = 64
GROUP, ALONE, AT_ONCE = "group commit", "one at a time", "all at once"

AIM = 5.0
"""How many times as much a commit costs one at a time, where an aim is held."""
HELD = ("PostgreSQL", "SQLite")


def run(pace: Pace) -> Section:
    """Measure the databases one after the other."""
    with databases() as all_of_them, asyncio.Runner() as runner:
        lines = tuple(
            Line(database.name, "µs a commit", _raced(database, runner, pace)) for database in all_of_them
        )
    return Section(
        f"Stores: {CALLERS} concurrent single commits",
        GROUP,
        lines=lines,
        missed=tuple(
            f"on {line.measure} a commit should cost at least {AIM:g} times as much one at a time, "
            f"and costs {line.ratio(ALONE, GROUP):.1f} times as much."
            for line in lines
            if line.measure.startswith(HELD) and line.ratio(ALONE, GROUP) < AIM
        ),
    )


def _raced(database: Database, runner: asyncio.Runner, pace: Pace) -> dict[str, Figure]:
    ours = runner.run(Ours.made(database.new_store()))
    group = GroupCommit(ours.store)
    direct = DirectCommitter(ours.store)
    ways: dict[str, Callable[[list[Commit]], Awaitable[None]]] = {
        GROUP: lambda commits: _at_once(group, commits),
        ALONE: lambda commits: _alone(direct, commits),
        AT_ONCE: lambda commits: _at_once(direct, commits),
    }
    try:
        names, now = count(), runner.run(ours.store.now())
        prepared = {name: _preparing(way, runner, names, now) for name, way in ways.items()}
        return race_evenly(prepared, pace.store_rounds, pace.store_crowds, operations=CALLERS).taken
    finally:
        runner.run(group.close())
        runner.run(ours.close())


def _preparing(
    way: Callable[[list[Commit]], Awaitable[None]], runner: asyncio.Runner, names: count[int], now: datetime
) -> Prepare:
    def prepare(crowds: int) -> Work:
        waiting = [[submitted(f"{next(names):012d}", now) for _ in range(CALLERS)] for _ in range(crowds)]

        async def work() -> None:
            for commits in waiting:
                await way(commits)

        return lambda: runner.run(work())

    return prepare


async def _at_once(committer: Committer, commits: list[Commit]) -> None:
    check(await asyncio.gather(*(committer.commit(commit) for commit in commits)), CALLERS)


async def _alone(committer: Committer, commits: list[Commit]) -> None:
    check([await committer.commit(commit) for commit in commits], CALLERS)
