"""A worker process from its start to its end, with the board in view (S1-1..7, S1-21, S1-23..24, S1-27)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.worker.board import Board, BoardPort, Job
from tests.worker.conftest import Gate, Start

from interlock.errors import SchemaTooNew, TransitionNotAllowed
from interlock.lifecycles import PROCESS
from interlock.lifecycles.process import BACKING_OFF, RUNNING, STOPPED, connected, shutdown_requested
from interlock.machine import Refused
from interlock.wire.runner import Ack, ClaimRequest, Complete, Grant, Release
from interlock.worker import executing, lanes
from interlock.worker.context import Context
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import Registry
from interlock.worker.threads import Join, MachineThreads


async def test_a_worker_starts_connects_recovers_and_runs(board: Board, start: Start, echo: str) -> None:
    """S1-23: startup to connecting, connecting to recovering, recovery to running."""
    worker = start()
    job = board.pin(echo, {"value": 5})
    await board.until_state(job, "succeeded")
    assert worker.path()[:4] == ["starting", "connecting", "recovering", "running"]
    assert board.recoveries >= 1


async def test_a_worker_processes_a_single_task_to_completion(board: Board, start: Start, echo: str) -> None:
    """S1-27"""
    job = board.pin(echo, {"value": {"a": [1, 2]}})
    worker = start()
    await board.until_state(job, "succeeded")
    assert job.result == {"a": [1, 2]}
    assert await worker.stop() == 0
    assert worker.path("task") == ["pending", "claiming", "processing", "reporting", "completed"]
    assert (worker.process.data.processed, worker.process.data.failed) == (1, 0)


async def test_every_loop_beside_the_event_loop_runs_where_the_threads_are_given(
    board: Board, start: Start
) -> None:
    """Whoever simulates workers has no threads, and must be able to say so in one place."""
    threads = NamedThreads()
    worker = start(threads_from=threads)
    await board.until(lambda: worker.process.state is RUNNING, "the worker to run")
    assert await worker.stop() == 0
    assert sorted(threads.names) == ["interlock-renewer", "interlock-standing", "interlock-supervisor"]


class NamedThreads(MachineThreads):
    """Those of the machine; knows which were asked for."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def serve(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> Join:
        self.names.append(name)
        return super().serve(name, main)

    def repeat(self, name: str, every_s: float, body: Callable[[], None]) -> Join:
        self.names.append(name)
        return super().repeat(name, every_s, body)


async def test_a_worker_that_cannot_connect_tries_again_until_it_can(board: Board, start: Start) -> None:
    """S1-23: connecting failure retries."""
    board.reachable = False
    worker = start()
    await worker.lines.until("connection_failed")
    await board.until(lambda: worker.process.data.backoff_count >= 2, "a second try")
    board.reachable = True
    await board.until(lambda: board.claims, "a poll")
    assert worker.path()[:4] == ["starting", "connecting", "connecting", "connecting"]
    assert "recovering" in worker.path()


async def test_a_store_that_can_never_be_used_ends_the_worker_with_its_error(
    board: Board, start: Start
) -> None:
    board.fatal = SchemaTooNew("The schema is version 9 and this program knows 3.")
    worker = start()
    with pytest.raises(SchemaTooNew):
        await worker.running
    assert worker.process.state is STOPPED


async def test_an_empty_queue_is_polled_less_and_less_often(board: Board, start: Start) -> None:
    """S1-27: backoff increases on empty queue; S1-23: no tasks to backing off, and back to recovering."""
    worker = start()
    await board.until(lambda: len(board.claims) >= 4, "four polls")
    assert worker.process.data.backoff_count >= 3
    path = worker.path()
    after = path.index("backing_off")
    assert path[after - 1 : after + 3] == ["running", "backing_off", "recovering", "running"]


