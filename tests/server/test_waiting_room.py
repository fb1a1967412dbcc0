"""Runners that wait: news wakes as few of them as can use it, and nobody waits for a ghost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.waiting import PATIENCE_S, until

from interlock.engine.clock import StoreClock
from interlock.errors import ClaimOver, StoreUnavailable
from interlock.server import long_poll
from interlock.server.long_poll import LongPoll, claims_together
from interlock.store.memory import MemoryStore
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.orchestrator.orchestrator import Claimed
from interlock.systems.runtime import Runtime
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.testing.clocks import VirtualTime
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import ClaimRequest, Grant

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Room:
    """A waiting room, with a count of what it costs."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.room = LongPoll(runtime.store)
        self.stopping = asyncio.Event()
        self.claims = 0
        self.given_back: list[Grant] = []
        self.before_answer: Callable[[], Any] = lambda: None
        self.failing = False

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """A claim at the store, counted."""
        self.claims += 1
        if self.failing:
            raise StoreUnavailable("The store is away.")
        grants = await self.runtime.orchestrator.claim(request)
        self.before_answer()
        return grants

    async def give_back(self, grants: list[Grant]) -> None:
        """Nobody took them."""
        self.given_back += grants
        await self.runtime.orchestrator.take_back("r0", grants)

    def wait(self, runner: str = "r0", wait_s: float = 60.0, **fields: Any) -> asyncio.Task[list[Grant]]:
        """Somebody who waits."""
        return asyncio.create_task(
            self.room.claim(
                "somebody",
                ClaimRequest(runner_id=runner, **fields),
                self.claim,
                self.give_back,
                within_s=wait_s,
                unless=self.stopping,
            )
        )

    async def submit(self, number: int = 1, **spec: Any) -> list[str]:
        """New work."""
        return await self.runtime.jobs.submit_many([JobSpec(task="t", **spec)] * number)

    async def until(self, true: Callable[[], bool]) -> None:
        """Give everybody a turn until it is true."""
        await until(true, "the room has come that far")

    async def settled(self) -> None:
        """Until nobody looks any more: two looks at the same number of claims, a calm apart."""
        before = -1
        while before != self.claims:
            before = self.claims
            await self._calm()

    async def _calm(self) -> None:
        loop = asyncio.get_running_loop()
        over = loop.time() + 2 * long_poll.CALM_S
        await until(lambda: loop.time() > over, "a calm is over")


@pytest.fixture
async def room(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Room]:
    """A room in which time passes only while everybody waits."""
    monkeypatch.setattr(long_poll, "LOOK_EVERY_S", 3_600.0)  # only news wakes somebody, or a test says so
    loop = asyncio.get_running_loop()
    with VirtualTime(loop).in_place():
        store = MemoryStore(CATALOGUE, clock=lambda: NOON + timedelta(seconds=loop.time()))
        await store.open()
        runtime = Runtime(store, DEFAULT_SETTINGS)
        clock = runtime.engine.clock
        assert isinstance(clock, StoreClock)
        clock._monotonic = loop.time  # or it would be ahead of the store
        made = Room(runtime)
        yield made
        made.stopping.set()
        made.room.close()
        await runtime.close()


async def test_of_two_hundred_that_wait_one_job_wakes_two(room: Room) -> None:
    waiting = [room.wait(f"r{number}") for number in range(200)]
    await room.until(lambda: room.room.waiting == 200)
    assert room.claims == 200, "each has looked once, when it came"

    (job_id,) = await room.submit()
    await room.until(lambda: any(task.done() for task in waiting))
    await room.settled()

    given = [task.result() for task in waiting if task.done()]
    assert [[grant.job_id for grant in grants] for grants in given] == [[job_id]]
    # Whoever has found it has called the next one, who found nothing; the grant itself was news as well.
    assert room.claims - 200 <= 3
    room.stopping.set()
    await asyncio.gather(*waiting)


async def test_ten_new_jobs_are_granted_at_once_to_ten_different_waiting_workers(room: Room) -> None:
    waiting = [room.wait(f"r{number}") for number in range(20)]
    await room.until(lambda: room.room.waiting == 20)
    await room.submit(10)
    await room.until(lambda: sum(task.done() for task in waiting) == 10)
    jobs = [task.result()[0].job_id for task in waiting if task.done()]
    assert len(set(jobs)) == 10
    room.stopping.set()
    await asyncio.gather(*waiting)


