"""What a server with nothing to do spends on schedules that are not due."""

from __future__ import annotations

import asyncio
from time import sleep

from bench.report import Line, Section
from bench.rounds import Figure, Pace
from bench.server.house import House, door, house
from bench.stores.cpu import Used
from interlock.wire.jobs import JobSpec
from interlock.wire.schedules import ScheduleSpec

NONE = "no schedules"
AIM, HELD_FROM = 2.0, 100_000
"""Percent of one core, and with how many schedules that is an aim."""
STORES = ("postgresql", "sqlite", "redis")
_WATCHED_S = 20.0
_TOGETHER = 500


def run(pace: Pace) -> Section:
    """Measure an idle server, create the schedules, and measure it again."""
    number = pace.crowd // 10
    many = f"{number:,} schedules"
    lines = []
    for store in pace.stores or STORES:
        with house(store) as place:
            before = _share(place)
            asyncio.run(_create(place, number))
            figures = {NONE: Figure((before,)), many: Figure((_share(place),))}
        lines.append(Line(f"{store}, server and database", "% of a core", figures))
    return Section(
        f"Scheduling: an idle server, for {_WATCHED_S:g} s",
        NONE,
        lines=tuple(lines),
        missed=tuple(
            f"{line.measure}: {line.figures[many].median:.1f} % of a core, and should be {AIM:g} %."
            for line in lines
            if line.figures[many].median > AIM and number >= HELD_FROM
        ),
    )


def _share(place: House) -> float:
    """How much of one core server and database use, in percent."""
    database, own = Used(place.store_pid), Used()
    sleep(_WATCHED_S / 4)  # what follows a change is over
    database()
    before_s = place.cpu_s() + database() - own()
    sleep(_WATCHED_S)
    return 100 * (place.cpu_s() + database() - own() - before_s) / _WATCHED_S


async def _create(place: House, number: int) -> None:
    """Create schedules whose next times are spread over the next year."""
    async with door(place) as il:
        for start in range(0, number, _TOGETHER):
            some = range(start, min(start + _TOGETHER, number))
            await asyncio.gather(*(il.schedules.create(f"schedule-{each}", _spec(each)) for each in some))


def _spec(number: int) -> ScheduleSpec:
    month, day, hour = 1 + number % 12, 1 + number // 12 % 28, number // 336 % 24
    return ScheduleSpec(job=JobSpec(task="bench"), cron=f"{number % 60} {hour} {day} {month} *")
