"""What does as the one before it is let through with it: nobody may be able to tell."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.store.records import Change, Claim, Commit, Note, Record
from interlock.store.sqlite import SqliteStore
from interlock.store.sqlite.ledger import Ledger
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import (
    PACKING,
    QUEUE,
    SENDING,
    creation,
    each,
    kinds_of,
    made,
    move,
    refusal,
    request,
    step_note,
)

LOSING = step_note("lose", "sent", "lost", actor="bob")
NAMES = [f"p{number:02}" for number in range(14)]
RECORDS = """
    SELECT number, kind, id, state, place, version, body, parent, queue, labels, priority, lane,
        ready_us IS NOT NULL, deadline_us IS NOT NULL, chain, updated_us - created_us > 0
    FROM records ORDER BY number"""
ENTRIES = """
    SELECT sequence, record, kind, id, version, steps, actor, reason, cause, request_id, refusal, chain
    FROM journal ORDER BY sequence"""


class Followers:
    """Whether anybody may lead, and how many have followed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.forbidden = False
        self.number = 0
        may_lead, follow = Ledger._may_lead, Ledger._follow

        def counted(ledger: Ledger, *rest: Any) -> int:
            number = follow(ledger, *rest)
            self.number += number
            return number

        monkeypatch.setattr(Ledger, "_may_lead", lambda *rest: not self.forbidden and may_lead(*rest))
        monkeypatch.setattr(Ledger, "_follow", counted)


@pytest.fixture
def followers(monkeypatch: pytest.MonkeyPatch) -> Followers:
    return Followers(monkeypatch)


def odd(chance: random.Random, change: Change, record: Record) -> Commit:
    """A commit that differs from its neighbours in one thing, as many do not."""
    other: list[dict[str, Any]] = [
        {"body": b'{"other":%d}' % chance.randrange(3)},
        {"body": record.body},
        {"parent": "q"},
        {"queue": "rail"},
        {"labels": ("cold",)},
        {"priority": 5},
        {"deadline_at": record.created_at + timedelta(hours=1)},
        {"ready_at": record.created_at, "queue": "rail"},
        {"note": None},
        {"note": step_note("send", "packed", "sent", actor="eve")},
        {"note": Note(actor="eve", refusal="It is not.")},
        {"expected": change.expected + 1},
        {"expected_at": record.updated_at},
        {"expected_at": record.updated_at - timedelta(seconds=1)},
        {"state": "lost"},
        {"state": "packed"},
        {"id": "nobody"},
        {},
    ]
    change = msgspec.structs.replace(change, **chance.choice(other))
    shape = chance.randrange(8)
    if shape == 0:
        return Commit(changes=(change,), request=request(f"r{record.id}"))
    if shape == 1:
        return Commit(
            changes=(change,), not_after=record.created_at - timedelta(hours=chance.choice([-1, 1]))
        )
    return Commit(changes=(change,))


def batch(seed: int, records: Sequence[Record]) -> list[Commit]:
    """Records in their order, most of them changed alike, and some a second time."""
    chance = random.Random(seed)
    columns: dict[str, Any] = {"body": b'{"sent":true}'} if seed % 2 else {}
    commits: list[Commit] = []
    for record in records:
        change = move(record, note=SENDING, **columns)
        commits.append(odd(chance, change, record) if chance.random() < 0.3 else Commit(changes=(change,)))
        if chance.random() < 0.1:
            again = msgspec.structs.replace(change, expected=change.expected + 1, state="lost")
            commits.append(Commit(changes=(again,)))
    return commits


Batch = Callable[[Sequence[Record]], list[Commit]]


async def left_behind(path: Path, first: Batch, second: Batch) -> tuple[Any, ...]:
    """What there is after two batches, the second by a claim of all that is ready."""
    store = SqliteStore(str(path), CATALOGUE)
    await store.open()
    try:
        since = await store.now() - timedelta(minutes=1)
        columns: dict[str, Any] = {"note": PACKING, "queue": QUEUE, "ready_at": since}
        records = await made(store, *(creation(name, **columns) for name in NAMES))
        outcomes = kinds_of(await store.commit(first(records)))
        claim = Claim(kind="parcel", queues=(QUEUE,), limit=20)
        outcomes += kinds_of(await store.claim(claim, lambda found, _now: second(found)))
    finally:
        await store.close()
    with closing(sqlite3.connect(path)) as shell:
        return outcomes, shell.execute(RECORDS).fetchall(), shell.execute(ENTRIES).fetchall()


@pytest.mark.parametrize("seed", range(0, 80, 2))
async def test_it_leaves_behind_what_is_left_when_each_is_judged_alone(
    tmp_path: Path, followers: Followers, seed: int
) -> None:
    batches: tuple[Batch, Batch] = (lambda rs: batch(seed, rs[:7])), (lambda rs: batch(seed + 1, rs))
    together = await left_behind(tmp_path / "together.db", *batches)
    assert followers.number > 0
    followers.forbidden = True
    assert together == await left_behind(tmp_path / "alone.db", *batches)


def still_ready(record: Record, **columns: Any) -> Change:
    """It is sent, but waits in its queue as before."""
    return move(record, note=SENDING, queue=record.queue, ready_at=record.ready_at, **columns)


def lost(record: Record, expected: int = 2, **columns: Any) -> Change:
    change = move(record, "lost", note=LOSING, **columns)
    return msgspec.structs.replace(change, expected=expected, expected_at=None)


def made_like_the_others_by_the_batch(records: Sequence[Record]) -> list[Commit]:
    """Behind those that are lost come those that were sent a moment ago."""
    sent = [record for record in records if record.version == 2]
    others = [record for record in records if record.version == 1]
    return each(*map(still_ready, others), *map(lost, sent), *map(lost, others))


def leading_with_what_it_had_before(records: Sequence[Record]) -> list[Commit]:
    """The one that could lead is changed twice, the second time with the body that it was read with."""
    *sent, last = sorted(records, key=lambda record: -record.version)
    first = still_ready(last, body=b'{"other":1}')
    return each(first, lost(last, body=last.body), *(lost(r) for r in sent if r.version == 2))


def one_with_a_refusal(records: Sequence[Record]) -> list[Commit]:
    commits = each(*(still_ready(r) for r in records))
    commits[5] = msgspec.structs.replace(commits[5], refusals=(refusal("nobody"),))
    return commits


def told_as_refusals(records: Sequence[Record]) -> list[Commit]:
    return each(*(move(r, note=Note(actor="eve", refusal="It is not.")) for r in records))


@pytest.mark.parametrize(
    "second",
    [
        made_like_the_others_by_the_batch,
        leading_with_what_it_had_before,
        one_with_a_refusal,
        told_as_refusals,
    ],
)
async def test_what_has_to_be_judged_alone_is(tmp_path: Path, followers: Followers, second: Batch) -> None:
    def first(records: Sequence[Record]) -> list[Commit]:
        return each(*(still_ready(r) for r in records[:5]))

    together = await left_behind(tmp_path / "together.db", first, second)
    followers.forbidden = True
    assert together == await left_behind(tmp_path / "alone.db", first, second)


async def test_of_a_batch_that_is_alike_all_follow_the_first(
    store: SqliteStore, followers: Followers
) -> None:
    records = await made(store, *(creation(name, note=PACKING) for name in NAMES))
    followers.number = 0
    await store.commit(each(*(move(record, note=SENDING) for record in records)))
    assert followers.number == len(NAMES) - 1
