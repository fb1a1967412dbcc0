"""Durations as people type them: 90s, 15m, 12h, 30d, 4w."""

from __future__ import annotations

import re
from datetime import timedelta

import typer

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


def parse_duration(text: str) -> timedelta:
    """The duration that `text` says, or an error that says how to write one."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration; write 90s, 15m, 12h, 30d or 4w")
    try:
        return timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is longer than anything lasts") from None
