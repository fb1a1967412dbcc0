"""Two who lock the same records in opposite orders: the server ends one, and it is done again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from threading import Thread
from typing import Any

import pytest

from interlock.store.postgres import PostgresStore
from interlock.store.records import Commit, Committed, Conflict, Record
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.making import (
    SENDING,
    Sender,
    creation,
    each,
    kinds_of,
    made,
    move,
    see,
    take,
    waiting,
)

OpenStore = Callable[..., Awaitable[PostgresStore]]
ENOUGH_S = 60.0
WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


def in_company(store: PostgresStore) -> None:
    """Let it believe that it has met another claimer, so that it holds what it takes."""
    store._claiming._company.met()


async def test_a_claim_that_met_another_one_is_made_again_and_nothing_is_given_twice(
    url: str, open_store: OpenStore
) -> None:
    """Who is alone holds nothing while it decides; here somebody else claims just then."""
    one, two = await open_store(url), await open_store(url)
    await waiting(one, "a", "b", "c")
    other = Sender()
    given: list[list[str]] = []

    def claim_first(records: Sequence[Record], now: datetime) -> list[Commit]:
        if not given:
            in_a_thread = Thread(target=lambda: asyncio.run(_claim(url, other)))
            in_a_thread.start()
            in_a_thread.join()
        given.append([record.id for record in records])
        return each(*(move(record, "sent", ready_at=None, note=SENDING) for record in records))

    outcomes = await two.claim(take(2), claim_first)
    assert kinds_of(outcomes) == [Committed]
    assert other.names == ["a", "b"]
    assert given == [["a", "b"], ["c"]]
    assert [(await see(one, name)).version for name in "abc"] == [2, 2, 2]


async def _claim(url: str, sender: Sender) -> None:
    store = PostgresStore(url, CATALOGUE)
    await store.open()
    try:
        assert kinds_of(await store.claim(take(2), sender)) == [Committed, Committed]
    finally:
        await store.close()


async def test_a_claim_that_is_ended_because_of_a_deadlock_is_made_again(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    # The server asks once whether a wait is a circle, and ends who asks: on a busy machine it must not ask
    # before the circle is closed, nor ask us.
    name = await shell.fetchval("SELECT current_database()")
    await shell.execute(f"ALTER DATABASE {name} SET deadlock_timeout = '4s'; SET deadlock_timeout = '1min'")
    store = await open_store(url)
    [letter] = await made(store, creation("a", "written", kind="letter"))
    await waiting(store, "b")
    calls: list[int] = []

    def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
        calls.append(len(records))
        parcels = [move(record, "sent", ready_at=None, note=SENDING) for record in records]
        return [Commit(changes=(*parcels, move(letter, "posted")))]

    in_company(store)
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
        while not (outcomes := await claiming):
            # It was quicker than the shell, which still held the parcel: then there was nothing to take.
            claiming = asyncio.create_task(store.claim(take(), decide))
    assert kinds_of(outcomes) == [Committed]
    assert [number for number in calls if number] == [1, 1], "It was decided again, on what was taken again."
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