async def test_new_work_ends_the_backoff_at_once(board: Board, start: Start, echo: str) -> None:
    """R16: however long it would last."""
    worker = start(first_backoff_s=60.0, durations=_long_backoff())
    await board.until(lambda: worker.process.state is BACKING_OFF, "the backoff")
    job = board.pin(echo)
    await board.until_state(job, "succeeded")
    await board.until(lambda: worker.process.data.backoff_count == 1, "the backoff to begin anew")


async def test_a_call_that_comes_while_it_polls_is_not_lost(board: Board, start: Start, echo: str) -> None:
    """Work that is pinned after a poll has looked, and before the answer is there."""
    pinned: list[Job] = []

    class Late(BoardPort):
        async def claim(self, request: ClaimRequest) -> list[Grant]:
            grants = await super().claim(request)
            if not pinned:
                pinned.append(board.pin(echo))
            return grants

    worker = start(first_backoff_s=60.0, durations=_long_backoff(), connect=lambda: Late(board))
    await board.until(lambda: pinned, "the first poll")
    await board.until_state(pinned[0], "succeeded")
    assert "backing_off" in worker.path(), "the first poll had found nothing"


async def test_an_idle_worker_does_not_look_for_lost_leases_more_often_than_it_should(
    board: Board, start: Start
) -> None:
    """S1-17: no round trip that is not needed."""
    start(durations=_long_backoff(), first_backoff_s=0.001)
    await board.until(lambda: len(board.claims) >= 6, "six polls")
    assert board.recoveries == 1


