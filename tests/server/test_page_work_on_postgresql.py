"""What the dashboard asks for costs PostgreSQL little, whatever the number of jobs: counted in buffers.

Every statement of a request is executed again under `EXPLAIN (ANALYZE, BUFFERS)`, in a transaction that is
rolled back. The number of buffers (pages of 8 kB that were looked at) does not depend on the machine.
"""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import asyncpg
import pytest
from tests.server.running import Running, any_port, running
from tests.server.store_work import BATCH, CAPS, Asked, crowd
from tests.server.test_page_work import asked_by_pages

from interlock.server import queues
from interlock.store.postgres.connections import Session
from interlock.systems import overview
from interlock.systems.figures import figures
from interlock.testing.servers import PostgresServer
from interlock.wire.jobs import JobSpec
from interlock.wire.limits import LimitSpec

FEW, MORE = 1_000, 5_000
NEARLY = 300
"""So many buffers may differ for other reasons than the number of jobs."""
MOST = 20_000
"""Five times what the dearest request looked at; how long that takes was not measured."""
KEYS = 2_000
TRIES = 2

Statement: TypeAlias = tuple[str, tuple[object, ...]]
Shell: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class Statements:
    """The statements of all connections of the store, while they are noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.noted: list[Statement] | None = None
        for name in ("fetch", "within"):
            self._wrap(monkeypatch, name)

    def _wrap(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        own = getattr(Session, name)

        async def noting(session: Session, sql: str, *arguments: object, **more: Any) -> Any:
            if self.noted is not None:
                self.noted.append((sql, arguments))
            return await own(session, sql, *arguments, **more)

        monkeypatch.setattr(Session, name, noting)


async def buffers(shell: Shell, statements: list[Statement]) -> int:
    """Return how many buffers the statements look at."""
    looked_at = 0
    for sql, arguments in statements:
        transaction = shell.transaction()
        await transaction.start()
        try:
            found = await shell.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *arguments)
        finally:
            await transaction.rollback()
        plan = json.loads(found)[0]["Plan"]
        looked_at += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return looked_at


async def taken(server: Running, noting: Statements, shell: Shell, requests: Asked) -> dict[str, int]:
    """Return how many buffers each request looks at.

    Meanwhile the server looks after the store, which adds to some of the tries: the smallest number counts.
    """
    client, most = server.client(), dict[str, int]()
    await shell.execute("ANALYZE")  # as autovacuum does, which tests turn off
    for name, (path, query) in requests.items():
        for _ in range(TRIES):
            noting.noted = []
            answer = await client.get(path, params=query)
            statements, noting.noted = noting.noted, None
            assert answer.status_code in (200, 404, 422), answer.text
            most[name] = min(most.get(name, MOST * 1_000), await buffers(shell, statements))
    return most


async def limit_many(server: Running) -> Asked:
    """Have many keys of a limit in use; return what the pages of limits ask for."""
    runtime = server.parts.runtime
    await runtime.limits.set("tenant:*", LimitSpec(max=1))
    for start in range(0, KEYS, BATCH):
        numbers = range(start, min(start + BATCH, KEYS))
        specs = [JobSpec(task="shop.call", limits=(f"tenant:{number}",)) for number in numbers for _ in "12"]
        await runtime.jobs.submit_many(specs, actor="test")
        while await runtime.limits.keep():
            pass
    return {
        "limits": ("/api/limits", {"keys": "1", "limit": "50"}),
        "its keys": ("/api/limits/keys", {"limit": "tenant:*"}),
        "a key": ("/api/limits/show", {"limit": "tenant:7"}),
    }


@pytest.mark.long  # test_page_work.py counts the steps of SQLite, for less
async def test_the_postgresql_buffers_read_by_each_dashboard_request_stay_bounded_as_jobs_are_added(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (overview, figures, queues):
        monkeypatch.setattr(module, "FRESH_S", 0.0)
    for module, name in CAPS:
        monkeypatch.setattr(module, name, BATCH)
    noting, url = Statements(monkeypatch), postgres.new_database()
    shell: Shell = await asyncpg.connect(url)
    try:
        async with running(url, any_port(tokens_required=False)) as server:
            limits = await limit_many(server)
            await crowd(server, FEW)
            few = await taken(server, noting, shell, await asked_by_pages(server))
            await crowd(server, MORE)
            requests = await asked_by_pages(server)
            more = await taken(server, noting, shell, requests | limits)
        assert len(few) > 30
        assert {name: number for name, number in more.items() if number > MOST} == {}
        assert {name: (few[name], more[name]) for name in few if more[name] > 2 * few[name] + NEARLY} == {}
        every: list[Statement] = [
            ("SELECT count(*) FROM (SELECT kind, id, body FROM interlock.live OFFSET 0) AS one", ())
        ]
        assert await buffers(shell, every) > NEARLY, "a look at every job is noticed"
    finally:
        await shell.close()
