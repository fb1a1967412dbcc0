"""Durations as people type them: 90s, 15m, 12h, 30d, 4w."""

from __future__ import annotations

import re
from datetime import timedelta

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(rf"(\d+(?:\.\d+)?)([{''.join(UNITS)}])", re.ASCII)


def read_duration(text: str) -> timedelta:
    """The duration that `text` says; a ValueError says how to write one."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write 90s, 15m, 12h, 30d or 4w")
    try:
        return timedelta(seconds=float(match[1]) * UNITS[match[2]])
    except OverflowError:
        raise ValueError(f"{text!r} is longer than anything lasts") from None


def write_duration(duration: timedelta) -> str:
    """The same as text, in the largest unit in which it is a whole number."""
    seconds = duration.total_seconds()
    if seconds != int(seconds):
        return f"{seconds:.6f}".rstrip("0") + "s"
    for unit, size in reversed(UNITS.items()):
        if seconds and not seconds % size:
            return f"{int(seconds) // size}{unit}"
    return "0s"
