"""What the dashboard asks for costs the store little, whatever the number of jobs."""

from __future__ import annotations

import re
import sqlite3
import sys
from pathlib import Path

import pytest
from tests.server.running import Running, any_port, running

from interlock.server import overview
from interlock.server.api import jobs as api_jobs
from interlock.server.api import machines, visibility
from interlock.server.app import every_route
from interlock.store.sqlite import database
from interlock.systems.figures import figures
from interlock.wire import filters
from interlock.wire.access import Role
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import ClaimRequest, Complete, Failed, Succeeded

FEW, MORE, VERY_MANY = 1_000, 5_000, 1_000_000
BATCH = 500
GRAIN = 100
STEPS = 1_000_000
"""SQLite takes 20 million steps of its virtual machine in a second, so these are 50 ms."""
NEARLY = 10_000
"""So much may differ for other reasons than the number of jobs."""
CAPS = (
    (overview, "CAP"),
    (api_jobs, "MAX_COUNT"),
    (api_jobs, "LOOKED_AT"),
    (filters, "LOOKED_AT"),
    (machines, "COUNTED"),
    (visibility, "MOST"),
)
"""Where looking ends: above them the number of jobs makes no difference."""
FILTERS = (
    "state:pending",
    "state:failed since:1d",
    "task:shop.rare",
    "since:1h",
    "-state:pending",
    "queue:nosuch",
    "label:nosuch",
    "label:usual queue:nosuch state:pending",
    "queue:queue-0",
)


class Work:
    """How many steps the virtual machine of SQLite has taken, in all connections together."""

    def __init__(self) -> None:
        self.steps = 0

    def watch(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        def step() -> int:
            self.steps += GRAIN
            return 0

        connection.set_progress_handler(step, GRAIN)
        return connection


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Count the work of every connection that is opened from now on."""
    counted, connect = Work(), database.connect
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
                await orchestrator.hear([done])


Asked = dict[str, tuple[str, dict[str, str]]]
"""Requests by a name that is the same for every store: their path and their query."""


async def asked_by_pages(server: Running) -> Asked:
    """Return every request that a page may make."""
    found = await server.client().get("/api/jobs", params={"limit": 1, "q": "state:failed"})
    names = {"job_id": found.json()["jobs"][0]["id"], "name": "job"}
    paths = [
        route.path.format(**names)
        for route in every_route()
        if route.method == "GET" and route.bounded and route.role in (Role.VIEWER, Role.ADMIN)
        if set(re.findall(r"{(\w+)}", route.path)) <= {"job_id"}
        or route.path.startswith("/api/machines/{name}")
    ]
    asked: list[tuple[str, dict[str, str]]] = [(path, {}) for path in paths]
    asked += [("/api/jobs", {"limit": "100", "q": each}) for each in FILTERS]
    return {
        f"{path} {query.get('q', '')}".replace(names["job_id"], "ID").strip(): (path, query)
        for path, query in asked
    }


async def taken(server: Running, work: Work, asked: Asked, tries: int = 3) -> dict[str, int]:
    """Return how many steps each request takes.

    Meanwhile the server looks after the store, which adds to some of the tries: the smallest number counts.
    """
    client, steps = server.client(), dict.fromkeys(asked, sys.maxsize)
    for name, (path, query) in asked.items():
        for _ in range(tries):
            before = work.steps
            answer = await client.get(path, params=query)
            assert answer.status_code in (200, 404, 422), answer.text
            steps[name] = min(steps[name], work.steps - before)
    return steps


async def test_no_page_takes_more_work_because_there_are_more_jobs(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in CAPS:
        monkeypatch.setattr(module, name, BATCH)
    async with running(f"sqlite:///{tmp_path}/jobs.db", any_port(tokens_required=False)) as server:
        await crowd(server, FEW)
        few = await taken(server, work, await asked_by_pages(server))
        await crowd(server, MORE)
        asked = await asked_by_pages(server)
        more = await taken(server, work, asked)
        grown = [name for name in few if more[name] > 2 * few[name] + NEARLY]
        # On a busy machine the server may have looked after the store during every try.
        more |= await taken(server, work, {name: asked[name] for name in grown}, tries=20)
    assert len(few) > len(FILTERS) + 20
    assert {name: (few[name], more[name]) for name in grown if more[name] > 2 * few[name] + NEARLY} == {}


async def test_a_page_of_what_is_rare_ends_early_and_goes_on_by_its_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "LOOKED_AT", 10)
    async with running(f"sqlite:///{tmp_path}/jobs.db", any_port(tokens_required=False)) as server:
        jobs = server.parts.runtime.jobs
        rare = await jobs.submit(JobSpec(task="shop.send", queue="rare"), actor="test")
        await jobs.submit_many([JobSpec(task="shop.send") for _ in range(25)], actor="test")
        pages = [(await server.client().get("/api/jobs", params={"q": "queue:rare"})).json()]
        while pages[-1]["cursor"]:
            query = {"q": "queue:rare", "cursor": pages[-1]["cursor"]}
            pages.append((await server.client().get("/api/jobs", params=query)).json())
    assert [[job["id"] for job in page["jobs"]] for page in pages] == [[], [], [rare]]
    assert pages[0]["count"] == {"number": 0, "capped": True}


@pytest.mark.long
async def test_no_page_takes_fifty_milliseconds_of_work_with_a_million_jobs(
    work: Work, tmp_path: Path
) -> None:
    async with running(f"sqlite:///{tmp_path}/jobs.db", any_port(tokens_required=False)) as server:
        await crowd(server, VERY_MANY)
        steps = await taken(server, work, await asked_by_pages(server))
    assert {name: number for name, number in steps.items() if number > STEPS} == {}
