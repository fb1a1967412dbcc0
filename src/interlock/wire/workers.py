"""What a worker tells its supervisor, what it is told, and how a worker is shown."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from interlock.wire.runner import Progress
from interlock.wire.views import View

POOL, POOL_PID, POOL_LEAST, POOL_MOST = "pool", "pool_pid", "pool_least", "pool_most"
"""In the metadata of a worker that `interlock supervisor` has started: which pool it is of."""


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A worker that introduces itself, or that somebody introduces."""

    workspace_id: str = "default"
    """Whose worker it is: a team, a host group, a deployment."""
    name: str = ""
    """The instance; two lives under one name are told apart by their incarnation."""
    incarnation: str = ""
    host: str = ""
    pid: int = 0
    queues: tuple[str, ...] = ("default",)
    labels: tuple[str, ...] = ()
    tasks: tuple[str, ...] | None = None
    """The tasks that it has; None where it does not say."""
    capacity: int = 1
    """How many tasks it executes at once."""
    version: str = ""
    """Of its code, as it says."""
    metadata: dict[str, str] = {}


class WorkerBeat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A sign of life, with what the worker has to say about itself."""

    active: int = 0
    """How many tasks it has now."""
    begun: bool = False
    """It has had a task."""
    processed: int = 0
    failed: int = 0
    trouble: str = ""
    """`transient`, `exhausted` or `unrecoverable`, when something is wrong with it; else empty."""
    reason: str = ""
    """The trouble in words."""
    heeded: int = 0
    """The number of the newest orders that it has carried out."""


class WorkerOrders(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the worker shall do."""

    state: str
    number: int = 0
    """Grows with every order; the worker says it back once it has done so."""
    take: bool = True
    """Whether it may take new work."""
    give_back: bool = False
    """What it has is to be given back, and not to be finished."""
    stop: str = ""
    """`drain`: finish what it has and go; `terminate`: go now; else empty."""
    anew: bool = False
    """It was written off because it was silent for too long: it may register anew."""
    reason: str = ""
    beat_every_s: float = 10.0
    look: int = 0
    """Grows when something that the worker holds was stopped: a heartbeat for each lease says what."""


class WorkerView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A worker as it is shown everywhere."""

    id: str
    state: str
    version: int
    name: str
    created_at: datetime
    updated_at: datetime
    workspace_id: str = ""
    incarnation: str = ""
    host: str = ""
    pid: int = 0
    queues: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    tasks: tuple[str, ...] | None = None
    """The tasks that it has; None where it does not say, and in lists."""
    capacity: int = 1
    active: int = 0
    processed: int = 0
    failed: int = 0
    transient_errors: int = 0
    started_at: datetime | None = None
    completed_at: datetime | None = None
    last_heartbeat_at: datetime | None = None
    deadline_at: datetime | None = None
    """When it counts as gone, unless it is heard before."""
    outcome: str | None = None
    """How it ended by itself; kept when it is terminated afterwards."""
    reason: str = ""
    """Why it is where it is, in the words of whoever put it there."""
    draining: bool = False
    give_back: bool = False
    heeded: bool = True
    """Whether the worker has carried out what it was told last."""
    code_version: str = ""
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    silent: bool = False
    """It lives, and several of its heartbeats are missing."""


class WorkerTask(View, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt that a worker was given."""

    job_id: str
    attempt: str
    """Within its job: the shard and the number of the attempt."""
    task: str
    queue: str
    description: str = ""
    state: str
    granted_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    expires_at: datetime | None = None
    """When its lease ends, unless the worker is heard before."""
    deadline_at: datetime | None = None
    """When the attempt times out."""
    progress: Progress | None = None
    error: str = ""


class WorkerTasks(View, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker executes now, and what it has executed lately."""

    now: tuple[WorkerTask, ...] = ()
    lately: tuple[WorkerTask, ...] = ()
    """Among the newest jobs that have ended, the latest first."""
    more: bool = False
    """More jobs run than were looked at, so `now` may lack some."""


class PoolView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A supervisor on a host, as its workers tell of it."""

    host: str
    name: str
    pid: int = 0
    """Its process on that host."""
    least: int = 0
    """How many workers it always keeps."""
    most: int = 0
    """How many it keeps when there is much to do."""
    workers: tuple[WorkerView, ...] = ()
    """Those that live."""
    restarts: int = 0
    """How often a worker was started again under the same name, as far as its records are kept."""
    died: tuple[WorkerView, ...] = ()
    """Those that ended badly or were terminated, the latest first."""


class Pools(View, frozen=True, kw_only=True):
    """The supervisors that have started live workers, or workers that ended lately."""

    pools: tuple[PoolView, ...]


class WorkerDeath(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker whose process was seen to have ended."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    incarnation: Annotated[str, Meta(min_length=1, max_length=64)]
    reason: Annotated[str, Meta(max_length=1_000)] = "its process has ended"


class Namesakes(msgspec.Struct, frozen=True, kw_only=True):
    """The other living workers under the name of one."""

    workers: tuple[WorkerView, ...]


class StandingView(View, frozen=True, kw_only=True, omit_defaults=True):
    """How far a runner is trusted that has lost work."""

    runner: str
    state: str
    """`watched` or `quarantined`; `cleared` when that is over."""
    occasions: int = 0
    """How often it was not heard of while it had work, lately."""
    jobs: tuple[str, ...] = ()
    """What was lost then, the latest last."""
    until: datetime | None = None
    """Until when it is given nothing."""
    explanation: str = ""
    todo: str = ""


class Standings(msgspec.Struct, frozen=True, kw_only=True):
    """Every runner that has lost work lately."""

    runners: tuple[StandingView, ...]
