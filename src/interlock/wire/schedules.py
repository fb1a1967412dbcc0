"""Schedules: when jobs are submitted by themselves, and how a schedule is shown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from interlock.wire.jobs import JobSpec
from interlock.wire.views import View

CatchUp: TypeAlias = Literal["none", "latest", "all"]
Overlap: TypeAlias = Literal["skip", "queue", "cancel", "allow"]

MAX_NAME = 60
NAME = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,59}$"
MAX_CATCH_UP = 100
"""How many missed fires are caught up with at most."""
MAX_BACKFILL = 500
"""How many fires one backfill submits at most."""
MAX_NEXT = 1_000

TRACE_SCHEDULE = "interlock-schedule"
TRACE_SCHEDULED_FOR = "interlock-scheduled-for"
"""In the trace of a job that a schedule has submitted: its name, and the fire time."""


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """When to submit which job. Exactly one of `cron`, `every` and `at` says when."""

    job: JobSpec
    cron: Annotated[str, Meta(max_length=200)] = ""
    """A cron expression of five fields (six with seconds), or @hourly, @daily, @weekly, @monthly, @yearly."""
    every: Annotated[str, Meta(max_length=20)] = ""
    """An interval such as "15m", counted from `start`, or from midnight of 1970-01-01 UTC."""
    at: Annotated[tuple[Annotated[str, Meta(max_length=40)], ...], Meta(max_length=100)] = ()
    """Single times, such as "2026-12-24T18:00"."""
    tz: Annotated[str, Meta(max_length=64)] = "UTC"
    """An IANA time zone, in which everything here is meant that names none."""
    start: Annotated[str, Meta(max_length=40)] = ""
    """No fire before this date or time."""
    end: Annotated[str, Meta(max_length=40)] = ""
    """No fire at or after this time; of a date, none after that day."""
    exclude: Annotated[tuple[Annotated[str, Meta(max_length=90)], ...], Meta(max_length=200)] = ()
    """Dates ("2026-12-25"), ranges of dates, both included ("2026-12-24..2027-01-02"), or ranges of times."""
    jitter: Annotated[str, Meta(max_length=20)] = ""
    """Submit each job up to so much later, such as "5m"; the same for every scheduler."""
    catch_up: CatchUp = "latest"
    """Fires missed by more than a minute, as after downtime: none of them, the latest, or all."""
    catch_up_limit: Annotated[int, Meta(ge=1, le=MAX_CATCH_UP)] = 10
    """With `all`: at most so many, the latest ones."""
    overlap: Overlap = "skip"
    """If the job before has not ended: skip the fire, queue it, cancel the old job, or allow both."""


class Fire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job that a schedule has submitted."""

    scheduled_for: datetime
    job_id: str
    how: Literal["due", "run", "backfill"] = "due"


class FireView(View, frozen=True, kw_only=True, omit_defaults=True):
    """One job that a schedule has submitted, and what became of it."""

    scheduled_for: datetime
    job_id: str
    how: str = "due"
    """`due`, `run` (by hand) or `backfill`."""
    state: str = ""
    """Of the job; empty where the job was pruned."""


class ScheduleView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule as it is shown."""

    name: str
    state: str
    """`active`, `paused` or `ended`."""
    version: int
    text: str
    """When it fires, in words."""
    spec: ScheduleSpec
    next_at: datetime | None = None
    """Its next fire time; null when it is not active, or has none."""
    due_at: datetime | None = None
    """When the job of that fire is submitted: later than `next_at` by the jitter."""
    last_at: datetime | None = None
    """The fire time of the last job it submitted when due."""
    submitted: int = 0
    """How many jobs it has submitted."""
    skipped: int = 0
    """How many fires were left out, because they were missed or because the job before had not ended."""
    waiting: tuple[datetime, ...] = ()
    """Fires that wait for the job before them to end."""
    recent: tuple[FireView, ...] = ()
    """Its last jobs, newest first."""
    source: str = ""
    """Where it was declared: `code`, `interlock.toml`, or empty."""
    reason: str = ""
    """Why it was paused or deleted."""
    by: str = ""
    """Who has changed it last."""
    created_at: datetime
    updated_at: datetime


class SchedulePage(View, frozen=True, kw_only=True):
    """Schedules by name. `cursor` is for the next page, and is empty at the end."""

    schedules: tuple[ScheduleView, ...]
    cursor: str = ""


class FireTimes(View, frozen=True, kw_only=True):
    """The next fire times of a schedule."""

    times: tuple[datetime, ...]


class Backfilled(View, frozen=True, kw_only=True):
    """What a backfill has done."""

    jobs: tuple[FireView, ...] = ()
    """The jobs that it has submitted."""
    waiting: int = 0
    """How many fires wait for the job before them to end."""
    present: int = 0
    """How many fire times had a job already, and got none."""


def schedule_in(trace: Mapping[str, str]) -> str | None:
    """Return the schedule that a job comes from."""
    return trace.get(TRACE_SCHEDULE)


def scheduled_for_in(trace: Mapping[str, str]) -> datetime | None:
    """Return the fire time that a job was submitted for."""
    text = trace.get(TRACE_SCHEDULED_FOR)
    try:
        at = None if text is None else datetime.fromisoformat(text)
    except ValueError:  # a trace may come from anywhere
        return None
    return at if at is None or at.tzinfo is not None else None
