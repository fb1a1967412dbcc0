"""The words of a filter, gathered: names by key, groups of labels, and moments.

Filters about jobs, workers and whatever else differ in their keys and in nothing else: how words are
gathered, what may be there twice, and how a moment is written is the same for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from interlock.wire.durations import read_duration, write_duration
from interlock.wire.filter_words import BadFilter, Vocabulary, Word, words_of, written

Moment: TypeAlias = datetime | timedelta
"""A time, or how long ago."""

_DATE = re.compile(r"\d{4}-", re.ASCII)
_EARLIEST, _LATEST = datetime(1970, 1, 2, tzinfo=UTC), datetime(2199, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a filter says."""

    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By key; that of a negated one has its dash."""
    labels: list[tuple[str, ...]] = field(default_factory=list)
    """One of each group."""
    moments: dict[str, Moment] = field(default_factory=dict)


def gather(text: str, vocabulary: Vocabulary, check: Callable[[Word], tuple[str, ...]]) -> Parts:
    """What somebody has typed; what is wrong is named with its place. `check` looks at names."""
    parts = Parts()
    for word in words_of(text, vocabulary):
        if (word.name in parts.names and not word.negated) or word.name in parts.moments:
            raise _twice(word, parts.names.get(word.name, ()))
        match word.key:
            case "label":
                parts.labels.append(word.values)
            case "since" | "until":
                parts.moments[word.key] = _moment(word)
            case _:
                before = parts.names.get(word.name, ())
                parts.names[word.name] = tuple(dict.fromkeys((*before, *check(word))))
    return parts


def text_of(moment: Moment) -> str:
    """A moment as it is written."""
    if isinstance(moment, timedelta):
        return write_duration(moment)
    return moment.isoformat().replace("+00:00", "Z")


def instant(moment: Moment | None, now: datetime) -> datetime | None:
    """When that is, as far as a store can tell: nothing was made before the earliest."""
    if moment is None:
        return None
    try:
        at = now - moment if isinstance(moment, timedelta) else moment
    except OverflowError:
        return _EARLIEST
    return min(max(at, _EARLIEST), _LATEST)


def is_one_of(wanted: tuple[str, ...], name: str | None) -> bool:
    """Whether a name is wanted; whoever names none wants all."""
    return not wanted or name in wanted


def _moment(word: Word) -> Moment:
    if len(word.values) > 1:
        raise word.bad(f"{word.key} takes one time", todo="Give one.")
    text = word.values[0]
    try:
        return _utc(datetime.fromisoformat(text)) if _DATE.match(text) else read_duration(text)
    except (ValueError, OverflowError):
        key = word.key
        raise word.bad(
            f"{text!r} is neither a duration nor a date",
            todo=f"Write {key}:1h (also 90s, 15m, 30d, 4w), or a date such as {key}:2026-01-31.",
        ) from None


def _twice(word: Word, before: tuple[str, ...]) -> BadFilter:
    if not before:
        return word.bad(f"{word.name} is there twice", todo="Give it once.")
    either = written(word.name, dict.fromkeys((*before, *word.values)))
    return word.bad(f"{word.name} is there twice", todo=f"To mean any of them, write {either}")


def _utc(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
