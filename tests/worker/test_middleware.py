"""Middleware around handlers: its order, where it runs, and what becomes of what it raises."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any

import pytest
from tests.worker.board import Board
from tests.worker.conftest import Start
from tests.worker.middleware_tasks import REGISTRY as OF_PROCESSES

from interlock.errors import CannotLoad
from interlock.wire.runner import Complete
from interlock.worker.context import Context, TaskCancelled
from interlock.worker.middleware import Chain, load_middleware
from interlock.worker.tasks import Registry

TENANT: ContextVar[str] = ContextVar("TENANT", default="nobody")


@pytest.fixture
def heard(registry: Registry) -> list[Any]:
    """What two middlewares and the handlers have done, in its order; `outer` was declared first."""
    events: list[Any] = []

    @registry.middleware
    def outer(ctx: Context) -> Iterator[None]:
        events.append(("outer", ctx.task, ctx.attempt, ctx.input, threading.current_thread().name))
        TENANT.set(ctx.metadata.get("tenant", "none"))
        yield
        events.append("outer ends")

    @registry.middleware
    def inner(ctx: Context) -> Iterator[None]:
        events.append(f"inner of {TENANT.get()}")
        try:
            yield
        finally:
            events.append("inner ends")

    @registry.task(name="quick")
    async def quick(value: Any = None) -> Any:
        events.append(f"quick {value} of {TENANT.get()}")
        return value

    @registry.task(name="waits")
    async def waits(value: Any = None) -> Any:
        await asyncio.sleep(0)
        events.append(f"waits {value} of {TENANT.get()}")
        return value

    @registry.task(name="threaded")
    def threaded(value: Any = None) -> Any:
        events.append(f"threaded {value} of {TENANT.get()}")
        return value

    return events


@pytest.mark.parametrize("task", ["quick", "waits", "threaded"])
async def test_the_first_middleware_is_the_outermost_around_every_kind_of_handler(
    board: Board, start: Start, heard: list[Any], task: str
) -> None:
    job = board.pin(task, {"value": 7})
    job.metadata = {"tenant": "acme"}
    start()
    await board.until_state(job, "succeeded")
    assert job.result == 7
    thread = "interlock-task" if task == "threaded" else threading.current_thread().name
    assert heard == [
        ("outer", task, 1, {"value": 7}, thread),
        "inner of acme",
        f"{task} 7 of acme",
        "inner ends",
        "outer ends",
    ]


async def test_jobs_of_a_cohort_stay_together_and_see_nothing_of_each_other(
    board: Board, start: Start, heard: list[Any], tasks_made: list[str]
) -> None:
    jobs = [board.pin("quick", {"value": place}) for place in range(5)]
    for place, job in enumerate(jobs):
        job.metadata = {"tenant": f"t{place}"} if place % 2 == 0 else {}
    start()
    for place, job in enumerate(jobs):
        await board.until_state(job, "succeeded")
        assert job.result == place
    assert tasks_made == [], "none of them needed a task of its own"
    lines = [line for line in heard if isinstance(line, str) and line.startswith("quick")]
    assert lines == ["quick 0 of t0", "quick 1 of none", "quick 2 of t2", "quick 3 of none", "quick 4 of t4"]
    assert TENANT.get() == "nobody", "what a middleware sets is gone with the job"


async def test_a_job_whose_middleware_raises_leaves_its_cohort_and_fails_alone(
    board: Board, start: Start, registry: Registry, heard: list[Any], tasks_made: list[str]
) -> None:
    @registry.middleware
    def picky(ctx: Context) -> Iterator[None]:
        if ctx.input["value"] == 2:
            raise PermissionError("not this one")
        yield

    jobs = [board.pin("quick", {"value": place}) for place in range(4)]
    start()
    await board.until_state(jobs[2], "failed")
    for job in (jobs[0], jobs[1], jobs[3]):
        await board.until_state(job, "succeeded")
    assert jobs[2].failure.error == "PermissionError: not this one"
    assert tasks_made == [jobs[2].id]
    assert "quick 2 of none" not in heard


@pytest.mark.parametrize("task", ["quick", "waits", "threaded"])
async def test_an_exception_of_a_handler_is_raised_in_its_middleware(
    board: Board, start: Start, registry: Registry, task: str
) -> None:
    seen: list[str] = []

    @registry.middleware
    def renames(ctx: Context) -> Iterator[None]:
        try:
            yield
        except LookupError as error:
            seen.append(str(error))
            raise ValueError("renamed") from error

    async def quick() -> None:
        raise LookupError("nothing")

    async def waits() -> None:
        await asyncio.sleep(0)
        raise LookupError("nothing")

    def threaded() -> None:
        raise LookupError("nothing")

    registry.task(name=task)({"quick": quick, "waits": waits, "threaded": threaded}[task])
    job = board.pin(task)
    start()
    await board.until_state(job, "failed")
    assert (seen, job.failure.error) == (["nothing"], "ValueError: renamed")


@pytest.mark.parametrize("task", ["quick", "waits", "threaded"])
async def test_async_middleware_runs_in_the_event_loop_and_its_variables_reach_the_handler(
    board: Board, start: Start, registry: Registry, heard: list[Any], task: str, tasks_made: list[str]
) -> None:
    seen: list[Any] = []
    ours = threading.current_thread()

    @registry.middleware
    async def connects(ctx: Context) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        seen.append((TENANT.get(), threading.current_thread() is ours))
        TENANT.set("connected")
        yield
        await asyncio.sleep(0)
        seen.append((TENANT.get(), threading.current_thread() is ours))

    job = board.pin(task, {"value": 1})
    start()
    await board.until_state(job, "succeeded")
    assert seen == [("none", True), ("connected", True)]
    assert f"{task} 1 of connected" in heard
    assert heard[-2:] == ["inner ends", "outer ends"]
    assert tasks_made == [job.id], "a handler with something that waits around it is in no cohort"


async def test_a_middleware_may_deal_with_an_error_but_not_with_a_stop() -> None:
    @contextmanager
    def swallows(_: Context) -> Iterator[None]:
        try:
            yield
        except BaseException:  # noqa: BLE001 - this is what is tested
            return

    registry, ctx = Registry(), object.__new__(Context)
    registry.middleware(swallows)

    def fails() -> None:
        raise ValueError

    def stops() -> None:
        raise TaskCancelled("cancel")

    assert registry.chain.call(ctx, fails) is None
    assert await registry.chain.drive(ctx, fails) is None
    with pytest.raises(TaskCancelled):
        registry.chain.call(ctx, stops)
    with pytest.raises(TaskCancelled):
        await registry.chain.drive(ctx, stops)


@pytest.fixture
def of_processes(registry: Registry) -> None:
    for task in OF_PROCESSES:
        registry.add(task)
    registry.surround(OF_PROCESSES.chain.layers)


@pytest.mark.parametrize("task", ["middleware.def", "middleware.async"])
async def test_middleware_runs_in_the_process_of_a_handler(
    board: Board, start: Start, of_processes: None, task: str
) -> None:
    job, failing = board.pin(task), board.pin(task, {"fail": True})
    job.metadata = {"tenant": "acme"}
    start()
    await board.until_state(job, "succeeded")
    assert job.result == ["outer", "inner of acme", "ACME"]
    await board.until_state(failing, "failed")
    assert failing.failure.error == f"ValueError: {task} found nothing"


async def test_a_job_fails_with_the_name_of_a_middleware_that_its_process_cannot_import(
    board: Board, start: Start, registry: Registry, of_processes: None
) -> None:
    @registry.middleware
    def local(ctx: Context) -> Iterator[None]:
        yield

    job = board.pin("middleware.def")
    start()
    await board.until_state(job, "failed")
    assert "local cannot be used around a handler in a process of its own" in job.failure.error
    assert board.said(Complete)


def test_each_middleware_is_used_once_and_those_of_a_project_are_outermost() -> None:
    registry = Registry()
    (named,) = load_middleware(["tests.worker.middleware_tasks:outer"])
    registry.surround(OF_PROCESSES.chain.layers)
    registry.surround([named])
    assert registry.chain.addresses() == [
        "tests.worker.middleware_tasks:outer",
        "tests.worker.middleware_tasks:Inner",
    ]
    assert registry.chain.waits
    assert not Chain().wraps


def _no_yield(ctx: Context) -> None: ...


class _Nothing: ...


@pytest.mark.parametrize(
    ("thing", "why"),
    [(_no_yield, "it does not yield"), (_Nothing, "neither handle"), (_Nothing(), "neither handle")],
)
def test_an_object_that_is_not_a_middleware_is_refused_when_it_is_declared(thing: Any, why: str) -> None:
    with pytest.raises(CannotLoad, match=why):
        Registry().middleware(thing)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("tests.worker.middleware_tasks", "does not say which"),
        ("tests.worker.middleware_tasks:nowhere", "there is no nowhere in it"),
    ],
)
def test_a_name_in_the_project_file_has_to_lead_to_a_middleware(name: str, why: str) -> None:
    with pytest.raises(CannotLoad, match=why):
        load_middleware([name])


def test_functions_that_are_context_managers_already_are_taken_as_they_are() -> None:
    @contextmanager
    def one(_: Context) -> Iterator[None]:
        yield

    @asynccontextmanager
    async def other(_: Context) -> AsyncIterator[None]:
        yield

    registry = Registry()
    registry.middleware(one)
    assert registry.chain.wraps
    assert not registry.chain.waits
    registry.middleware(other)
    assert registry.chain.waits
