"""The server is killed or asked to go while workers and clients need it; it comes back, and all goes on."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
from collections.abc import AsyncIterator

import pytest
from tests.journeys import errands
from tests.journeys_http.serving import Served
from tests.waiting import PROGRAM_S, until

from interlock import Interlock, JobSpec
from interlock.errors import StoreUnavailable
from interlock.testing.proxy import wires_to
from interlock.wire.runner import Answer, ClaimRequest, Complete, Grant, Heard, Message, Succeeded
from interlock.worker.http import HttpOrchestrator


@pytest.fixture
async def still_open() -> AsyncIterator[contextlib.AsyncExitStack]:
    async with contextlib.AsyncExitStack() as stack:
        yield stack


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
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


async def test_a_client_receives_its_result_after_the_server_was_killed_and_restarted(served: Served) -> None:
    await served.start("anna")
    async with Interlock(served.server.url, token=served.tokens["somebody"]) as client:
        made = await client.submit(errands.held, "long")
        await served.noted("long began 1")
        served.server.signal(signal.SIGKILL)
        served.server.start()
        served.open_gate("long.1")
        assert (await made.result(timeout_s=PROGRAM_S)).startswith("attempt 1 in")


async def test_a_server_ends_long_polls_and_exits_on_sigterm_and_its_worker_reconnects(
    served: Served,
) -> None:
    anna = await served.ready("anna")
    assert served.server.signal(signal.SIGTERM) == 0
    served.server.start()
    assert await (await served.il.submit(errands.jot, 5)).result(timeout_s=PROGRAM_S) == 5
    assert anna.exit_code is None


async def test_a_wire_that_is_cut_again_and_again_loses_and_repeats_nothing(served: Served) -> None:
    host, _, port = served.server.url.removeprefix("http://").rpartition(":")
    async with wires_to((host, int(port))) as wires:
        await served.start("anna", "--server", f"http://127.0.0.1:{wires.port}")
        await served.il.submit_many([errands.jot_slowly.spec(number) for number in range(100)])
        for some in range(10, 100, 10):
            await served.noted("jot", times=some)
            await wires.cut_all()
        await served.all_completed(100)
    assert sorted(served.notes) == sorted(f"jot {number}" for number in range(100))
    assert await served.faults() == []


async def test_killed_under_fifty_runners_and_back_within_the_time_to_live(
    served: Served, still_open: contextlib.AsyncExitStack
) -> None:
    ids = [made.id for made in await served.il.submit_many([JobSpec(task="anything")] * 50)]
    ports = [_port(served) for _ in ids]
    held: list[Grant] = []
    for port in ports:
        still_open.push_async_callback(port.disconnect)
        await port.connect()
        held += await port.claim(ClaimRequest(runner_id=f"r{len(held)}"))
    assert sorted(grant.job_id for grant in held) == sorted(ids)

    served.server.signal(signal.SIGKILL)
    reports = [
        asyncio.create_task(
            _surely(
                port,
                Complete(token=grant.token, runner_id=f"r{number}", sequence=1, outcome=Succeeded()),
            )
        )
        for number, (port, grant) in enumerate(zip(ports, held, strict=True))
    ]
    served.server.start()

    assert all(isinstance(answer, Heard) for answer in await asyncio.gather(*reports))
    views = [await served.il.job(job_id) for job_id in ids]
    assert {view.state for view in views} == {"COMPLETED"}
    assert {len(view.attempts) for view in views} == {1}, "nothing was requeued needlessly"
    assert await served.faults() == []


def _port(served: Served) -> HttpOrchestrator:
    return HttpOrchestrator(
        served.server.url, names=lambda: secrets.token_hex(8), token=served.tokens["runners"]
    )


async def _surely(port: HttpOrchestrator, message: Message) -> Answer:
    """Say it until it is answered, as a worker does."""
    answers: list[Answer] = []

    async def heard() -> bool:
        with contextlib.suppress(StoreUnavailable):
            answers.extend(await port.report([message]))
        return bool(answers)

    await until(heard, f"{message} is answered")
    return answers[0]
