"""Two who lock the same records in opposite orders: the server ends one, and it is done again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

import pytest

from interlock.store.postgres import PostgresStore
from interlock.store.records import Commit, Committed, Conflict, Record
from interlock.testing.store_contract.making import (
    SENDING,
    creation,
    kinds_of,
    made,
    move,
    see,
    take,
    waiting,
)

OpenStore = Callable[..., Awaitable[PostgresStore]]
ENOUGH_S = 30.0
WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


async def test_a_claim_that_is_ended_because_of_a_deadlock_is_made_again(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    store = await open_store(url)
    [letter] = await made(store, creation("a", "written", kind="letter"))
    await waiting(store, "b")
    calls: list[int] = []

    def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
        calls.append(len(records))
        parcels = [move(record, "sent", ready_at=None, note=SENDING) for record in records]
        return [Commit(changes=(*parcels, move(letter, "posted")))]

    # The claimer holds the parcel and wants the letter; the shell holds the letter and wants the parcel.
    transaction = shell.transaction()
    await transaction.start()
    await shell.fetch("SELECT FROM interlock.record WHERE id = 'a' FOR UPDATE")
    claiming = asyncio.create_task(store.claim(take(), decide))
    async with asyncio.timeout(ENOUGH_S):
        while not await shell.fetchval(WAITING):
            await shell.execute("SELECT pg_stat_clear_snapshot()")
        await shell.fetch("SELECT FROM interlock.record WHERE id = 'b' FOR UPDATE")
        await transaction.rollback()
        assert kinds_of(await claiming) == [Committed]
    assert calls == [1, 1], "It was decided again, on what was taken again."
    assert (await see(store, "b")).state == "sent"
    assert (await see(store, "a", "letter")).state == "posted"


@pytest.mark.parametrize("rounds", [20])
async def test_commits_that_touch_the_same_records_in_opposite_orders_do_not_wait_for_each_other(
    url: str, open_store: OpenStore, rounds: int
) -> None:
    """Locks are taken in the order of keys, whatever the order of the changes."""
    one, two = await open_store(url), await open_store(url)
    for number in range(rounds):
        there, back = creation(f"{number}.a"), creation(f"{number}.b")
        async with asyncio.timeout(ENOUGH_S):
            outcomes = await asyncio.gather(
                one.commit([Commit(changes=(there, back))]), two.commit([Commit(changes=(back, there))])
            )
        assert sorted(type(outcome).__name__ for [outcome] in outcomes) == ["Committed", "Conflict"]


@pytest.mark.parametrize("options", ["", "&listen=off&prepared=off"])
async def test_a_conflict_costs_no_connection(
    url: str, open_store: OpenStore, shell: Any, options: str
) -> None:
    """The first attempt is refused by the server, which undoes it; the second is judged."""
    store = await open_store(f"{url}{options}")
    [record] = await made(store, creation("a"))
    connected = (
        "SELECT pid FROM pg_stat_activity "
        "WHERE application_name = 'interlock' AND datname = current_database()"
    )
    before = {row["pid"] for row in await shell.fetch(connected)}
    outcomes = await store.commit([Commit(changes=(move(record),)), Commit(changes=(creation("a"),))])
    assert kinds_of(outcomes) == [Committed, Conflict]
    assert before <= {row["pid"] for row in await shell.fetch(connected)}
