"""A worker behind a server is told of a stop at once: its heartbeats come once in a while."""

from __future__ import annotations

import signal

import pytest
from tests.journeys import errands
from tests.journeys.test_cancel_and_timeouts import SELDOM_HEARD
from tests.journeys_http.serving import Served

from interlock import Interlock


@pytest.mark.parametrize("through", ["its server", "the store"])
async def test_a_cancel_reaches_a_handler_behind_a_server_before_its_next_heartbeat(
    served: Served, through: str
) -> None:
    """What somebody else has written to the store is read there by the server."""
    served.server.signal(signal.SIGTERM)
    await served.open(SELDOM_HEARD)
    served.server.start()
    anna = await served.start("anna")
    made = await served.il.submit(errands.quiet)
    await served.noted("quiet began")
    await anna.says("worker_registered")
    if through == "its server":
        async with Interlock(served.server.url, token=served.tokens["somebody"]) as client:
            await client.cancel(made.id)
    else:
        await made.cancel()
    await served.noted("quiet stopped")
    assert (await served.ended(made.id)).state == "CANCELED"
    assert await served.faults() == []
