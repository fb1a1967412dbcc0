"""Fire times around every change of the clock in ten years, against an oracle that walks minute by minute.

The oracle has the rules of `interlock.wire.calendar` and none of its code: it looks at what the wall clock
shows in each minute of UTC. `make test` tries some zones, `make test-all` all that there are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import pytest
from tests.effort import pick

from interlock.wire.calendar import Calendar
from interlock.wire.jobs import JobSpec
from interlock.wire.schedules import ScheduleSpec

FIRST, LAST = datetime(2011, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
JOB = JobSpec(task="work")
BEFORE, AFTER = timedelta(hours=6), timedelta(hours=26)
ODD = (
    "Africa/Casablanca",  # four changes a year, around Ramadan
    "America/Caracas",  # half an hour forward, once
    "America/Sao_Paulo",  # at midnight: the day begins at one
    "Antarctica/Troll",  # by two hours
    "Asia/Gaza",  # on changing days, at midnight
    "Asia/Pyongyang",  # half an hour back, and forward again
    "Australia/Lord_Howe",  # by half an hour
    "Europe/Berlin",
    "Pacific/Apia",  # without the 30th of December 2011
)
ZONES = pick(ODD, tuple(sorted(available_timezones())))

Matches = Callable[[datetime], bool]


class Clock(NamedTuple):
    """What the wall clock of a zone shows in each minute, from `start` on."""

    start: datetime
    shown: list[datetime]


class Case(NamedTuple):
    """A cron expression, and the same as a function of what the clock shows."""

    cron: str
    matches: Matches
    every_hour: bool = False


def changes(zone: ZoneInfo) -> Iterator[datetime]:
    """Yield the first minute after each change of the offset."""
    moment, step = FIRST, timedelta(hours=6)
    while moment < LAST:
        if moment.astimezone(zone).utcoffset() != (moment + step).astimezone(zone).utcoffset():
            before = moment.astimezone(zone).utcoffset()
            yield next(
                at
                for at in (moment + n * MINUTE for n in range(step // MINUTE + 1))
                if at.astimezone(zone).utcoffset() != before
            )
        moment += step


def clock_around(change: datetime, zone: ZoneInfo) -> Clock:
    start, number = change - BEFORE, (BEFORE + AFTER) // MINUTE
    shown = [(start + n * MINUTE).astimezone(zone).replace(tzinfo=None, fold=0) for n in range(number)]
    return Clock(start, shown)


def cases_for(clock: Clock) -> Iterator[Case]:
    """Yield expressions that fire often, and some whose time is within the gap or the repeated hour."""
    at = BEFORE // MINUTE
    expected, shown = clock.shown[at - 1] + MINUTE, clock.shown[at]
    inside = min(expected, shown) + abs(expected - shown) // 2
    minute, hour, day, month = inside.minute, inside.hour, inside.day, inside.month
    weekday = inside.isoweekday() % 7
    following = (hour + 1) % 24
    yield Case("*/15 * * * *", lambda one: one.minute % 15 == 0, every_hour=True)
    yield Case("0 * * * *", lambda one: one.minute == 0, every_hour=True)
    yield Case(f"{minute} * * * *", lambda one: one.minute == minute, every_hour=True)
    yield Case(f"{minute} {hour} * * *", lambda one: (one.hour, one.minute) == (hour, minute))
    yield Case(f"*/15 {hour} * * *", lambda one: one.hour == hour and one.minute % 15 == 0)
    yield Case(
        f"*/20 {hour},{following} * * *", lambda one: one.hour in (hour, following) and one.minute % 20 == 0
    )
    yield Case(
        f"{minute} {hour} * * {weekday}",
        lambda one: (one.isoweekday() % 7, one.hour, one.minute) == (weekday, hour, minute),
    )
    yield Case(
        f"{minute} {hour} {day} * *", lambda one: (one.day, one.hour, one.minute) == (day, hour, minute)
    )
    yield Case(
        f"{minute} {hour} {day} {month} *",
        lambda one: (one.month, one.day, one.hour, one.minute) == (month, day, hour, minute),
    )


def fires_by_the_rules(clock: Clock, case: Case) -> list[datetime]:
    """Walk through the minutes. What was shown before does not fire again, what was skipped fires at once."""
    if case.every_hour:
        fires = [n for n, shown in enumerate(clock.shown) if case.matches(shown)]
        return [clock.start + n * MINUTE for n in fires]
    found, expected = [], clock.shown[0]
    for n, shown in enumerate(clock.shown):
        if shown < expected:
            continue
        new = [expected + k * MINUTE for k in range((shown - expected) // MINUTE)]
        if case.matches(shown) or any(map(case.matches, new)):
            found.append(clock.start + n * MINUTE)
        expected = shown + MINUTE
    return found


@pytest.mark.parametrize("name", ZONES)
def test_fires_around_each_change_of_the_clock_are_those_of_the_rules(name: str) -> None:
    zone = ZoneInfo(name)
    for change in islice(changes(zone), 0, None, pick(4, 1)):
        clock = clock_around(change, zone)
        for case in cases_for(clock):
            # Only the oracle needs the hours before: a time that is shown again was shown then.
            begin, end = change - BEFORE / 2, change + AFTER
            golden = fires_by_the_rules(clock, case)
            calendar = Calendar(ScheduleSpec(cron=case.cron, tz=name, job=JOB))
            fires = list(takewhile(partial(datetime.__gt__, end), calendar.from_(begin)))
            assert fires == golden[bisect_right(golden, begin) :], (case.cron, change)
            for n in range(-6, 7):
                moment = change + n * 25 * MINUTE + timedelta(seconds=n)
                place = bisect_right(golden, moment)
                if place < len(golden):
                    assert calendar.after(moment) == golden[place], (case.cron, change, moment)


def test_every_zone_of_the_oracle_is_one_of_the_calendar() -> None:
    assert all(next(changes(ZoneInfo(name)), None) for name in ODD), "each has a change to look at"
    assert set(ODD) <= available_timezones()