async def test_the_first_to_come_is_the_first_to_be_given_work(room: Room) -> None:
    first = room.wait("first")
    await room.until(lambda: room.room.waiting == 1)
    second = room.wait("second")
    await room.until(lambda: room.room.waiting == 2)
    await room.submit()
    assert len(await first) == 1
    assert not second.done()
    second.cancel()


async def test_a_new_job_is_granted_only_to_a_worker_that_waits_for_its_queue(room: Room) -> None:
    mail, ci = room.wait("m", queues=("mail",)), room.wait("c", queues=("ci",))
    await room.until(lambda: room.room.waiting == 2)
    await room.submit(queue="ci")
    assert len(await ci) == 1
    assert not mail.done()
    mail.cancel()


async def test_a_waiting_worker_claims_at_a_limited_rate_while_another_queue_is_busy(room: Room) -> None:
    waiting = room.wait("m", queues=("mail",))
    await room.until(lambda: room.room.waiting == 1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(300):
        await room.submit(queue="ci")
    took_s = loop.time() - began
    assert room.claims <= 3 + took_s / long_poll.CALM_S
    await room.submit(queue="mail")
    assert len(await waiting) == 1, "what comes while it is left alone is still found"


async def test_work_that_becomes_ready_by_itself_is_found_by_the_first_in_line(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_poll, "LOOK_EVERY_S", 0.1)
    await room.submit(delay_s=0.25)
    waiting = [room.wait(f"r{number}") for number in range(50)]
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE_S)
    assert len(done) == 1
    assert room.claims < 50 + 50, "not each of them looks each time"
    room.stopping.set()
    await asyncio.gather(*waiting)


async def test_an_unused_wakeup_of_a_disconnected_worker_is_passed_to_the_next_one(room: Room) -> None:
    first, second = room.wait("first"), room.wait("second")
    await room.until(lambda: room.room.waiting == 2)
    room.room._notify_lines()  # the first one is called …
    first.cancel()  # … and is gone before it has looked
    await room.until(first.done)
    await room.submit()
    assert len(await second) == 1


async def test_the_long_poll_of_a_disconnected_client_is_removed(room: Room) -> None:
    for name in ("", "c1"):
        gone = room.wait("ghost", claim_id=name)
        await room.until(lambda: room.room.waiting == 1)
        gone.cancel()
        await room.until(lambda: room.room.waiting == 0)
    assert room.room._visits == {}
    assert room.room._lines == {}


async def test_a_grant_for_a_worker_that_has_gone_is_given_back(room: Room) -> None:
    (job_id,) = await room.submit()
    waiting = room.wait("r0")
    room.before_answer = waiting.cancel
    await room.until(lambda: bool(room.given_back))
    room.before_answer = lambda: None
    (grant,) = await room.wait("r1")
    assert grant.job_id == job_id
    assert grant.attempt == 2, "given back, without using up a try"


async def test_a_grant_is_kept_for_a_moment_for_a_worker_that_can_repeat_its_claim(room: Room) -> None:
    await room.submit()
    waiting = room.wait("r0", claim_id="c1")
    room.before_answer = waiting.cancel
    await room.until(waiting.cancelled)
    (grant,) = await room.wait("r0", claim_id="c1")
    assert (grant.attempt, room.given_back) == (1, [])
    assert room.claims == 1


async def test_and_given_back_when_they_do_not(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_poll, "COMES_BACK_S", 0.05)
    await room.submit()
    waiting = room.wait("r0", claim_id="c1")
    room.before_answer = waiting.cancel
    await room.until(lambda: bool(room.given_back))
    room.before_answer = lambda: None
    with pytest.raises(ClaimOver):
        await room.wait("r0", claim_id="c1")
    assert (await room.wait("r0", claim_id="c2"))[0].attempt == 2, "given back, without using up a try"


async def test_a_store_that_fails_is_reported_to_waiting_callers_and_nothing_is_remembered(
    room: Room,
) -> None:
    room.failing = True
    with pytest.raises(StoreUnavailable):
        await room.wait("r0", claim_id="c1")
    room.failing = False
    await room.submit()
    assert len(await room.wait("r0", claim_id="c1")) == 1