async def test_a_busy_worker_looks_for_lost_leases_too(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """R15"""
    board.pin(held)
    start(concurrency=1)
    await gate.until_entered()
    seen = board.recoveries
    await board.until(lambda: board.recoveries > seen + 1, "more recoveries")
    gate.open()


async def test_a_worker_does_what_another_has_lost(board: Board, start: Start, echo: str) -> None:
    """S1-27: recovers an expired lease from another worker."""
    board.ttl_s = 0.05
    job = board.pin(echo, {"value": 1})
    board.claim(ClaimRequest(runner_id="dead#1"))
    board.ttl_s = 3.0
    start()
    await board.until_state(job, "succeeded")
    assert (job.attempts, job.losses) == (2, 1)


async def test_a_running_worker_has_a_connection_and_a_stopped_one_has_none(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """S1-24: running has connection, stopped releases connection."""
    board.pin(held)
    worker = start()
    await gate.until_entered()
    before = worker.process.data
    assert (before.connected, board.connections >= 1) == (True, True)
    gate.open()
    assert await worker.stop() == 0
    after = worker.process.data
    assert (after.connected, board.connections) == (False, 0)
    assert worker.path()[-2:] == ["shutting_down", "stopped"]


async def test_there_is_one_handler_at_a_time_for_one_slot(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """S1-24: single active task."""
    jobs = [board.pin(held) for _ in range(3)]
    start(concurrency=1)
    await gate.until_entered()
    await board.until(lambda: len(board.messages) >= 1, "a heartbeat")
    assert gate.entered == 1
    assert [job.state for job in jobs[1:]] == ["queued", "queued"]
    gate.open()
    for job in jobs:
        await board.until_state(job, "succeeded")


async def test_claims_are_batched_up_to_the_free_slots_while_others_run(
    board: Board, start: Start, held: str, echo: str, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "SOON_S", -1.0)  # nothing is so quick that more would be asked for ahead of it
    board.pin(held)
    start(concurrency=5)
    await gate.until_entered()
    jobs = [board.pin(echo) for _ in range(10)]
    for job in jobs:
        await board.until_state(job, "succeeded")
    assert board.claims[0].limit == 5
    assert {claim.limit for claim in board.claims[1:]} <= {1, 2, 3, 4}
    assert all(claim.acknowledge for claim in board.claims)
    gate.open()


async def test_two_processes_under_one_name_are_told_apart(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    first, second = start(concurrency=1), start(concurrency=1)
    jobs = [board.pin(held), board.pin(held)]
    await gate.until_entered(2)
    assert first.process.runner_id != second.process.runner_id
    assert {claim.runner_id.partition("#")[0] for claim in board.claims} == {"tester"}
    gate.open()
    for job in jobs:
        await board.until_state(job, "succeeded")
        assert job.attempts == 1


async def test_a_broken_connection_abandons_the_tasks_and_is_made_anew(
    board: Board, start: Start, held: str, echo: str, gate: Gate
) -> None:
    """S1-27: reconnects after db failure; R14: the task is abandoned, then given back."""
    job = board.pin(held)
    worker = start(concurrency=2)
    await gate.until_entered()
    board.reachable = False
    await worker.lines.until("connection_lost")
    await board.until(lambda: worker.process.data.backoff_count >= 1, "a try to connect")
    assert worker.process.data.active_tasks == 0
    board.reachable = True
    gate.open()
    await board.until_state(job, "succeeded")
    assert job.released == ["connection lost"]
    assert job.attempts == 2, "it was given back, not lost"
    assert "abandoned" in worker.path("task")
    other = board.pin(echo)
    await board.until_state(other, "succeeded")


async def test_a_poll_that_fails_once_breaks_nothing(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    job = board.pin(held)
    worker = start(concurrency=2, patience_s=10.0)
    await gate.until_entered()
    board.reachable = False
    await worker.lines.until("claim_failed")
    board.reachable = True
    gate.open()
    await board.until_state(job, "succeeded")
    assert job.attempts == 1
    assert not worker.lines.all("connection_lost")


async def test_a_loop_that_crashes_begins_again(board: Board, start: Start, echo: str) -> None:
    crashes: list[str] = []

    def crash(method: str) -> None:
        if method == "claim" and len(crashes) < 2:
            crashes.append(method)
            raise RuntimeError("a bug in a port")

    board.before = crash
    worker = start()
    job = board.pin(echo)
    await board.until_state(job, "succeeded")
    assert [line["loop"] for line in worker.lines.all("loop_crashed")] == ["poll", "poll"]


async def test_a_reporter_that_crashes_says_what_it_had_to_say_afterwards(
    board: Board, start: Start, echo: str
) -> None:
    crashes: list[str] = []

    def crash(method: str) -> None:
        if method == "hear" and not crashes:
            crashes.append(method)
            raise RuntimeError("a bug in a port")

    board.before = crash
    job = board.pin(echo)
    worker = start()
    await board.until_state(job, "succeeded")
    assert [line["loop"] for line in worker.lines.all("loop_crashed")] == ["report"]


async def test_an_event_that_the_table_does_not_allow_is_refused_and_logged(
    board: Board, start: Start
) -> None:
    """S1-19, S1-23: invalid transition."""
    worker = start()
    await board.until(lambda: board.claims, "a poll")
    before = (worker.process.state, worker.process.data)
    assert not worker.process.tell(connected)
    assert (worker.process.state, worker.process.data) == before
    line = worker.lines.all("invalid_transition_attempted")[-1]
    assert (line["machine"], line["event"], line["level"]) == ("process", "connected", "warning")
    assert line["current_state"] == before[0]
    refused = PROCESS.decide(*before, connected)
    assert isinstance(refused, Refused)
    assert isinstance(refused.error(), TransitionNotAllowed)


async def test_a_second_request_to_go_is_harmless_and_no_warning(board: Board, start: Start) -> None:
    """R12"""
    worker = start()
    await board.until(lambda: worker.process.state in (RUNNING, BACKING_OFF), "it to run")
    worker.process.shutdown.request()
    worker.process.shutdown.request()
    assert await worker.stop() == 0
    worker.process.tell(shutdown_requested)
    assert not worker.lines.all("invalid_transition_attempted")


# Prefetching


async def test_prefetched_grants_wait_unacknowledged_and_are_acknowledged_together(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    jobs = [board.pin(held) for _ in range(4)]
    start(concurrency=2, prefetch=2)
    await gate.until_entered(2)
    await board.until(lambda: all(job.attempts for job in jobs), "all to be granted")
    assert [claim.acknowledge for claim in board.claims[:2]] == [True, False]
    assert board.claims[1].limit == 2
    assert not board.said(Ack)
    gate.open()
    for job in jobs:
        await board.until_state(job, "succeeded")
    assert len(board.said(Ack)) == 2
    assert all(job.attempts == 1 for job in jobs)


async def test_a_prefetched_grant_that_is_not_used_is_given_back_in_time(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    first, second = board.pin(held), board.pin(held)
    start(concurrency=1, prefetch=1)
    await gate.until_entered()
    await board.until(lambda: board.said(Release), "a release")
    assert second.released[0] == "unused"
    assert second.losses == 0, "before the window for acknowledging it was over"
    gate.open()
    for job in (first, second):
        await board.until_state(job, "succeeded")


async def test_a_prefetched_grant_is_given_back_at_shutdown(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    _, second = board.pin(held), board.pin(held)
    worker = start(concurrency=1, prefetch=1)
    await board.until(lambda: second.attempts == 1, "the second to be granted")
    await gate.until_entered()
    worker.process.shutdown.request()
    await board.until(lambda: second.released == ["shutdown"], "the release")
    gate.open()
    assert await worker.stop() == 0


async def test_a_prefetched_grant_that_somebody_else_got_meanwhile_is_nobodys_failure(
    board: Board, start: Start, held: str, gate: Gate
) -> None:
    """R10: nothing is written, counted or notified."""
    first, second = board.pin(held), board.pin(held)
    worker = start(concurrency=1, prefetch=1)
    await board.until(lambda: second.attempts == 1, "the second to be granted")
    await gate.until_entered()
    board.take_away(second)
    gate.open()
    await board.until_state(first, "succeeded")
    await board.until(lambda: len(board.said(Ack)) == 1, "the acknowledgement")
    assert await worker.stop() == 0
    assert (worker.process.data.processed, worker.process.data.failed) == (1, 0)
    assert len(board.said(Complete)) == 1


async def test_claiming_and_reporting_overlap(board: Board, start: Start, echo: str) -> None:
    """While one batch of reports is under way the next work is claimed."""
    import threading

    board.held["hear"] = threading.Event()
    jobs = [board.pin(echo) for _ in range(4)]
    start(concurrency=2)
    await board.until(lambda: all(job.attempts for job in jobs), "the second claim")
    assert not board.said(Complete)
    board.held["hear"].set()
    for job in jobs:
        await board.until_state(job, "succeeded")


async def test_no_more_is_claimed_than_can_be_reported(board: Board, start: Start, echo: str) -> None:
    import threading

    board.held["hear"] = threading.Event()
    jobs = [board.pin(echo) for _ in range(20)]
    start(concurrency=2)
    await board.until(lambda: sum(job.attempts for job in jobs) == 6, "as many as it has slots")
    await asyncio.sleep(0)
    assert sum(job.attempts for job in jobs) == 6
    board.held["hear"].set()
    for job in jobs:
        await board.until_state(job, "succeeded")


async def test_a_handler_that_computes_for_long_lets_others_have_their_turn(
    board: Board, start: Start, registry: Registry
) -> None:
    """A batch of handlers that never wait is begun in slices."""
    import time

    @registry.task(name="slow")
    async def slow() -> None:
        until = time.monotonic() + 0.01
        while time.monotonic() < until:
            pass

    jobs = [board.pin("slow") for _ in range(20)]
    start(concurrency=20)
    await board.until(lambda: board.said(Complete), "the first report")
    assert any(job.state == "leased" for job in jobs), "some had not begun when the first was reported"
    for job in jobs:
        await board.until_state(job, "succeeded")


async def test_a_worker_whose_handlers_never_end_takes_as_many_as_it_has_slots(
    board: Board, start: Start, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a batch is begun in slices there is no room; whoever polls is told when there is again."""
    import time

    from interlock.worker import process

    gate = Gate()

    @registry.task(name="endless")
    async def endless() -> None:
        until = time.monotonic() + 0.01
        while time.monotonic() < until:
            pass
        await gate.pass_through()

    monkeypatch.setattr(process, "MAX_BATCH", 2)
    for _ in range(4):
        board.pin("endless")
    start(concurrency=4)
    await gate.until_entered(4)
    gate.open()


async def test_current_gives_the_context_in_every_executor(
    board: Board, start: Start, registry: Registry
) -> None:
    from interlock.worker.context import current

    @registry.task(name="at_once")
    async def at_once() -> str:
        return current().job_id

    @registry.task(name="waiting")
    async def waiting() -> str:
        await asyncio.sleep(0)
        return current().job_id

    @registry.task(name="in_thread")
    def in_thread(ctx: Context) -> str:
        assert current() is ctx
        return ctx.job_id

    jobs = [board.pin(task) for task in ("at_once", "waiting", "in_thread")]
    start()
    for job in jobs:
        await board.until_state(job, "succeeded")
        assert job.result == job.id


def _long_backoff() -> Any:
    from interlock.lifecycles.durations import Durations

    return Durations(backoff_cap_s=60.0, sweep_every_s=60.0)


# Asking ahead


async def test_what_was_asked_for_ahead_and_cannot_begin_is_given_back(
    board: Board, start: Start, echo: str, held: str, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "SOON_S", 60.0)  # whatever it does is quick
    monkeypatch.setattr(executing, "AHEAD_FOR_S", 0.1)
    for _ in range(16):
        board.pin(echo)
    worker = start(concurrency=4)
    await board.until(lambda: worker.process.data.processed == 16, "the quick ones to end")
    slow = [board.pin(held) for _ in range(8)]
    await gate.until_entered(4)
    await board.until(lambda: all(job.attempts for job in slow), "all to be granted")
    await board.until(lambda: len(board.said(Release)) >= 4, "what was asked for ahead to come back")
    assert {reason for job in slow for reason in job.released} == {"unused"}
    gate.open()
    for job in slow:
        await board.until_state(job, "succeeded")
    assert await worker.stop() == 0
    assert (worker.process.data.processed, worker.process.data.failed) == (24, 0)


def test_work_is_asked_for_ahead_only_of_handlers_that_were_quick_and_are() -> None:
    now = 0.0
    all_lanes = lanes.Lanes(WorkerSettings(name="a", concurrency=4), lambda: now)
    lane = all_lanes["async"]
    tasks: list[Any] = [object() for _ in range(16)]
    assert all_lanes.room_ahead(0) == 4
    for one in tasks[:12]:
        lane.running[one] = now
        assert all_lanes.room_ahead(0) == (3 if lane.longest_s > lanes.SOON_S else 4)
        lane.left(one, now)
    assert lane.longest_s < lanes.SOON_S, "it has learnt that they are quick"
    lane.running.update(dict.fromkeys(tasks[:4], now))
    assert (all_lanes.room(0), all_lanes.room_ahead(0), all_lanes.room_ahead(1)) == (0, 4, -1)
    lane.waiting.append(tasks[4])
    assert all_lanes.room_ahead(0) == 0, "that many are there already"
    lane.waiting.clear()
    now = 2 * lanes.SOON_S
    assert all_lanes.room_ahead(0) == 0, "what runs takes long, and what waits may have to wait"
    lane.left(tasks[0], now)
    now += lanes.SOON_S
    lane.running = {tasks[5]: now}
    assert all_lanes.room_ahead(0) == 3, "one that took long is remembered"
