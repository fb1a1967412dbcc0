"""Schedules: specifications and views of jobs that are submitted at set times."""

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
"""Maximum number of missed fires to catch up with."""
MAX_BACKFILL = 500
"""Maximum number of fires in one backfill."""
MAX_NEXT = 1_000

TRACE_SCHEDULE = "interlock-schedule"
TRACE_SCHEDULED_FOR = "interlock-scheduled-for"
"""Keys in the trace of a job that a schedule submitted: the name of the schedule, and the fire time."""


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job and when to submit it. Exactly one of `cron`, `every` and `at` is set."""

    job: JobSpec
    cron: Annotated[str, Meta(max_length=200)] = ""
    """A cron expression of five fields (six with seconds), or @hourly, @daily, @weekly, @monthly, @yearly."""
    every: Annotated[str, Meta(max_length=20)] = ""
    """An interval such as "15m", counted from `start`, or from midnight of 1970-01-01 UTC."""
    at: Annotated[tuple[Annotated[str, Meta(max_length=40)], ...], Meta(max_length=100)] = ()
    """Single times, such as "2026-12-24T18:00"."""
    tz: Annotated[str, Meta(max_length=64)] = "UTC"
    """IANA time zone of all times here without an offset."""
    start: Annotated[str, Meta(max_length=40)] = ""
    """First date or time of fires."""
    end: Annotated[str, Meta(max_length=40)] = ""
    """End of fires, exclusive; of a date, the end of that day."""
    exclude: Annotated[tuple[Annotated[str, Meta(max_length=90)], ...], Meta(max_length=200)] = ()
    """Dates ("2026-12-25"), ranges of dates, both included ("2026-12-24..2027-01-02"), or ranges of times."""
    jitter: Annotated[str, Meta(max_length=20)] = ""
    """Maximum delay of each job, such as "5m"; every scheduler computes the same delay."""
    catch_up: CatchUp = "latest"
    """Fires missed by more than a minute, as after downtime: none of them, the latest, or all."""
    catch_up_limit: Annotated[int, Meta(ge=1, le=MAX_CATCH_UP)] = 10
    """Maximum number of fires with `all`; the latest are kept."""
    overlap: Overlap = "skip"
    """If the previous job has not ended: skip the fire, queue it, cancel the old job, or allow both."""


class Fire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that a schedule has submitted."""

    scheduled_for: datetime
    job_id: str
    how: Literal["due", "run", "backfill"] = "due"


class FireView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A job that a schedule has submitted, and its state."""

    scheduled_for: datetime
    job_id: str
    how: str = "due"
    """`due`, `run` (by hand) or `backfill`."""
    state: str = ""
    """State of the job; empty where the job was pruned."""


class ScheduleView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule as it is shown."""

    name: str
    state: str
    """`active`, `paused` or `ended`."""
    version: int
    text: str
    """Description of the schedule in words."""
    spec: ScheduleSpec
    next_at: datetime | None = None
    """Next fire time; null when the schedule is not active or has none."""
    due_at: datetime | None = None
    """Submission time of the next job: later than `next_at` by the jitter."""
    last_at: datetime | None = None
    """The fire time of the last job it submitted when due."""
    submitted: int = 0
    """Number of submitted jobs."""
    skipped: int = 0
    """Number of fires left out: missed, or skipped because the previous job had not ended."""
    waiting: tuple[datetime, ...] = ()
    """Fires that wait for the previous job to end."""
    recent: tuple[FireView, ...] = ()
    """Last jobs, newest first."""
    source: str = ""
    """Place of the declaration: `code`, `interlock.toml`, or empty."""
    reason: str = ""
    """Reason of the pause or deletion."""
    by: str = ""
    """Principal of the last change."""
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
    """Result of a backfill."""

    jobs: tuple[FireView, ...] = ()
    """The submitted jobs."""
    waiting: int = 0
    """Number of fires that wait for the previous job to end."""
    present: int = 0
    """Number of fire times that already had a job."""
    fires: tuple[datetime, ...] = ()
    """With `dry_run`: the fire times that would get a job."""


def schedule_in(trace: Mapping[str, str]) -> str | None:
    """Return the schedule that submitted a job."""
    return trace.get(TRACE_SCHEDULE)


def scheduled_for_in(trace: Mapping[str, str]) -> datetime | None:
    """Return the fire time that a job was submitted for."""
    text = trace.get(TRACE_SCHEDULED_FOR)
    try:
        at = None if text is None else datetime.fromisoformat(text)
    except ValueError:  # a trace may come from any client
        return None
    return at if at is None or at.tzinfo is not None else None
