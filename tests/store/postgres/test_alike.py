"""What changes alike is written by a function of its own: it leaves the same behind as the one for all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import asyncpg
import msgspec
import pytest

from interlock.store.postgres import PostgresStore
from interlock.store.postgres.wave import Wave
from interlock.store.records import (
    Change,
    Commit,
    Committed,
    Conflict,
    Illegal,
    Key,
    Outcome,
    Record,
    TooLate,
)
from interlock.testing.servers import PostgresServer
from interlock.testing.store_contract.builders import (
    PACKING,
    SENDING,
    creation,
    each,
    kinds_of,
    made,
    move,
    request,
    see,
    step_note,
)

OpenStore = Callable[..., Awaitable[PostgresStore]]

NAMES = tuple("abcdefghi")
RECORDS = """
    SELECT kind, id, state, version, body::text, parent, queue, labels, priority, ready_at - $1,
        deadline_at - $1, chain, lane, CASE WHEN rank = 0 THEN 0 ELSE rank - $2 END AS rank, ready
    FROM interlock.record ORDER BY id"""
ENTRIES = "SELECT kind, id, version, note::text, chain FROM interlock.journal ORDER BY xact, entry"


class Taken:
    """Which way each wave went."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.alike = 0
        self.otherwise = 0
        self.forbidden = False
        arguments_alike = Wave.arguments_alike

        def spy(wave: Wave, *rest: Any) -> list[Any] | None:
            arguments = None if self.forbidden else arguments_alike(wave, *rest)
            self.alike += arguments is not None
            self.otherwise += arguments is None
            return arguments

        monkeypatch.setattr(Wave, "arguments_alike", spy)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    return Taken(monkeypatch)


Columns = dict[str, Any]


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"body": b'{"new":1}'},
        {"queue": "post", "ready_at": timedelta(minutes=-1)},
        {"queue": "post", "ready_at": timedelta(hours=1), "labels": ("cold", "frail")},
        {"queue": "post", "ready_at": timedelta(minutes=-1), "priority": 7},
        {"deadline_at": timedelta(seconds=30), "parent": "p"},
        {"labels": ("x",), "priority": -100},
    ],
    ids=lambda columns: " ".join(columns) or "nothing",
)
async def test_it_leaves_behind_what_the_function_for_all_does(
    server: PostgresServer, open_store: OpenStore, taken: Taken, columns: Columns
) -> None:
    left = []
    for forbidden in (False, True):
        taken.forbidden = forbidden
        url = server.new_database()
        store = await open_store(url)
        now = await store.now()
        records = await made(store, *(creation(n, note=PACKING, labels=("old",), parent="q") for n in NAMES))
        taken.alike = taken.otherwise = 0
        said = {k: now + v if isinstance(v, timedelta) else v for k, v in columns.items()}
        fresh: Columns = {"labels": (), "parent": None, "note": SENDING, **said}
        changes = [move(record, **fresh) for record in records]
        assert kinds_of(await store.commit(each(*changes))) == [Committed] * len(NAMES)
        assert (taken.alike, taken.otherwise) == ((0, 1) if forbidden else (1, 0))
        left.append(await everything(url, now))
    assert left[0] == left[1]


async def everything(url: str, now: Any) -> tuple[list[tuple[Any, ...]], ...]:
    shell: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(url)
    try:
        us = round(now.timestamp() * 1_000_000)
        records = [tuple(row) for row in await shell.fetch(RECORDS, now, us)]
        return records, [tuple(row) for row in await shell.fetch(ENTRIES)]
    finally:
        await shell.close()


async def test_bodies_notes_and_when_it_was_written_may_differ(
    url: str, open_store: OpenStore, taken: Taken
) -> None:
    store = await open_store(url)
    records = [record for name in NAMES for record in await made(store, creation(name, note=PACKING))]
    assert len({record.updated_at for record in records}) == len(NAMES)
    taken.alike = taken.otherwise = 0
    changes = [
        move(
            r, body=b'{"of":"%s"}' % r.id.encode(), note=step_note("send", "packed", "sent", actor=f"ü{r.id}")
        )
        for r in records
    ]
    dated = [
        msgspec.structs.replace(change, expected_at=record.updated_at if n % 2 else None)
        for n, (change, record) in enumerate(zip(changes, records, strict=True))
    ]
    assert kinds_of(await store.commit(each(*dated))) == [Committed] * len(NAMES)
    assert (taken.alike, taken.otherwise) == (1, 0)
    for name in NAMES:
        assert (await see(store, name)).body == b'{"of":"%s"}' % name.encode()
        entry = (await store.history(Key("parcel", name))).entries[-1]
        assert (entry.version, entry.note.actor) == (2, f"ü{name}")


