"""A clock that a test moves by hand, so that nothing has to wait."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_LENGTH = re.compile(r"(-?\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d)")
_SECONDS = {"us": 0.000001, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


class JumpingClock:
    """Stands still until it is told to jump, forward or back.

    >>> clock = JumpingClock(datetime(2026, 1, 1, tzinfo=UTC))
    >>> clock.jump("2h").isoformat()
    '2026-01-01T02:00:00+00:00'
    """

    def __init__(self, start: datetime | None = None) -> None:
        if start is not None and start.tzinfo is None:
            raise ValueError(f"The time {start.isoformat()} has no time zone.")
        self._now = start if start is not None else datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self._now

    def jump(self, by: str | float | timedelta) -> datetime:
        """Move the clock by a timedelta, by seconds, or by words such as "2h", "-90s" or "1.5d"."""
        self._now += timedelta(seconds=seconds_of(by))
        return self._now


def seconds_of(by: str | float | timedelta) -> float:
    """A length of time in seconds."""
    if isinstance(by, timedelta):
        return by.total_seconds()
    if not isinstance(by, str):
        return by
    match = _LENGTH.fullmatch(by.strip())
    if match is None:
        raise ValueError(f"{by!r} is no length of time; write it like 90s, 5m, 2h or 1.5d.")
    return float(match[1]) * _SECONDS[match[2]]
