"""A crew whose workers and clients reach the jobs in one way or the other."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.journeys.conftest import place
from tests.journeys.crew import Crew, Place
from tests.journeys_http.serving import Served

from interlock.client import Interlock

__all__ = ["place"]


@pytest.fixture
async def served(tmp_path: Path, place: Place) -> AsyncIterator[Served]:
    """A crew behind a server."""
    made = Served(tmp_path, place)
    await made.open()
    await made.serve()
    yield made
    print(made.story())
    await made.close()
    made.server.close()


# Most of what is done here with a store is done in `tests/journeys` as well.
@pytest.fixture(params=[pytest.param("store", marks=pytest.mark.long), "server"])
async def crew(request: pytest.FixtureRequest, tmp_path: Path, place: Place) -> AsyncIterator[Crew]:
    """A crew of either kind."""
    made = Crew(tmp_path, place) if request.param == "store" else Served(tmp_path, place)
    await made.open()
    if isinstance(made, Served):
        await made.serve()
    yield made
    print(made.story())  # shown only where a test has failed
    await made.close()
    if isinstance(made, Served):
        made.server.close()


@pytest.fixture
async def client(crew: Crew) -> AsyncIterator[Interlock]:
    """What a program uses that reaches the jobs in the same way as the crew does."""
    if isinstance(crew, Served):
        client = Interlock(crew.server.url, token=crew.tokens["somebody"])
    else:
        client = crew.il
    async with contextlib.AsyncExitStack() as stack:
        yield client if client is crew.il else await stack.enter_async_context(client)
