"""A server with default settings stands still, alone or with its worker and its database: it costs only time.

The short pauses are those of `make test`: the store's clock is set ahead meanwhile. The long ones are real.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.clocks import move_server
from tests.journeys import errands
from tests.journeys.crew import Place, Worker
from tests.journeys.test_standing_still import PAUSE_S, at_work
from tests.journeys_http.serving import Served
from tests.waiting import PROGRAM_S

from interlock import Interlock
from interlock.lifecycles.durations import DEFAULTS


@pytest.fixture
async def usual(tmp_path: Path, place: Place) -> AsyncIterator[Served]:
    """A crew behind a server, all with the settings that users have."""
    made = Served(tmp_path, place)
    await made.open(DEFAULTS)
    await made.serve()
    yield made
    print(made.story())
    await made.close()
    made.server.close()


@asynccontextmanager
async def frozen_server(crew: Served) -> AsyncIterator[None]:
    await crew.server.freeze()
    try:
        yield
    finally:
        crew.server.thaw()


@asynccontextmanager
async def everything_frozen(crew: Served, worker: Worker, place: Place) -> AsyncIterator[None]:
    """The database is the last to go on: each of the others meets one that does not answer yet."""
    await worker.freeze()
    await crew.server.freeze()
    if place.server is not None:
        place.server.pause()
    try:
        yield
    finally:
        worker.thaw()
        crew.server.thaw()
        if place.server is not None:
            place.server.resume()


async def test_a_task_that_ends_and_a_job_that_is_submitted_while_the_server_is_frozen_are_only_late(
    usual: Served,
) -> None:
    async with Interlock(usual.server.url, token=usual.tokens["somebody"]) as client, at_work(usual):
        async with frozen_server(usual):
            await usual.pass_time(PAUSE_S)
            usual.open_gate("errand.1")
            submitting = asyncio.create_task(client.submit(errands.jot, 2))
            await usual.noted("errand ended 1")
            (view,), _ = await usual.il.jobs()
            assert view.state != "COMPLETED", "nothing has come through"
        made = await submitting
        assert await made.result(timeout_s=PROGRAM_S) == 2


@pytest.mark.parametrize("place", ["postgres", pytest.param("sqlite", marks=pytest.mark.long)], indirect=True)
async def test_a_freeze_of_worker_server_and_database_together_costs_no_attempt(
    usual: Served, place: Place
) -> None:
    async with at_work(usual) as worker, everything_frozen(usual, worker, place):
        usual.open_gate("errand.1")
        if place.server is None:
            await usual.pass_time(PAUSE_S)
        else:
            move_server(place.server, PAUSE_S)
        assert usual.count("errand ended") == 0


@pytest.mark.long
async def test_a_server_that_stands_still_costs_no_attempt(usual: Served) -> None:
    async with at_work(usual), frozen_server(usual):
        await asyncio.sleep(PAUSE_S)


@pytest.mark.long
@pytest.mark.parametrize("place", ["sqlite", "postgres", "redis"], indirect=True)
async def test_a_machine_that_stands_still_with_all_of_them_costs_no_attempt(
    usual: Served, place: Place
) -> None:
    async with at_work(usual) as worker, everything_frozen(usual, worker, place):
        await asyncio.sleep(PAUSE_S)
