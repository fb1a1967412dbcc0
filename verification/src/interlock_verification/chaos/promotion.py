"""The primary PostgreSQL is killed under load, and its stand-by is promoted.

Shows: clients with both addresses need no help. They find the server that accepts writes, every acknowledged
step is stored once (the stand-by confirms commits before the clients are answered), and the epoch has grown,
so that no fencing token is issued twice.

Broken mode: the primary does not wait for the stand-by, which stopped replicating a while ago. Steps
acknowledged since then are lost, which has to be detected. That is what asynchronous replication means; the
epoch grows all the same.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from interlock.testing.servers import PostgresServer, ServerFailed, running
from interlock_verification.chaos.counters import (
    audited,
    clients_of,
    examine,
    keep_counting,
    retry_until_available,
)
from interlock_verification.chaos.databases import POSTGRES, opened
from interlock_verification.chaos.kill_server import SeenIntents
from interlock_verification.chaos.verdict import ChaosVerdict, Setup, judging

NAME = "promotion"
STORES = (POSTGRES,)
SHORT, LONG = 1, 10

CLIENTS = 8
ACKNOWLEDGED = 60
GIVE_UP_S = 300.0


def run(setup: Setup) -> ChaosVerdict:
    """Promote a stand-by in every round, each with a new pair."""
    with judging(NAME, setup) as verdict:
        dice = random.Random(setup.seed)
        for number in range(setup.rounds):
            with _pair(waits=not setup.broken) as (primary, stand_by):
                asyncio.run(_round(primary, stand_by, verdict, f"r{number}", dice))
            if verdict.broken_promises:
                break
    return verdict


async def _round(
    primary: PostgresServer, stand_by: PostgresServer, verdict: ChaosVerdict, name: str, dice: random.Random
) -> None:
    folders = quote(f"{primary.folder},{stand_by.folder}", safe="")
    url = f"postgresql://postgres@/postgres?host={folders}&port=5432,5432"
    seen, stop = SeenIntents(), asyncio.Event()
    async with opened(url, timeout_s=30.0) as store:
        before = await store.epoch()
        try:
            async with asyncio.timeout(GIVE_UP_S), asyncio.TaskGroup() as group:
                group.create_task(
                    keep_counting(clients_of(store, name, number=CLIENTS), name, seen, until=stop)
                )
                await seen.more(ACKNOWLEDGED)
                if verdict.setup.broken:
                    await asyncio.to_thread(_stop_listening, stand_by)
                await seen.more(dice.randint(1, ACKNOWLEDGED))
                await asyncio.to_thread(primary.kill)
                await asyncio.to_thread(stand_by.sql, "SELECT pg_promote()")
                await seen.more(CLIENTS)
                stop.set()
        except TimeoutError:
            verdict.blame(f"the clients have not found the new primary within {GIVE_UP_S:g} s")
        except BaseExceptionGroup as failures:
            verdict.blame(f"a client gave up: {failures.exceptions[0]!r}")
        after = await retry_until_available(store.epoch)
        if after <= before:
            verdict.blame(f"the epoch was {before}, and is {after} after a promotion")
        found = await retry_until_available(lambda: examine(store, seen.intents))
        verdict.broken_promises += found.sentences() + await audited(store)
    verdict.add(
        promotions=1,
        acknowledged=found.acknowledged,
        applied=found.applied,
        lost=len(found.lost),
        doubled=len(found.doubled),
    )


@contextmanager
def _pair(*, waits: bool) -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """Yield a primary and its stand-by.

    With `waits`, a commit is acknowledged once the stand-by has it.
    """
    primary, stand_by = (PostgresServer(durable=True, tcp=False, settings={}) for _ in range(2))
    # Both begin as copies of the same empty cluster, so that replication can start there.
    (stand_by.data / "standby.signal").touch()
    with (stand_by.data / "postgresql.auto.conf").open("a") as settings:
        settings.write(f"primary_conninfo = 'host={primary.folder} user=postgres'\n")
    with running(primary), running(stand_by):
        _wait_for(primary, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", "1")
        if waits:
            primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
            primary.sql("SELECT pg_reload_conf()")
            _wait_for(primary, "SELECT sync_state FROM pg_stat_replication", "sync")
        yield primary, stand_by


def _stop_listening(stand_by: PostgresServer) -> None:
    stand_by.sql("ALTER SYSTEM SET primary_conninfo = ''")
    stand_by.sql("SELECT pg_reload_conf()")
    _wait_for(stand_by, "SELECT count(*) FROM pg_stat_wal_receiver", "0")


def _wait_for(server: PostgresServer, question: str, answer: str) -> None:
    deadline = time.monotonic() + GIVE_UP_S
    while server.sql(question) != [[answer]]:
        if time.monotonic() > deadline:
            raise ServerFailed(f"{question} is never {answer}.")
        time.sleep(0.02)
