"""Records are found page by page, and the journal is one stream that every reader sees in the same order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import msgspec
import pytest

from interlock.errors import InvalidRecord, UnknownState
from interlock.store.contract import Store
from interlock.store.records import Commit, Count, Entry, Key, Page, Query
from interlock.testing.store_contract.builders import (
    DELIVERED,
    LONG_AGO,
    LOST,
    PACKED,
    PACKING,
    PATIENCE_S,
    SENDING,
    SENT,
    WRITTEN,
    all_found,
    claimed,
    creation,
    each,
    ids_of,
    look,
    made,
    move,
    refusal,
    see,
    take,
    waiting,
    whole_feed,
)
from interlock.testing.store_contract.suite import StoreOpener

PARCELS = Query(kind="parcel")
OLDEST = Query(kind="parcel", newest_first=False)


async def test_nothing_is_found_where_nothing_is(store: Store) -> None:
    page = await store.find(PARCELS)
    assert (page.records, page.cursor) == ((), "")
    assert await store.count(PARCELS) == Count(0, capped=False)


async def test_a_query_returns_whole_records(store: Store) -> None:
    now = await store.now()
    [record] = await made(
        store,
        creation("a", queue="post", labels=("x",), ready_at=now, deadline_at=now, priority=3),
    )
    assert (await store.find(PARCELS)).records == (record,)


async def test_records_come_newest_or_oldest_first(store: Store, opener: StoreOpener) -> None:
    for name in ("m", "a", "z"):
        await made(store, creation(name))
        await opener.elapse(store, 0.002)
    assert await all_found(store, PARCELS) == ["z", "a", "m"]
    assert await all_found(store, OLDEST) == ["m", "a", "z"]


async def test_a_change_does_not_move_a_record_in_the_list(store: Store, opener: StoreOpener) -> None:
    [a] = await made(store, creation("a"))
    await opener.elapse(store, 0.002)
    await made(store, creation("b"))
    await made(store, move(a, SENT))
    assert await all_found(store, OLDEST) == ["a", "b"]


async def test_of_equal_age_the_id_decides_by_its_code_points(store: Store) -> None:
    names = ["b", "B", "a", "_", "é", "Z", "aa", "-", "ß", "🚚", "10", "9", "a-b", "ab"]
    await store.commit([_one_commit_of(*names)])
    assert await all_found(store, OLDEST) == sorted(names)
    assert await all_found(store, PARCELS) == sorted(names, reverse=True)
    for page in (1, 3):
        assert await all_found(store, OLDEST, page=page) == sorted(names)
        assert await all_found(store, PARCELS, page=page) == sorted(names, reverse=True)


async def test_each_part_of_a_query_filters(store: Store) -> None:
    await made(
        store,
        creation("a", PACKED, parent="one", queue="post", labels=("cold", "heavy")),
        creation("b", SENT, parent="one", queue="rail", labels=("cold",)),
        creation("c", LOST, parent="two", queue="post"),
        creation("d", DELIVERED, labels=("heavy",)),
        creation("e", WRITTEN, kind="letter", parent="one", queue="post", labels=("cold",)),
    )

    async def found(**parts: object) -> str:
        query = Query(kind="parcel", **parts)  # type: ignore[arg-type]
        names = sorted(await all_found(store, query))
        assert await store.count(query) == Count(len(names), capped=False)
        return "".join(names)

    assert await found() == "abcd"
    assert await found(states=("packed",)) == "a"
    assert await found(states=("lost", "sent", "lost")) == "bc"
    assert await found(parent="one") == "ab"
    assert await found(parent="o") == ""
    assert await found(queue="post") == "ac"
    assert await found(labels=("cold",)) == "ab"
    assert await found(labels=("heavy",)) == "ad"
    assert await found(labels=("heavy", "cold")) == "a"
    assert await found(labels=("warm",)) == ""
    assert await found(parent="one", states=("sent", "lost"), queue="rail", labels=("cold",)) == "b"
    assert await all_found(store, Query(kind="letter", parent="one")) == ["e"]


async def test_times_filter_from_the_first_up_to_before_the_last(store: Store, opener: StoreOpener) -> None:
    for name in "abc":
        await made(store, creation(name))
        await opener.elapse(store, 0.002)
    at = {name: (await see(store, name)).created_at for name in "abc"}

    async def found(**parts: object) -> str:
        return "".join(await all_found(store, msgspec.structs.replace(OLDEST, **parts)))

    assert await found(since=at["b"]) == "bc"
    assert await found(until=at["b"]) == "a"
    assert await found(since=at["a"], until=at["c"]) == "ab"
    assert await found(since=at["b"] + timedelta(microseconds=1)) == "c"
    assert await found(until=at["c"] + timedelta(microseconds=1)) == "abc"
    assert await found(since=at["c"] + LONG_AGO) == ""


async def test_a_filter_is_applied_before_paging(store: Store) -> None:
    await made(
        store,
        *(creation(f"p{n:02}", LOST if n % 10 == 0 else PACKED, labels=("x",)) for n in range(60)),
    )
    page = await store.find(Query(kind="parcel", states=("lost",), newest_first=False, limit=4))
    assert len(page.records) == 4
    rest = await store.find(
        Query(kind="parcel", states=("lost",), newest_first=False, limit=4, cursor=page.cursor)
    )
    assert [record.id for record in (*page.records, *rest.records)] == [f"p{n:02}" for n in range(0, 60, 10)]
    assert rest.cursor == ""


@pytest.mark.parametrize("size", [1, 2, 5, 9, 10, 11])
async def test_pages_of_any_size_add_up(store: Store, size: int) -> None:
    names = [f"p{number}" for number in range(10)]
    await store.commit([_one_commit_of(*names)])
    assert await all_found(store, OLDEST, page=size) == names
    assert await all_found(store, PARCELS, page=size) == names[::-1]


async def test_a_full_last_page_has_no_cursor(store: Store) -> None:
    await made(store, *(creation(f"p{number}") for number in range(4)))
    assert (await store.find(msgspec.structs.replace(PARCELS, limit=4))).cursor == ""
    assert (await store.find(msgspec.structs.replace(PARCELS, limit=3))).cursor != ""


@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_stay_right_while_records_are_added_and_changed(
    store: Store, opener: StoreOpener, newest_first: bool
) -> None:
    names = [f"p{number}" for number in range(9)]
    records = await made(store, *(creation(name) for name in names))
    query = Query(kind="parcel", newest_first=newest_first, limit=2)
    seen: list[str] = []
    for turn in range(9):
        page = await store.find(query)
        seen += [record.id for record in page.records]
        if not page.cursor:
            break
        query = msgspec.structs.replace(query, cursor=page.cursor)
        await opener.elapse(store, 0.002)
        await made(store, creation(f"new{turn}"), move(records[turn], SENT))
    old = [name for name in seen if name.startswith("p")]
    assert old == (names[::-1] if newest_first else names)
    assert len(seen) == len(set(seen))


async def test_pages_stay_right_while_records_are_removed(store: Store) -> None:
    names = [f"p{number}" for number in range(8)]
    await made(store, *(creation(name, LOST) for name in names[:4]))
    await made(store, *(creation(name) for name in names[4:]))
    page = await store.find(msgspec.structs.replace(OLDEST, limit=2))
    await store.prune(kind="parcel", states=["lost"], older_than=timedelta(0))
    assert await look(store, page.records[-1].id) is None, "The place of the cursor itself is gone."
    assert await all_found(store, msgspec.structs.replace(OLDEST, cursor=page.cursor)) == names[4:]


async def test_a_record_is_found_by_its_new_state_only(store: Store) -> None:
    [record] = await made(store, creation("a", parent="one", labels=("x",)))
    await made(store, move(record, SENT, parent="two", labels=("y",)))
    for old in (Query(kind="parcel", states=("packed",)), Query(kind="parcel", parent="one")):
        assert await all_found(store, old) == []
    assert await all_found(store, Query(kind="parcel", labels=("x",))) == []
    new = Query(kind="parcel", states=("sent",), parent="two", labels=("y",))
    assert await all_found(store, new) == ["a"]


async def test_counts_are_capped(store: Store) -> None:
    await made(store, *(creation(f"p{number}") for number in range(6)))
    assert await store.count(PARCELS, cap=7) == Count(6, capped=False)
    assert await store.count(PARCELS, cap=6) == Count(6, capped=False)
    assert await store.count(PARCELS, cap=5) == Count(5, capped=True)


async def test_a_count_that_looks_at_so_many_only_never_says_that_there_are_no_more(store: Store) -> None:
    await made(
        store,
        *(
            creation(f"p{number}", queue=f"q{number % 2}", labels=("x",) if number % 3 else ())
            for number in range(12)
        ),
    )
    queue, label = Query(kind="parcel", queue="q1"), Query(kind="parcel", labels=("x",))
    for query in (PARCELS, queue, label, msgspec.structs.replace(queue, labels=("x",), states=("packed",))):
        exact = await store.count(query)
        assert not exact.capped
        assert await store.count(query, within=1_000) == exact
        for within in range(1, 14):
            some = await store.count(query, within=within)
            assert some.number <= exact.number
            assert some.number == exact.number or some.capped


async def test_a_page_that_looks_at_so_many_only_goes_on_by_its_cursor(store: Store) -> None:
    await made(
        store,
        *(
            creation(
                f"p{number}",
                PACKED if number % 4 else SENT,
                parent="one",
                queue=f"q{number % 5}",
                labels=("x",) if number % 3 == 0 else (),
            )
            for number in range(30)
        ),
    )
    queue, label = Query(kind="parcel", queue="q1"), Query(kind="parcel", labels=("x",))
    for query in (
        PARCELS,
        queue,
        label,
        msgspec.structs.replace(queue, labels=("x",), newest_first=False),
        msgspec.structs.replace(label, states=("sent", "lost")),
        msgspec.structs.replace(queue, parent="one", states=("sent",)),
        msgspec.structs.replace(queue, queue="nobody"),
    ):
        exact = await all_found(store, query)
        for within in (1, 2, 7, 29, 30, 31):
            for page in (1, 3, 1_000):
                some = await all_found(store, msgspec.structs.replace(query, within=within), page=page)
                assert some == exact, (query, within, page)


async def test_a_page_that_has_looked_at_everything_has_no_cursor(store: Store) -> None:
    await made(store, *(creation(f"p{number}", queue=f"q{number % 2}") for number in range(6)))
    nobody = Query(kind="parcel", queue="nobody", within=6)
    assert await store.find(nobody) == Page(())
    assert (await store.find(Query(kind="parcel", queue="q1", within=6))).cursor == ""
    assert (await store.find(Query(kind="parcel", queue="q1", within=6, limit=2))).cursor != ""


@pytest.mark.parametrize("within", [0, -1])
async def test_a_page_looks_at_one_record_at_least(store: Store, within: int) -> None:
    with pytest.raises(InvalidRecord, match="at least one"):
        await store.find(msgspec.structs.replace(PARCELS, queue="q", within=within))


async def test_a_count_does_not_care_for_the_page(store: Store) -> None:
    await made(store, *(creation(f"p{number}") for number in range(6)))
    page = await store.find(msgspec.structs.replace(PARCELS, limit=2))
    query = msgspec.structs.replace(PARCELS, limit=2, cursor=page.cursor)
    assert await store.count(query) == Count(6, capped=False)


@pytest.mark.parametrize("cursor", ["nonsense", "x.a", "-5.a", ".", "1", "9\x00.a", "9" * 30 + ".a"])
async def test_an_invalid_cursor_of_a_query_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(InvalidRecord, match="cursor"):
        await store.find(msgspec.structs.replace(PARCELS, cursor=cursor))


@pytest.mark.parametrize("limit", [0, -1, 1_001])
async def test_a_page_has_a_size(store: Store, limit: int) -> None:
    with pytest.raises(InvalidRecord, match="1 to 1000"):
        await store.find(msgspec.structs.replace(PARCELS, limit=limit))


async def test_a_state_that_does_not_exist_is_not_silently_empty(store: Store) -> None:
    with pytest.raises(UnknownState) as caught:
        await store.find(Query(kind="parcel", states=("packed", "deliverd")))
    assert caught.value.allowed == ("packed", "sent", "delivered", "lost", "returned")
    assert "delivered" in caught.value.sentence


def _one_commit_of(*names: str) -> Commit:
    """Return one commit of all, so that the records have the same age."""
    return Commit(changes=tuple(creation(name) for name in names))


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


@pytest.mark.parametrize("back", [1, 3, 4, 9, 100])
async def test_a_cursor_before_the_end_is_followed_by_the_newest_entries(store: Store, back: int) -> None:
    assert await whole_feed(store, await store.latest(back=back)) == []
    for name in "abc":
        await made(store, creation(name, note=PACKING))
    await store.commit(each(*(creation(name, note=PACKING) for name in "defgh")))  # alike, so perhaps one row
    await made(store, creation("i", note=SENDING))
    entries = await whole_feed(store)
    found = (await store.feed(await store.latest(back=back), limit=2 * back)).entries
    assert list(found) == entries[-len(found) :]
    assert min(back, len(entries)) <= len(found) <= 2 * back


@pytest.mark.parametrize("back", [-1, 1_000_000_000_000])
async def test_an_invalid_number_of_entries_back_is_refused(store: Store, back: int) -> None:
    with pytest.raises(InvalidRecord, match="back"):
        await store.latest(back=back)


async def test_changes_of_a_claim_are_in_the_feed(store: Store) -> None:
    await waiting(store, "a", "b")
    await claimed(store, take(5))
    assert [(entry.id, entry.version, entry.note) for entry in await whole_feed(store)] == [
        ("a", 2, SENDING),
        ("b", 2, SENDING),
    ]


@pytest.mark.parametrize("cursor", ["nonsense", "1.5.x", "🙂", "0 OR 1=1", "-", "\x00", "9" * 30])
async def test_an_invalid_cursor_of_the_feed_is_refused(store: Store, cursor: str) -> None:
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


async def test_a_record_that_never_existed_has_no_history(store: Store) -> None:
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
            await asyncio.sleep(0)  # a store in memory answers without yielding to the loop
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
        before = len(calls)  # a store may wake a new subscriber although nothing was committed
        for name in "abcdef":
            woken.clear()
            await made(store, creation(name, note=PACKING))
            async with asyncio.timeout(PATIENCE_S):
                await woken.wait()
    assert len(calls) - before <= 1, "One call may have been under way in another thread."


@contextmanager
def _woken(store: Store) -> Iterator[asyncio.Event]:
    """Yield an event that the store's notifications set, from any thread."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(event.set)

    stop = store.subscribe(wake)
    try:
        yield event
    finally:
        stop()
