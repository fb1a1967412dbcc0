"""The server is killed or asked to go while workers and clients need it; it comes back, and all goes on."""

from __future__ import annotations

import signal

import pytest
from tests.journeys import errands
from tests.journeys_http.serving import Served

from interlock import Interlock


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_task_outlives_the_server_and_is_not_done_again(served: Served, how: signal.Signals) -> None:
    await served.start("anna")
    made = await served.il.submit(errands.held, "long")
    await served.noted("long began 1")

    served.server.signal(how)
    served.open_gate("long.1")
    await served.noted("long ended 1")
    served.server.start()

    view = await served.ended(made.id)
    assert view.state == "COMPLETED"
    assert [attempt.state for attempt in view.attempts] == ["SUCCEEDED"]
    assert view.losses == 0
    assert served.count("long began") == 1
    assert await served.faults() == []


async def test_whoever_waits_for_a_result_gets_it_after_the_server_was_killed(served: Served) -> None:
    await served.start("anna")
    async with Interlock(served.server.url, token=served.tokens["somebody"]) as client:
        made = await client.submit(errands.held, "long")
        await served.noted("long began 1")
        served.server.signal(signal.SIGKILL)
        served.server.start()
        served.open_gate("long.1")
        assert (await made.result(timeout_s=20)).startswith("attempt 1 in")


async def test_a_server_that_is_asked_to_go_ends_long_polls_and_goes(served: Served) -> None:
    anna = await served.ready("anna")
    assert served.server.signal(signal.SIGTERM) == 0
    served.server.start()
    assert await (await served.il.submit(errands.jot, 5)).result(timeout_s=20) == 5
    assert anna.exit_code is None
