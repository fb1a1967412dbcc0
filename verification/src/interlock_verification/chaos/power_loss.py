"""A power loss at any write of SQLite, in which unflushed data is lost, or half of it.

Shows: with `synchronous=FULL`, which the store sets, every acknowledged step survives, and the recovered
database is consistent: records and journal agree.

Broken mode: the same with `synchronous=NORMAL`. It survives every kill -9 and loses acknowledged steps here:
detecting this shows that the disk really loses data. SQLite then flushes the log only at checkpoints. With
the short log most operations belong to checkpoints, and a run with 15 power losses sometimes lost nothing; so
this mode keeps the store's length of the log, and most power losses cost something.

Clients count on the real store while its disk is recorded (see `forgetful_disk`). At each operation of the
disk the power may fail: the content of the disk is kept, with the steps acknowledged by then, and afterwards
each of these disks is opened by an ordinary store and examined. So one run of the clients gives many power
losses. The log is checkpointed far more often than usual, so that the power also fails in the middle of that.
The simulation is SQLite's view: a file's name is on the disk with its first flush, and a disk does not lie
about flushing.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import msgspec

from interlock_verification.chaos.counters import audited, clients_of, examine, keep_counting
from interlock_verification.chaos.databases import SQLITE, opened
from interlock_verification.chaos.forgetful_disk import ForgetfulDisk, Image, stores_on
from interlock_verification.chaos.verdict import ChaosVerdict, Setup, judging

NAME = "power_loss"
STORES = (SQLITE,)
SHORT, LONG = 60, 2_000

STEPS = 12
CHANCE = 0.05
"""Probability of a power loss at an operation; some sixty in a life."""
PAGES_IN_LOG = 50


class DiskAtDeath(msgspec.Struct, frozen=True):
    """The content of the disk at a power loss, and the steps acknowledged by then."""

    image: Image
    acknowledged: frozenset[str]


def run(setup: Setup) -> ChaosVerdict:
    """Examine a power loss in every round."""
    dice = random.Random(setup.seed)
    with judging(NAME, setup) as verdict:
        verdict.add(lives=0, power_losses=0)
        while (left := setup.rounds - verdict.counts["power_losses"]) > 0:
            deaths = _one_life(f"life{verdict.counts['lives']}", dice, verdict)
            for death in dice.sample(deaths, min(left, len(deaths))):
                _come_up_again(death, verdict)
    return verdict


def _one_life(name: str, dice: random.Random, verdict: ChaosVerdict) -> list[DiskAtDeath]:
    """Count on a store, and collect possible power losses."""
    acknowledged: list[str] = []
    deaths: list[DiskAtDeath] = []

    def maybe_die() -> None:
        if dice.random() < CHANCE:
            # Acknowledgements are read first: later ones need not be on the image.
            known = frozenset(acknowledged)
            deaths.append(DiskAtDeath(disk.after_power_loss(dice), known))

    async def count(path: Path) -> None:
        async with opened(f"sqlite:///{path}") as store:
            await keep_counting(clients_of(store, name), name, acknowledged.append, steps=STEPS)

    pragmas = {"wal_autocheckpoint": str(PAGES_IN_LOG)}
    if verdict.setup.broken:
        pragmas = {"synchronous": "NORMAL"}
    disk = ForgetfulDisk(f"interlock-{name}-{id(verdict)}", maybe_die)
    with tempfile.TemporaryDirectory(prefix="interlock-chaos-") as folder:
        with stores_on(disk, pragmas):
            asyncio.run(count(Path(folder) / "chaos.db"))
        verdict.add(lives=1, steps=len(acknowledged), flushes=disk.flushes, operations=disk.operations)
    return deaths


def _come_up_again(death: DiskAtDeath, verdict: ChaosVerdict) -> None:
    verdict.add(power_losses=1, acknowledged=len(death.acknowledged))
    with tempfile.TemporaryDirectory(prefix="interlock-chaos-") as folder:
        for name, content in death.image.items():
            (Path(folder) / name).write_bytes(content)
        path = Path(folder) / "chaos.db"
        verdict.broken_promises += _damage(path)
        asyncio.run(_examine(path, death, verdict))


def _damage(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as shell:
        [answer] = shell.execute("PRAGMA integrity_check(1)").fetchone()
        return [] if answer == "ok" else [f"the database is damaged: {answer}"]


async def _examine(path: Path, death: DiskAtDeath, verdict: ChaosVerdict) -> None:
    async with opened(f"sqlite:///{path}") as store:
        found = await examine(store, death.acknowledged)
        verdict.add(lost=len(found.lost), doubled=len(found.doubled))
        verdict.broken_promises += found.sentences() + await audited(store)
