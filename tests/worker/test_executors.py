"""The ways to run a handler: in the loop, in threads, in processes of its own, and in a shell."""

from __future__ import annotations

import asyncio
import contextvars
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.worker.board import Board, Job
from tests.worker.conftest import OVERDUE_S, Gate, Start
from tests.worker.process_tasks import REGISTRY
from tests.worker.test_driving import GRANT, NOW

from interlock.wire.runner import CancelAck, Complete
from interlock.worker.context import Context
from interlock.worker.executors import never_waits
from interlock.worker.task_process import Channel, HandlerEnd
from interlock.worker.tasks import Registry
from interlock.worker.tracing import AttemptSpans


@pytest.fixture
def registry() -> Registry:
    """With those that can be found by another process; a test may add its own."""
    registry = Registry()
    for task in REGISTRY:
        registry.add(task)
    return registry


async def ended(board: Board, job: Job) -> Job:
    await board.until_state(job, "succeeded", "failed", "canceled")
    return job


def gone(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(") ")[2][0] == "Z"
    except OSError:
        return True


# In the event loop


def test_a_function_without_an_await_never_waits() -> None:
    async def plain() -> int:
        return 1

    async def waits() -> None:
        await asyncio.sleep(0)

    async def enters() -> None:
        async with asyncio.timeout(60):
            pass

    async def iterates(source: Any) -> None:
        async for _ in source:
            pass

    async def comprehends(source: Any) -> list[Any]:
        return [one async for one in source]

    for function, arguments, expected in (
        (plain, (), True),
        (waits, (), False),
        (enters, (), False),
        (iterates, (None,), False),
        (comprehends, (None,), False),
    ):
        coroutine = function(*arguments)
        assert never_waits(coroutine) is expected, function
        coroutine.close()


async def test_a_handler_that_never_waits_needs_no_task(
    board: Board, start: Start, registry: Registry
) -> None:
    seen = []

    @registry.task(name="taskless")
    async def taskless() -> None:
        current = asyncio.current_task()
        seen.append(current is None or current.get_name() != "taskless")

    await_it = board.pin("taskless")
    start()
    await ended(board, await_it)
    assert seen == [True]


async def test_a_handler_may_begin_with_a_timeout_or_a_group(
    board: Board, start: Start, registry: Registry
) -> None:
    """They ask which task they are in, so there must be one from the first step on."""

    @registry.task(name="grouped")
    async def grouped() -> list[int]:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            tasks = [group.create_task(asyncio.sleep(0, number)) for number in range(3)]
        return [task.result() for task in tasks]

    at_once_s = 0.01

    @registry.task(name="late")
    async def late() -> None:
        async with asyncio.timeout(at_once_s):
            await asyncio.Event().wait()

    jobs = [board.pin("grouped"), board.pin("late")]
    start()
    for job in jobs:
        await ended(board, job)
    assert jobs[0].result == [0, 1, 2]
    assert jobs[1].failure.error == "TimeoutError"


async def test_handlers_do_not_see_each_others_variables(
    board: Board, start: Start, registry: Registry
) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    @registry.task(name="waits")
    async def waits() -> int:
        seen = variable.get()
        variable.set(seen + 1)
        await asyncio.sleep(0)
        return seen

    @registry.task(name="in_thread")
    def in_thread() -> int:
        seen = variable.get()
        variable.set(seen + 1)
        return seen

    jobs = [board.pin(name) for name in ("waits", "in_thread") * 3]
    start(concurrency=1)
    for job in jobs:
        await ended(board, job)
        assert job.result == 0


# In threads


async def test_threads_are_bounded(board: Board, start: Start, held_in_thread: str, gate: Gate) -> None:
    jobs = [board.pin(held_in_thread) for _ in range(4)]
    start(concurrency=4, threads=2)
    await gate.until_entered(2)
    await board.until(lambda: len(board.messages) >= 4, "a renewal of all, also of those that wait")
    assert gate.entered == 2
    gate.open()
    for job in jobs:
        await ended(board, job)
        assert job.attempts == 1


async def test_threads_are_used_again(board: Board, start: Start, registry: Registry) -> None:
    seen: set[int] = set()

    @registry.task(name="which")
    def which() -> None:
        seen.add(threading.get_ident())

    start(concurrency=1)
    for _ in range(10):
        await ended(board, board.pin("which"))
    assert len(seen) == 1


# In processes of their own


async def test_a_process_of_its_own_leads_its_group_and_session(board: Board, start: Start) -> None:
    job = board.pin("where")
    start()
    await ended(board, job)
    where = job.result
    assert where["pid"] == where["group"] == where["session"] != os.getpid()
    assert where["parents_parent"] == os.getpid()
    assert where["parents_session"] not in (where["session"], os.getsid(0))


async def test_the_output_of_a_handler_in_a_process_reaches_the_orchestrator(
    board: Board, start: Start
) -> None:
    job = board.pin("talk")
    start()
    await ended(board, job)
    assert job.result == {"attempt": 1, "restored": None}
    assert [completion.cost for completion in board.said(Complete)] == [0.75]
    assert job.progress is not None
    assert job.progress.message == "half"
    assert bytes(job.checkpoint or b"") == b'{"at":5}'
    assert {(line.level, line.text) for line in job.log} == {
        ("warning", "from afar"),
        ("stdout", "printed"),
        ("stderr", "complained"),
    }


async def test_a_handler_in_a_process_restores_the_checkpoint_of_an_earlier_attempt(
    board: Board, start: Start
) -> None:
    import msgspec

    job = board.pin("talk", checkpoint=msgspec.Raw(b'{"at":1}'))
    start()
    await ended(board, job)
    assert job.result["restored"] == {"at": 1}


async def test_the_token_does_not_reach_the_process(
    board: Board, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.worker import process_executor, task_process

    sent: list[bytes] = []

    def spy(message: Any) -> bytes:
        sent.append(task_process.line_of(message))
        return sent[-1]

    monkeypatch.setattr(process_executor, "line_of", spy)
    job = board.pin("where")
    start()
    await ended(board, job)
    token = board.said(Complete)[0].token
    assert sent
    assert token.encode() not in b"".join(sent)


async def test_an_error_in_a_process_arrives_with_its_traceback(board: Board, start: Start) -> None:
    job = board.pin("fail")
    start()
    await ended(board, job)
    assert job.failure.error == "LookupError: nothing here"
    assert job.failure.exception.startswith("builtins.LookupError builtins.Exception")
    assert "in fail" in job.failure.details


async def test_a_process_that_dies_is_a_failure_with_its_exit_code(board: Board, start: Start) -> None:
    job = board.pin("die")
    start()
    await ended(board, job)
    assert job.failure.exit_code == 17
    assert "ended with exit code 17" in job.failure.error


async def test_a_process_that_has_lost_its_warden_is_ended_and_has_failed(
    board: Board, start: Start, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    job = board.pin("lose_warden", {"note": str(note)})
    start()
    await ended(board, job)
    assert "before it had a result" in job.failure.error
    assert gone(int(note.read_text()))


async def test_a_handler_in_a_process_that_exceeds_the_memory_limit_fails_with_a_memory_error(
    board: Board, start: Start
) -> None:
    job = board.pin("eat")
    start(memory_limit_bytes=1 << 30)
    await ended(board, job)
    assert job.failure.exception.startswith("builtins.MemoryError")


async def test_a_handler_in_a_process_receives_the_cancel_with_its_reason(board: Board, start: Start) -> None:
    job = board.pin("wait_politely")
    start(stop_grace_s=600.0)
    await board.until(lambda: "waiting" in job.lines, "it to wait")
    board.cancel(job)
    await board.until_state(job, "canceled")
    assert bytes(job.checkpoint or b"") == b'{"reason":"cancel"}'


async def test_a_process_that_does_not_listen_is_killed_with_all_its_kin(
    board: Board, start: Start, tmp_path: Path
) -> None:
    job = board.pin("deaf", {"folder": str(tmp_path)})
    start()
    await board.until((tmp_path / "pids").exists, "both to run")
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    board.cancel(job)
    await board.until_state(job, "canceled")
    assert [ack.confirmed_dead for ack in board.said(CancelAck)] == [True]
    await board.until(lambda: all(map(gone, pids)), "both to be gone")


async def test_no_process_outlives_a_forced_shutdown(board: Board, start: Start, tmp_path: Path) -> None:
    board.pin("deaf", {"folder": str(tmp_path)})
    worker = start(kill_grace_s=30.0)
    await board.until((tmp_path / "pids").exists, "both to run")
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert await worker.stop(OVERDUE_S) == 1
    await board.until(lambda: all(map(gone, pids)), "both to be gone")


async def test_a_task_without_an_executor_runs_in_the_default_executor_of_the_worker(
    board: Board, start: Start
) -> None:
    jobs = board.pin("unsaid"), board.pin("where")
    start(executor="process")
    for job in jobs:
        await ended(board, job)
    assert jobs[0].result not in (None, os.getpid())


async def test_the_trace_of_a_job_continues_in_its_process_and_its_span_records_a_failure(
    board: Board, start: Start
) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    wanted = "0af7651916cd43dd8448eb211c80319c"
    parent = {"traceparent": f"00-{wanted}-b7ad6b7169203331-01"}
    good, bad = board.pin("traced_over_there", trace=parent), board.pin("fail", trace=parent)
    start(tracing=AttemptSpans(provider.get_tracer("test")))
    assert (await ended(board, good)).result == wanted
    await ended(board, bad)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert {f"{span.context.trace_id:032x}" for span in spans.values()} == {wanted}
    assert spans["traced_over_there"].status.is_ok
    assert spans["fail"].status.description == "LookupError: nothing here"


def test_a_process_sends_nothing_after_the_end_of_its_handler() -> None:
    """On Python 3.14 the log of each job had a traceback: the worker had closed the socket already."""
    ours, theirs = socket.socketpair()
    channel = Channel(theirs.detach())
    context = Context(GRANT, now=lambda: NOW, wake=channel.wake)
    context.log("in time")
    channel.finish(context, HandlerEnd())
    lines = ours.recv(65_536).splitlines()
    ours.close()
    assert [b"in time" in line for line in lines] == [True, False]
    context.log("too late")
    channel._send(context)  # as the thread does that waited until the end was sent
    channel._lines.close()
    channel._socket.close()


async def test_a_function_that_no_other_process_can_find_is_refused(
    board: Board, start: Start, registry: Registry
) -> None:
    @registry.task(name="hidden", executor="process")
    def hidden() -> None: ...

    job = board.pin("hidden")
    start()
    await ended(board, job)
    assert "cannot run in a process of its own" in job.failure.error
