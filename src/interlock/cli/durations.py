"""Durations on the command line."""

from __future__ import annotations

from datetime import timedelta

import typer


def parse_duration(text: str) -> timedelta:
    """The duration that `text` says, or an error that says how to write one."""
    from interlock.wire.durations import read_duration

    try:
        return read_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def parse_seconds(text: str | None) -> float | None:
    """The same in seconds, for an option that may be left out."""
    return None if text is None else parse_duration(text).total_seconds()
