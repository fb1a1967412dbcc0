"""What a worker process can be told to do differently."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from interlock.errors import InvalidSettings
from interlock.lifecycles.durations import DEFAULTS, Durations
from interlock.processes.sandbox import NO_SANDBOX, SandboxSettings
from interlock.worker.functions import EXECUTORS, Executor
from interlock.worker.outcomes import MAX_RESULT_BYTES

_DERIVED = -1.0
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
    """One worker process; each setting with the default that we run with."""

    name: str
    """The instance. Two processes may share it during a deploy; each is an incarnation of its own."""
    queues: tuple[str, ...] = ("default",)
    labels: tuple[str, ...] = ()
    concurrency: int = 10
    """How many handlers run at once; also how much is claimed at once."""
    threads: int | None = None
    """How many of them may be sync functions in threads; None for as many as there are."""
    processes: int | None = None
    """How many of them may be in processes of their own."""
    executor: Executor | None = None
    """Where tasks run that do not say; None for async functions in the loop and others in threads."""
    prefetch: int = 0
    """How many grants may wait unacknowledged for a free slot."""
    memory_limit_bytes: int | None = None
    """The address space that a task in a process of its own may have."""
    max_result_bytes: int = MAX_RESULT_BYTES
    sandbox: SandboxSettings = NO_SANDBOX
    """How the steps of a job are kept apart from the worker and from other jobs."""
    durations: Durations = DEFAULTS
    first_backoff_s: float = 0.2
    poll_floor_s: float = 0.005
    """The least time between two polls that find nothing, however often somebody calls."""
    flush_every_s: float = 1.0
    """How soon progress, logs and checkpoints are sent, at most; else they ride with a heartbeat."""
    stop_grace_s: float = _DERIVED
    """How long a handler that was asked to stop has before it is stopped; see `stop_grace_s`."""
    kill_grace_s: float = 2.0
    """How long a process has between SIGTERM and SIGKILL."""
    connect_timeout_s: float = 30.0
    patience_s: float = _DERIVED
    """How long a poll that fails is repeated before the connection is replaced, or broken without tasks; see
    `patience_s`."""
    stalled_after_s: float = 30.0
    """After which silence a loop that has something to do is called stalled."""
    stuck_after_s: float = 300.0
    """After which the handler that blocks the event loop is named."""
    log_level: str = "info"
    log_format: str = "auto"
    """`json`, `text`, or `auto`: text on a terminal, JSON into a pipe."""
    job_log_level: str = "info"
    """The lowest level of `logging` that is in the log of the job whose handler has logged it, beside what
    the handler prints; `off` for neither."""
    metrics_port: int | None = None
    supervised: bool = True
    """It registers with the supervisor, which can then hold it."""
    workspace: str = "default"
    """Whose worker it is, for the supervisor."""
    reap_orphans: bool | None = None
    """Fetch ended processes that nobody else will; None for only when it is PID 1."""

    def backoff_s(self, count: int) -> float:
        """The pause after something has come to nothing so many times in a row."""
        doublings = min(max(count - 1, 0), 20)
        return min(self.first_backoff_s * 2.0**doublings, self.durations.backoff_cap_s)

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
    def unreported(self) -> int:
        """How many tasks may wait for their report to be delivered before no more work is claimed."""
        return 2 * self.concurrency

    @property
    def slots(self) -> int:
        """How many tasks the process may have: those that execute, report, and wait to begin."""
        return self.concurrency + self.unreported + self.prefetch

    def lease_margin_s(self, ttl_s: float) -> float:
        """How long before the end of a lease it counts as lost: nobody may be late and not know it."""
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
    """Return the default grace: 5 s, but at most a quarter of the cancel deadline.

    A handler that does not listen has to be stopped well before its cancel is forced.
    """
    return min(_STOP_GRACE_S, durations.cancel_deadline_s / 4)


def patience_s(durations: Durations) -> float:
    """Return the default patience: a quarter of a lease, but at least 2 s and at most 10 s.

    A server or a database that is restarted is back in seconds: its connections may still be good.
    """
    return min(max(_LEAST_PATIENCE_S, durations.lease_ttl_s / 4), _MOST_PATIENCE_S)
