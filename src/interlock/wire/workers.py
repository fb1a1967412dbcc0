"""Workers: registration, heartbeats, orders and views."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from interlock.wire.runner import Progress
from interlock.wire.views import View

POOL, POOL_PID, POOL_LEAST, POOL_MOST = "pool", "pool_pid", "pool_least", "pool_most"
"""Keys in the metadata of a worker that `interlock supervisor` has started: its pool."""


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A worker to register."""

    workspace_id: str = "default"
    """Workspace of the worker: a team, a host group, a deployment."""
    name: str = ""
    """Name of the instance; two processes under one name differ by their incarnation."""
    incarnation: str = ""
    host: str = ""
    pid: int = 0
    queues: tuple[str, ...] = ("default",)
    labels: tuple[str, ...] = ()
    tasks: tuple[str, ...] | None = None
    """Tasks of the worker; None where unknown."""
    capacity: int = 1
    """Number of tasks that it executes at once."""
    version: str = ""
    """Version of its code, as it reports."""
    metadata: dict[str, str] = {}


class WorkerBeat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A heartbeat of a worker, with its own state."""

    active: int = 0
    """Number of tasks in progress."""
    begun: bool = False
    """The worker has started a task."""
    processed: int = 0
    failed: int = 0
    trouble: str = ""
    """`transient`, `exhausted` or `unrecoverable` in case of trouble; else empty."""
    reason: str = ""
    """Description of the trouble."""
    heeded: int = 0
    """Number of the newest orders that the worker has carried out."""


class WorkerOrders(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Orders for a worker."""

    state: str
    number: int = 0
    """Number of the orders, growing with each change; the worker confirms it once carried out."""
    take: bool = True
    """Whether the worker may take new work."""
    give_back: bool = False
    """Return the tasks in progress instead of finishing them."""
    stop: str = ""
    """`drain`: finish the tasks in progress and exit; `terminate`: exit now; else empty."""
    anew: bool = False
    """The worker was declared lost after its silence: it may register again."""
    reason: str = ""
    beat_every_s: float = 10.0
    look: int = 0
    """Counter that grows when an attempt of the worker was stopped: heartbeats of its leases tell which."""


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
    """Tasks of the worker; None where unknown, and in lists."""
    capacity: int = 1
    active: int = 0
    processed: int = 0
    failed: int = 0
    transient_errors: int = 0
    started_at: datetime | None = None
    completed_at: datetime | None = None
    last_heartbeat_at: datetime | None = None
    deadline_at: datetime | None = None
    """Time at which it is declared lost, unless a heartbeat arrives."""
    outcome: str | None = None
    """Outcome when it ended by itself; kept when it is terminated afterwards."""
    reason: str = ""
    """Reason of its state, as given in the request."""
    draining: bool = False
    give_back: bool = False
    heeded: bool = True
    """Whether the worker has carried out its latest orders."""
    code_version: str = ""
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    silent: bool = False
    """The worker is live, but several of its heartbeats are missing."""


class WorkerTask(View, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt granted to a worker."""

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
    """Time at which its lease expires, unless a heartbeat arrives."""
    deadline_at: datetime | None = None
    """Time at which the attempt times out."""
    progress: Progress | None = None
    error: str = ""


class WorkerTasks(View, frozen=True, kw_only=True, omit_defaults=True):
    """Tasks that a worker executes now, and tasks that it executed recently."""

    now: tuple[WorkerTask, ...] = ()
    lately: tuple[WorkerTask, ...] = ()
    """Among the newest jobs that have ended, the latest first."""
    more: bool = False
    """More jobs run than were examined, so `now` may be incomplete."""


class PoolView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A supervisor on a host, as its workers report it."""

    host: str
    name: str
    pid: int = 0
    """Process id of the supervisor."""
    least: int = 0
    """Minimum number of workers."""
    most: int = 0
    """Maximum number of workers."""
    workers: tuple[WorkerView, ...] = ()
    """Live workers."""
    restarts: int = 0
    """Number of restarts of workers under the same name, as far as records are kept."""
    died: tuple[WorkerView, ...] = ()
    """Workers that failed or were terminated, latest first."""


class Pools(View, frozen=True, kw_only=True):
    """The supervisors of live workers and of workers that ended recently."""

    pools: tuple[PoolView, ...]


class WorkerDeath(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Report that the process of a worker has ended."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    incarnation: Annotated[str, Meta(min_length=1, max_length=64)]
    reason: Annotated[str, Meta(max_length=1_000)] = "its process has ended"


class Namesakes(msgspec.Struct, frozen=True, kw_only=True):
    """Other live workers with the same name."""

    workers: tuple[WorkerView, ...]


class StandingView(View, frozen=True, kw_only=True, omit_defaults=True):
    """Trust in a runner that has lost work."""

    runner: str
    state: str
    """`watched` or `quarantined`; `cleared` when that is over."""
    occasions: int = 0
    """Number of recent losses of work."""
    jobs: tuple[str, ...] = ()
    """Lost jobs, latest last."""
    until: datetime | None = None
    """Time until which it receives no work."""
    explanation: str = ""
    todo: str = ""


class Standings(msgspec.Struct, frozen=True, kw_only=True):
    """Runners that have lost work recently."""

    runners: tuple[StandingView, ...]
