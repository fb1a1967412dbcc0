"""A change of one record is written by a function of its own, as the one for all commits would write it."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import asyncpg
import msgspec
import pytest
from tests.effort import further, pick
from tests.waiting import PROGRAM_S

from interlock.store.postgres import PostgresStore
from interlock.store.postgres.commits import WritePart
from interlock.store.postgres.connections import Session
from interlock.store.postgres.waves import Wave
from interlock.store.records import (
    Batch,
    Change,
    Commit,
    Committed,
    Conflict,
    Guard,
    Illegal,
    Key,
    Outcome,
    Record,
    TooLate,
    Work,
    one_by_one,
)
from interlock.store.validation import waves
from interlock.testing.binaries import environment, postgres_programs
from interlock.testing.store_contract.builders import (
    DELIVERED,
    LOST,
    PACKED,
    PACKING,
    QUEUE,
    SENDING,
    SENT,
    creation,
    each,
    kinds_of,
    made,
    move,
    see,
    take,
    whole_feed,
)

OpenStore = Callable[..., Awaitable[PostgresStore]]
Shell: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

LEFT = """
    SELECT names.name,
        (SELECT json_agg(json_build_array(
            kind, state, version, body::text, given::text, result::text, parent, queue, labels, priority,
            ready_at, deadline_at, lane, rank, ready, created_at < updated_at
        ))::text FROM interlock.record WHERE id = name),
        (SELECT json_agg(length(trail))::text FROM interlock.live WHERE id = name),
        (SELECT json_agg(length(trail))::text FROM interlock.ended WHERE id = name),
        (SELECT count(*) FROM interlock.journal_packed WHERE ids = name),
        (SELECT count(*) FROM interlock.journal_single WHERE id = name),
        (SELECT json_agg(json_build_array(version, note) ORDER BY xact, entry)::text
         FROM interlock.journal WHERE id = name)
    FROM unnest($1::text[]) AS names (name) ORDER BY name"""
FORBIDDEN = (
    "DELETE FROM interlock.path WHERE kind = 'parcel' AND source = '' AND target IN ('lost', 'delivered')"
)
NEXT = {
    "": (PACKED, SENT, DELIVERED, LOST),
    PACKED: (PACKED, PACKED, SENT),
    SENT: (SENT, DELIVERED),
    LOST: (LOST, PACKED),
    DELIVERED: (DELIVERED, SENT),
}
SEEDS = pick(2, 12)


class Differ(AssertionError):
    """The two ways have not left the same behind."""


def in_waves(store: PostgresStore) -> PostgresStore:
    """A store that writes everything by the function for all commits."""
    writing = store._writing

    def parts(work: Sequence[Work], held: Sequence[Record] = ()) -> list[WritePart]:
        return [Wave(writing._ends, wave, held) for wave in waves(one_by_one(work))]

    writing.parts = parts  # type: ignore[method-assign]
    return store


async def left_by(shell: Shell, *names: str) -> list[tuple[Any, ...]]:
    """What the tables hold of each record, in the order of the names."""
    return [tuple(row)[1:] for row in await shell.fetch(LEFT, names)]


def told(outcome: Outcome) -> tuple[object, ...]:
    """What an outcome says, but for the id and the time."""
    match outcome:
        case Conflict(expected=expected, found=found):
            return Conflict, expected, found
        case Illegal(source=source, target=target):
            return Illegal, source, target
        case TooLate(not_after=not_after):
            return TooLate, not_after
        case _:
            return (type(outcome),)


def changes(draw: random.Random, now: datetime) -> Iterator[Callable[[str, Record | None], Commit]]:
    """Commits of one change, most of which are legal: creations, steps and ends, late and stale ones."""

    def some(record: Record | None) -> dict[str, Any]:
        ready = draw.random() < 0.4
        return {
            "body": draw.choice((b"{}", b'{"new":[1, 2]}')),
            "result": draw.choice((None, None, b"[1]", b"")) if record is not None else None,
            "given": draw.choice((b"", b'"gift"')) if record is None else None,
            "parent": draw.choice((None, "p")),
            "queue": QUEUE if ready else draw.choice((None, QUEUE)),
            "labels": draw.choice(((), ("cold",), ("cold", "frail"))),
            "priority": draw.choice((0, 7, -100)),
            "ready_at": now + draw.choice((timedelta(-1), timedelta(1))) if ready else None,
            "handler": draw.choice(("", "van")),
            "deadline_at": draw.choice((None, None, now + timedelta(1))),
            "note": draw.choice((SENDING, PACKING, SENDING, None)),
        }

    while True:
        seed = draw.random()

        def commit(name: str, record: Record | None, seed: float = seed) -> Commit:
            draw.seed(seed)
            columns = {
                key: value for key, value in some(record).items() if value is not None or key == "note"
            }
            state = draw.choice(NEXT[record.state if record is not None and draw.random() < 0.8 else ""])
            if state == DELIVERED:
                columns = {key: columns[key] for key in columns if key not in ("ready_at", "deadline_at")}
            change: Change = creation(name, state, **columns)
            if record is not None:
                change = move(record, state, **columns)
                expected_at = draw.choice((record.updated_at, record.updated_at, None, now - timedelta(9)))
                change = msgspec.structs.replace(change, expected_at=expected_at)
            if draw.random() < 0.15:
                change = msgspec.structs.replace(change, expected=draw.choice((0, 1, 3)), given=None)
            late = draw.random() < 0.1
            return Commit(changes=(change,), not_after=now - timedelta(1) if late else None)

        yield commit


async def compare(quick: PostgresStore, simple: PostgresStore, shell: Shell, seed: int, steps: int) -> None:
    """Do the same to two records, one in each way, and raise `Differ` where they come apart."""
    await shell.execute(FORBIDDEN)  # by the catalogue a parcel may begin anywhere
    now, lives = await quick.now(), 0
    for number, commit in zip(range(steps), changes(random.Random(seed), now), strict=False):
        names = f"q{lives}", f"s{lives}"
        found = await quick.load([Key("parcel", name) for name in names])
        outcomes = []
        for store, name, record in zip((quick, simple), names, found, strict=True):
            outcomes += await store.commit([commit(name, record)])
        left = await left_by(shell, *names)
        if told(outcomes[0]) != told(outcomes[1]) or left[0] != left[1]:
            raise Differ(f"step {number}: {outcomes}, {left}")
        lives += number % 8 == 7  # a new record now and then


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_the_function_for_one_record_leaves_the_same_rows_as_the_function_for_all_commits(
    url: str, open_store: OpenStore, shell: Shell, seed: int
) -> None:
    await compare(await open_store(url), in_waves(await open_store(url)), shell, seed, steps=60)


BREAKS = {
    "any version": ("l.version = wanted", "l.version >= 0"),
    "any time": ("l.updated_at = coalesce(wanted_at, l.updated_at)", "true"),
    "any move": ("path.source = l.state", "path.source <> ''"),
    "any beginning": ("path.source = ''", "path.source <> '-'"),
    "never too late": ("not_after < ", "false AND not_after < "),
    "no trail": ("THEN l.trail || mark", "THEN l.trail"),
    "no entry": ("new_note IS NOT NULL", "false"),
    "the result is lost": ("coalesce(new_result, l.result)", "new_result"),
    "never ready": ("coalesce(new_ready_at <= moment, false)", "false"),
    "the end stays": ("ELSIF is_end THEN", "ELSIF false THEN"),
    "it was just created": ("its_created_at, moment, wanted + 1", "moment, moment, wanted + 1"),
    "labels stay": ("labels = new_labels", "labels = l.labels"),
}


async def break_function(shell: Shell, name: str, before: str, after: str) -> None:
    """Replace something in the text of a function of the database."""
    [[source]] = await shell.fetch(f"SELECT pg_get_functiondef('interlock.{name}'::regproc)")
    assert before in source
    await shell.execute(source.replace(before, after))


@pytest.mark.parametrize("broken", [*list(BREAKS)[:4], *further(*list(BREAKS)[4:])])
async def test_a_broken_statement_is_noticed(
    url: str, open_store: OpenStore, shell: Shell, broken: str
) -> None:
    quick, simple = await open_store(url), in_waves(await open_store(url))
    await break_function(shell, "write_one", *BREAKS[broken])
    with pytest.raises(Differ):
        await compare(quick, simple, shell, seed=0, steps=200)


async def test_a_record_with_36_versions_is_written_alike_by_both_functions_and_keeps_its_history(
    url: str, open_store: OpenStore, shell: Shell
) -> None:
    quick, simple = await open_store(url), in_waves(await open_store(url))
    for store, name in ((quick, "q"), (simple, "s")):
        [record] = await made(store, creation(name, note=PACKING))
        for _ in range(34):
            [record] = await made(store, move(record, PACKED, note=SENDING))
        await made(store, move(record, DELIVERED, note=SENDING))
    [left, right] = await left_by(shell, "q", "s")
    assert left == right
    assert [entry.version for entry in (await quick.history(Key("parcel", "q"))).entries] == list(
        range(1, 37)
    )


async def test_a_commit_or_a_batch_of_one_record_is_one_statement(
    url: str, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(url)
    statements: list[str] = []
    real = Session.fetch

    async def fetch(session: Session, sql: str, *rest: Any, **named: Any) -> Any:
        statements.append(sql)
        return await real(session, sql, *rest, **named)

    monkeypatch.setattr(Session, "fetch", fetch)
    await store.commit(each(creation("a", note=PACKING)))
    await store.commit([Batch(change=creation("", note=PACKING), ids=("b",), given=(b"1",))])
    assert kinds_of(await store.commit(each(creation("c", DELIVERED)))) == [Committed]
    assert len(statements) == 3
    assert all("write_one" in sql for sql in statements)
    assert [entry.id for entry in await whole_feed(store)] == ["a", "b"]
    assert (await see(store, "b")).given == b"1"


async def test_a_guard_that_changes_before_the_claim_is_written_keeps_it_from_it(
    url: str, open_store: OpenStore
) -> None:
    store = await open_store(url)
    past = await store.now() - timedelta(minutes=1)
    await made(store, creation("guard"), *(creation(n, queue=QUEUE, ready_at=past) for n in "ab"))
    programs = postgres_programs()
    calls: list[int] = []

    def decide(records: Sequence[Record], _now: datetime) -> list[Work]:
        calls.append(len(records))
        if len(calls) == 1:
            server_side = "UPDATE interlock.record SET state = 'sent', version = 2 WHERE id = 'guard'"
            subprocess.run(
                [programs.path("psql"), "-qX", url, "-c", server_side],
                env=environment(programs.environment),
                check=True,
                timeout=PROGRAM_S,
            )
        return [*each(*(move(record, SENT, ready_at=None, note=SENDING) for record in records))]

    claim = msgspec.structs.replace(take(1), guard=Guard(Key("parcel", "guard"), (PACKED,)))
    assert await store.claim(claim, decide) == []
    assert calls == [1, 0], "What was decided has come to nothing, and the decider is told so."
    assert (await see(store, "a")).version == 1
    other = msgspec.structs.replace(claim, guard=Guard(Key("parcel", "guard"), (SENT,)))
    assert kinds_of(await store.claim(other, decide)) == [Committed]
