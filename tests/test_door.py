"""`Interlock`, the door for programs: small things that somebody tries first."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import traceback
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import interlock.sync
from interlock import Context, FlakyError, Interlock, JobSpec, Registry, task
from interlock.errors import (
    BadFilter,
    BadStoreUrl,
    InvalidArguments,
    NotJson,
    RequestIdReused,
    ResultNotReady,
)
from interlock.store.records import Record
from interlock.systems.orchestrator.jobs import Jobs
from interlock.testing import in_memory
from interlock.wire.jobs import JobView
from interlock.wire.schedules import ScheduleSpec


@task(name="door.double")
def double(x: int) -> int:
    return 2 * x


@pytest.fixture
async def il() -> AsyncIterator[Interlock]:
    async with Interlock("memory:") as il:
        yield il


async def test_the_input_of_a_spec_can_be_plain_values(il: Interlock) -> None:
    given = {"x": 21}
    one = await il.submit(JobSpec(task="door.double", input=given))
    (two,) = await il.submit_many([JobSpec(task="door.double", input=given)])
    for job in (one, two):
        assert msgspec.json.decode((await job.view()).input) == {"x": 21}


async def test_the_input_of_a_spec_can_be_plain_values_in_a_schedule_and_in_a_batch(il: Interlock) -> None:
    spec = JobSpec(task="door.double", input={"x": 21})
    made = await il.schedules.create("nightly", ScheduleSpec(job=spec, every="1h"))
    await il.batches.submit([spec], callback=spec)
    (job,), _ = await il.jobs("task:door.double")
    for given in (made.spec.job.input, job.input):
        assert msgspec.json.decode(given) == {"x": 21}


async def test_a_handler_and_a_middleware_may_submit_plain_values() -> None:
    registry = Registry()
    registry.add(double)

    @registry.middleware
    class Doubles:
        def submit(self, spec: JobSpec) -> JobSpec:
            return msgspec.structs.replace(spec, input={"x": 2 * msgspec.json.decode(spec.input)["x"]})

    @registry.task(name="parent")
    async def parent(ctx: Context, x: int) -> list[str]:
        return await ctx.submit_many([JobSpec(task="door.double", input={"x": x})])

    async with in_memory(registry) as il:
        (child,) = await (await il.submit(parent, 1)).result(timeout_s=60)
        assert (await il.wait(child, timeout_s=60)).state == "COMPLETED"
        assert await il.result(child) == 8


async def test_a_request_id_among_the_options_makes_one_job_as_the_parameter_does(il: Interlock) -> None:
    once = double.options(request_id="one")
    first = await il.submit(once, 21)
    assert (await il.submit(once, 21)).id == first.id
    assert (await il.submit(double, 21, request_id="one")).id == first.id
    assert (await il.submit(once, 21, request_id="two")).id != first.id, "the parameter takes precedence"
    assert (await il.submit(double, 21)).id != first.id
    with pytest.raises(RequestIdReused):
        await il.submit(once, 22)


def test_a_request_id_among_the_options_makes_one_job_also_in_a_transaction(tmp_path: Path) -> None:
    once = double.options(request_id="one")
    with interlock.sync.Interlock(f"sqlite:///{tmp_path}/jobs.db") as il:
        first = il.submit(once, 21)
        assert il.submit(once, 21) == first
        connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        with contextlib.closing(connection):
            connection.execute("BEGIN IMMEDIATE")
            assert il.within(connection).submit(once, 21) == first
            connection.execute("COMMIT")


async def test_an_asynchronous_transaction_takes_a_request_id_from_the_options(tmp_path: Path) -> None:
    once = double.options(request_id="one")
    async with Interlock(f"sqlite:///{tmp_path}/jobs.db") as il:
        first = await il.submit(once, 21)
        connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        with contextlib.closing(connection):
            connection.execute("BEGIN IMMEDIATE")
            assert await il.within(connection).submit(once, 21) == first.id
            connection.execute("COMMIT")


async def test_an_input_that_json_cannot_hold_is_refused_with_its_place(il: Interlock) -> None:
    given = {"x": {"y": object()}}
    with pytest.raises((NotJson, InvalidArguments), match="y"):
        await il.submit(JobSpec(task="door.double", input=given))


async def test_jobs_are_found_with_the_filters_of_the_command_line(il: Interlock) -> None:
    slow = await il.submit(JobSpec(task="door.double", queue="slow"))
    await il.submit(JobSpec(task="door.double"))
    await slow.cancel()
    found, cursor = await il.jobs("state:canceled queue:slow")
    assert ([view.id for view in found], cursor) == ([slow.id], "")
    page, cursor = await il.jobs("task:door.double", limit=1)
    rest, _ = await il.jobs("task:door.double", limit=1, cursor=cursor)
    assert {view.id for view in (*page, *rest)} == {view.id for view in (await il.jobs())[0]}
    with pytest.raises(BadFilter, match="did you mean state"):
        await il.jobs("sate:failed")


async def test_a_result_that_is_late_is_a_timeout() -> None:
    async with in_memory() as il:
        job = await il.submit(double.options(delay_s=3_600), 21)
        with pytest.raises(TimeoutError) as late:
            await job.result(timeout_s=60)
    assert isinstance(late.value, ResultNotReady)
    assert str(late.value).startswith(f"The job {job.id} is still PENDING")
    assert late.value.as_dict()["code"] == "result_not_ready"


@task(name="door.repeat")
def repeat(text: str | None, times: int) -> str | None:
    return None if text is None else text * times


@pytest.mark.parametrize(
    ("text", "times", "workers", "viewed"),
    [(None, 1, 1, False), ("x", 3, 1, False), ("x", 50_000, 1, True), ("x", 3, 2, True)],
)
async def test_a_result_is_that_of_the_view_which_only_large_ones_and_shards_need(
    text: str | None, times: int, workers: int, viewed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = None if text is None else text * times
    views = Jobs.views
    made: list[Record] = []

    async def counted(self: Jobs, records: Sequence[Record]) -> list[JobView]:
        made.extend(records)
        return await views(self, records)

    async with in_memory() as il:
        job = await il.submit(repeat.options(worker_count=workers), text, times)
        monkeypatch.setattr(Jobs, "views", counted)
        assert await job.result(timeout_s=60) == (one if workers == 1 else [one] * workers)
        assert bool(made) is viewed
        assert (await job.view()).to_dict()["result"] == await job.result()


async def test_a_job_that_has_ended_in_time_is_returned_although_its_view_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    views = Jobs.views

    async def slow(self: Jobs, records: Sequence[Record]) -> list[JobView]:
        await program.clock.jump("1h")
        return await views(self, records)

    async with in_memory() as program:
        job = await program.submit(double, 21)
        monkeypatch.setattr(Jobs, "views", slow)
        assert (await program.wait(job.id, timeout_s=60)).state == "COMPLETED"


def test_the_traceback_of_an_interlock_error_includes_its_hint() -> None:
    with pytest.raises(BadStoreUrl) as refused:
        asyncio.run(Interlock("mysql://host/name").open())
    text = "".join(traceback.format_exception(refused.value))
    assert refused.value.todo in text


async def test_a_view_becomes_plain_values(il: Interlock) -> None:
    job = await il.submit(double, 21)
    view = await job.view()
    plain = view.to_dict()
    assert (plain["id"], plain["state"], plain["input"]) == (job.id, "PENDING", {"x": 21})
    assert plain["created_at"].endswith("Z")
    assert dict(view) == plain, "what FastAPI makes of an object that it does not know"


async def test_a_job_view_always_includes_the_depth_and_the_description(il: Interlock) -> None:
    plain = (await (await il.submit(double, 21)).view()).to_dict()
    assert (plain["depth"], plain["description"]) == (0, "")


# A task that wants to be tried again


@task(name="door.later")
def later(seconds: float) -> None:
    raise FlakyError("the shop is closed", retry_after_s=seconds)


async def test_a_task_sets_the_delay_of_its_retry_with_retry_after_s() -> None:
    async with in_memory() as il:
        job = await il.submit(later, 3_600.0)
        first, second = await _attempts(il, job.id, 2)
        assert first.failure is not None
        assert (first.failure.failure_class, first.failure.error) == (
            "flaky",
            "FlakyError: the shop is closed",
        )
        pause = second.ready_at - first.ended_at
        assert pause.total_seconds() == pytest.approx(3_600.0)


async def _attempts(il: Any, job_id: str, number: int) -> Any:
    while len(attempts := (await il.job(job_id)).attempts) < number:
        await il.clock.jump("1s")
    return attempts


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_a_pause_that_cannot_be_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidArguments, match="retry_after_s"):
        FlakyError("x", retry_after_s=seconds)


async def test_the_deprecated_name_of_the_services_works_and_names_the_new_one(il: Interlock) -> None:
    with pytest.warns(DeprecationWarning, match=r"Interlock\.services"):
        assert il.here is il.services


async def test_the_services_of_a_server_are_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidArguments, match="is a server") as refused:
        _ = Interlock("http://127.0.0.1:9").services
    assert refused.value.todo == "Use the methods of this class, or open the store itself."
