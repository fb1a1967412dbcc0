"""Limits are exact, and calls that can only be mistakes are refused before anything is written."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from interlock.errors import InterlockError, InvalidRecord, TooLarge, UnknownKind, UnknownState
from interlock.store.contract import Store
from interlock.store.records import Claim, Commit, Committed, Feed, Key, Note, Page, Query, Record
from interlock.testing.store_contract.builders import (
    LONG_AGO,
    PACKING,
    claimed,
    creation,
    each,
    kinds_of,
    leave,
    look,
    made,
    move,
    refusal,
    request,
    see,
    swept,
    take,
    waiting,
    whole_feed,
)
from interlock.testing.store_contract.suite import StoreOpener

TEXTS = [
    "plain",
    "with space",
    "a:b/c.d|e",
    "{curly}",
    "100%_*?[x]",
    'it\'s "quoted" \\ `back`',
    "Grüße",
    "日本語",
    "🚚" * 8,
    "'; DROP TABLE records; --",
    "é",
    "e\u0301",
    "x" * 64,
]
"""Texts that can be mistaken for syntax."""


@pytest.mark.parametrize("text", TEXTS)
async def test_any_text_can_be_an_id_a_queue_a_parent_and_a_label(store: Store, text: str) -> None:
    [record] = await waiting(store, text, queue=text, parent=text, labels=(text,))
    assert (record.id, record.queue, record.parent, record.labels) == (text, text, text, (text,))
    query = Query(kind="parcel", parent=text, queue=text, labels=(text,))
    assert (await store.find(query)).records == (record,)
    assert await claimed(store, take(1, queues=(text,), labels=(text,))) == [text]
    assert (await store.history(Key("parcel", text))).entries == tuple(await whole_feed(store))
    assert kinds_of(await store.commit([Commit(request=request(text))])) == [Committed]
    assert await store.recall(text) is not None


@pytest.mark.parametrize(
    "body",
    [
        b"null",
        b"0",
        b'""',
        b"{}",
        b'{ "b" : 1,\n\t"a" : 2 , "b" : 3 }',
        b'{"big":123456789012345678901234567890,"small":1e-400,"one":1.0}',
        b'"\\u0000\\ud83d\\ude9a"',
        '"Grüße 日本語 🚚"'.encode(),
        b'"\\" \\\\ \\/ \' %s $1 ? :x"',
    ],
)
async def test_a_body_comes_back_byte_for_byte(store: Store, body: bytes) -> None:
    [record] = await made(store, creation("a", body=body))
    assert record.body == body
    [record] = await made(store, move(record, body=body))
    assert record.body == body


async def test_a_body_may_be_as_large_as_the_store_says_and_not_one_byte_larger(store: Store) -> None:
    limit = store.capabilities.max_body_bytes
    largest = b'"' + b"x" * (limit - 2) + b'"'
    [record] = await made(store, creation("a", body=largest))
    assert record.body == largest
    with pytest.raises(TooLarge) as caught:
        await store.commit(each(creation("b"), creation("c", body=largest + b" ")))
    assert caught.value.facts["bytes"] == limit + 1
    assert await store.load([Key("parcel", "b"), Key("parcel", "c")]) == [None, None]


async def test_an_answer_may_be_any_bytes(store: Store) -> None:
    answer = bytes(range(256))
    await store.commit([Commit(request=request("r", answer=answer))])
    recorded = await store.recall("r")
    assert recorded is not None
    assert recorded.answer.body == answer


async def test_a_long_note_is_kept(store: Store) -> None:
    note = Note(actor="ann", reason="Because. " * 2_000)
    await made(store, creation("a", note=note))
    assert [entry.note for entry in await whole_feed(store)] == [note]


async def test_a_note_may_quote_anything(store: Store) -> None:
    note = Note(actor="ann", reason="Traceback: b'\x00\x1f' \x00 \x7f \x1b[31m \\u0000")
    await made(store, creation("a", note=note))
    assert [entry.note for entry in await whole_feed(store)] == [note]


def _labels(number: int) -> tuple[str, ...]:
    return tuple(f"l{place:02}" for place in range(number))


async def test_sixteen_labels_of_sixty_four_characters_are_taken(store: Store) -> None:
    labels = tuple(label + "x" * 61 for label in _labels(16))
    [record] = await made(store, creation("a", labels=labels))
    assert record.labels == labels


@pytest.mark.parametrize("priority", [-100, 100])
async def test_the_outermost_priorities_are_taken(store: Store, priority: int) -> None:
    await waiting(store, "a", priority=priority)
    assert await claimed(store, take(1)) == ["a"]


BEYOND: dict[str, dict[str, Any]] = {
    "an empty id": {"name": ""},
    "a long id": {"name": "x" * 65},
    "an id with a zero": {"name": "a\x00b"},
    "an id that is no text": {"name": "a\ud800b"},
    "too many labels": {"labels": _labels(17)},
    "a long label": {"labels": ("x" * 65,)},
    "an empty label": {"labels": ("",)},
    "labels that are not sorted": {"labels": ("b", "a")},
    "a label twice": {"labels": ("a", "a")},
    "a label with a line break": {"labels": ("a\nb",)},
    "too high a priority": {"priority": 101},
    "too low a priority": {"priority": -101},
    "a negative version": {"expected": -1},
    "a version beyond all counting": {"expected": 2**70},
    "a deadline at the end of the calendar": {"deadline_at": datetime.max.replace(tzinfo=UTC)},
    "a deadline at the beginning of the calendar": {"deadline_at": datetime.min.replace(tzinfo=UTC)},
    "an empty body": {"body": b""},
    "a body that is not JSON": {"body": b'{"to":'},
    "a note that is no text": {"note": Note(reason="a\ud800b")},
    "ready without a queue": {"queue": None, "ready_at": datetime(2026, 1, 1, tzinfo=UTC)},
    "ready in an empty queue": {"queue": "", "ready_at": datetime(2026, 1, 1, tzinfo=UTC)},
    "a queue with a separator": {"queue": "post\x1fcold"},
    "a queue with a zero": {"queue": "po\x00st"},
    "a parent with a zero": {"parent": "or\x00der"},
    "a naive ready time": {"queue": "post", "ready_at": datetime(2026, 1, 1)},  # noqa: DTZ001
    "a naive deadline": {"deadline_at": datetime(2026, 1, 1)},  # noqa: DTZ001
    "a version of a naive time": {"expected": 1, "expected_at": datetime(2026, 1, 1)},  # noqa: DTZ001
}


@pytest.mark.parametrize("case", BEYOND)
async def test_an_invalid_change_is_refused_before_anything_is_written(store: Store, case: str) -> None:
    columns = dict(BEYOND[case])
    name, expected = columns.pop("name", "bad"), columns.pop("expected", 0)
    change = msgspec.structs.replace(creation(name, **columns), expected=expected)
    with pytest.raises(InvalidRecord) as caught:
        await store.commit(each(creation("good"), change))
    assert caught.value.todo
    assert await look(store, "good") is None


@pytest.mark.parametrize("name", ["", "x" * 65, "a\x00b"])
async def test_a_request_id_has_limits_too(store: Store, name: str) -> None:
    with pytest.raises(InvalidRecord):
        await store.commit([Commit(changes=(creation("a"),), request=request(name))])
    assert await look(store, "a") is None


async def test_a_naive_last_moment_is_refused(store: Store) -> None:
    with pytest.raises(InvalidRecord):
        await store.commit([Commit(changes=(creation("a"),), not_after=datetime(2036, 1, 1))])  # noqa: DTZ001


@pytest.mark.parametrize("part", ["since", "until"])
async def test_a_query_by_a_naive_time_is_refused(store: Store, part: str) -> None:
    with pytest.raises(InvalidRecord):
        await store.find(Query(kind="parcel", **{part: datetime(2026, 1, 1)}))  # type: ignore[arg-type]  # noqa: DTZ001


@pytest.mark.parametrize(
    "at",
    [
        datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        datetime(2026, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2199, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2026, 7, 1, 12, 0, 0, 123_457, tzinfo=timezone(timedelta(hours=5, minutes=45))),
    ],
)
async def test_times_keep_their_microseconds_whatever_their_zone(store: Store, at: datetime) -> None:
    [record] = await made(store, creation("a", queue="post", ready_at=at, deadline_at=at))
    assert (record.ready_at, record.deadline_at) == (at, at)


async def test_a_microsecond_decides_the_order(store: Store) -> None:
    long_ago = await store.now() - LONG_AGO
    for name, offset in {"c": 2, "b": 0, "a": 1}.items():
        at = long_ago + timedelta(microseconds=offset)
        await made(store, creation(name, queue="post", ready_at=at, deadline_at=at))
    given: list[str] = []

    def remember(records: Sequence[Record], _now: datetime) -> list[Commit]:
        given.extend(record.id for record in records)
        return []

    await store.due(["parcel"], 5, remember)
    assert given == ["b", "a", "c"]
    assert await claimed(store, take(5)) == ["b", "a", "c"]


async def test_a_refused_commit_leaves_the_store_usable(store: Store, opener: StoreOpener) -> None:
    for turn in range(20):
        with pytest.raises(InterlockError):
            await store.commit(each(creation("a", priority=1_000)))
        await made(store, creation(f"p{turn}"))
    assert (await see(await opener.open(), "p19")).version == 1
    assert await swept(store) == []


UNKNOWN_KIND: dict[str, Callable[[Store], Awaitable[object]]] = {
    "load": lambda store: store.load([Key("crate", "a")]),
    "find": lambda store: store.find(Query(kind="crate")),
    "count": lambda store: store.count(Query(kind="crate")),
    "commit": lambda store: store.commit(each(creation("a"), creation("b", kind="crate"))),
    "refusal": lambda store: store.commit([Commit(refusals=(refusal("a", kind="crate"),))]),
    "history": lambda store: store.history(Key("crate", "a")),
    "claim": lambda store: store.claim(Claim(kind="crate", queues=("post",)), leave),
    "due": lambda store: store.due(["parcel", "crate"], 1, leave),
    "prune": lambda store: store.prune(kind="crate", states=["lost"], older_than=LONG_AGO),
}


@pytest.mark.parametrize("method", UNKNOWN_KIND)
async def test_an_unknown_kind_names_the_known_ones(store: Store, method: str) -> None:
    with pytest.raises(UnknownKind) as caught:
        await UNKNOWN_KIND[method](store)
    assert set(caught.value.allowed) == {"parcel", "letter", "van"}
    assert await look(store, "a") is None


async def test_an_unknown_state_names_the_known_ones(store: Store) -> None:
    with pytest.raises(UnknownState) as caught:
        await store.commit(each(creation("a"), creation("b", "snet")))
    assert caught.value.allowed == ("packed", "sent", "delivered", "lost", "returned")
    assert "sent" in caught.value.sentence
    assert await look(store, "a") is None


@pytest.mark.parametrize("ttl_s", [-1.0, float("inf"), float("nan")])
async def test_a_request_is_remembered_for_a_time(store: Store, ttl_s: float) -> None:
    with pytest.raises(InvalidRecord):
        await store.commit([Commit(changes=(creation("a"),), request=request("r", ttl_s=ttl_s))])
    assert await look(store, "a") is None


@pytest.mark.parametrize("name", ["", "x" * 65, "a\x00b"])
async def test_a_refusal_is_about_something_that_could_be_there(store: Store, name: str) -> None:
    with pytest.raises(InvalidRecord):
        await store.commit([Commit(refusals=(refusal(name),))])
    assert await whole_feed(store) == []


@pytest.mark.parametrize("name", ["a\x00b", "a\ud800b", "x" * 5_000])
async def test_looking_for_what_cannot_be_there_finds_nothing_or_says_so(store: Store, name: str) -> None:
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.load([Key("parcel", name)]),
        lambda: store.find(Query(kind="parcel", parent=name)),
        lambda: store.history(Key("parcel", name)),
        lambda: store.claim(take(1, queues=(name,)), leave),
        lambda: store.recall(name),
    ]
    for call in calls:
        with contextlib.suppress(InvalidRecord):
            assert await call() in ([None], Page(()), Feed((), ""), [], None)


LIMITED: dict[str, Callable[[Store, int], Awaitable[object]]] = {
    "claim": lambda store, limit: store.claim(take(limit), leave),
    "due": lambda store, limit: store.due(["parcel"], limit, leave),
    "feed": lambda store, limit: store.feed(limit=limit),
    "history": lambda store, limit: store.history(Key("parcel", "a"), limit=limit),
    "prune": lambda store, limit: store.prune(
        kind="parcel", states=["lost"], older_than=LONG_AGO, limit=limit
    ),
    "prune_by_queue": lambda store, limit: store.prune_by_queue(
        kind="parcel", state="lost", older_than=LONG_AGO, queues={}, limit=limit
    ),
    "prune_by_queue within": lambda store, limit: store.prune_by_queue(
        kind="parcel", state="lost", older_than=LONG_AGO, queues={}, within=limit
    ),
}


@pytest.mark.parametrize("limit", [0, -1])
@pytest.mark.parametrize("method", LIMITED)
async def test_nothing_is_asked_for_less_than_one(store: Store, method: str, limit: int) -> None:
    await waiting(store, "a", note=PACKING)
    with pytest.raises(InvalidRecord):
        await LIMITED[method](store, limit)
