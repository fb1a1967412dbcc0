"""A pull request from a fork on a real shell worker: it finds and leaves nothing that others use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.server.running import running
from tests.waiting import PATIENCE_S, pause
from tests.worker.conftest import Start
from tests.worker.test_artifacts import Place

from interlock.wire.jobs import SHELL
from interlock.wire.runs import Plan, PlannedJob, RunSpec, Source
from interlock.worker.tasks import Registry

HERE = Source(repository="acme/shop", ref="refs/heads/main", sha="a" * 40)
FORK = Source(repository="acme/shop", ref="refs/pull/7/head", sha="b" * 40, pull_request=7, from_fork=True)
STEPS = """
test -e lib/a && echo "found $(cat lib/a)"
mkdir -p lib
echo "$WHICH" >lib/a
"""


@pytest.fixture
def registry() -> Registry:
    """Nothing has to be registered for a shell."""
    return Registry()


@pytest.fixture(params=["store", "server"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with running(url) as server:
        yield Place(server, url, request.param)


async def lines(place: Place, which: str, source: Source) -> list[str]:
    """What the only job of a run has written; a run of a fork is approved."""
    given = {
        "run": STEPS,
        "env": {"WHICH": which},
        "caches": [{"key": "k", "path": "lib"}],
        "workspace": True,
    }
    job = PlannedJob(name="a", task=SHELL, input=msgspec.Raw(msgspec.json.encode(given)))
    runs = place.services.runs
    run = await runs.submit(RunSpec(plan=Plan(jobs=(job,)), source=source, concurrency_group=""))
    async with asyncio.timeout(PATIENCE_S):
        while (view := await runs.view(run.id)).outcome is None:
            if view.state == "AWAITING_APPROVAL":
                await runs.approve(run.id, actor="olga")
            await pause()
    assert view.outcome == "SUCCESS", view
    return [line for line in await place.lines(view.jobs[0].job_id) if line.startswith(("found", "Cache: "))]


async def test_a_fork_on_a_shell_worker_finds_and_leaves_nothing_that_others_use(
    place: Place, start: Start
) -> None:
    start(connect=place.connect, supervised=False, queues=("default", "untrusted"))
    await lines(place, "trusted", HERE)
    first = await lines(place, "poisoned", FORK)
    assert [line.partition(",")[0] for line in first] == [
        "Cache: there is no cache k.",
        "Cache: saved k",
    ]
    assert "found trusted" in await lines(place, "trusted", HERE)
    assert "found poisoned" in await lines(place, "again", FORK)
