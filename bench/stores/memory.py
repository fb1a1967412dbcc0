"""What the process holds after many commits: nothing may pile up.

64 callers renew their errands through the group commit, with a journal entry each. The first fifth of
the commits is to fill caches; SQLite's page cache alone may hold 8 MB, and lives in our process.
"""

from __future__ import annotations

import asyncio
import gc
from datetime import timedelta
from pathlib import Path
from resource import getpagesize

from bench.report import Line, Section
from bench.rounds import Figure, Pace
from bench.stores.databases import Database, databases
from bench.stores.errand import BATCH, KIND, QUEUE, claimed, renewed
from bench.stores.ours import Ours, check
from interlock.engine.committer import GroupCommit
from interlock.store.records import Claim

CALLERS = 64
START, MIDDLE, END = "after a fifth", "after three fifths", "at the end"
AIM, HELD_FROM = 1.1, 1_000_000
"""How many times as much the process may hold at the end, and after how many commits that counts."""


def run(pace: Pace) -> Section:
    """Measure the databases one after the other."""
    with databases() as all_of_them, asyncio.Runner() as runner:
        lines = tuple(
            Line(database.name, "MB", runner.run(_weighed(database, pace.commits)))
            for database in all_of_them
        )
    ratios = {line.measure: line.ratio(END, START) for line in lines}
    return Section(
        f"Stores: memory of the process over {pace.commits:,} commits",
        START,
        lines=lines,
        missed=tuple(
            f"with {name} the process should hold at most {AIM:g} times as much at the end, "
            f"and holds {ratio:.2f} times as much."
            for name, ratio in ratios.items()
            if ratio > AIM and pace.commits >= HELD_FROM
        ),
    )


async def _weighed(database: Database, commits: int) -> dict[str, Figure]:
    ours = await Ours.made(database.new_store())
    group = GroupCommit(ours.store)
    try:
        await ours.fill(range(CALLERS))
        check(await ours.store.claim(Claim(kind=KIND, queues=(QUEUE,), limit=BATCH), claimed), CALLERS)
        versions = dict.fromkeys(range(CALLERS), 2)
        weights: dict[str, Figure] = {}
        for name, part in ((START, 1), (MIDDLE, 2), (END, 2)):
            await _renew(ours, group, versions, commits * part // 5)
            weights[name] = Figure((_held_mb(),))
        return weights
    finally:
        await group.close()
        await ours.close()


async def _renew(ours: Ours, group: GroupCommit, versions: dict[int, int], commits: int) -> None:
    """Each caller renews its own errand, again and again, until enough was done by all."""
    until = await ours.store.now() + timedelta(days=1)
    turns = iter(range(commits))

    async def caller(name: int) -> None:
        for _ in turns:
            check([await group.commit(renewed(f"{name:012d}", versions[name], until))])
            versions[name] += 1

    await asyncio.gather(*(caller(name) for name in versions))


def _held_mb() -> float:
    """Resident memory; what Python has let go of is given back first."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * getpagesize() / 1e6