@pytest.mark.parametrize(
    ("change", "becomes"),
    [
        (lambda r: move(msgspec.structs.replace(r, version=7), "lost"), Conflict(Key("parcel", "e"), 7, 1)),
        (
            lambda r: msgspec.structs.replace(
                move(r, "lost"), expected_at=r.updated_at - timedelta(microseconds=1)
            ),
            Conflict(Key("parcel", "e"), 1, 1),
        ),
        (lambda r: move(r, "packed"), Illegal(Key("parcel", "e"), "sent", "packed")),
    ],
    ids=["another version", "written at another time", "no path"],
)
async def test_what_stands_in_the_way_of_one_is_told_to_it_alone(
    url: str,
    open_store: OpenStore,
    taken: Taken,
    change: Callable[[Record], Change],
    becomes: Outcome,
) -> None:
    store = await open_store(url)
    records = await made(store, *(creation(name, "sent", note=PACKING) for name in NAMES))
    wrong = [
        msgspec.structs.replace(change(r) if r.id == "e" else move(r, "lost"), note=SENDING) for r in records
    ]
    taken.alike = 0
    outcomes = await store.commit(each(*wrong))
    assert outcomes[NAMES.index("e")] == becomes
    assert kinds_of(outcomes).count(Committed) == len(NAMES) - 1
    assert [(await see(store, name)).state for name in ("d", "e", "f")] == ["lost", "sent", "lost"]


async def test_all_of_it_is_illegal_when_no_path_leads_there(
    url: str, open_store: OpenStore, taken: Taken
) -> None:
    store = await open_store(url)
    records = await made(store, *(creation(name, "sent", note=PACKING) for name in NAMES))
    taken.alike = 0
    outcomes = await store.commit(each(*(move(r, "packed", note=SENDING) for r in records)))
    assert taken.alike == 1, "It was tried, and taken back."
    assert outcomes == [Illegal(record.key, "sent", "packed") for record in records]
    assert {(await see(store, name)).version for name in NAMES} == {1}


async def test_one_that_comes_too_late_is_told_so_and_the_others_are_not(
    url: str, open_store: OpenStore, taken: Taken
) -> None:
    store = await open_store(url)
    records = await made(store, *(creation(name, note=PACKING) for name in NAMES))
    now = await store.now()
    commits = [
        Commit(
            changes=(move(r, note=SENDING),),
            not_after=now + timedelta(seconds=-1 if r.id == "c" else 60),
        )
        for r in records
    ]
    taken.alike = 0
    outcomes = await store.commit(commits)
    assert taken.alike == 1
    assert type(outcomes[NAMES.index("c")]) is TooLate
    assert kinds_of(outcomes).count(Committed) == len(NAMES) - 1
    assert (await see(store, "c")).version == 1


@pytest.mark.parametrize(
    "batch",
    [
        lambda rs: each(*(move(r) for r in rs)),
        lambda rs: each(*(move(r, note=SENDING) for r in reversed(rs))),
        lambda rs: each(*(move(r, note=SENDING, priority=n) for n, r in enumerate(rs))),
        lambda rs: [Commit(changes=tuple(move(r, note=SENDING) for r in rs))],
        lambda rs: [Commit(changes=(move(r, note=SENDING),), request=request(r.id)) for r in rs],
    ],
    ids=["without notes", "in another order", "another priority", "in one commit", "with requests"],
)
async def test_what_it_cannot_say_goes_the_other_way(
    url: str, open_store: OpenStore, taken: Taken, batch: Callable[[Sequence[Record]], list[Commit]]
) -> None:
    store = await open_store(url)
    records = await made(store, *(creation(name, note=PACKING) for name in NAMES))
    taken.alike = taken.otherwise = 0
    commits = batch(records)
    assert kinds_of(await store.commit(commits)) == [Committed] * len(commits)
    assert (taken.alike, taken.otherwise) == (0, 1)
    assert {(await see(store, name)).state for name in NAMES} == {"sent"}
