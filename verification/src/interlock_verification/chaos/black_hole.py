"""No response at all: the connection accepts everything and returns nothing.

Shows: opening, reading and committing raise `StoreUnavailable` after the store's `timeout_s`, also on
connections that worked a moment ago; when the connection works again, so does the store, and an uncertain
commit is done once. On SQLite the fault is another program that holds the write lock forever.

Broken mode: a store whose deadline is far away, as for a driver without one.

The duration of a call is reported as a multiple of `timeout_s`. On a busy machine that means little, so a
guarantee counts as broken only if the call did not return within a minute; in broken mode, where it returns
after minutes at the earliest, within ten times as long.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from functools import partial
from pathlib import Path

from interlock.errors import StoreUnavailable
from interlock.store.contract import Store
from interlock.store.records import Commit, Key
from interlock.store.urls import store_for
from interlock.testing.proxy import wires_to
from interlock_verification.chaos.counters import (
    CATALOGUE,
    audited,
    clients_of,
    examine,
    keep_counting,
    one_more,
    retry_until_available,
)
from interlock_verification.chaos.databases import ALL_STORES, SQLITE, opened, server_for
from interlock_verification.chaos.verdict import ChaosVerdict, Setup, judging

NAME = "black_hole"
STORES = ALL_STORES
SHORT, LONG = 2, 100

TIMEOUT_S = 0.4
LIMIT_S, LIMIT_BROKEN_S = 60.0, 10 * TIMEOUT_S
_KEY = Key("counter", "hole")

Hole = Callable[[], AbstractAsyncContextManager[None]]
"""A context in which the store does not respond."""


def run(setup: Setup) -> ChaosVerdict:
    """Run the rounds: each works, fails and works again."""
    with judging(NAME, setup) as verdict:
        if setup.store == SQLITE:
            asyncio.run(_on_sqlite(verdict))
        else:
            with server_for(setup.store) as server:
                asyncio.run(_on_server(server.url, server.address, verdict))
    worst = verdict.counts.pop("worst_percent")
    verdict.remarks.append(f"a caller waited at most {worst / 100:.2f} times its deadline of {TIMEOUT_S:g} s")
    return verdict


async def _on_server(url: str, address: Path | tuple[str, int], verdict: ChaosVerdict) -> None:
    async with wires_to(address) as wires:

        @asynccontextmanager
        async def hole() -> AsyncIterator[None]:
            wires.swallowing = True
            yield
            wires.swallowing = False
            await wires.cut_all()  # calls that wait on these connections will never end

        await _run(wires.url(url), hole, verdict, reading=True)


async def _on_sqlite(verdict: ChaosVerdict) -> None:
    with tempfile.TemporaryDirectory(prefix="interlock-chaos-") as folder:
        path = Path(folder) / "chaos.db"

        @asynccontextmanager
        async def hole() -> AsyncIterator[None]:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                yield

        # Readers are not blocked by a writer, so there is no fault to see.
        await _run(f"sqlite:///{path}", hole, verdict, reading=False)


async def _run(url: str, hole: Hole, verdict: ChaosVerdict, *, reading: bool) -> None:
    timeout_s = TIMEOUT_S * (1_000 if verdict.setup.broken else 1)
    acknowledged: set[str] = set()
    async with opened(url):
        pass  # the schema is created without faults
    verdict.add(worst_percent=0)
    async with opened(url, timeout_s=timeout_s) as store:
        for number in range(verdict.setup.rounds):
            await keep_counting(clients_of(store, "h"), f"a{number}", acknowledged.add, steps=1)
            calls: dict[str, Callable[[], Awaitable[object]]] = {
                "committing": partial(store.commit, [_doubtful(number)]),
                "reading": partial(store.load, [_KEY]),
                "opening": partial(_open, url, timeout_s),
            }
            async with hole():
                for what, call in calls.items():
                    if (reading or what != "reading") and not verdict.broken_promises:
                        await _expect_silence(what, call, verdict)
            if verdict.broken_promises:
                return
            await keep_counting(clients_of(store, "h"), f"b{number}", acknowledged.add, steps=1)
            await retry_until_available(partial(store.commit, [_doubtful(number)]))
            acknowledged.add(f"doubt{number}")
    async with opened(url) as store:
        found = await examine(store, acknowledged)
        verdict.broken_promises += found.sentences() + await audited(store)
    verdict.add(acknowledged=found.acknowledged, lost=len(found.lost), doubled=len(found.doubled))


def _doubtful(number: int) -> Commit:
    """Return a commit that is sent during the fault, and again afterwards.

    Both have the same request id.
    """
    return one_more(Key("counter", f"doubt{number}"), None, "h", f"doubt{number}", named=True)


async def _open(url: str, timeout_s: float) -> None:
    store: Store = store_for(url, CATALOGUE, timeout_s=timeout_s)
    try:
        await store.open()
    finally:
        await store.close()


async def _expect_silence(what: str, call: Callable[[], Awaitable[object]], verdict: ChaosVerdict) -> None:
    """Check that the call ends with `StoreUnavailable`."""
    verdict.add(calls=1)
    began = time.monotonic()
    limit_s = LIMIT_BROKEN_S if verdict.setup.broken else LIMIT_S
    try:
        async with asyncio.timeout(limit_s):
            answer = await call()
        verdict.blame(f"{what} was answered with {answer!r} although no server was there")
    except StoreUnavailable:
        waited = round(100 * (time.monotonic() - began) / TIMEOUT_S)
        verdict.counts["worst_percent"] = max(verdict.counts["worst_percent"], waited)
    except TimeoutError:
        verdict.blame(f"{what} had not come back after {limit_s:g} s, with a deadline of {TIMEOUT_S:g} s")
