"""How the system is doing: figures of jobs over time, and the overview of what is wrong now."""

from __future__ import annotations

from datetime import datetime

import msgspec

LONGEST_MIN = 10_080
"""How many minutes back figures are shown: seven days."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """What has happened to jobs in a stretch of time; durations are null where no job has ended."""

    submitted: int = 0
    started: int = 0
    """Jobs that started for the first time."""
    completed: int = 0
    failed: int = 0
    canceled: int = 0
    retried: int = 0
    """Attempts that failed, timed out or were lost while their job went on."""
    wait_p50_s: float | None = None
    """How long jobs that ended had waited for their first start."""
    wait_p95_s: float | None = None
    run_p50_s: float | None = None
    """How long they took from their first start to their end."""
    run_p95_s: float | None = None


class FigurePoint(Figure, frozen=True, kw_only=True):
    """The same for one step of a chart."""

    at: datetime
    """When the step begins."""
    pending: int | None = None
    """At the last sample in the step; null without a sample, and for a single task."""
    running: int | None = None
    gap: bool = False
    """Counting stopped here for so long that entries of the journal were removed meanwhile."""


class TaskFigure(Figure, frozen=True, kw_only=True):
    """The same for a queue and task, over the whole time."""

    queue: str
    """Empty for all queues beyond those that are told apart."""
    task: str
    """Empty for all tasks of the queue beyond those that are told apart."""


class FiguresView(msgspec.Struct, frozen=True, kw_only=True):
    """Figures for the time from `since` to `until`, in steps of `step_s` seconds, the oldest first."""

    since: datetime
    until: datetime
    step_s: int
    counted_until: datetime | None = None
    """Up to when the journal has been counted; null when no server has begun to."""
    points: tuple[FigurePoint, ...] = ()
    totals: Figure = Figure()
    tasks: tuple[TaskFigure, ...] = ()
    """Those with the most events, at most 50."""
    estimated: int = 0
    """How many events are of jobs whose queue and task were taken from a sample; counts in all are exact."""


class Remedy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What can be done about a finding: a button, and the same as a command."""

    verb: str
    """`resume` a worker or a queue, `terminate` a worker, `lift` a quarantine, `open` a page, or `start` a
    worker, which only the command does."""
    kind: str
    """What the verb is done to: `worker`, `queue`, `runner`, `job`, `jobs` or `server`."""
    id: str = ""
    """Which of them; of `jobs` the filter."""
    role: str = "viewer"
    """Which role may do it."""
    command: str = ""
    """The same on the command line; empty where there is none."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that is wrong now."""

    code: str
    """`no_worker`, `queue_paused`, `backlog_grows`, `failures_jumped`, `worker_silent`, `runner_quarantined`,
    `deadline_missed` or `loop_fails`."""
    level: str
    """`error`: work stands still or is lost; `warning`: it may be soon."""
    sentence: str
    kind: str
    """What it is about: `queue`, `worker`, `runner`, `job` or `loop`."""
    id: str
    queue: str = ""
    since: datetime | None = None
    """Null where that is not known."""
    remedy: Remedy | None = None


class LiveNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is now. Workers are null for a token that is confined to queues."""

    pending: int
    running: int
    capped: bool = False
    """Counting has ended early, so there are at least so many."""
    workers: int | None = None
    slots: int | None = None
    busy: int | None = None
    """Slots in which a task runs."""


class OverviewView(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers and findings, as they were at `at`; errors come first."""

    at: datetime
    numbers: LiveNumbers
    findings: tuple[Finding, ...] = ()
    more: int = 0
    """Further findings that were left out."""
