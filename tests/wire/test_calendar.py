"""When schedules fire: golden times around every change of the clock, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from tests.effort import further, pick

from interlock.errors import InvalidSchedule
from interlock.wire.calendar import Calendar, describe
from interlock.wire.jobs import JobSpec
from interlock.wire.schedules import ScheduleSpec

JOB = JobSpec(task="shop.report")
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def calendar(**when: Any) -> Calendar:
    return Calendar(ScheduleSpec(job=JOB, **when), "nightly")


def fires(number: int, after: str, **when: Any) -> list[str]:
    """Return fire times as the clock on the wall shows them, with its offset."""
    made = calendar(**when)
    begin = datetime.fromisoformat(after)
    begin = begin if begin.tzinfo else begin.replace(tzinfo=UTC)
    times = zip(made.from_(begin), range(number), strict=False)
    return [f"{at.astimezone(made.zone):%m-%d %H:%M%z}" for at, _ in times]


@pytest.mark.parametrize(
    ("when", "after", "golden"),
    [
        # The clock goes from 02:00 to 03:00: what does not exist fires once, right after the gap.
        (
            {"cron": "30 2 * * *", "tz": "Europe/Berlin"},
            "2026-03-28T12:00",
            ["03-29 03:00+0200", "03-30 02:30+0200"],
        ),
        (
            {"cron": "*/20 2 * * *", "tz": "Europe/Berlin"},
            "2026-03-28T12:00",
            ["03-29 03:00+0200", "03-30 02:00+0200", "03-30 02:20+0200"],
        ),
        (
            {"cron": "0 */2 * * *", "tz": "Europe/Berlin"},
            "2026-03-28T22:00",
            ["03-29 00:00+0100", "03-29 03:00+0200", "03-29 04:00+0200"],
        ),
        # The clock goes from 03:00 back to 02:00: what exists twice fires once, the first time.
        (
            {"cron": "30 2 * * *", "tz": "Europe/Berlin"},
            "2026-10-24T12:00",
            ["10-25 02:30+0200", "10-26 02:30+0100"],
        ),
        # Every hour means elapsed time: each hour that the day has, and none that it has not.
        (
            {"cron": "30 * * * *", "tz": "Europe/Berlin"},
            "2026-10-24T23:00",
            ["10-25 01:30+0200", "10-25 02:30+0200", "10-25 02:30+0100", "10-25 03:30+0100"],
        ),
        (
            {"cron": "30 * * * *", "tz": "Europe/Berlin"},
            "2026-03-29T00:00",
            ["03-29 01:30+0100", "03-29 03:30+0200"],
        ),
        # At midnight, by half an hour, in the south, and in America.
        (
            {"cron": "0 0 * * *", "tz": "America/Santiago"},
            "2026-09-05T12:00",
            ["09-06 01:00-0300", "09-07 00:00-0300"],
        ),
        (
            {"cron": "30 23 * * *", "tz": "America/Santiago"},
            "2026-04-04T12:00",
            ["04-04 23:30-0300", "04-05 23:30-0400"],
        ),
        (
            {"cron": "15 2 * * *", "tz": "Australia/Lord_Howe"},
            "2026-10-03T12:00",
            ["10-04 02:30+1100", "10-05 02:15+1100"],
        ),
        (
            {"cron": "30 * * * *", "tz": "Australia/Lord_Howe"},
            "2026-10-03T14:45",
            ["10-04 01:30+1030", "10-04 02:30+1100", "10-04 03:30+1100"],
        ),
        (
            {"cron": "45 1 * * *", "tz": "Australia/Lord_Howe"},
            "2026-04-04T00:00",
            ["04-05 01:45+1100", "04-06 01:45+1030"],
        ),
        (
            {"cron": "30 1 * * 0", "tz": "America/New_York"},
            "2026-10-26T00:00",
            ["11-01 01:30-0400", "11-08 01:30-0500"],
        ),
        # A single time obeys the same rule.
        ({"at": ("2026-03-29T02:30",), "tz": "Europe/Berlin"}, "2026-01-01", ["03-29 03:00+0200"]),
        ({"at": ("2026-10-25T02:30",), "tz": "Europe/Berlin"}, "2026-01-01", ["10-25 02:30+0200"]),
        ({"at": ("2026-10-25T02:30+01:00",), "tz": "Europe/Berlin"}, "2026-01-01", ["10-25 02:30+0100"]),
        # An interval knows no clock on the wall.
        (
            {"every": "12h", "tz": "Europe/Berlin", "start": "2026-03-28T06:00"},
            "2026-03-28T12:00",
            ["03-28 18:00+0100", "03-29 07:00+0200"],
        ),
    ],
)
def test_fires_around_a_change_of_the_clock(when: dict[str, Any], after: str, golden: list[str]) -> None:
    assert fires(len(golden), after, **when) == golden


ZONES = pick(
    ("Europe/Berlin", "America/New_York", "America/Santiago", "Australia/Lord_Howe", "Africa/Casablanca"),
    tuple(sorted(available_timezones())),
)
YEARS = pick((2026, 2027), (2020, 2030))


@pytest.mark.parametrize("zone", ZONES)
def test_a_daily_schedule_fires_once_for_every_day_of_every_zone(zone: str) -> None:
    """Whatever the zone does to its clock, each day has one fire: at its time, or at the end of a gap."""
    wall = ZoneInfo(zone)
    first, last = (datetime(year, 1, 1, tzinfo=UTC) for year in YEARS)
    for time in pick(("00:00", "01:30", "02:30", "23:45"), ("00:00", "02:30", "23:45")):
        hour, minute = map(int, time.split(":"))
        seen: list[Any] = []
        days: list[Any] = []
        made = calendar(cron=f"{minute} {hour} * * *", tz=zone)
        for at in made.from_(first):
            if at >= last:
                break
            local = at.astimezone(wall)
            if f"{local:%H:%M}" != time:
                before = (at - timedelta(seconds=1)).astimezone(wall)
                assert before.utcoffset() != local.utcoffset(), f"{local} is not the end of a gap"
                if f"{local:%H:%M}" < time:  # the gap has ended with the day
                    local = before
            else:
                assert not local.fold, f"{local} is the second of two"
            seen.append(at)
            days.append(local.date())
        assert len(set(days)) == len(days), "no day has two"
        assert all(DAY - 3 * HOUR <= b - a <= DAY + 3 * HOUR for a, b in pairwise(seen))


@pytest.mark.parametrize("zone", ZONES)
def test_an_hourly_schedule_fires_whenever_the_clock_shows_the_minute(zone: str) -> None:
    wall = ZoneInfo(zone)
    year = YEARS[0]
    begin, end = datetime(year, 3, 1, tzinfo=UTC), datetime(year, 11, 30, tzinfo=UTC)
    made = calendar(cron="30 * * * *", tz=zone)
    found = made.between(begin, end, 10_000)
    minute = begin + timedelta(minutes=15)
    shown = []
    while minute <= end:
        if minute.astimezone(wall).minute == 30 and minute.astimezone(wall).second == 0:
            shown.append(minute)
        minute += timedelta(minutes=15)
    assert found == shown


@pytest.mark.parametrize(
    ("when", "golden"),
    [
        ({"start": "2026-01-03"}, ["01-03", "01-04", "01-05"]),
        ({"end": "2026-01-03"}, ["01-02", "01-03"]),
        ({"end": "2026-01-03T02:00"}, ["01-02"]),
        ({"exclude": ("2026-01-03",)}, ["01-02", "01-04", "01-05"]),
        ({"exclude": ("2026-01-02..2026-01-04", "2026-01-06")}, ["01-05", "01-07", "01-08"]),
        ({"exclude": ("2026-01-03T01:00..2026-01-03T03:00",)}, ["01-02", "01-04", "01-05"]),
    ],
)
def test_start_end_and_exclusions_limit_the_fires(when: dict[str, Any], golden: list[str]) -> None:
    made = calendar(cron="0 2 * * *", **when)
    times = zip(made.from_(datetime(2026, 1, 1, 12, tzinfo=UTC)), range(3), strict=False)
    assert [f"{at:%m-%d}" for at, _ in times] == golden


@pytest.mark.parametrize(
    "tz", ["UTC", "Pacific/Kiritimati", *further("Asia/Tokyo", "Etc/GMT+12", "America/New_York")]
)
@pytest.mark.parametrize("every", [{"every": "366d"}, {"cron": "0 2 * * *"}, {"cron": "30 * * * *"}])
@pytest.mark.parametrize("time", ["", "T23:59:59-23:59", *further("T00:00", "T23:59:59", "T00:00+23:59")])
def test_a_period_can_begin_and_end_with_the_calendar(every: dict[str, str], time: str, tz: str) -> None:
    now, first, last = datetime(2026, 1, 1, tzinfo=UTC), f"0001-01-01{time}", f"9999-12-31{time}"
    made = calendar(tz=tz, start=first, end=last, exclude=(f"9999-12-30{time}..{last}",), **every)
    assert made.after(now) is not None
    since, until = made.moment(first, "since"), made.moment(last, "until")
    tick = timedelta(microseconds=1)
    assert len(made.between(since - tick, min(until - tick, now), 501)) == 501
    assert made.after(until) is None
    never = calendar(tz=tz, exclude=(f"{first}..{last}",), **every)
    assert never.after(now) is None


def test_a_jitter_beyond_the_end_of_the_calendar_is_refused() -> None:
    made = calendar(at=("2026-01-01T00:00",), jitter="999999999d")
    with pytest.raises(InvalidSchedule, match="too long") as refused:
        made.due_at(datetime(2026, 1, 1, tzinfo=UTC))
    assert refused.value.todo


def test_a_calendar_skips_twenty_excluded_years_to_the_next_fire_time() -> None:
    made = calendar(every="1s", exclude=("2026-01-01..2045-12-31",))
    assert made.after(datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2046, 1, 1, tzinfo=UTC)


def test_the_last_fires_of_a_long_time_are_found_without_counting_all() -> None:
    until = datetime(2026, 1, 1, tzinfo=UTC)
    made = calendar(every="1s")
    assert made.between(until - 9_000 * DAY, until, 2) == [until - timedelta(seconds=1), until]


def test_jitter_is_equal_for_equal_schedules_and_never_reaches_the_next_fire_time() -> None:
    made, same = calendar(every="10m", jitter="1h"), calendar(every="10m", jitter="1h")
    other = Calendar(ScheduleSpec(job=JOB, every="10m", jitter="1h"), "other")
    times = [at for at, _ in zip(made.from_(datetime(2026, 1, 1, tzinfo=UTC)), range(50), strict=False)]
    due = [made.due_at(at) for at in times]
    assert due == [same.due_at(at) for at in times] == sorted(due)
    assert due != [other.due_at(at) for at in times]
    assert all(at <= late < at + timedelta(minutes=10) for at, late in zip(times, due, strict=True))
    assert len({late - at for at, late in zip(times, due, strict=True)}) > 40


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ({"cron": "0 2 * * 1-5", "tz": "Europe/Berlin"}, "every weekday at 02:00 in Berlin"),
        ({"cron": "0 2 * * *"}, "every day at 02:00 UTC"),
        ({"cron": "@daily"}, "every day at 00:00 UTC"),
        ({"cron": "30 8 * * 1", "tz": "America/New_York"}, "every Monday at 08:30 in New York"),
        ({"cron": "*/15 * * * *"}, "every 15 minutes UTC"),
        ({"cron": "0 9 1 * *"}, "on the first day of every month at 09:00 UTC"),
        ({"every": "15m"}, "every 15 minutes"),
        ({"every": "1d", "start": "2026-01-01"}, "every day from 2026-01-01"),
        ({"at": ("2026-12-24T18:00",), "tz": "Europe/Berlin"}, "at 2026-12-24 18:00 in Berlin"),
        ({"cron": "0 2 * * *", "exclude": ("2026-12-25",)}, "every day at 02:00 UTC except 2026-12-25"),
    ],
)
def test_a_schedule_is_described_as_an_english_phrase(when: dict[str, Any], words: str) -> None:
    assert describe(ScheduleSpec(job=JOB, **when)) == words


@pytest.mark.parametrize(
    ("when", "sentence"),
    [
        ({}, "one of cron, every and at"),
        ({"cron": "0 2 * * *", "every": "1h"}, "not cron and every"),
        ({"cron": "0 25 * * *"}, "not a cron expression"),
        ({"cron": "0 2 * *"}, "not a cron expression"),
        ({"cron": "0 0 30 2 *"}, "not a cron expression"),
        ({"every": "soon"}, "not a duration"),
        ({"every": "0s"}, "from 1s to 366d"),
        ({"every": "1.5s"}, "whole seconds"),
        ({"every": "1h", "tz": "Europe/Berlim"}, "Did you mean Europe/Berlin"),
        ({"every": "1h", "tz": "../etc/passwd"}, "no time zone"),
        ({"at": ("tomorrow",)}, "which is not a time"),
        ({"every": "1h", "exclude": ("2026-01-02..2026-01-01",)}, "is empty"),
        ({"every": "1h", "jitter": "much"}, "not a duration"),
    ],
)
def test_an_invalid_schedule_is_refused_with_a_reason_and_a_hint(when: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        calendar(**when)
    assert sentence in refused.value.sentence
    assert refused.value.todo
