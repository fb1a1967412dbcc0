"""The commit is done and the response is lost; or the commit is lost, which looks the same.

Shows: each step is done exactly once, although the client cannot know which of the two happened. It retries
with the same version or request id, and if uncertain reads the journal.

Broken mode: a client that simply repeats the step if there is no response. Each lost response is then a step
that is done twice.
"""

from __future__ import annotations

import asyncio
import random

from interlock.errors import StoreUnavailable
from interlock.store.contract import Store
from interlock.store.records import Key
from interlock.testing.proxy import LostPart, Wires, wires_to
from interlock.testing.servers import PostgresServer, RedisServer
from interlock_verification.chaos.counters import (
    Client,
    audited,
    clients_of,
    examine,
    keep_counting,
    one_more,
)
from interlock_verification.chaos.databases import POSTGRES, REDIS, opened, server_for
from interlock_verification.chaos.verdict import ChaosVerdict, Setup, judging

NAME = "eaten_reply"
STORES = (POSTGRES, REDIS)
SHORT, LONG = 100, 2_000

CLIENTS = 10
LOSSES: tuple[LostPart | None, ...] = ("reply", "reply", "request", None)
"""Possible faults of a commit, equally likely."""


def run(setup: Setup) -> ChaosVerdict:
    """Run the steps; most of them lose a request or a response."""
    with judging(NAME, setup) as verdict, server_for(setup.store) as server:
        asyncio.run(_run(server, verdict))
    return verdict


async def _run(server: PostgresServer | RedisServer, verdict: ChaosVerdict) -> None:
    setup = verdict.setup
    acknowledged: set[str] = set()
    steps = -(-setup.rounds // CLIENTS)
    async with wires_to(server.address) as wires:
        _plan(wires, steps, random.Random(setup.seed))
        async with opened(wires.url(server.url)) as store:
            naive: list[Client] = [Naive(store, f"own{place}") for place in range(CLIENTS)]
            clients = naive if setup.broken else clients_of(store, "e", number=CLIENTS)
            await _count(clients, steps, acknowledged, verdict)
        async with opened(server.url) as store:
            found = await examine(store, acknowledged)
            verdict.broken_promises += found.sentences() + await audited(store)
    verdict.add(
        replies_eaten=wires.counts["replies eaten"],
        requests_lost=wires.counts["requests lost"],
        acknowledged=found.acknowledged,
        applied=found.applied,
        lost=len(found.lost),
        doubled=len(found.doubled),
    )


def _plan(wires: Wires, steps: int, dice: random.Random) -> None:
    for place in range(CLIENTS):
        for serial in range(steps):
            loss = dice.choice(LOSSES)
            if loss is not None:
                wires.losses[f"s.{place}.{serial:05}".encode()] = loss


async def _count(clients: list[Client], steps: int, acknowledged: set[str], verdict: ChaosVerdict) -> None:
    try:
        await keep_counting(clients, "s", acknowledged.add, steps=steps)
    except BaseExceptionGroup as failures:
        verdict.blame(f"a client gave up: {failures.exceptions[0]!r}")


class Naive:
    """A client that repeats a step until there is a response."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._key = Key("counter", name)

    async def step(self, intent: str) -> None:
        """Load, add, commit; repeat if there is no response."""
        while True:
            try:
                [record] = await self._store.load([self._key])
                await self._store.commit([one_more(self._key, record, "e", intent)])
            except StoreUnavailable:
                continue
            return
