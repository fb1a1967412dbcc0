"""How it goes right now: a few numbers, and what is wrong, in sentences."""

from __future__ import annotations

from datetime import datetime

import msgspec


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
