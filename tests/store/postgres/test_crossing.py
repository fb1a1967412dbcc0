"""Two who lock the same records in opposite orders: the server ends one, and it is done again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from itertools import count
from threading import Thread
from typing import Any

import asyncpg
import pytest
from tests.waiting import PATIENCE_S, PROGRAM_S

from interlock.store.postgres import PostgresStore
from interlock.store.records import Commit, Committed, Conflict, Record
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import (
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
WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


def in_company(store: PostgresStore) -> None:
    """Let it believe that it has met another claimer, so that it holds what it takes."""
    store._claiming._other_claimers.met()


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
    # The server looks once whether a wait is part of a circle, some time after it began, and ends the client
    # that has waited so long. If the circle was closed later than that, the shell is ended instead; then
    # nothing was shown about the claim, and it is tried with other records.
    name = await shell.fetchval("SELECT current_database()")
    await shell.execute(f"ALTER DATABASE {name} SET deadlock_timeout = '1s'; SET deadlock_timeout = '12s'")
    store = await open_store(url)
    tries = count()
    async with asyncio.timeout(PROGRAM_S):
        while not (calls := await meet_in_a_circle(store, shell, next(tries))):
            pass
    assert calls == [1, 1], "It was decided again, on what was taken again."


async def meet_in_a_circle(store: PostgresStore, shell: Any, number: int) -> list[int]:
    """Return how many records each decision was about; none when the shell was the one that was ended.

    The claimer holds the parcel and wants the letter; the shell holds the letter and wants the parcel.
    """
    parcel, letter_id = f"b{number}", f"a{number}"
    [letter] = await made(store, creation(letter_id, "written", kind="letter"))
    await waiting(store, parcel)
    calls: list[int] = []

    def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
        calls.append(len(records))
        parcels = [move(record, "sent", ready_at=None, note=SENDING) for record in records]
        return [Commit(changes=(*parcels, move(letter, "posted")))]

    in_company(store)
    transaction = shell.transaction()
    await transaction.start()
    await shell.fetch("SELECT FROM interlock.live WHERE id = $1 FOR UPDATE", letter_id)
    claiming = asyncio.create_task(store.claim(take(), decide))
    while not await shell.fetchval(WAITING):
        await shell.execute("SELECT pg_stat_clear_snapshot()")
    try:
        await shell.fetch("SELECT FROM interlock.live WHERE id = $1 FOR UPDATE", parcel)
    except asyncpg.DeadlockDetectedError:
        await transaction.rollback()
        assert kinds_of(await claiming) == [Committed]
        return []
    await transaction.rollback()
    while not (outcomes := await claiming):
        # It was quicker than the shell, which still held the parcel: then there was nothing to take.
        claiming = asyncio.create_task(store.claim(take(), decide))
    assert kinds_of(outcomes) == [Committed]
    assert (await see(store, parcel)).state == "sent"
    assert (await see(store, letter_id, "letter")).state == "posted"
    return [number for number in calls if number]


@pytest.mark.parametrize("rounds", [20])
async def test_commits_that_touch_the_same_records_in_opposite_orders_do_not_wait_for_each_other(
    url: str, open_store: OpenStore, rounds: int
) -> None:
    """Locks are taken in the order of keys, whatever the order of the changes."""
    one, two = await open_store(url), await open_store(url)
    for number in range(rounds):
        there, back = creation(f"{number}.a"), creation(f"{number}.b")
        async with asyncio.timeout(PATIENCE_S):
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
