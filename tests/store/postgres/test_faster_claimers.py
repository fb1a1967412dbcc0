"""Who claims alone holds nothing while it decides: others may have had everything by the time it writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from threading import Thread

from tests.waiting import PATIENCE_S

from interlock.store.postgres import PostgresStore
from interlock.store.records import Commit, Record
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import Sender, claimed, take, waiting

OpenStore = Callable[..., Awaitable[PostgresStore]]


async def test_a_decider_is_called_again_without_records_when_another_claimer_took_them_all(
    url: str, open_store: OpenStore
) -> None:
    """It once kept what it had decided about records that others had been given."""
    store = await open_store(url)
    await waiting(store, "a", "b")
    taken: list[str] = []

    async def take_all() -> None:
        other = PostgresStore(url, CATALOGUE)
        await other.open()
        taken.extend(await claimed(other, take(10)))
        await other.close()

    sender = Sender()

    def outrun(records: Sequence[Record], now: datetime) -> list[Commit]:
        if not taken:
            faster = Thread(target=lambda: asyncio.run(take_all()))
            faster.start()
            faster.join(PATIENCE_S)
        return sender(records, now)

    assert await store.claim(take(10), outrun) == []
    assert taken == ["a", "b"]
    assert [len(call) for call in sender.calls] == [2, 0]
