"""Fire times of schedules: cron expressions, intervals and single times, in a time zone.

A local time that does not exist (the clock is put forward over it) fires once, right after the gap. A local
time that exists twice fires once, the first time. An expression for every hour is different: it means elapsed
time, so it fires in each of the hours that the day really has.

All functions are pure; times are aware, and fires are in UTC with whole seconds.

Why: decision 0392.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections import deque
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cached_property, lru_cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from interlock.errors import InvalidSchedule
from interlock.text import counted, nearest, read_duration, write_duration
from interlock.wire.schedules import ScheduleSpec

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
SHORTEST, LONGEST = timedelta(seconds=1), timedelta(days=366)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(2199, 1, 1, tzinfo=UTC)
_EARLIEST, _LATEST = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC)
"""Start, end and other edges of periods lie between these: next to them is room for a day and an offset."""
_TICK = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_EVERY_HOUR = 24
_FIRST_WINDOW = timedelta(minutes=2)
_WIDER = 8
_EXCLUDED_AT_MOST = 10_000
"""Number of excluded fire times in a row after which the calendar assumes that none is left."""


class Calendar:
    """The fire times of a schedule; `name` only shifts its jitter."""

    def __init__(self, spec: ScheduleSpec, name: str = "") -> None:
        self._spec = spec
        self._name = name
        given = [word for word in ("cron", "every", "at") if getattr(spec, word)]
        if len(given) != 1:
            raise _invalid(
                f"A schedule has one of cron, every and at, not {' and '.join(given) or 'none of them'}.",
                'Give one: cron="0 2 * * *", every="15m", or at=["2026-12-24T18:00"].',
            )
        self.zone: tzinfo = zone_named(spec.tz)
        self._start = self._edge(spec.start, "start") if spec.start else None
        self._end = self._edge(spec.end, "end", whole_day=True) if spec.end else None
        self._excluded = sorted(self._range(text) for text in spec.exclude)
        self._jitter = _duration(spec.jitter, "jitter") if spec.jitter else timedelta(0)
        self._cron = _expression(spec.cron) if spec.cron else ""
        self._interval = _interval(spec.every) if spec.every else timedelta(0)
        self._times = sorted({self._moment(text, "at") for text in spec.at})

    def after(self, moment: datetime) -> datetime | None:
        """Return the first fire time after a moment; None when there is none."""
        if self._start is not None and moment < self._start:
            moment = self._start - _TICK
        for _ in range(_EXCLUDED_AT_MOST):
            found = self._plain_after(moment)
            if found is None or (self._end is not None and found >= self._end):
                return None
            until = self._excluded_until(found)
            if until is None:
                return found
            moment = until - _TICK
        return None

    def from_(self, moment: datetime) -> Iterator[datetime]:
        """Return the fire times after a moment, one after the other."""
        while (found := self.after(moment)) is not None:
            yield found
            moment = found

    def between(self, after: datetime, until: datetime, most: int) -> list[datetime]:
        """Return the last `most` fire times after `after`, up to `until`.

        `until` itself is included.
        """
        span = _FIRST_WINDOW
        while True:
            begin = until - span if span < until - after else after
            found: deque[datetime] = deque(maxlen=most)
            for fire in self.from_(begin):
                if fire > until:
                    break
                found.append(fire)
            if len(found) == most or begin <= after:
                return list(found)
            span *= _WIDER

    def due_at(self, fire: datetime) -> datetime:
        """Return when the job of a fire is submitted.

        It is later by its jitter, and before the next fire.
        """
        if not self._jitter:
            return fire
        following = self.after(fire)
        most = self._jitter if following is None else min(self._jitter, following - fire)
        digest = hashlib.sha256(f"{self._name} {fire.isoformat()}".encode()).digest()
        share = int.from_bytes(digest[:6], "big") / 2**48
        try:
            return fire + timedelta(milliseconds=int(most / timedelta(milliseconds=1) * share))
        except OverflowError:
            raise _invalid(
                f"jitter is {self._spec.jitter!r}, which is too long.", "Choose a shorter one."
            ) from None

    def moment(self, text: str, noun: str) -> datetime:
        """Parse the edge of a period.

        A time without an offset is in the time zone of the schedule.
        """
        return self._bounded(text, noun)

    @cached_property
    def text(self) -> str:
        """Description of the schedule in words."""
        return describe(self._spec)

    # One method for each kind of schedule

    def _plain_after(self, moment: datetime) -> datetime | None:
        if self._interval:
            return self._interval_after(moment)
        if self._times:
            return next((time for time in self._times if time > moment), None)
        return self._cron_after(moment)

    def _interval_after(self, moment: datetime) -> datetime | None:
        origin = self._start or _EPOCH
        if moment >= _LAST:
            return None
        found = (
            origin if moment < origin else origin + ((moment - origin) // self._interval + 1) * self._interval
        )
        return found if found < _LAST else None

    def _cron_after(self, moment: datetime) -> datetime | None:
        local = moment.astimezone(self.zone)
        if self._counts_elapsed_time:
            return self._elapsed_after(moment)
        for found in _fires(self._cron, local.replace(tzinfo=None)):
            fire = local_time(found, self.zone).astimezone(UTC)
            if fire > moment:  # a local time that exists twice fires the first time only
                return fire
        return None

    def _elapsed_after(self, moment: datetime) -> datetime | None:
        """Return the next time at which the wall clock shows the expression.

        In a repeated hour the clock shows it twice.
        """
        while True:
            offset = self._offset(moment)
            found = next(_fires(self._cron, (moment + offset).replace(tzinfo=None)), None)
            if found is None:
                return None
            fire = (found - offset).replace(tzinfo=UTC)
            if self._offset(fire) == offset:
                return fire
            # The clock changes before that fire time, and nothing fires until the change: continue from
            # there.
            change = _change(moment, fire, self.zone)
            moment = change - _SECOND
            later = self._offset(change)
            found = next(_fires(self._cron, (moment + later).replace(tzinfo=None)), None)
            if found is not None and self._offset((found - later).replace(tzinfo=UTC)) == later:
                return (found - later).replace(tzinfo=UTC)
            moment = change

    def _offset(self, moment: datetime) -> timedelta:
        offset = moment.astimezone(self.zone).utcoffset()
        assert offset is not None
        return offset

    @cached_property
    def _counts_elapsed_time(self) -> bool:
        return len(_parsed(self._cron).hours) == _EVERY_HOUR

    # Start, end and exclusions

    def _excluded_until(self, fire: datetime) -> datetime | None:
        return next((end for begin, end in self._excluded if begin <= fire < end), None)

    def _range(self, text: str) -> tuple[datetime, datetime]:
        first, dots, last = text.partition("..")
        begin = self._edge(first.strip(), "exclude")
        end = self._edge((last if dots else first).strip(), "exclude", whole_day=True)
        if end <= begin and begin not in (_EARLIEST, _LATEST):
            raise _invalid(f"The range {text!r} of exclude is empty.", "Put the earlier time first.")
        return begin, end

    def _edge(self, text: str, noun: str, *, whole_day: bool = False) -> datetime:
        """Return a time; for a date its first moment.

        With `whole_day` it is the first moment of the next day.
        """
        day = _date(text)
        if day is None:
            return self._bounded(text, noun)
        day = min(max(day, _EARLIEST.date()), _LATEST.date())
        day += timedelta(days=1) if whole_day else timedelta(0)
        return local_time(datetime(day.year, day.month, day.day), self.zone).astimezone(UTC)  # noqa: DTZ001

    def _bounded(self, text: str, noun: str) -> datetime:
        """Return a time, or the earliest or latest possible one.

        "9999-12-31" means no end.
        """
        shown = _time(text, noun).replace(tzinfo=UTC)
        if _EARLIEST < shown < _LATEST:
            return self._moment(text, noun)
        return _EARLIEST if shown <= _EARLIEST else _LATEST

    def _moment(self, text: str, noun: str) -> datetime:
        read = _time(text, noun)
        try:
            return (read if read.tzinfo else local_time(read, self.zone)).astimezone(UTC)
        except OverflowError:
            raise _invalid(f"{noun} is {text!r}, which is too far away.", "Choose another year.") from None


def local_time(naive: datetime, zone: tzinfo) -> datetime:
    """Return a local time in a zone.

    It is the end of the gap if the time does not exist, and the first one if it exists twice.
    """
    first = naive.replace(tzinfo=zone, fold=0)
    back = first.astimezone(UTC).astimezone(zone)
    if back.replace(tzinfo=None) == naive:
        return first
    return _end_of_gap(naive, zone)


def _end_of_gap(naive: datetime, zone: tzinfo) -> datetime:
    """Return the moment at which the clock is put forward over a time."""
    before, after = (naive.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    assert before is not None
    assert after is not None
    low, high = (naive - after).replace(tzinfo=UTC), (naive - before).replace(tzinfo=UTC)
    return _change(low, high, zone).astimezone(zone)


def _change(low: datetime, high: datetime, zone: tzinfo) -> datetime:
    """Return when the clock of a zone is changed.

    That is after `low` and at `high` at the latest.
    """
    low, high = low.replace(microsecond=0), high.replace(microsecond=0)
    before = low.astimezone(zone).utcoffset()
    while high - low > _SECOND:
        middle = (low + (high - low) // 2).replace(microsecond=0)
        low, high = (middle, high) if middle.astimezone(zone).utcoffset() == before else (low, middle)
    return high


@lru_cache(maxsize=1_000)
def _parsed(expression: str) -> CronSim:
    return CronSim(expression, _EPOCH.replace(tzinfo=None))


def _fires(expression: str, after: datetime) -> Iterator[datetime]:
    """Return the local times of an expression, without changes of the clock."""
    times = copy.copy(_parsed(expression))
    times.dt = after.replace(microsecond=0)
    while True:
        try:
            found = next(times)
        except (StopIteration, OverflowError):
            return
        if found.year >= _LAST.year:
            return
        yield found


def zone_named(name: str) -> tzinfo:
    """Return a time zone by its IANA name."""
    try:
        return _zone(name)
    except (KeyError, ValueError, OSError):
        guess = nearest(name, sorted(available_timezones()))
        raise _invalid(
            f"There is no time zone {name!r}." + (f" Did you mean {guess}?" if guess else ""),
            'Use an IANA name, such as "Europe/Berlin" or "UTC".',
            tz=name,
        ) from None


@lru_cache(maxsize=1_000)
def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)


def _expression(text: str) -> str:
    spaced = " ".join(text.split())
    expression = MACROS.get(spaced.lower(), spaced)
    try:
        _parsed(expression)
    except CronSimError as error:
        raise _invalid(
            f"{text!r} is not a cron expression: {str(error)[:1].lower()}{str(error)[1:]}.",
            'Write minute, hour, day, month and weekday, such as "0 2 * * 1-5", or @daily.',
            cron=text,
        ) from None
    return expression


def _interval(text: str) -> timedelta:
    interval = _duration(text, "every")
    if not SHORTEST <= interval <= LONGEST or interval.microseconds:
        raise _invalid(
            f"every is {text!r}; an interval has whole seconds, from 1s to 366d.",
            'Write "15m", "12h" or "7d".',
        )
    return interval


def _duration(text: str, noun: str) -> timedelta:
    try:
        return read_duration(text)
    except ValueError as error:
        raise _invalid(f"{noun}: {error}.", 'Write "90s", "15m" or "12h".') from None


def _time(text: str, noun: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip()).replace(microsecond=0)
    except ValueError:
        raise _invalid(
            f"{noun} is {text!r}, which is not a time.",
            'Write "2026-12-24T18:00" or "2026-12-24T18:00+01:00".',
        ) from None


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _invalid(sentence: str, todo: str, **facts: object) -> InvalidSchedule:
    return InvalidSchedule(sentence, todo=todo, facts=facts)


# Descriptions

_AT = re.compile(r"At (?P<times>.+?)(?: on (?P<days>.+)| (?P<every>every day))", re.DOTALL)
_STEP = re.compile(r"Every (\d+)(?:st|nd|rd|th) (second|minute|hour) of every (?:minute|hour|day)")
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_UNITS = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week"}


def describe(spec: ScheduleSpec) -> str:
    """Return when a schedule fires: "every weekday at 02:00 in Berlin"."""
    where = "UTC" if spec.tz == "UTC" else f"in {spec.tz.rpartition('/')[2].replace('_', ' ')}"
    parts = [_times(spec), "" if spec.every else where]
    parts += [f"from {spec.start}" if spec.start else "", f"until {spec.end}" if spec.end else ""]
    if spec.exclude:
        parts.append(f"except {', '.join(spec.exclude[:3])}{' and others' if len(spec.exclude) > 3 else ''}")
    return " ".join(filter(None, parts))


def _times(spec: ScheduleSpec) -> str:
    if spec.every:
        return _every(_interval(spec.every))
    if spec.cron:
        return _cron_words(_expression(spec.cron))
    return f"at {spec.at[0].replace('T', ' ')}" if len(spec.at) == 1 else f"at {len(spec.at)} single times"


def _every(interval: timedelta) -> str:
    text = write_duration(interval)
    number, noun = int(text[:-1]), _UNITS[text[-1]]
    return f"every {noun}" if number == 1 else f"every {counted(number, noun)}"


def _cron_words(expression: str) -> str:
    explained = _parsed(expression).explain()
    if step := _STEP.fullmatch(explained):
        return f"every {counted(int(step[1]), step[2])}"
    if at := _AT.fullmatch(explained):
        return f"{_days(at['days'])} at {at['times']}"
    return f"{explained[:1].lower()}{explained[1:]}"


def _days(days: str | None) -> str:
    if days is None:
        return "every day"
    if days == "Monday through Friday":
        return "every weekday"
    return f"every {days}" if days.startswith(_WEEKDAYS) else f"on {days}"
