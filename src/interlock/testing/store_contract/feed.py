"""The journal is one stream: everybody reads the same order, and can go on where they were."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from interlock.errors import InvalidRecord
from interlock.store.contract import Store
from interlock.store.records import Commit, Entry, Key
from interlock.testing.store_contract.builders import (
    PACKING,
    PATIENCE_S,
    SENDING,
    claimed,
    creation,
    each,
    ids_of,
    made,
    move,
    refusal,
    take,
    waiting,
    whole_feed,
)
from interlock.testing.store_contract.catalogue import DELIVERED, SENT
from interlock.testing.store_contract.opener import StoreOpener


async def test_an_empty_journal_is_an_empty_feed(store: Store) -> None:
    feed = await store.feed()
    assert (feed.entries, feed.gap) == ((), False)
    again = await store.feed(feed.cursor)
    assert (again.entries, again.gap) == ((), False)


async def test_the_feed_has_the_order_of_the_commits(store: Store) -> None:
    names = [f"p{number}" for number in (3, 1, 2, 9, 5)]
    for name in names:
        await made(store, creation(name, note=PACKING))
    assert ids_of(await store.feed()) == names


async def test_within_a_commit_changes_come_in_order_and_then_refusals(store: Store) -> None:
    changes = tuple(creation(name, note=PACKING) for name in "zay")
    await store.commit([Commit(changes=changes, refusals=(refusal("q"), refusal("b")))])
    assert ids_of(await store.feed()) == ["z", "a", "y", "q", "b"]


async def test_the_feed_can_be_read_page_by_page(store: Store) -> None:
    names = [f"p{number:02}" for number in range(25)]
    await store.commit(each(*(creation(name, note=PACKING) for name in names)))
    first = await store.feed(limit=10)
    assert ids_of(first) == names[:10]
    assert ids_of(await store.feed(first.cursor, limit=10)) == names[10:20]
    for page in (1, 7, 24, 25, 26):
        assert ids_of(await whole_feed(store, limit=page)) == names


async def test_the_feed_goes_on_after_any_entry(store: Store) -> None:
    names = [f"p{number}" for number in range(12)]
    await store.commit([Commit(changes=tuple(creation(name, note=PACKING) for name in names))])
    entries = await whole_feed(store)
    assert len({entry.cursor for entry in entries}) == 12
    for place, entry in enumerate(entries):
        assert await whole_feed(store, entry.cursor) == entries[place + 1 :]


async def test_the_same_entries_are_read_from_every_store(store: Store, opener: StoreOpener) -> None:
    other = await opener.open()
    await made(store, creation("a", note=PACKING))
    await made(other, creation("b", note=SENDING))
    assert await whole_feed(store) == await whole_feed(other)
    assert ids_of(await whole_feed(store)) == ["a", "b"]


async def test_after_the_latest_cursor_comes_only_what_is_new(store: Store) -> None:
    assert await whole_feed(store, await store.latest()) == []
    await made(store, creation("a", note=PACKING))
    cursor = await store.latest()
    feed = await store.feed(cursor)
    assert (feed.entries, feed.gap) == ((), False)
    await made(store, creation("b", note=PACKING), creation("c", note=PACKING))
    assert ids_of(await store.feed(cursor)) == ["b", "c"]
    assert ids_of(await store.feed(feed.cursor)) == ["b", "c"], "A reader at the end waits there."


async def test_what_was_decided_in_a_claim_is_in_the_feed(store: Store) -> None:
    await waiting(store, "a", "b")
    await claimed(store, take(5))
    assert [(entry.id, entry.version, entry.note) for entry in await whole_feed(store)] == [
        ("a", 2, SENDING),
        ("b", 2, SENDING),
    ]


@pytest.mark.parametrize("cursor", ["nonsense", "1.5.x", "🙂", "0 OR 1=1", "-", "\x00", "9" * 30])
async def test_a_cursor_that_nobody_gave_out_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(InvalidRecord, match="cursor"):
        await store.feed(cursor)


async def test_the_history_is_the_journal_of_one_record(store: Store) -> None:
    [a, _] = await made(store, creation("a", note=PACKING), creation("b", note=PACKING))
    [a] = await made(store, move(a, SENT, note=SENDING))
    await store.commit([Commit(refusals=(refusal("a", "late"), refusal("b", "late")))])
    [a] = await made(store, move(a, SENT))
    await made(store, move(a, DELIVERED, note=SENDING))
    feed = await store.history(a.key)
    assert [(entry.version, entry.note.refusal) for entry in feed.entries] == [
        (1, ""),
        (2, ""),
        (2, "late"),
        (4, ""),
    ]
    assert set(ids_of(feed)) == {"a"}
    whole: dict[str, Entry] = {entry.cursor: entry for entry in await whole_feed(store)}
    assert [whole[entry.cursor] for entry in feed.entries] == list(feed.entries)


async def test_the_history_can_be_read_in_parts(store: Store) -> None:
    [record] = await made(store, creation("a", note=PACKING))
    for _ in range(5):
        [record] = await made(store, move(record, note=SENDING))
    key = record.key
    assert [entry.version for entry in (await store.history(key, limit=2)).entries] == [1, 2]
    after = await store.history(key, after_version=2, limit=3)
    assert [entry.version for entry in after.entries] == [3, 4, 5]
    assert (await store.history(key, after_version=6)).entries == ()


async def test_what_never_was_has_no_history(store: Store) -> None:
    assert (await store.history(Key("parcel", "nobody"))).entries == ()


async def test_a_reader_among_concurrent_writers_sees_every_entry_once(
    store: Store, opener: StoreOpener
) -> None:
    writers = [await opener.open() for _ in range(4)]
    reader = await opener.open()
    total = 4 * 40

    async def write(number: int) -> None:
        for turn in range(40):
            changes = tuple(creation(f"w{number}-{turn:02}-{part}", note=PACKING) for part in range(2))
            await writers[number].commit([Commit(changes=changes)])

    async def read() -> list[Entry]:
        entries: list[Entry] = []
        cursor = ""
        while len(entries) < 2 * total:
            page = await reader.feed(cursor, limit=17)
            assert not page.gap
            entries += page.entries
            cursor = page.cursor
            await asyncio.sleep(0)  # a store in memory answers without ever letting go of the loop
        return entries

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        for number in range(4):
            group.create_task(write(number))
    entries = reading.result()
    assert len({entry.id for entry in entries}) == 2 * total
    assert entries == await whole_feed(store), "Nothing came later before what had been read."
    for number in range(4):
        mine = [entry.id for entry in entries if entry.id.startswith(f"w{number}-")]
        assert mine == sorted(mine)


async def test_a_subscriber_is_woken_by_a_commit(store: Store) -> None:
    with _woken(store) as woken:
        await made(store, creation("a", note=PACKING))
        async with asyncio.timeout(PATIENCE_S):
            await woken.wait()


async def test_a_subscriber_is_woken_by_what_others_commit(store: Store, opener: StoreOpener) -> None:
    other = await opener.open()
    with _woken(store) as woken:
        await made(other, creation("a", note=PACKING))
        async with asyncio.timeout(PATIENCE_S):
            await woken.wait()
        woken.clear()
        await waiting(other, "b")
        async with asyncio.timeout(PATIENCE_S):
            await woken.wait()


async def test_a_subscriber_may_stop_while_others_go_on(store: Store) -> None:
    calls: list[str] = []
    stop = store.subscribe(lambda: calls.append("stopped"))
    with _woken(store) as woken:
        stop()
        stop()
        await made(store, creation("a", note=PACKING))
        async with asyncio.timeout(PATIENCE_S):
            await woken.wait()
    assert calls == []


@contextmanager
def _woken(store: Store) -> Iterator[asyncio.Event]:
    """An event that is set when the store calls, from whatever thread."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(event.set)

    stop = store.subscribe(wake)
    try:
        yield event
    finally:
        stop()
