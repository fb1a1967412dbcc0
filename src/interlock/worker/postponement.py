"""Exceptions that postpone a job: `Snooze`, `RetryAfter` and `RetryAt`.

raise Snooze("10m")                  # nothing to do yet: costs no retry, and is no failure
raise RetryAfter(30)                 # HTTP 429: a failure that is retried after 30 s instead of the backoff
raise RetryAt(tomorrow)              # the same at a time

Why: decisions 0348 and 0405.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from interlock.errors import FlakyError, InvalidArguments
from interlock.text import read_duration

Duration: TypeAlias = "str | float | timedelta"
"""Seconds, a timedelta, or text such as `90s`, `15m`, `12h`, `30d`."""


class Snooze(BaseException):
    """Raised by a handler to run again later, at no cost: no retry is used up and nothing has failed.

    `when` is a duration, or a time with a time zone. The attempt ends; the next one begins then, with the
    last checkpoint. It is a BaseException, so that `except Exception` around the work does not swallow it.
    """

    def __init__(self, when: Duration | datetime) -> None:
        super().__init__(str(when))
        self.until: datetime | None = None
        self.after_s: float | None = None
        if isinstance(when, datetime):
            self.until = aware(when, "snooze until")
        else:
            self.after_s = seconds_of(when, "snooze for")


class RetryAfter(FlakyError):
    """Raised by a handler whose job is to be tried again after a time that it knows, as from `Retry-After`.

    It is a failure, and uses up a retry: of the class `flaky` (2 by default), or as many as the job's
    `retries` if that is more. Only the backoff is replaced.
    """

    def __init__(self, after: Duration, *args: object) -> None:
        seconds = seconds_of(after, "retry after")
        super().__init__(*(args or (f"retry after {seconds:g} s",)), retry_after_s=seconds)


class RetryAt(FlakyError):
    """The same at a time, which has a time zone."""

    def __init__(self, when: datetime, *args: object) -> None:
        self.retry_at: datetime = aware(when, "retry at")
        in_s = max((self.retry_at - datetime.now(UTC)).total_seconds(), 0.0)
        super().__init__(*(args or (f"retry at {self.retry_at.isoformat()}",)), retry_after_s=in_s)


def seconds_of(duration: object, verb: str) -> float:
    """Return a duration in seconds; raise if it is none, or is negative."""
    if isinstance(duration, str):
        try:
            return read_duration(duration).total_seconds()
        except ValueError as error:
            raise _invalid(verb, duration, f"{error}.") from None
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise _invalid(verb, duration, "Give seconds, a timedelta, or text such as 90s, 15m or 12h.")
    return float(seconds)


def is_duration(text: str) -> bool:
    """Return whether a text is a duration, not a time."""
    try:
        read_duration(text)
    except ValueError:
        return False
    return True


def aware(when: object, verb: str) -> datetime:
    """Return a time in UTC; raise for one without a time zone."""
    if not isinstance(when, datetime):
        raise _invalid(verb, when, "Give a datetime with a time zone.")
    if when.tzinfo is None:
        raise _invalid(verb, when.isoformat(), "It has no time zone: use datetime.now(UTC), or zoneinfo.")
    return when.astimezone(UTC)


def _invalid(verb: str, given: object, todo: str) -> InvalidArguments:
    return InvalidArguments(
        f"A job cannot {verb} {given!r}.", todo=todo[:1].upper() + todo[1:], facts={"given": str(given)}
    )
