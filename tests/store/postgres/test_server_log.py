"""Conflicts between writers are ordinary: they leave no ERROR in the server's log, which operators watch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from threading import Thread

import pytest
from tests.store.postgres.conftest import OpenStore
from tests.waiting import until

from interlock.store.postgres import PostgresStore
from interlock.store.records import Commit, Committed, Conflict, Illegal, Record, Repeated, TooLate
from interlock.testing.servers import PostgresServer, ReplyError, postgres_server
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import (
    PACKED,
    Sender,
    claimed,
    creation,
    each,
    made,
    move,
    request,
    take,
    waiting,
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that writes its log into a file."""
    settings = {"logging_collector": "on", "log_filename": "log.txt"}
    with postgres_server(durable=False, settings=settings) as server:
        yield server


def read(server: PostgresServer) -> str:
    return (server.data / "log" / "log.txt").read_text(errors="replace")


async def errors_since(server: PostgresServer, start: int) -> list[str]:
    """Return the errors in the log up to a mistake that is made on purpose, so that none is still to come."""
    with pytest.raises(ReplyError, match="made_on_purpose"):
        server.sql("SELECT made_on_purpose")
    await until(lambda: "made_on_purpose" in read(server)[start:], "the log to be written")
    until_then = read(server)[start:].partition("made_on_purpose")[0]
    return [line for line in until_then.splitlines() if "ERROR" in line][:-1]


async def test_conflicts_repeats_and_late_commits_leave_no_error_in_the_log(
    server: PostgresServer, url: str, open_store: OpenStore
) -> None:
    start = len(read(server))
    store = await open_store(url)
    one, two = await made(store, creation("one"), creation("two"))
    stale = [Commit(changes=(move(one),)), Commit(changes=(move(two),))]
    assert [type(outcome) for outcome in await store.commit(stale)] == [Committed, Committed]
    assert [type(outcome) for outcome in await store.commit(stale)] == [Conflict, Conflict]
    assert [type(o) for o in await store.commit(each(creation("one"), creation("new")))] == [
        Conflict,
        Committed,
    ]
    once = Commit(changes=(creation("three"),), request=request("r1"))
    assert [type(outcome) for outcome in await store.commit([once])] == [Committed]
    assert [type(outcome) for outcome in await store.commit([once])] == [Repeated]
    late = Commit(changes=(creation("four"),), not_after=await store.now() - timedelta(seconds=1))
    assert [type(outcome) for outcome in await store.commit([late])] == [TooLate]
    [three] = [record for record in await store.load([once.changes[0].key]) if record]
    [sent] = await made(store, move(three))
    back = Commit(changes=(move(sent, PACKED),))
    assert [type(outcome) for outcome in await store.commit([back])] == [Illegal]
    assert await errors_since(server, start) == []


async def test_a_claimer_that_another_one_was_faster_than_leaves_no_error_in_the_log(
    server: PostgresServer, url: str, open_store: OpenStore
) -> None:
    start = len(read(server))
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
            faster.join()
        return sender(records, now)

    assert await store.claim(take(10), outrun) == []
    assert taken == ["a", "b"]
    assert await errors_since(server, start) == []
