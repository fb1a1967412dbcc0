"""Limits: how many jobs of a key may run at the same time, and how each limit is shown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from interlock.errors import InvalidLimit
from interlock.wire.views import View

MAX_SLOTS = 1_000
"""Maximum number of slots of a limit: the record of a key names each job that holds one."""
MAX_PERIOD_S = 86_400.0
MAX_NAME = 64
MAX_KEYS = 8
"""Maximum number of limits of a job."""
QUEUE_PREFIX, TASK_PREFIX = "queue:", "task:"
"""A limit `queue:NAME` or `task:NAME` is for all jobs of that queue or task."""


class LimitSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A limit to declare: `max`, `rate`, or both."""

    max: int | None = None
    """Slots: the number of jobs that run at the same time, each counted with its weight."""
    rate: int | None = None
    """Number of jobs that start in a period, each counted with its weight."""
    period_s: float = 1.0
    burst: int | None = None
    """Number of jobs that may start at once after a pause (default: `rate`)."""
    description: str = ""

    @property
    def capacity(self) -> int:
        """Return the number of starts at once after a pause."""
        return self.burst or self.rate or 0

    @property
    def each_second(self) -> float:
        """Return the number of starts in a second."""
        return (self.rate or 0) / self.period_s


class Holder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that holds slots of a limit."""

    job_id: str
    weight: int = 1
    runner_id: str | None = None
    """The runner that executes it; null while it waits for one."""
    since: datetime | None = None
    task: str = ""
    queue: str = ""
    expires_at: datetime | None = None
    """The time at which its lease ends unless the runner renews it."""


class LimitWaiter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job in the line of a limit."""

    job_id: str
    task: str
    queue: str
    since: datetime
    """The time at which it lined up."""
    priority: int = 0


class KeyView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A key of a limit: the jobs that hold its slots, and the number of jobs that wait."""

    key: str
    limit: str
    """The declaration that it follows."""
    state: str = "free"
    max: int | None = None
    used: int = 0
    """Slots in use, with their weights; of a limit without `max` those of jobs that are about to start."""
    waiting: int = 0
    capped: bool = False
    """More jobs wait than `waiting` says."""
    holders: tuple[Holder, ...] = ()
    """Jobs that hold its slots; at most 20."""
    line: tuple[LimitWaiter, ...] = ()
    """The first jobs that wait, in their order, where one key was asked for; at most 20."""
    behind: tuple[str, ...] = ()
    """Other keys whose next job waits for a slot here as well."""
    starts_left: int | None = None
    """Number of jobs that may start at once now; null without a rate."""


class LimitView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A limit as it was declared, and its keys."""

    name: str
    spec: LimitSpec
    created_at: datetime
    updated_at: datetime
    source: str = ""
    """Source of the declaration: `api`, `code` or `interlock.toml`."""
    by: str = ""
    keys: tuple[KeyView, ...] = ()
    """Keys with jobs that hold a slot or wait; at most 100."""
    more_keys: bool = False
    in_use: int = 0
    """Number of keys with jobs that hold a slot or wait; a lower bound when `capped`."""
    full: int = 0
    """Number of keys for which jobs wait; a lower bound when `capped`."""
    capped: bool = False


class KeyPage(View, frozen=True, kw_only=True):
    """A limit, and a page of its keys that are in use, newest first. `cursor` is for the next page."""

    limit: LimitView
    """The limit, without keys."""
    keys: tuple[KeyView, ...]
    cursor: str


class LimitList(View, frozen=True, kw_only=True):
    """Limits, by name. `cursor` is for the next page, and is empty at the end."""

    limits: tuple[LimitView, ...]
    cursor: str = ""


def definition_of(key: str, names: Mapping[str, LimitSpec]) -> str | None:
    """Return the limit that a key follows: itself, a pattern, or None."""
    if key in names:
        return key
    fitting = [name for name in names if name.endswith("*") and key.startswith(name[:-1])]
    return max(fitting, key=len, default=None)


def check_limit(name: str, spec: LimitSpec) -> None:
    """Raise with everything that is wrong with a limit."""
    faults = []
    if not (1 <= len(name) <= MAX_NAME and name.isprintable()) or "*" in name[:-1] or name == "*":
        faults.append(f"its name has 1 to {MAX_NAME} printable characters, and a * only at its end")
    if spec.max is None and spec.rate is None:
        faults.append("it has neither max nor rate")
    for what, number in (("max", spec.max), ("rate", spec.rate), ("burst", spec.burst)):
        if number is not None and not 1 <= number <= MAX_SLOTS:
            faults.append(f"{what} is {number} and must be 1 to {MAX_SLOTS}")
    if not 0 < spec.period_s <= MAX_PERIOD_S:
        faults.append(f"period_s is {spec.period_s:g} and must be more than 0, and at most {MAX_PERIOD_S:g}")
    if spec.rate is None and spec.burst is not None:
        faults.append("burst needs a rate")
    if faults:
        raise InvalidLimit(
            f"The limit {name[:MAX_NAME]} cannot be declared: " + "; ".join(faults) + ".",
            todo="Correct it and declare it again.",
            facts={"limit": name[:MAX_NAME], "faults": faults},
        )