async def test_a_repeated_claim_gets_its_grants_from_the_store_after_its_long_poll_was_removed(
    room: Room,
) -> None:
    await room.submit(20)
    given = [await room.wait("r0", claim_id=f"c{number}") for number in range(20)]
    assert room.room._visits == {}
    again = [await room.wait("r0", claim_id=f"c{number}") for number in range(20)]
    assert [[grant.token for grant in some] for some in again] == [
        [grant.token for grant in some] for some in given
    ]


async def test_a_server_that_shuts_down_answers_all_polls_and_takes_no_more(room: Room) -> None:
    waiting = [room.wait(f"r{number}") for number in range(10)]
    await room.until(lambda: room.room.waiting == 10)
    before = room.claims
    room.stopping.set()
    assert await asyncio.gather(*waiting) == [[]] * 10
    assert room.claims == before


# Claims that are made together

AWAY = ("away", "away", "here")


async def test_claims_that_come_while_one_is_on_its_way_are_made_together(room: Room) -> None:
    made: list[list[str]] = []
    gate = asyncio.Event()

    async def claim_all(requests: Sequence[ClaimRequest]) -> list[Claimed]:
        made.append([request.runner_id for request in requests])
        await gate.wait()
        return await room.runtime.orchestrator.claim_all(requests)

    await room.submit(4)
    gathering = claims_together(claim_all)
    tasks = [asyncio.create_task(gathering.answer(ClaimRequest(runner_id="a")))]
    await room.until(lambda: bool(made))
    tasks += [
        asyncio.create_task(gathering.answer(ClaimRequest(runner_id=name, limit=limit)))
        for name, limit in (("b", 2), ("c", 1), ("d", 1))
    ]
    await asyncio.sleep(0)
    gate.set()
    given = await asyncio.gather(*tasks)
    assert made == [["a"], ["b", "c", "d"]]
    assert [len(grants) for grants in given] == [1, 2, 1, 0], "the first to ask is the first to be served"
    assert len({grant.job_id for grants in given for grant in grants}) == 4
    jobs = room.runtime.jobs
    for name, grants in zip("abcd", given, strict=True):
        for grant in grants:
            (attempt,) = (await jobs.get(grant.job_id)).attempts
            assert attempt.lease is not None
            assert attempt.lease.runner_id == name


async def test_claims_that_have_almost_arrived_are_made_with_the_next_batch_of_several(room: Room) -> None:
    made: list[list[str]] = []
    tasks: list[asyncio.Task[list[Grant]]] = []

    def ask(*names: str) -> None:
        tasks.extend(asyncio.create_task(gathering.answer(ClaimRequest(runner_id=name))) for name in names)

    async def claim_all(requests: Sequence[ClaimRequest]) -> list[Claimed]:
        made.append([request.runner_id for request in requests])
        if len(made) == 1:
            ask("c")
            await asyncio.sleep(0)  # it is in line, and two more are on their way from their sockets
            asyncio.get_running_loop().call_soon(ask, "d", "e")
        return [[] for _ in requests]

    gathering = claims_together(claim_all)
    ask("a", "b")
    await room.until(lambda: len(tasks) == 5 and all(task.done() for task in tasks))
    assert made == [["a", "b"], ["c", "d", "e"]]


async def test_a_slow_claim_of_one_queue_does_not_delay_a_claim_of_another_queue(room: Room) -> None:
    gate = asyncio.Event()

    async def claim_all(requests: Sequence[ClaimRequest]) -> list[Claimed]:
        if requests[0].queues == ("slow",):
            await gate.wait()
        return [[] for _ in requests]

    gathering = claims_together(claim_all)
    slow = asyncio.create_task(gathering.answer(ClaimRequest(runner_id="a", queues=("slow",))))
    assert await gathering.answer(ClaimRequest(runner_id="b", queues=("quick",))) == []
    gate.set()
    assert await slow == []


async def test_a_failure_is_reported_to_those_claims_only_that_it_concerns(room: Room) -> None:
    async def claim_all(requests: Sequence[ClaimRequest]) -> list[Claimed]:
        if requests[0].queues == ("away",):
            raise StoreUnavailable("The store is away.")
        return [[] for _ in requests]

    gathering = claims_together(claim_all)
    claims = [ClaimRequest(runner_id=name, queues=(queue,)) for name, queue in zip("abc", AWAY, strict=True)]
    first, second, third = await asyncio.gather(*map(gathering.answer, claims), return_exceptions=True)
    assert isinstance(first, StoreUnavailable)
    assert isinstance(second, StoreUnavailable)
    assert third == []
    assert await gathering.answer(claims[2]) == []
