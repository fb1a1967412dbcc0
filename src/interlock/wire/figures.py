"""Figures of jobs over time, and the overview of present problems."""

from __future__ import annotations

from datetime import datetime

import msgspec

LONGEST_MIN = 10_080
"""Longest period of figures in minutes: seven days."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """Counts and durations of jobs in a period; durations are null where no job has ended."""

    submitted: int = 0
    started: int = 0
    """Jobs that started for the first time."""
    completed: int = 0
    failed: int = 0
    canceled: int = 0
    retried: int = 0
    """Attempts that failed, timed out or were lost while their job went on."""
    wait_p50_s: float | None = None
    """Time from submission to first start, of jobs that ended."""
    wait_p95_s: float | None = None
    run_p50_s: float | None = None
    """Time from first start to end, of jobs that ended."""
    run_p95_s: float | None = None


class FigurePoint(Figure, frozen=True, kw_only=True):
    """Figures for one step of a chart."""

    at: datetime
    """Start of the step."""
    pending: int | None = None
    """Value at the last sample in the step; null without a sample, and for a single task."""
    running: int | None = None
    gap: bool = False
    """Entries of the journal were pruned before they could be counted."""


class TaskFigure(Figure, frozen=True, kw_only=True):
    """Figures of a queue and task, over the whole period."""

    queue: str
    """Name of the queue; empty for all further queues together."""
    task: str
    """Name of the task; empty for all further tasks of the queue together."""


class FiguresView(msgspec.Struct, frozen=True, kw_only=True):
    """Figures for the time from `since` to `until`, in steps of `step_s` seconds, the oldest first."""

    since: datetime
    until: datetime
    step_s: int
    counted_until: datetime | None = None
    """Time up to which the journal has been counted; null when no server has begun to count."""
    points: tuple[FigurePoint, ...] = ()
    totals: Figure = Figure()
    tasks: tuple[TaskFigure, ...] = ()
    """Tasks with the most events, at most 50."""
    estimated: int = 0
    """Number of events whose queue and task come from a sample of their jobs; totals are exact."""


class Remedy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An action that resolves a finding: a button, and the same as a command."""

    verb: str
    """`resume` a worker or a queue, `terminate` a worker, `lift` a quarantine, `open` a page, or `start` a
    worker, which only the command does."""
    kind: str
    """Kind of the target: `worker`, `queue`, `runner`, `job`, `jobs` or `server`."""
    id: str = ""
    """Id of the target; the filter for `jobs`."""
    role: str = "viewer"
    """Role that the action needs."""
    command: str = ""
    """Command line for the same action; empty where there is none."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A present problem."""

    code: str
    """`no_worker`, `queue_paused`, `backlog_grows`, `failures_jumped`, `worker_silent`, `runner_quarantined`,
    `deadline_missed` or `loop_fails`."""
    level: str
    """`error`: work is stopped or lost; `warning`: it may be soon."""
    sentence: str
    kind: str
    """Kind of the subject: `queue`, `worker`, `runner`, `job` or `loop`."""
    id: str
    queue: str = ""
    since: datetime | None = None
    """Start of the problem; null where unknown."""
    remedy: Remedy | None = None


class LiveNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Present numbers of jobs and workers. Workers are null for a token that is confined to queues."""

    pending: int
    running: int
    capped: bool = False
    """Counting stopped at its limit, so the numbers are lower bounds."""
    workers: int | None = None
    slots: int | None = None
    busy: int | None = None
    """Slots in which a task runs."""


class OverviewView(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers and findings at the time `at`; errors come first."""

    at: datetime
    numbers: LiveNumbers
    findings: tuple[Finding, ...] = ()
    more: int = 0
    """Number of findings left out."""


class LoopHealth(msgspec.Struct, frozen=True, kw_only=True):
    """State of a loop, with its last error."""

    name: str
    rounds: int
    done: int
    """Number of items that it has processed."""
    failures_in_a_row: int
    last_success_at: datetime | None
    last_error: str
