"""What the database itself refuses, from a bare connection, one statement at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from interlock.store.postgres import PostgresStore
from interlock.store.records import Commit, Committed, Illegal, Key
from interlock.testing.store_contract.builders import (
    PACKING,
    SENDING,
    Sender,
    creation,
    each,
    kinds_of,
    made,
    move,
    see,
    take,
    waiting,
)

OpenStore = Callable[..., Awaitable[PostgresStore]]

INSERT = "INSERT INTO interlock.record (kind, id, state, version, body)"
STATES = {"a": "packed", "b": "sent", "c": "delivered", "d": "lost"}


@pytest.fixture
async def store(url: str, open_store: OpenStore) -> PostgresStore:
    store = await open_store(url)
    await made(store, *(creation(name, state, note=PACKING) for name, state in STATES.items()))
    return store


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE interlock.record SET state = 'eaten' WHERE id = 'a'", "is packed and cannot become eaten"),
        ("UPDATE interlock.record SET state = 'packed' WHERE id = 'c'", "is delivered and cannot become"),
        ("UPDATE interlock.record SET state = 'packed' WHERE id = 'b'", "is sent and cannot become packed"),
        ("UPDATE interlock.record SET state = 'sent'", "cannot become sent"),
        ("UPDATE interlock.record SET id = 'z' WHERE id = 'a'", "keeps its kind and id"),
        ("UPDATE interlock.record SET kind = 'letter' WHERE id = 'a'", "keeps its kind and id"),
        (
            f"{INSERT} VALUES ('crate', 'x', 'packed', 1, '{{}}')",
            "crate cannot be created",
        ),
        (
            f"{INSERT} VALUES ('parcel', 'x', 'eaten', 1, '{{}}')",
            "cannot be created as eaten",
        ),
        (
            f"{INSERT} VALUES ('parcel', 'x', 'packed', 7, '{{}}')",
            "in version 7",
        ),
        ("DELETE FROM interlock.record WHERE id = 'a'", "is packed and alive"),
        ("DELETE FROM interlock.record", "alive"),
        ("UPDATE interlock.record SET given = '1' WHERE id = 'a'", "can never be changed"),
        ("UPDATE interlock.live SET state = 'packed' WHERE id = 'b'", "is sent and cannot become packed"),
        ("UPDATE interlock.live SET id = 'z' WHERE id = 'a'", "keeps its kind and id"),
        ("DELETE FROM interlock.live WHERE id = 'a'", "DELETE of live is refused"),
        ("INSERT INTO interlock.live SELECT * FROM interlock.live", "INSERT of live is refused"),
        ("UPDATE interlock.ended SET state = 'sent'", "UPDATE of ended is refused"),
        ("DELETE FROM interlock.ended", "DELETE of ended is refused"),
        ("INSERT INTO interlock.ended SELECT * FROM interlock.ended", "INSERT of ended is refused"),
        ("UPDATE interlock.spec SET given = '1'", "UPDATE of spec is refused"),
        ("DELETE FROM interlock.spec", "DELETE of spec is refused"),
        ("INSERT INTO interlock.spec VALUES (now(), 'parcel', 'x', NULL)", "INSERT of spec is refused"),
        ("UPDATE interlock.journal SET at = now()", "UPDATE of journal is refused"),
        ("UPDATE interlock.journal_single SET at = now()", "UPDATE of journal_single is refused"),
        ("UPDATE interlock.journal_packed SET at = now()", "UPDATE of journal_packed is refused"),
        ("DELETE FROM interlock.journal", "goes when the record does"),
        ("DELETE FROM interlock.journal_packed", "DELETE of journal_packed is refused"),
        *(
            (f"TRUNCATE interlock.{table}", f"TRUNCATE of {table} is refused")
            for table in ("spec", "live", "ended", "journal_single", "journal_packed")
        ),
    ],
)
async def test_a_shell_cannot(store: PostgresStore, shell: Any, statement: str, why: str) -> None:
    before = await shell.fetch("SELECT * FROM interlock.record ORDER BY id")
    with pytest.raises(asyncpg.PostgresError, match=why):
        await shell.execute(statement)
    assert await shell.fetch("SELECT * FROM interlock.record ORDER BY id") == before
    assert await shell.fetchval("SELECT count(*) FROM interlock.journal") == len(STATES)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE interlock.record SET state = 'sent' WHERE id = 'a'",
        "UPDATE interlock.record SET state = 'delivered' WHERE id = 'a'",
        "UPDATE interlock.record SET state = 'returned' WHERE id = 'd'",
        "UPDATE interlock.record SET priority = 3",
        "UPDATE interlock.record SET state = 'eaten' WHERE id = 'nobody'",
        "DELETE FROM interlock.record WHERE id IN ('c', 'd')",
        f"{INSERT} VALUES ('parcel', 'x', 'lost', 1, '{{}}')",
        "DELETE FROM interlock.record WHERE id = 'c'; DELETE FROM interlock.journal WHERE id = 'c'",
    ],
)
async def test_a_shell_can(store: PostgresStore, shell: Any, statement: str) -> None:
    await shell.execute(statement)


async def test_an_illegal_commit_is_refused_and_the_other_commits_of_its_call_are_applied(
    store: PostgresStore,
) -> None:
    records = {name: await see(store, name) for name in STATES}
    outcomes = await store.commit(
        each(
            move(records["a"], "sent", note=SENDING),
            move(records["c"], "sent", note=SENDING),
            move(records["b"], "delivered", note=SENDING),
        )
    )
    assert kinds_of(outcomes)[0] is kinds_of(outcomes)[2]
    assert outcomes[1] == Illegal(Key("parcel", "c"), "delivered", "sent")
    assert [(await see(store, name)).state for name in "abc"] == ["sent", "delivered", "delivered"]


async def test_a_claim_that_the_database_finds_illegal_is_reported(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    """The tables in the database may be those of another version of the program."""
    store = await open_store(url)
    await waiting(store, "a", "b")
    await shell.execute("DELETE FROM interlock.path WHERE source = 'packed' AND target = 'sent'")
    outcomes = await store.claim(take(5), Sender())
    assert outcomes == [Illegal(Key("parcel", name), "packed", "sent") for name in "ab"]
    assert (await see(store, "a")).version == 1


async def test_commits_with_the_same_transition_each_have_an_outcome_of_their_own(
    store: PostgresStore,
) -> None:
    records = {name: await see(store, name) for name in STATES}
    outcomes = await store.commit(each(*(move(records[name], "sent", note=SENDING) for name in "ac")))
    assert kinds_of(outcomes)[0] is Committed
    assert outcomes[1] == Illegal(Key("parcel", "c"), "delivered", "sent")
    assert [(await see(store, name)).state for name in "ac"] == ["sent", "delivered"]


async def test_a_creation_that_the_database_finds_illegal_is_reported(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    store = await open_store(url)
    await shell.execute("DELETE FROM interlock.path WHERE source = '' AND target = 'packed'")
    alone = await store.commit(each(creation("a")))
    assert alone == [Illegal(Key("parcel", "a"), "", "packed")]
    mixed = await store.commit(each(creation("a"), creation("b", "lost")))
    assert mixed[0] == Illegal(Key("parcel", "a"), "", "packed")
    assert kinds_of(mixed)[1] is Committed


async def test_only_a_session_that_sets_interlock_vouched_by_hand_bypasses_the_triggers(
    store: PostgresStore, shell: Any
) -> None:
    """The setting ends with the function that has it; only who sets it by hand gets past the triggers."""
    await store.commit(each(move(await see(store, "a"), "sent", note=SENDING)))
    assert await shell.fetchval("SELECT current_setting('interlock.vouched', true)") is None
    await shell.execute(
        "SET interlock.vouched = 'on'; UPDATE interlock.record SET state = 'packed' WHERE id = 'b'"
    )
    await shell.execute("RESET interlock.vouched")
    with pytest.raises(asyncpg.PostgresError, match="cannot become"):
        await shell.execute("UPDATE interlock.record SET state = 'packed' WHERE id = 'c'")


async def test_steps_can_be_read_from_a_shell(store: PostgresStore, shell: Any) -> None:
    await store.commit([Commit(changes=(move(await see(store, "a"), "sent", note=SENDING),))])
    row = await shell.fetchrow("SELECT * FROM interlock.journal_steps ORDER BY xact DESC, entry DESC LIMIT 1")
    assert (row["kind"], row["id"], row["version"], row["source"], row["target"], row["actor"]) == (
        "parcel",
        "a",
        2,
        "packed",
        "sent",
        "bob",
    )


async def test_pruning_deletes_the_records_specs_and_journal_entries_of_ended_records(
    store: PostgresStore, shell: Any
) -> None:
    pruned = await store.prune(kind="parcel", states=["delivered", "lost"], older_than=timedelta(0))
    assert (pruned.records, pruned.entries, pruned.more) == (2, 2, False)
    assert await shell.fetchval("SELECT count(*) FROM interlock.record") == 2
    assert await shell.fetchval("SELECT count(*) FROM interlock.spec") == 2
    assert await shell.fetchval("SELECT count(*) FROM interlock.journal") == 2


async def test_a_record_updated_with_direct_sql_keeps_its_input_result_and_history(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    store = await open_store(url)
    await made(store, creation("a", "delivered", note=PACKING, given=b'{"to":"Ann"}', result=b"[1]"))
    assert await shell.fetchval("SELECT count(*) FROM interlock.ended") == 1
    await shell.execute("UPDATE interlock.record SET priority = 3 WHERE id = 'a'")
    record = await see(store, "a")
    assert (record.state, record.priority) == ("delivered", 3)
    assert (record.given, record.result) == (b'{"to":"Ann"}', b"[1]")
    assert [entry.version for entry in (await store.history(record.key)).entries] == [1]
    pruned = await store.prune(kind="parcel", states=["delivered"], older_than=timedelta(0))
    assert (pruned.records, pruned.entries) == (1, 1)
