"""Plain records are written with the rest of their commit by one function, as by a wave."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.effort import pick
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
from interlock.store.records import Commit, Committed
from interlock.testing.store_contract.builders import (
    LOST,
    PACKED,
    PACKING,
    PARKED,
    POSTED,
    QUEUE,
    SENT,
    WRITTEN,
    creation,
    made,
    request,
)

SEEDS = pick(2, 12)
MANY = 12
FORBIDDEN = (
    "DELETE FROM interlock.path WHERE source = '' AND (kind, target) IN (('parcel', 'lost'), ('van', 'away'))"
)


async def compare(quick: PostgresStore, simple: PostgresStore, shell: Shell, seed: int, steps: int) -> None:
    """Create the same in both ways, some of which is there; raise `Differ` where they come apart."""
    await shell.execute(FORBIDDEN)
    draw, now = random.Random(seed), await quick.now()
    for number in range(steps):
        ready = draw.random() < 0.5
        columns: dict[str, Any] = {
            "body": draw.choice((b"{}", b'{"new":[1, 2]}')),
            "given": draw.choice((None, b'"gift"')),
            "queue": QUEUE if ready else None,
            "ready_at": now - timedelta(1) if ready else None,
            "note": draw.choice((PACKING, None)),
        }
        states = draw.choices((PACKED, PACKED, PACKED, SENT, LOST), k=draw.randint(0, 3))
        kind, state = draw.choice(
            (("letter", WRITTEN), ("letter", WRITTEN), ("letter", POSTED), ("van", PARKED), ("van", "away"))
        )
        there = draw.choice((None, None, draw.randrange(MANY)))
        late = now - timedelta(1) if draw.random() < 0.1 else None
        asked = draw.choice((None, f"r{draw.randrange(5)}"))
        bodies = [b'{"of":"%s"}' % (b"x" * draw.randint(0, 30)) for _ in range(MANY)]
        order = draw.sample(range(MANY), MANY)
        outcomes, names = [], []
        for store, way in ((quick, "q"), (simple, "s")):
            parcels = [
                creation(f"{way}{number}p{place}", each, **columns) for place, each in enumerate(states)
            ]
            plain = [
                creation(f"{way}{number}x{place:02}", state, kind=kind, body=bodies[place]) for place in order
            ]
            if there is not None and (kind, state) != ("van", "away"):
                await made(store, plain[there])
            asks = None if asked is None else request(f"{way}{asked}")
            commit = Commit(changes=(*parcels, *plain), not_after=late, request=asks)
            outcomes += await store.commit([commit])
            names.append([change.id for change in commit.changes])
        # The entry of a single record is packed, and is one of its own in a wave with others.
        left = [[(row[0], row[-1]) for row in await left_by(shell, *own)] for own in names]
        if told(outcomes[0]) != told(outcomes[1]) or left[0] != left[1]:
            raise Differ(f"step {number}: {outcomes}, {left}")


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_the_function_for_plain_records_leaves_the_same_rows_as_the_function_for_all_commits(
    url: str, open_store: OpenStore, shell: Shell, seed: int
) -> None:
    await compare(await open_store(url), in_waves(await open_store(url)), shell, seed, steps=40)


BREAKS = {
    "any beginning": ("path.target = plain_state", "path.target <> '-'"),
    "other bodies": ("c.body::json", "'{}'::json"),
    "another state": ("c.id, plain_state", "c.id, 'lost'"),
    "one is enough": ("plain_kind, c.id, plain_state", "plain_kind, c.id || '-', plain_state"),
    "in a later version": ("moment, moment, 1, 0", "moment, moment, 2, 0"),
}


@pytest.mark.parametrize("broken", list(BREAKS))
async def test_a_broken_statement_is_noticed(
    url: str, open_store: OpenStore, shell: Shell, broken: str
) -> None:
    quick, simple = await open_store(url), in_waves(await open_store(url))
    await break_function(shell, "try_with_plain", *BREAKS[broken])
    with pytest.raises(Differ):
        await compare(quick, simple, shell, seed=0, steps=40)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that are sent from now on."""
    sent: list[str] = []
    real: Callable[..., Any] = Session.fetch

    async def fetch(session: Session, sql: str, *rest: Any, **named: Any) -> Any:
        sent.append(sql)
        return await real(session, sql, *rest, **named)

    monkeypatch.setattr(Session, "fetch", fetch)
    return sent


async def test_records_and_plain_ones_are_one_statement(
    url: str, open_store: OpenStore, statements: list[str]
) -> None:
    store = await open_store(url)
    statements.clear()
    plain = [creation(f"x{place:02}", WRITTEN, kind="letter") for place in range(MANY)]
    [outcome] = await store.commit([Commit(changes=(creation("a", note=PACKING), *plain))])
    assert isinstance(outcome, Committed)
    [statement] = statements
    assert "try_with_plain" in statement


async def test_plain_records_that_have_ended_are_written_as_a_wave(
    url: str, open_store: OpenStore, statements: list[str]
) -> None:
    store = await open_store(url)
    statements.clear()
    plain = [creation(f"x{place:02}", POSTED, kind="letter") for place in range(MANY)]
    [outcome] = await store.commit([Commit(changes=(creation("a", note=PACKING), *plain))])
    assert isinstance(outcome, Committed)
    [statement] = statements
    assert "try_commits" in statement
