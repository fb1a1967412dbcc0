"""What requests cost a store on SQLite: steps of its virtual machine and statements, never time."""

from __future__ import annotations

import sqlite3
import sys

import pytest
from tests.server.running import Running

from interlock.server.api import jobs as api_jobs
from interlock.server.api import machines, visibility
from interlock.store.sqlite import database
from interlock.systems import overview
from interlock.systems.figures import figures
from interlock.systems.orchestrator import jobs as orchestrator_jobs
from interlock.systems.orchestrator import queues as orchestrator_queues
from interlock.wire import filters
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import ClaimRequest, Complete, Failed, Succeeded

BATCH = 500
GRAIN = 100
STEPS = 1_000_000
"""SQLite takes 20 million steps of its virtual machine in a second, so these are 50 ms."""
CAPS = (
    (overview, "CAP"),
    (api_jobs, "MAX_COUNT"),
    (api_jobs, "LOOKED_AT"),
    (filters, "LOOKED_AT"),
    (machines, "COUNTED"),
    (visibility, "MOST"),
    (orchestrator_jobs, "MAX_COUNT"),
    (orchestrator_queues, "MAX_COUNT"),
    (orchestrator_queues, "LOOKED_AT"),
)
"""Where looking ends: above them the number of jobs makes no difference."""

Asked = dict[str, tuple[str, dict[str, str]]]
"""Requests by a name that is the same for every store: their path and their query."""


class Work:
    """How many steps the virtual machine of SQLite has taken, in all connections together, and for what."""

    def __init__(self, notes: bool) -> None:
        """`notes` keeps the statements too, which costs much where a store is being filled."""
        self.steps = 0
        self.statements: set[str] = set()
        self.notes = notes
        self.noting = False
        """Whether statements are noted now."""

    def watch(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        def step() -> int:
            self.steps += GRAIN
            return 0

        connection.set_progress_handler(step, GRAIN)
        if self.notes:
            connection.set_trace_callback(self._note)
        return connection

    def _note(self, statement: str) -> None:
        if self.noting:
            self.statements.add(statement)


def watched(monkeypatch: pytest.MonkeyPatch, *, notes: bool = False) -> Work:
    """Count the work of every connection that is opened from now on."""
    counted, connect = Work(notes), database.connect
    for module in (database, *_users_of(connect)):
        monkeypatch.setattr(module, "connect", lambda path: counted.watch(connect(path)))
    monkeypatch.setattr(overview, "FRESH_S", 0.0)
    monkeypatch.setattr(figures, "FRESH_S", 0.0)
    return counted


def _users_of(connect: object) -> list[object]:
    return [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("interlock.store.sqlite") and getattr(module, "connect", None) is connect
    ]


def counts_a_table(connection: sqlite3.Connection, statement: str) -> bool:
    """Return whether a statement counts all rows of a table or index, which SQLite does in one step."""
    return any(row[1] == "Count" for row in connection.execute(f"EXPLAIN {statement}"))


async def crowd(server: Running, number: int) -> None:
    """Submit so many jobs to some queues, of which some have failed, ended or run."""
    jobs, orchestrator = server.parts.runtime.jobs, server.parts.runtime.orchestrator
    for start in range(0, number, BATCH):
        queue = f"queue-{start // BATCH % 7}"
        specs = [JobSpec(task="shop.send", queue=queue, labels=("usual",)) for _ in range(BATCH)]
        await jobs.submit_many(specs, actor="test")
    request = ClaimRequest(runner_id="r", limit=100, queues=("queue-0", "queue-1"), labels=("usual",))
    for outcome in (Succeeded(), Failed(failure_class="user", error="It broke."), None):
        for grant in await orchestrator.claim(request):
            if outcome is not None:
                done = Complete(token=grant.token, runner_id="r", sequence=1, outcome=outcome)
                await orchestrator.report([done])


async def taken(server: Running, work: Work, requests: Asked, tries: int = 3) -> dict[str, int]:
    """Return how many steps each request takes.

    Meanwhile the server looks after the store, which adds to some of the tries: the smallest number counts.
    """
    client, steps = server.client(), dict.fromkeys(requests, sys.maxsize)
    for name, (path, query) in requests.items():
        for _ in range(tries):
            before = work.steps
            answer = await client.get(path, params=query)
            assert answer.status_code in (200, 404, 422), answer.text
            steps[name] = min(steps[name], work.steps - before)
    return steps
