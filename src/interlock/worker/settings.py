"""Settings of a worker process."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from interlock.backoff import nth_pause_s
from interlock.errors import InvalidSettings
from interlock.lifecycles.durations import DEFAULTS, Durations
from interlock.processes.sandbox import NO_SANDBOX, SandboxSettings
from interlock.worker.functions import EXECUTORS, Executor
from interlock.worker.outcomes import MAX_RESULT_BYTES

_DERIVED = -1.0
_AHEAD_TIMES, _MOST_AHEAD = 4, 100
BATCHES = 2
"""Number of batches that have slots beside the running ones: one waits, and one is being reported."""
_STOP_GRACE_S = 5.0
_LEAST_PATIENCE_S, _MOST_PATIENCE_S = 2.0, 10.0
_AT_LEAST = {
    "concurrency": 1,
    "threads": 1,
    "processes": 1,
    "prefetch": 0,
    "memory_limit_bytes": 1,
    "max_result_bytes": 1,
}
_MORE_THAN_NOTHING = (
    "first_backoff_s",
    "stalled_after_s",
    "stuck_after_s",
    "connect_timeout_s",
    "flush_every_s",
)
_CHOICES: dict[str, tuple[str | None, ...]] = {
    "executor": (None, *EXECUTORS),
    "log_format": ("auto", "json", "text"),
    "log_level": ("debug", "info", "warning", "error"),
    "job_log_level": ("debug", "info", "warning", "error", "off"),
}


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one worker process."""

    name: str
    """The instance name. Two processes may share it during a deploy; each is a separate incarnation."""
    queues: tuple[str, ...] = ("default",)
    labels: tuple[str, ...] = ()
    concurrency: int = 10
    """Number of concurrent handlers. A claim has at most as many jobs, or `most_ahead` if all are very quick.
    """
    threads: int | None = None
    """Maximum number of sync functions in threads; None for no separate limit."""
    processes: int | None = None
    """Maximum number of handlers in separate processes."""
    executor: Executor | None = None
    """Default executor of tasks; None for async functions in the loop and others in threads."""
    prefetch: int = 0
    """Number of unacknowledged grants that may wait for a free slot."""
    memory_limit_bytes: int | None = None
    """Maximum address space of a task in a separate process."""
    max_result_bytes: int = MAX_RESULT_BYTES
    sandbox: SandboxSettings = NO_SANDBOX
    """Isolation of the steps of a job from the worker and from other jobs."""
    durations: Durations = DEFAULTS
    first_backoff_s: float = 0.2
    poll_floor_s: float = 0.005
    """Minimum interval between two polls without a result, however many notifications there are."""
    flush_every_s: float = 1.0
    """Maximum delay of progress, logs and checkpoints; otherwise they are sent with a heartbeat."""
    stop_grace_s: float = _DERIVED
    """Time for a handler to stop before it is killed; see `stop_grace_s`."""
    kill_grace_s: float = 2.0
    """Time of a process between SIGTERM and SIGKILL."""
    connect_timeout_s: float = 30.0
    patience_s: float = _DERIVED
    """Time for which a failing poll is retried before the connection is replaced, or broken without tasks;
    see `patience_s`.
    """
    stalled_after_s: float = 30.0
    """Silence after which a loop with work to do counts as stalled."""
    stuck_after_s: float = 300.0
    """Time after which the handler that blocks the event loop is named."""
    log_level: str = "info"
    log_format: str = "auto"
    """`json`, `text`, or `auto`: text on a terminal, JSON into a pipe."""
    job_log_level: str = "info"
    """Minimum level of `logging` records for the job's log, which also has the handler's prints; `off` for
    neither.
    """
    metrics_port: int | None = None
    supervised: bool = True
    """Whether it registers with the supervisor, which can then pause it."""
    workspace: str = "default"
    """The workspace of the worker, for the supervisor."""
    reap_orphans: bool | None = None
    """Whether to reap orphaned processes; None for only as PID 1."""

    def backoff_s(self, count: int) -> float:
        """Return the pause after this many consecutive failures."""
        return nth_pause_s(count, self.first_backoff_s, self.durations.backoff_cap_s)

    def __post_init__(self) -> None:
        if self.stop_grace_s < 0:
            msgspec.structs.force_setattr(self, "stop_grace_s", stop_grace_s(self.durations))
        if self.patience_s < 0:
            msgspec.structs.force_setattr(self, "patience_s", patience_s(self.durations))
        if faults := list(self._faults()):
            raise InvalidSettings(
                "The settings of the worker cannot be used: " + "; ".join(faults) + ".",
                todo="Change the settings so that each of these holds.",
                facts={"faults": faults},
            )

    @property
    def most_ahead(self) -> int:
        """Maximum number of jobs that are claimed ahead of very quick handlers.

        The more there are, the more attempts are lost with a process that crashes.
        """
        return max(self.concurrency, min(_AHEAD_TIMES * self.concurrency, _MOST_AHEAD))

    @property
    def slots(self) -> int:
        """Maximum number of tasks of the process: running, reporting, and waiting."""
        return self.slots_for(self.most_ahead)

    def slots_for(self, batch: int) -> int:
        """Return the maximum number of tasks for batches of this size."""
        return self.concurrency + BATCHES * batch + self.prefetch

    def lease_margin_s(self, ttl_s: float) -> float:
        """Return how long before its end a lease counts as lost.

        So no worker is late without noticing.
        """
        return min(5.0, ttl_s / 10)

    def _faults(self) -> Iterator[str]:
        if not self.name or "#" in self.name:
            yield f"name is {self.name!r} and must be a word without '#'"
        if not self.queues:
            yield "queues is empty, so there would never be work"
        yield from self._numbers_too_small()
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                yield f"{name} is {getattr(self, name)!r} and must be one of {', '.join(filter(None, known))}"

    def _numbers_too_small(self) -> Iterator[str]:
        for name, least in _AT_LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                yield f"{name} is {value} and must be at least {least}"
        for name in _MORE_THAN_NOTHING:
            if not getattr(self, name) > 0:
                yield f"{name} is {getattr(self, name):g} and must be more than 0"


def stop_grace_s(durations: Durations) -> float:
    """Return the default grace of a stop.

    It is 5 s, but at most a quarter of the cancel deadline. A handler that ignores the request has to be
    killed well before its cancellation is forced.
    """
    return min(_STOP_GRACE_S, durations.cancel_deadline_s / 4)


def patience_s(durations: Durations) -> float:
    """Return the default patience with a connection.

    It is a quarter of a lease, but at least 2 s and at most 10 s. A restarted server or database is back in
    seconds: its connections may still work.
    """
    return min(max(_LEAST_PATIENCE_S, durations.lease_ttl_s / 4), _MOST_PATIENCE_S)
