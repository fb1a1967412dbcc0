"""Two records that are created together are written by a function of their own, as by a wave."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from tests.effort import further, pick
from tests.store.postgres.test_single import (
    Differ,
    OpenStore,
    Shell,
    break_function,
    in_waves,
    left_by,
    told,
)

from interlock.store.postgres import PostgresStore
from interlock.store.postgres.connections import Session
from interlock.store.records import Commit, Committed, Conflict, Key
from interlock.testing.store_contract.builders import (
    DELIVERED,
    LOST,
    PACKED,
    PACKING,
    QUEUE,
    SENT,
    WRITTEN,
    creation,
    kinds_of,
    made,
    see,
    whole_feed,
)

SEEDS = pick(2, 12)
FORBIDDEN = (
    "DELETE FROM interlock.path WHERE source = '' AND (kind, target) IN (('parcel', 'lost'), ('van', 'away'))"
)


def letter(name: str, **columns: Any) -> Any:
    """Return the creation of the plain one."""
    return creation(name, WRITTEN, kind="letter", **columns)


async def compare(quick: PostgresStore, simple: PostgresStore, shell: Shell, seed: int, steps: int) -> None:
    """Create the same pairs in both ways, some of which are there; raise `Differ` where they come apart."""
    await shell.execute(FORBIDDEN)
    draw, now = random.Random(seed), await quick.now()
    for number in range(steps):
        ready = draw.random() < 0.5
        columns: dict[str, Any] = {
            "body": draw.choice((b"{}", b'{"new":[1, 2]}')),
            "given": draw.choice((None, b'"gift"')),
            "parent": draw.choice((None, "p")),
            "queue": QUEUE if ready else draw.choice((None, QUEUE)),
            "labels": draw.choice(((), ("cold",), ("cold", "frail"))),
            "priority": draw.choice((0, 7, -100)),
            "ready_at": now + draw.choice((timedelta(-1), timedelta(1))) if ready else None,
            "handler": draw.choice(("", "van")),
            "deadline_at": draw.choice((None, now + timedelta(1))),
            "note": draw.choice((PACKING, PACKING, None)),
        }
        state = draw.choice((PACKED, PACKED, SENT, LOST))
        other = draw.choice(({}, {}, {}, {"queue": QUEUE}, {"body": b'{"long":1}'}))
        first_there, other_there = draw.random() < 0.2, draw.random() < 0.2
        late = now - timedelta(1) if draw.random() < 0.1 else None
        outcomes, names = [], []
        for store, way in ((quick, "q"), (simple, "s")):
            parcel, paper = f"{way}p{number}", f"{way}l{number}"
            if first_there:
                await made(store, creation(parcel))
            if other_there:
                await made(store, letter(paper))
            pair = creation(parcel, state, **columns), letter(paper, **other)
            outcomes += await store.commit([Commit(changes=pair, not_after=late)])
            names += [parcel, paper]
        # A wave gives entries of their own to what is not alike; here, as for a single one, they are packed.
        left = [(row[0], row[-1]) for row in await left_by(shell, *sorted(names))]
        lives = [len((await quick.history(Key("parcel", name))).entries) for name in names[::2]]
        if told(outcomes[0]) != told(outcomes[1]) or left[:2] != left[2:] or lives[0] != lives[1]:
            raise Differ(f"step {number}: {outcomes}, {left}")


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_the_function_for_a_pair_leaves_the_same_rows_as_the_function_for_all_commits(
    url: str, open_store: OpenStore, shell: Shell, seed: int
) -> None:
    await compare(await open_store(url), in_waves(await open_store(url)), shell, seed, steps=60)


BREAKS = {
    "the first may be there": ("RAISE serialization_failure", "NULL"),
    "any beginning": ("path.target = to_state", "path.target <> '-'"),
    "never too late": ("not_after < ", "false AND not_after < "),
    "no trail": ("mark := int8send(number)", "mark := ''"),
    "no entry": ("new_note IS NOT NULL", "false"),
    "never ready": ("coalesce(new_ready_at <= moment, false)", "false"),
    "the other is something else": ("'', other_body, NULL", "'', '{}', NULL"),
    "labels are lost": ("new_parent, new_labels, mark", "new_parent, NULL, mark"),
}


@pytest.mark.parametrize("broken", [*list(BREAKS)[:3], *further(*list(BREAKS)[3:])])
async def test_a_broken_statement_is_noticed(
    url: str, open_store: OpenStore, shell: Shell, broken: str
) -> None:
    quick, simple = await open_store(url), in_waves(await open_store(url))
    await break_function(shell, "create_pair", *BREAKS[broken])
    with pytest.raises(Differ):
        await compare(quick, simple, shell, seed=0, steps=100)


async def test_a_pair_is_one_statement_and_all_or_nothing(
    url: str, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(url)
    statements: list[str] = []
    real = Session.fetch

    async def fetch(session: Session, sql: str, *rest: Any, **named: Any) -> Any:
        statements.append(sql)
        return await real(session, sql, *rest, **named)

    monkeypatch.setattr(Session, "fetch", fetch)
    pair = creation("a", note=PACKING), letter("key")
    [outcome] = await store.commit([Commit(changes=pair)])
    assert isinstance(outcome, Committed)
    assert len(statements) == 1
    assert "create_pair" in statements[0]
    assert (await see(store, "a")).updated_at == outcome.at
    [other] = await store.load([Key("letter", "key")])
    assert other is not None
    assert (other.updated_at, other.version, other.body) == (outcome.at, 1, b'{"weight":3}')
    assert [entry.id for entry in await whole_feed(store)] == ["a"]

    again = await store.commit([Commit(changes=(creation("b", note=PACKING), letter("key")))])
    assert kinds_of(again) == [Conflict]
    assert await store.load([Key("parcel", "b")]) == [None]
    ended = await store.commit([Commit(changes=(creation("c", DELIVERED), letter("key2")))])
    assert kinds_of(ended) == [Committed], "what has ended is written as a wave"
