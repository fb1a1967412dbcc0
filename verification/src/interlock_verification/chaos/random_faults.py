"""Thousands of lost, late and repeated requests and responses, by seeded plans.

Shows: for every combination of faults, each step that clients take through the engine is done exactly once.
It runs on the store in memory and on virtual time, so that it is quick and a seed repeats it exactly; round n
uses the seed plus n.

Broken mode: clients that simply repeat a step if there is no response.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

from interlock.engine.clock import StoreClock
from interlock.engine.committer import Committer, DirectCommitter, GroupCommit
from interlock.engine.unit_of_work import Engine
from interlock.store.memory import MemoryStore
from interlock.testing.clocks import run_virtually
from interlock.testing.faults import ALL, Fault, FaultyStore, Plan
from interlock_verification.chaos.counters import (
    CATALOGUE,
    Client,
    Findings,
    Loner,
    Sharer,
    audited,
    examine,
    keep_counting,
)
from interlock_verification.chaos.eaten_reply import Naive
from interlock_verification.chaos.verdict import ChaosVerdict, Setup, judging

NAME = "random_faults"
STORES = ("memory",)
SHORT, LONG = 100, 5_000

CLIENTS = 6
STEPS = 10
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


def run(setup: Setup) -> ChaosVerdict:
    """Run one plan in every round."""
    with judging(NAME, setup) as verdict:
        for number in range(setup.rounds):
            plan = plan_of(setup.seed + number)
            found, faults = try_plan(plan, naive=setup.broken)
            verdict.add(plans=1, faults=faults.total(), acknowledged=found.acknowledged)
            verdict.add(lost=len(found.lost), doubled=len(found.doubled))
            verdict.broken_promises += [f"seed {plan.seed}: {sentence}" for sentence in found.sentences()]
    return verdict


def plan_of(seed: int) -> Plan:
    """Return a random plan of faults."""
    dice = random.Random(seed)
    return Plan(
        seed=seed,
        faults=(
            Fault("reply lost", chance=dice.choice((0.0, 0.1, 0.5))),
            Fault("request lost", chance=dice.choice((0.0, 0.1, 0.5))),
            Fault("done twice", chance=dice.choice((0.0, 0.1, 0.5))),
            Fault("late", of=ALL, chance=dice.choice((0.0, 0.3)), delay_s=1.0),
            Fault("request lost", of=("load", "history", "now"), chance=dice.choice((0.0, 0.2))),
        ),
    )


def try_plan(plan: Plan, *, naive: bool = False) -> tuple[Findings, Counter[str]]:
    """Count under a plan; return the findings, and the number of each fault."""
    return run_virtually(_try(plan, naive))


async def _try(plan: Plan, naive: bool) -> tuple[Findings, Counter[str]]:
    time = asyncio.get_running_loop().time
    store = MemoryStore(CATALOGUE, clock=lambda: BEGINNING + timedelta(seconds=time()))
    faulty = FaultyStore(store, plan)
    acknowledged: set[str] = set()
    await keep_counting(_clients(faulty, plan.seed, naive), "f", acknowledged.add, steps=STEPS)
    found = await examine(store, acknowledged)
    found.disagreements += await audited(store)
    return found, Counter({what: number for (what, _), number in faulty.counts.items()})


def _clients(store: FaultyStore, seed: int, naive: bool) -> list[Client]:
    if naive:
        return [Naive(store, f"own{place}") for place in range(CLIENTS)]
    committer: Committer = GroupCommit(store) if seed % 2 else DirectCommitter(store)
    clock = StoreClock(store, monotonic=asyncio.get_running_loop().time)
    # Pauses after conflicts depend on the marks of decisions: random ones would make each run another one.
    engine = Engine(store, committer, clock, ids=map("{:016x}".format, itertools.count()).__next__)
    loners: list[Client] = [Loner(store, committer, "e", f"own{place}") for place in range(CLIENTS // 2)]
    return loners + [Sharer(engine, "e", "shared") for _ in range(CLIENTS - len(loners))]
