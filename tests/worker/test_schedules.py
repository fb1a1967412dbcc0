"""Schedules in code: what `@schedule` and `@task(every=...)` declare, and how a worker registers it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.waiting import until

from interlock.errors import CannotLoad, InvalidArguments, InvalidSchedule, StoreUnavailable
from interlock.testing.at_work import at_work
from interlock.wire.schedules import ScheduleSpec
from interlock.worker.context import Context
from interlock.worker.schedules import DeclaredSchedule, declare, schedule_spec
from interlock.worker.tasks import Registry
from interlock.worker.telemetry import make_log


def test_a_schedule_stands_above_a_task_or_a_function() -> None:
    shop = Registry()

    @shop.schedule("0 2 * * 1-5", tz="Europe/Berlin", name="nightly", input={"kind": "full"})
    @shop.task(name="report", queue="mail", retries=2)
    def report(kind: str) -> None: ...

    @shop.schedule("15m", name="poll", overlap="allow", jitter="1m")
    def poll() -> None: ...

    @shop.task(every="1h", name="tidy")
    def tidy() -> None: ...

    nightly = shop.schedules["nightly"].spec
    assert (nightly.cron, nightly.tz, nightly.job.task, nightly.job.queue) == (
        "0 2 * * 1-5",
        "Europe/Berlin",
        "report",
        "mail",
    )
    assert (msgspec.json.decode(nightly.job.input), nightly.job.retries) == ({"kind": "full"}, 2)
    polling = shop.schedules["poll"].spec
    assert (polling.every, polling.job.task, polling.overlap) == ("15m", poll.name, "allow")
    assert shop.schedules["tidy"].spec.every == "1h"
    assert report("full") is None


def test_an_invalid_or_duplicate_schedule_is_refused_when_it_is_declared() -> None:
    shop = Registry()

    @shop.task(name="report")
    def report(kind: str) -> None: ...

    with pytest.raises(InvalidSchedule, match="not a cron expression"):
        shop.schedule("0 2 * *", input={"kind": "full"})(report)
    with pytest.raises(InvalidArguments):
        shop.schedule("@daily")(report)
    with pytest.raises(InvalidSchedule, match="cannot be called"):
        shop.schedule("@daily", name="a b", input={"kind": "full"})(report)
    shop.schedule("@daily", name="same", input={"kind": "full"})(report)

    @shop.task(name="other")
    def other() -> None: ...

    with pytest.raises(CannotLoad, match="Two tasks want the schedule same"):
        shop.schedule("@daily", name="same")(other)


def test_times_may_be_datetimes() -> None:
    @Registry().task(name="x")
    def x() -> None: ...

    at = datetime(2030, 1, 1, 12, tzinfo=UTC)
    spec = schedule_spec(x.spec(), at=at, exclude=[at.date()])
    assert (spec.at, spec.exclude) == (("2030-01-01T12:00:00+00:00",), ("2030-01-01",))


class Port:
    """Keeps what is declared; refuses what it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.kept: dict[str, str] = {}
        self._error = error

    async def declare_schedule(self, name: str, spec: ScheduleSpec, source: str) -> None:
        assert spec.every == "1h"
        if self._error is not None and name == "bad":
            raise self._error
        self.kept[name] = source


def declared() -> dict[str, DeclaredSchedule]:
    @Registry().task(name="x")
    def x() -> None: ...

    spec = schedule_spec(x.spec(), "1h")
    return {"bad": DeclaredSchedule(spec), "good": DeclaredSchedule(spec, "interlock.toml")}


async def test_a_schedule_that_is_refused_keeps_no_other_from_being_registered() -> None:
    log = make_log("error", "json")
    port = Port(InvalidSchedule("It would never fire.", todo="Change it."))
    await declare(port, declared(), log)
    assert port.kept == {"good": "interlock.toml"}
    with pytest.raises(StoreUnavailable):
        await declare(Port(StoreUnavailable("away")), declared(), log)
    await declare(object(), declared(), log)


async def test_a_worker_registers_declared_schedules_and_the_context_has_the_fire_time() -> None:
    shop = Registry()

    @shop.schedule("@yearly", name="yearly")
    @shop.task(name="report")
    def report(ctx: Context) -> list[Any]:
        return [ctx.schedule, None if ctx.scheduled_for is None else ctx.scheduled_for.isoformat()]

    async with at_work(shop) as il:
        fire = await _run(il)
        assert await il.result(fire.job_id, timeout_s=60) == ["yearly", fire.scheduled_for.isoformat()]
        alone = await il.submit(report)
        assert await alone.result(timeout_s=60) == [None, None]


async def _run(il: Any) -> Any:
    async def registered() -> bool:
        return bool((await il.schedules.list())[0])

    await until(registered, "the worker has registered its schedule")
    return await il.schedules.run("yearly")
