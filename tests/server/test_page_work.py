"""What the dashboard asks for costs the store little, whatever the number of jobs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.server.running import Running, any_port, running
from tests.server.store_work import BATCH, CAPS, STEPS, Asked, Work, crowd, taken, watched

from interlock.server.app import every_route
from interlock.wire import filters
from interlock.wire.access import Role
from interlock.wire.jobs import JobSpec

FEW, MORE, VERY_MANY = 1_000, 5_000, 1_000_000
NEARLY = 10_000
"""So much may differ for other reasons than the number of jobs."""
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


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Count the work of every connection that is opened from now on."""
    return watched(monkeypatch)


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
    requests: list[tuple[str, dict[str, str]]] = [(path, {}) for path in paths]
    requests += [("/api/jobs", {"limit": "100", "q": each}) for each in FILTERS]
    return {
        f"{path} {query.get('q', '')}".replace(names["job_id"], "ID").strip(): (path, query)
        for path, query in requests
    }


@pytest.mark.long
async def test_no_page_takes_more_work_because_there_are_more_jobs(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in CAPS:
        monkeypatch.setattr(module, name, BATCH)
    async with running(f"sqlite:///{tmp_path}/jobs.db", any_port(tokens_required=False)) as server:
        await crowd(server, FEW)
        few = await taken(server, work, await asked_by_pages(server))
        await crowd(server, MORE)
        requests = await asked_by_pages(server)
        more = await taken(server, work, requests)
        grown = [name for name in few if more[name] > 2 * few[name] + NEARLY]
        # On a busy machine the server may have looked after the store during every try.
        more |= await taken(server, work, {name: requests[name] for name in grown}, tries=20)
    assert len(few) > len(FILTERS) + 20
    assert {name: (few[name], more[name]) for name in grown if more[name] > 2 * few[name] + NEARLY} == {}


async def test_a_page_of_a_rare_filter_ends_at_the_scan_limit_and_continues_from_its_cursor(
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with running(url) as server:
        await crowd(server, VERY_MANY)
    work = watched(monkeypatch)
    async with running(url, any_port(tokens_required=False)) as server:
        steps = await taken(server, work, await asked_by_pages(server))
    assert {name: number for name, number in steps.items() if number > STEPS} == {}
