"""Times and durations as they are shown: humane for people, exact for programs."""

from __future__ import annotations

from datetime import datetime

_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0


def iso(at: datetime | None) -> str:
    """A time for a program; empty when there is none."""
    return "" if at is None else at.isoformat().replace("+00:00", "Z")


def ago(at: datetime | None, now: datetime) -> str:
    """A time for people, as seen from now: `3 min ago`, `in 20 s`."""
    if at is None:
        return ""
    seconds = (now - at).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{lasting(seconds)} ago" if seconds > 0 else f"in {lasting(-seconds)}"


def lasting(seconds: float) -> str:
    """How long something took, as precisely as people care."""
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.0f} h" if seconds < 2 * _DAY else f"{seconds / _DAY:.0f} d"


def shown(at: datetime | None, now: datetime, *, terminal: bool) -> str:
    """A time as the reader wants it."""
    return ago(at, now) if terminal else iso(at)
