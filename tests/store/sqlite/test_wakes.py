"""Being woken."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PATIENCE_S, until, until_so

from interlock.errors import StoreUnavailable
from interlock.store.sqlite import SqliteStore
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import creation, made


async def test_a_subscriber_that_raises_does_not_prevent_notification_of_other_subscribers(
    store: SqliteStore,
) -> None:
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def fall_over() -> None:
        raise RuntimeError("asleep for good")

    def wake_up() -> None:
        loop.call_soon_threadsafe(woken.set)

    store.subscribe(fall_over)
    store.subscribe(wake_up)
    await made(store, creation("a"))
    await asyncio.wait_for(woken.wait(), PATIENCE_S)


async def test_every_commit_of_another_connection_wakes(store: SqliteStore, path: Path) -> None:
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake_up() -> None:
        loop.call_soon_threadsafe(woken.set)

    stop = store.subscribe(wake_up)
    other = SqliteStore(str(path), CATALOGUE)
    await other.open()
    for n in range(3):
        await asyncio.wait_for(woken.wait(), PATIENCE_S)
        woken.clear()
        await made(other, creation(f"p{n}"))
    await asyncio.wait_for(woken.wait(), PATIENCE_S)
    stop()
    await other.close()


async def test_a_commit_of_its_own_notifies_a_subscriber_once(store: SqliteStore) -> None:
    wakes: list[str] = []
    store.subscribe(lambda: wakes.append("woken"))
    await until(lambda: bool(wakes), "the subscription notified")
    for n in range(3):
        await store.now()  # the reader has ended its look
        wakes.clear()
        await made(store, creation(f"p{n}"))
        reader, notified_us = store._reader, store._subscribers.notified_us
        await until(lambda: bool(wakes) and reader._latest_us == notified_us, "both have ended")  # noqa: B023
        await store.now()
        assert wakes == ["woken"]


class _Connection:
    """The connection of a writer, whose commits do something more before they return."""

    def __init__(self, connection: sqlite3.Connection, after_commit: Any) -> None:
        self._connection = connection
        self._after_commit = after_commit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any) -> Any:
        result = self._connection.execute(statement, *values)
        if statement == "COMMIT":
            self._after_commit()
        return result


async def test_a_commit_that_the_reader_sees_before_its_writer_notifies_a_subscriber_once(
    store: SqliteStore,
) -> None:
    wakes: list[str] = []
    store.subscribe(lambda: wakes.append("woken"))
    await until(lambda: bool(wakes), "the subscription notified")
    reader, writer = store._reader, store._writer
    before_us = reader._latest_us

    def be_seen() -> None:
        until_so(lambda: reader._latest_us > before_us, "the reader saw the commit")

    writer._connection = _Connection(writer._connection, be_seen)  # type: ignore[assignment]
    await store.now()
    wakes.clear()
    await made(store, creation("a"))
    await until(lambda: bool(wakes), "the commit notified")
    await store.now()
    assert wakes == ["woken"]


async def test_a_commit_whose_outcome_is_unknown_notifies_the_subscribers(store: SqliteStore) -> None:
    wakes: list[str] = []
    store.subscribe(lambda: wakes.append("woken"))
    await until(lambda: bool(wakes), "the subscription notified")
    reader, writer = store._reader, store._writer
    before_us = reader._latest_us

    def be_seen_and_fail() -> None:
        until_so(lambda: reader._latest_us > before_us, "the reader saw the commit")
        raise sqlite3.OperationalError("disk I/O error")

    connection = writer._connection
    writer._connection = _Connection(connection, be_seen_and_fail)  # type: ignore[assignment]
    await store.now()
    wakes.clear()
    with pytest.raises(StoreUnavailable):
        await made(store, creation("a"))
    await until(lambda: bool(wakes), "the commit notified")
    writer._connection = connection
    await store.now()
    wakes.clear()
    await made(store, creation("b"))
    await until(lambda: bool(wakes), "the next commit notified")
