"""The worker's port over HTTP, against a real server and over a wire that can be cut."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec
import pytest
from tests.server.running import ANY_PORT, FOR_EVER_S, Running, any_port, running
from tests.waiting import PATIENCE_S
from tests.worker.board import Clock

from interlock.engine.clock import StoreClock
from interlock.errors import InvalidSettings, ServerRefused, StoreUnavailable
from interlock.server.api import runner as protocol
from interlock.server.routes import Call
from interlock.store.memory import MemoryStore
from interlock.testing.proxy import LostPart, Wires, wires_to
from interlock.wire.access import Role
from interlock.wire.runner import (
    Ack,
    CancelAck,
    ClaimRequest,
    Complete,
    Grant,
    Heard,
    Heartbeat,
    LogLine,
    Message,
    NotHeard,
    Progress,
    Release,
    Stale,
    Succeeded,
)
from interlock.worker.http import HttpOrchestrator

T = TypeVar("T")
ASKED = ClaimRequest(runner_id="r")


@asynccontextmanager
async def port_to(
    url: str, *, token: str | None = None, monotonic: Callable[[], float] = time.monotonic
) -> AsyncIterator[HttpOrchestrator]:
    """A port that is connected, and waits for work for ever."""
    names = itertools.count()
    port = HttpOrchestrator(
        url, names=lambda: str(next(names)), token=token, wait_s=FOR_EVER_S, monotonic=monotonic
    )
    try:
        await port.connect()
        yield port
    finally:
        await port.disconnect()


@pytest.fixture
async def server() -> AsyncIterator[Running]:
    async with running() as one:
        yield one


def set_clock(server: Running, clock: Clock) -> None:
    """Let the time of a server pass only with this clock."""
    began, store, here = datetime.now(UTC), server.parts.store, server.parts.runtime.engine.clock
    assert isinstance(store, MemoryStore)
    assert isinstance(here, StoreClock)
    store._clock = lambda: began + timedelta(seconds=clock())
    here._monotonic, here._read_at = clock, float("-inf")


@pytest.fixture
async def port(server: Running) -> AsyncIterator[HttpOrchestrator]:
    async with port_to(server.url) as one:
        yield one


def said(grant: Grant, sequence: int = 1) -> dict[str, object]:
    """What all messages have."""
    return {"token": grant.token, "runner_id": "r", "sequence": sequence}


async def test_work_is_claimed_and_reported(server: Running, port: HttpOrchestrator) -> None:
    job_id = await server.submit(input=msgspec.Raw(b'{"order":17}'))
    (grant,) = await port.claim(ASKED)
    assert (grant.job_id, bytes(grant.input)) == (job_id, b'{"order":17}')
    (answer,) = await port.report([Complete(**said(grant), outcome=Succeeded(msgspec.Raw(b"1")))])  # type: ignore[arg-type]
    assert isinstance(answer, Heard)
    assert (await server.parts.runtime.jobs.get(job_id)).state == "COMPLETED"


async def test_the_first_claim_does_not_wait_and_the_next_one_does(
    server: Running, port: HttpOrchestrator
) -> None:
    woken: list[bool] = []
    port.subscribe(lambda: woken.append(True))
    assert await port.claim(ASKED) == []
    assert woken == [True], "whoever has waited at the server need not pause here"
    waiting = asyncio.create_task(port.claim(ASKED))
    await waiters(server, 1)
    job_id = await server.submit()
    assert [grant.job_id for grant in await waiting] == [job_id]


async def test_a_worker_that_shuts_down_does_not_wait_for_the_end_of_a_poll(
    server: Running, port: HttpOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_WAIT_S", FOR_EVER_S)
    await port.claim(ASKED)
    waiting = asyncio.create_task(port.claim(ASKED))
    await waiters(server, 1)
    port.stop_waiting()
    async with asyncio.timeout(PATIENCE_S):
        assert await waiting == []
    await waiters(server, 0)
    await server.submit()
    assert len(await port.claim(ASKED)) == 1, "what there is can still be had"


async def test_a_lease_is_counted_from_its_grant_and_not_from_the_start_of_the_long_poll(
    server: Running,
) -> None:
    clock = Clock()
    set_clock(server, clock)
    async with port_to(server.url, monotonic=clock) as port:
        await port.claim(ASKED)
        waiting = asyncio.create_task(port.claim(ASKED))
        await waiters(server, 1)
        clock.move(20.0)
        await server.submit()
        await waiting
    assert port.granted_after == pytest.approx(clock(), abs=0.001), "20 s after it began to wait"


async def test_the_time_is_the_servers_and_is_counted_on_from_there(server: Running) -> None:
    clock = Clock()
    before = await server.parts.store.now()
    async with port_to(server.url, monotonic=clock) as port:
        server_time = await port.now()
        clock.move(20.0)
        assert await port.now() == server_time + timedelta(seconds=20)
    assert before <= server_time <= await server.parts.store.now()
    with pytest.raises(StoreUnavailable):
        await HttpOrchestrator(server.url, names=str).now()


async def test_messages_are_sent_in_as_few_requests_as_the_limits_of_the_server_allow(
    server: Running, port: HttpOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_sizes: list[int] = []
    named = protocol._named_messages

    def counted(call: Call, messages: Sequence[Message]) -> list[Message]:
        batch_sizes.append(len(messages))
        return named(call, messages)

    monkeypatch.setattr(protocol, "_named_messages", counted)
    for _ in range(6):
        await server.submit()
    grants = await port.claim(msgspec.structs.replace(ASKED, limit=6))
    large = Succeeded(msgspec.Raw(b'"%s"' % (b"x" * 250_000)))
    messages = [Complete(**said(grant), outcome=large) for grant in grants]  # type: ignore[arg-type]
    answers = await port.report(messages)
    assert [type(answer) for answer in answers] == [Heard] * 6
    assert batch_sizes == [4, 2]
    many = [Heartbeat(**said(grants[0]))] * 501  # type: ignore[arg-type]
    assert len(await port.report(many)) == 501
    assert batch_sizes == [4, 2, 500, 1]


async def test_one_message_that_no_request_can_hold_is_answered_as_too_large(
    server: Running, port: HttpOrchestrator
) -> None:
    for _ in range(2):
        await server.submit()
    first, second = await port.claim(msgspec.structs.replace(ASKED, limit=2))
    huge = Succeeded(msgspec.Raw(b'"%s"' % (b"x" * 2_000_000)))
    answers = await port.report(
        [Complete(**said(first), outcome=huge), Complete(**said(second), outcome=Succeeded())]  # type: ignore[arg-type]
    )
    assert isinstance(answers[0], NotHeard)
    assert answers[0].code == "too_large"
    assert isinstance(answers[1], Heard)


async def test_a_message_with_an_unknown_lease_token_returns_stale_and_raises_no_error(
    port: HttpOrchestrator,
) -> None:
    (answer,) = await port.report([Heartbeat(token="nonsense", runner_id="r", sequence=1)])
    assert isinstance(answer, Stale)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    port = HttpOrchestrator("http://127.0.0.1:9", names=str, timeout_s=PATIENCE_S)
    try:
        with pytest.raises(StoreUnavailable, match=r"http://127\.0\.0\.1:9 did not respond"):
            await port.connect()
    finally:
        await port.disconnect()
    with pytest.raises(StoreUnavailable, match="Not connected"):
        await port.claim(ASKED)


@pytest.mark.parametrize("url", ["http://[nonsense", "http://host:port", "http://"])
async def test_an_address_that_is_none_is_reported(url: str) -> None:
    port = HttpOrchestrator(url, names=str, timeout_s=PATIENCE_S)
    try:
        with pytest.raises((InvalidSettings, StoreUnavailable)):
            await port.connect()
    finally:
        await port.disconnect()


async def test_a_refused_worker_learns_why() -> None:
    async with running(settings=any_port(tokens_required=True)) as server:
        for token, code in ((None, "not_signed_in"), (await server.token(Role.ADMIN), "not_allowed")):
            with pytest.raises(ServerRefused) as refused:
                async with port_to(server.url, token=token):
                    pass
            assert refused.value.facts["code"] == code
        async with port_to(server.url, token=await server.token(Role.RUNNER)) as port:
            assert await port.claim(ASKED) == []


async def test_a_server_of_another_protocol_is_refused(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.worker.http.PROTOCOL", 2)
    with pytest.raises(ServerRefused, match="speaks version 1"):
        async with port_to(server.url):
            pass


# Over a wire that is cut


@pytest.fixture
async def wires(server: Running) -> AsyncIterator[Wires]:
    async with wires_to(server.address) as made:
        yield made


async def surely(ask: Callable[[], Awaitable[T]]) -> T:
    """What a worker does: say it again until it is answered."""
    for _ in range(5):
        try:
            return await ask()
        except StoreUnavailable:
            continue
    raise AssertionError("no answer after five times")


STAGES = {
    "greet": b"GET /api/runner ",
    "lease": b"POST /api/runner/lease",
    "ack": b'"type":"ack"',
    "heartbeat": b'"type":"heartbeat"',
    "log": b"hello from r",
    "complete": b'"type":"complete"',
    "cancel-ack": b'"type":"cancel-ack"',
    "release": b'"type":"release"',
}
HELLO = LogLine(datetime(2026, 5, 1, tzinfo=UTC), "info", "hello from r")


async def life(server: Running, port: HttpOrchestrator, end: str) -> str:
    """Everything that a runner says about one attempt, up to one of its ends; the id of the job."""
    job_id = await server.submit()
    (grant,) = await surely(lambda: port.claim(msgspec.structs.replace(ASKED, acknowledge=False)))

    async def say(message: Message) -> None:
        (answer,) = await surely(lambda: port.report([message]))
        assert isinstance(answer, Heard), answer

    await say(Ack(**said(grant, 1)))  # type: ignore[arg-type]
    await say(Heartbeat(**said(grant, 2), progress=Progress(done=1, total=2)))  # type: ignore[arg-type]
    await say(Heartbeat(**said(grant, 3), log=(HELLO,)))  # type: ignore[arg-type]
    match end:
        case "cancel-ack":
            await server.parts.runtime.jobs.cancel(job_id)
            await say(CancelAck(**said(grant, 4)))  # type: ignore[arg-type]
        case "release":
            await say(Release(**said(grant, 4)))  # type: ignore[arg-type]
        case _:
            await say(Complete(**said(grant, 4), outcome=Succeeded(msgspec.Raw(b"1"))))  # type: ignore[arg-type]
    return job_id


@pytest.mark.parametrize("loss", ["request", "reply"])
@pytest.mark.parametrize("stage", STAGES)
async def test_a_wire_that_is_cut_loses_nothing_and_does_nothing_twice(
    server: Running, wires: Wires, stage: str, loss: LostPart
) -> None:
    straight = await _story(server, server.url, stage)
    wires.losses[STAGES[stage]] = loss
    cut = await _story(server, f"http://127.0.0.1:{wires.port}", stage)
    assert not wires.losses, "the wire was cut"
    if (stage, loss) == ("lease", "reply"):  # what is answered again is renewed, and nothing else
        *before, version = straight
        assert isinstance(version, int)
        straight = (*before, version + 1)
    assert cut == straight


async def _story(server: Running, url: str, end: str) -> tuple[object, ...]:
    """One life, and all that the store says about it."""
    names = itertools.count()
    port = HttpOrchestrator(url, names=lambda: f"{url} {next(names)}", wait_s=1.0)
    try:
        await surely(port.connect)
        job_id = await life(server, port, end)
        # What was given back is there for others; here it is put out of the way.
        jobs = server.parts.runtime.jobs
        view = await jobs.get(job_id)
        if end == "release":
            await jobs.cancel(job_id)
    finally:
        await port.disconnect()
    steps = [
        (step.machine, step.event, step.target)
        for entry in await jobs.history(job_id)
        for step in entry.note.steps
    ]
    lines = [line.text async for chunk in jobs.logs(job_id) for line in chunk.lines]
    return steps, lines, view.state, [attempt.state for attempt in view.attempts], view.version


async def test_a_connection_that_is_cut_during_a_poll_loses_no_job(server: Running, wires: Wires) -> None:
    async with port_to(f"http://127.0.0.1:{wires.port}") as port:
        await port.claim(ASKED)
        waiting = asyncio.create_task(port.claim(ASKED))
        await waiters(server, 1)
        await wires.cut_all()
        job_id = await server.submit()
        async with asyncio.timeout(PATIENCE_S):
            assert [grant.job_id for grant in await waiting] == [job_id]
        assert len((await server.parts.runtime.jobs.get(job_id)).attempts) == 1


async def waiters(server: Running, number: int) -> None:
    """Until so many wait at the server."""
    async with asyncio.timeout(PATIENCE_S):
        while server.parts.long_poll.waiting != number:
            await asyncio.sleep(0)


async def test_a_server_that_is_stopped_responds_to_a_waiting_claim_with_no_grants() -> None:
    async with running(settings=ANY_PORT) as server, port_to(server.url) as port:
        await port.claim(ASKED)
        waiting = asyncio.create_task(port.claim(ASKED))
        await waiters(server, 1)
        server.listener.stop()
        assert await waiting == []
