"""kill -9 of the database server and all its processes under load, and a restart, again and again.

Shows: the clients need no help. Those with a commit on its way find out its outcome, the others wait, and
when the server is back every acknowledged step is stored, once.

Broken mode: the server is configured to acknowledge before writing. PostgreSQL runs with
`synchronous_commit=off` and loses commits that its log writer has not flushed; the log writer is stopped so
that this is more than the last few. Redis runs without an append-only file and loses everything.

Killing processes does not lose data that the kernel has, so `fsync` is irrelevant here; `power_loss` tests
that.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal

from interlock.store.contract import Store
from interlock.testing.servers import PostgresServer, RedisServer
from interlock_verification.chaos.counters import (
    Client,
    audited,
    clients_of,
    examine,
    keep_counting,
    retry_until_available,
)
from interlock_verification.chaos.databases import POSTGRES, REDIS, opened, server_for
from interlock_verification.chaos.verdict import ChaosVerdict, Setup, judging

NAME = "kill_server"
STORES = (POSTGRES, REDIS)
SHORT, LONG = 4, 100

CLIENTS = 8
MOST_BETWEEN = 150
"""Maximum acknowledgements between a restart and the next kill."""
GIVE_UP_S = 300.0


def run(setup: Setup) -> ChaosVerdict:
    """Kill the server in every round."""
    with judging(NAME, setup) as verdict, server_for(setup.store, forgetful=setup.broken) as server:
        asyncio.run(_run(server, verdict))
    verdict.remarks.append(f"{verdict.rate('kills'):,.0f} kills a minute")
    return verdict


async def _run(server: PostgresServer | RedisServer, verdict: ChaosVerdict) -> None:
    dice = random.Random(verdict.setup.seed)
    seen = SeenIntents()
    async with opened(server.url, timeout_s=30.0) as store:
        for number in range(verdict.setup.rounds):
            try:
                async with asyncio.timeout(GIVE_UP_S):
                    await _one_round(server, store, f"r{number}", seen, dice, verdict.setup.broken)
            except TimeoutError:
                verdict.blame(f"the clients have not come back {GIVE_UP_S:g} s after kill {number + 1}")
            except BaseExceptionGroup as failures:
                verdict.blame(f"a client gave up after kill {number + 1}: {failures.exceptions[0]!r}")
            verdict.add(kills=1)
            if verdict.broken_promises:
                break
        found = await retry_until_available(lambda: examine(store, seen.intents))
        verdict.broken_promises += found.sentences() + await audited(store)
    verdict.add(
        acknowledged=found.acknowledged,
        applied=found.applied,
        lost=len(found.lost),
        doubled=len(found.doubled),
    )


class SeenIntents:
    """The acknowledged intents, and a way to wait for more of them."""

    def __init__(self) -> None:
        self.intents: set[str] = set()
        self._wanted = 0
        self._enough = asyncio.Event()

    def __call__(self, intent: str) -> None:
        self.intents.add(intent)
        if len(self.intents) >= self._wanted:
            self._enough.set()

    async def more(self, number: int) -> None:
        """Wait for this many more acknowledgements."""
        self._wanted = len(self.intents) + number
        self._enough.clear()
        await self._enough.wait()


async def _one_round(
    server: PostgresServer | RedisServer,
    store: Store,
    name: str,
    seen: SeenIntents,
    dice: random.Random,
    forgetful: bool,
) -> None:
    """Count, kill, restart, and check that all clients continue."""
    if forgetful:
        _stop_log_writer(server)
    clients: list[Client] = clients_of(store, name, number=CLIENTS)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(keep_counting(clients, name, seen, until=stop))
        await seen.more(dice.randint(1, MOST_BETWEEN))
        await asyncio.sleep(dice.random() * 0.003)  # the random delay
        await asyncio.to_thread(_kill_and_start, server)
        await seen.more(CLIENTS)
        stop.set()


def _kill_and_start(server: PostgresServer | RedisServer) -> None:
    """Kill and start in one thread.

    A cancellation in between must not leave the server dead.
    """
    server.kill()
    server.start()


def _stop_log_writer(server: PostgresServer | RedisServer) -> None:
    """Stop the log writer, which would flush most commits.

    It is killed with the server.
    """
    if isinstance(server, PostgresServer):
        server.sql("CHECKPOINT")  # data from before this round must survive
        [[pid]] = server.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")
        os.kill(int(pid or 0), signal.SIGSTOP)
