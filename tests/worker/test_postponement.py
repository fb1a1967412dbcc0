"""Handlers that want to run again later: snoozing, and retries at a time of their choice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from tests.server.running import Running, running
from tests.worker import process_tasks
from tests.worker.board import Board
from tests.worker.conftest import Start
from tests.worker.test_http_port import ASKED, port_to

from interlock.errors import FlakyError, InvalidArguments
from interlock.testing import in_memory
from interlock.wire.jobs import JobSpec, Unique
from interlock.wire.runner import Complete, Failed, Heard, Release
from interlock.worker.context import Context
from interlock.worker.http import NOT_SNOOZED, HttpOrchestrator
from interlock.worker.outcomes import Snoozed, failure_of, outcome_of
from interlock.worker.postponement import RetryAfter, RetryAt, Snooze
from interlock.worker.tasks import Registry

AT = datetime(2030, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))
DESK = Registry()


@DESK.task(name="snoozes", retries=0)
async def snoozes(times: int, *, ctx: Context) -> int:
    done: int = ctx.restored(int) or 0
    if done < times:
        ctx.checkpoint(done + 1)
        ctx.snooze("10m")
    return ctx.attempt


@DESK.task(name="snoozes_in_a_thread", retries=0)
def snoozes_in_a_thread(*, ctx: Context) -> int:
    if ctx.attempt == 1:
        raise Snooze(timedelta(hours=3))
    return ctx.attempt


@DESK.task(name="swallows", retries=0)
async def swallows(*, ctx: Context) -> int:
    try:
        if ctx.attempt == 1:
            ctx.snooze(60)
    except Exception:  # noqa: BLE001 - that is the point
        return 0
    return ctx.attempt


@DESK.task(name="is_told_to_wait")
async def is_told_to_wait(*, ctx: Context) -> int:
    if ctx.attempt == 1:
        raise RetryAfter("30m", "429 Too Many Requests")
    return ctx.attempt


async def test_a_handler_snoozes_and_continues_where_it_was() -> None:
    async with in_memory(DESK) as il:
        began = il.clock.now
        made = await il.submit(snoozes, 2)
        assert await made.result() == 3
        assert il.clock.now >= began + timedelta(minutes=20)
        view = await made.view()
    assert [one.state for one in view.attempts] == ["STALE", "STALE", "SUCCEEDED"]
    assert (view.losses, [one.failure for one in view.attempts]) == (0, [None] * 3)


@pytest.mark.parametrize("work", [snoozes_in_a_thread, swallows])
async def test_a_plain_function_snoozes_too_and_no_except_exception_swallows_that(work: Any) -> None:
    async with in_memory(DESK) as il:
        assert await (await il.submit(work)).result() == 2


async def test_a_handler_sets_the_delay_of_its_retry_with_retry_after() -> None:
    async with in_memory(DESK) as il:
        made = await il.submit(is_told_to_wait)
        assert await made.result() == 2
        first, second = (await made.view()).attempts
    assert (first.failure and first.failure.error) == "RetryAfter: 429 Too Many Requests"
    assert first.ended_at is not None
    assert second.started_at is not None
    assert second.started_at - first.ended_at >= timedelta(minutes=30)


async def test_a_handler_in_a_process_of_its_own_snoozes(
    board: Board, start: Start, registry: Registry
) -> None:
    registry.add(process_tasks.REGISTRY.get("snooze"))
    job = board.pin("snooze")
    start(concurrency=1)
    await board.until(lambda: board.said(Release), "it is given back")
    (first, *_) = board.said(Release)
    assert (first.reason, first.snooze_s, first.snooze_until) == ("snooze", 600.0, msgspec.UNSET)
    assert job.outcome is None


# What is said


def test_a_duration_is_text_seconds_or_a_timedelta_and_a_time_is_aware() -> None:
    assert [outcome_of(Snooze(given)) for given in ("10m", 600, timedelta(minutes=10))] == [
        Snoozed(600.0)
    ] * 3
    assert outcome_of(Snooze(AT)) == Snoozed(None, AT.astimezone(UTC))
    assert failure_of(RetryAfter(30)).retry_after_s == 30
    assert failure_of(RetryAt(AT)).retry_at == AT
    assert failure_of(ValueError("no")).retry_at is msgspec.UNSET
    assert isinstance(RetryAt(AT), FlakyError)


@pytest.mark.parametrize("make", [Snooze, RetryAfter])
@pytest.mark.parametrize("given", ["soon", -1, float("nan"), float("inf"), True, None])
def test_an_invalid_duration_for_snooze_or_retry_after_is_refused(make: Any, given: object) -> None:
    with pytest.raises(InvalidArguments, match="A job cannot"):
        make(given)


@pytest.mark.parametrize("make", [Snooze, RetryAt])
def test_a_time_without_a_zone_is_refused(make: Any) -> None:
    with pytest.raises(InvalidArguments) as error:
        make(datetime(2030, 1, 1))  # noqa: DTZ001 - that is what is refused
    assert "no time zone" in error.value.todo


# Over HTTP


async def snoozed(server: Running, port: HttpOrchestrator) -> str:
    """A job whose runner wants to go on with it in ten minutes."""
    job_id = await server.submit()
    (grant,) = await port.claim(ASKED)
    message = Release(token=grant.token, runner_id="r", sequence=1, reason="snooze", snooze_s=600.0)
    (answer,) = await port.report([message])
    assert isinstance(answer, Heard)
    return job_id


async def test_a_job_is_snoozed_over_http() -> None:
    async with running() as server, port_to(server.url) as port:
        view = await server.parts.runtime.jobs.get(await snoozed(server, port))
        first, second = view.attempts
        assert (first.state, first.snoozed_until) == ("STALE", second.ready_at)


async def test_a_snooze_is_reported_as_a_failure_with_a_reason_to_an_older_server() -> None:
    async with running() as server, port_to(server.url) as port:
        assert port._greeting is not None
        port._greeting = msgspec.structs.replace(port._greeting, snoozes=False)
        view = await server.parts.runtime.jobs.get(await snoozed(server, port))
        (first, *_) = view.attempts
        assert first.failure is not None
        assert (first.state, first.failure.failure_class, first.failure.error) == (
            "FAILED",
            "tooling",
            NOT_SNOOZED.error,
        )


def test_other_messages_are_sent_to_every_server_as_they_are() -> None:
    port = HttpOrchestrator("http://127.0.0.1:1", names=str)
    plain = Release(token="t", runner_id="r")
    done = Complete(token="t", runner_id="r", outcome=Failed(error="no"))
    assert [port._translated(message) for message in (plain, done)] == [plain, done]


# Options of a task


@pytest.mark.parametrize(
    ("short", "rule"),
    [
        (True, Unique()),
        ("nightly", Unique(key="nightly")),
        (("order",), Unique(by=("order",))),
        (["order"], Unique(by=("order",))),
        (Unique(policy="replace"), Unique(policy="replace")),
        ({"key": "k", "within": "1h"}, Unique(key="k", within="1h")),
        (None, None),
        (False, None),
    ],
)
def test_a_rule_for_unique_jobs_has_short_forms(short: Any, rule: Unique | None) -> None:
    @Registry().task(unique=short)
    def send(order: int = 1) -> None: ...

    assert send.spec().unique == rule
    assert send.options(unique=None).spec().unique is None


def test_a_limit_for_the_start_is_a_time_or_a_duration_and_the_later_one_counts() -> None:
    @Registry().task(start_within="10m")
    def send() -> None: ...

    def said(spec: JobSpec) -> tuple[Any, ...]:
        return spec.not_after, spec.start_within_s, spec.at, spec.delay_s

    assert said(send.spec()) == (None, 600.0, None, 0.0)
    assert said(send.options(not_after="1h").spec()) == (None, 3_600.0, None, 0.0)
    assert said(send.options(not_after=AT).spec()) == (AT, None, None, 0.0)
    assert said(send.options(not_after=AT).options(start_within=5).spec()) == (None, 5.0, None, 0.0)
    assert said(send.options(start_within=None).spec()) == (None, None, None, 0.0)
    assert said(send.options(delay_s=5).options(at=AT).spec()) == (None, 600.0, AT, 0.0)
    assert said(send.options(at=AT).options(delay_s=5).spec()) == (None, 600.0, None, 5.0)
    with pytest.raises(InvalidArguments, match="be started within 'soon'"):
        send.options(start_within="soon")
