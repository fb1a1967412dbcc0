"""A database of schema 11 has one wide table and a row of the journal for each step: it goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from interlock.store.postgres import PostgresStore
from interlock.store.postgres.schema import MIGRATIONS
from interlock.store.records import Committed, Conflict, Key, Pruned, Query
from interlock.testing.servers import PostgresServer
from interlock.testing.store_contract.builders import (
    CATALOGUE,
    DELIVERED,
    LOST,
    SENDING,
    SENT,
    claimed,
    creation,
    each,
    ids_of,
    kinds_of,
    made,
    move,
    see,
    swept,
    take,
    whole_feed,
)

OpenStore = Callable[..., Awaitable[PostgresStore]]

EARLIER = 11
NOTE = '{"steps":[["parcel","","pack","","packed","bob",true]],"actor":"bob"}'
FILL = f"""
INSERT INTO interlock.record (
    created_at, updated_at, kind, id, state, version, body, queue, lane, rank, ready, ready_at, deadline_at,
    labels, parent, priority
)
SELECT at, at + interval '1 second', 'parcel', id, state, version, ('{{"of":"' || id || '"}}')::json,
    'post', 'post', coalesce((extract(epoch FROM ready_at) * 1000000)::bigint, 0),
    coalesce(ready_at < now(), false), ready_at, deadline_at, labels::text[], parent, 0
FROM (VALUES
    (now() - interval '9 days', 'packed', 'packed', 1, now() - interval '1 hour', NULL, '{{}}', NULL),
    (now() - interval '8 days', 'delayed', 'packed', 1, now() + interval '1 hour', NULL, '{{}}', NULL),
    (now() - interval '7 days', 'timed', 'sent', 2, NULL, now() - interval '1 hour', '{{x}}', 'p'),
    (now() - interval '6 days', 'sent', 'sent', 2, NULL, NULL, '{{}}', NULL),
    (now() - interval '5 days', 'delivered', 'delivered', 2, NULL, NULL, '{{x,y}}', 'p'),
    (now() - interval '4 days', 'lost', 'lost', 2, NULL, NULL, '{{}}', NULL),
    (now() - interval '3 days', 'returned', 'returned', 2, NULL, now() + interval '1 hour', '{{}}', NULL)
) AS r (at, id, state, version, ready_at, deadline_at, labels, parent);
INSERT INTO interlock.journal (xact, at, kind, id, version, note)
SELECT pg_current_xact_id()::text::bigint, now(), 'parcel', id, version, '{NOTE}'
FROM (SELECT id, generate_series(1, version) AS version, created_at FROM interlock.record) AS r
ORDER BY created_at, version;
INSERT INTO interlock.request VALUES
    ('r', '/jobs', 'x', 200, 'null', now(), now() + interval '1 hour'),
    ('old', '/jobs', 'x', 200, 'null', now() - interval '2 hours', now() - interval '1 hour');
"""
NAMES = ["packed", "delayed", "timed", "sent", "delivered", "lost", "returned"]


async def fill(shell: Any) -> None:
    """Make the tables as they were, and leave records in every state."""
    await shell.execute("CREATE SCHEMA interlock")
    for migration in MIGRATIONS[:EARLIER]:
        await shell.execute(migration.text)
    await shell.execute(f"UPDATE interlock.meta SET schema_version = {EARLIER}")
    await shell.executemany(
        "INSERT INTO interlock.applied_migration (number, name, fingerprint) VALUES ($1, $2, $3)",
        [(m.number, m.name, m.fingerprint) for m in MIGRATIONS[:EARLIER]],
    )
    parcel = CATALOGUE["parcel"]
    await shell.execute("INSERT INTO interlock.kind VALUES ('parcel', 'packed', 'x')")
    await shell.executemany(
        "INSERT INTO interlock.state VALUES ('parcel', $1, $2)",
        [(state, state in parcel.ended) for state in parcel.states],
    )
    paths = [*parcel.paths, *(("", state) for state in parcel.states)]
    await shell.executemany("INSERT INTO interlock.path VALUES ('parcel', $1, $2)", paths)
    await shell.execute("SET interlock.vouched = 'on'")
    await shell.execute(FILL)
    await shell.execute("RESET interlock.vouched")


@pytest.fixture
def url(server: PostgresServer) -> str:
    """A database without the schema."""
    return server.new_database(template="template0")


async def test_a_database_of_schema_11_is_migrated_with_its_records_journal_cursors_and_requests(
    url: str, open_store: OpenStore, shell: Any
) -> None:
    await fill(shell)
    before = {row["id"]: dict(row) for row in await shell.fetch("SELECT * FROM interlock.record")}
    places = await shell.fetch("SELECT xact, entry, id, version FROM interlock.journal ORDER BY xact, entry")
    store = await open_store(url)
    assert (await store.status()).schema_version == len(MIGRATIONS)

    page = await store.find(Query(kind="parcel", newest_first=False))
    assert [record.id for record in page.records] == NAMES
    for record in page.records:
        row = before[record.id]
        assert record == await see(store, record.id)
        assert (record.given, record.result) == (b"", b"")
        values = (record.state, record.version, record.body.decode(), record.created_at, record.updated_at)
        assert values == tuple(row[name] for name in ("state", "version", "body", "created_at", "updated_at"))
        waits = (record.queue, list(record.labels), record.parent, record.ready_at, record.deadline_at)
        assert waits == tuple(row[name] for name in ("queue", "labels", "parent", "ready_at", "deadline_at"))
    rows = await shell.fetch("SELECT id FROM interlock.ended")
    assert [row["id"] for row in rows] == ["delivered"], "The others wait, or may still become something."
    for query, names in (
        (Query(kind="parcel", labels=("x",), newest_first=False), ["timed", "delivered"]),
        (Query(kind="parcel", parent="p", newest_first=False), ["timed", "delivered"]),
        (Query(kind="parcel", states=(SENT, DELIVERED), newest_first=False), ["timed", "sent", "delivered"]),
    ):
        assert [record.id for record in (await store.find(query)).records] == names

    entries = await whole_feed(store)
    assert [(e.cursor, e.id, e.version) for e in entries] == [(f"{x}.{n}", i, v) for x, n, i, v in places]
    for place, entry in enumerate(entries):
        assert ids_of(await store.feed(entry.cursor)) == [e.id for e in entries[place + 1 :]]
    assert await store.recall("r") is not None

    cursor = await store.latest()
    assert await claimed(store, take(5)) == ["packed"]
    assert await swept(store) == ["timed"]
    await made(store, move(await see(store, "sent"), DELIVERED, note=SENDING, result=b"1"))
    [again] = await made(store, move(await see(store, "delivered"), DELIVERED, note=SENDING))
    assert kinds_of(await store.commit(each(creation("delivered")))) == [Conflict]
    assert ids_of(await whole_feed(store, cursor)) == ["packed", "timed", "sent", "delivered"]
    history = await store.history(again.key)
    assert [entry.version for entry in history.entries] == [1, 2, 3]
    assert kinds_of(await store.commit(each(creation("new", note=SENDING)))) == [Committed]

    status = await store.status()
    assert (status.entries, status.requests) == (12 + 5, 2)
    pruned = await store.prune(kind="parcel", states=(DELIVERED, LOST), older_than=timedelta(0))
    assert pruned == Pruned(3, 3 + 3 + 2, 1)
    assert (await store.history(Key("parcel", "sent"))).entries == ()
    feed = await store.feed()
    assert feed.gap
    assert len(feed.entries) == 17 - 8
    assert (await store.status()).entries == 17 - 8
    assert await store.recall("r") is not None
