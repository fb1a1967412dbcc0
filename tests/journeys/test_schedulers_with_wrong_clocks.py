"""Schedules fire by the clock of the store, whatever the clocks of the hosts that look after them say."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import pytest
from tests.journeys import errands
from tests.journeys.crew import Crew, Worker

from interlock.store.records import Query
from interlock.testing import skewed_clock
from interlock.wire.schedules import ScheduleSpec

EVERY = timedelta(minutes=30)
SKEW_S = 7_200
HALF_HOURLY = ScheduleSpec(job=errands.jot.spec(7), every="30m", overlap="allow", catch_up="all")


async def host(crew: Crew, name: str, clock: Path) -> Worker:
    """Start a worker, which is a scheduler too, on a host whose clock can be set."""
    words = [f"{variable}={value}" for variable, value in skewed_clock.settable(clock).items()]
    return await crew.ready(name, program=("env", *words, sys.executable, "-m", "interlock"))


@pytest.mark.parametrize("place", ["postgres", pytest.param("redis", marks=pytest.mark.long)], indirect=True)
async def test_clocks_that_are_set_by_two_hours_while_they_run_neither_skip_nor_repeat_a_fire_time(
    crew: Crew, tmp_path: Path
) -> None:
    clocks = [tmp_path / "anna.clock", tmp_path / "bert.clock"]
    for name, clock in zip(("anna", "bert"), clocks, strict=True):
        await host(crew, name, clock)
    made = await crew.il.services.schedules.create("half-hourly", HALF_HOURLY)
    for turn, skews in enumerate([(SKEW_S, -SKEW_S), (-SKEW_S, SKEW_S), (0, SKEW_S), (-SKEW_S, 0)], 1):
        for clock, skew_s in zip(clocks, skews, strict=True):
            skewed_clock.set_clock(clock, skew_s)
        await crew.pass_time(EVERY.total_seconds())
        await crew.all_completed(turn)
    views, _ = await crew.il.services.jobs.find(Query(kind="job"))
    assert made.next_at is not None
    fired = sorted(view.scheduled_for for view in views if view.scheduled_for is not None)
    assert fired == [made.next_at + turn * EVERY for turn in range(4)]
    assert crew.count("jot") == 4
