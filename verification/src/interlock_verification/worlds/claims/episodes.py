"""Claims about a world as a whole: its processes, its time, and its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from interlock_verification.claims import FactClaim

PROCESS, REQUEST, CLIENT_REQUEST, WORKER_LOOP = "process", "request", "client request", "worker loop"


class UnexpectedError(NamedTuple):
    """An error that nothing has handled."""

    part: str
    """PROCESS, REQUEST, CLIENT_REQUEST or WORKER_LOOP."""
    description: str

    def __str__(self) -> str:
        return self.description


class ShutdownDeadline(NamedTuple):
    """A worker at the deadline of its shutdown."""

    process: str
    requested_s: float
    exited: bool

    def __str__(self) -> str:
        return f"{self.process} was asked to shut down at {self.requested_s:.0f} s"


class SettledEpisode(NamedTuple):
    """The unfinished work after the last fault and the time to settle."""

    unfinished: Sequence[str]
    undelivered: Mapping[str, int]
    """The number of undelivered messages by state."""

    def __str__(self) -> str:
        if self.unfinished:
            return self.unfinished[0]
        return f"messages are not delivered: {dict(self.undelivered)}"


class AuditedRecord(NamedTuple):
    """A record, and the findings of the audit of its journal."""

    name: str
    fault: str

    def __str__(self) -> str:
        return f"{self.name}: {self.fault}"


class WorkerMemory(NamedTuple):
    """The unfinished things that a worker keeps when every job has ended."""

    worker: str
    leftovers: Mapping[str, int]
    """The number of unfinished things of each kind."""

    def __str__(self) -> str:
        return f"{self.worker} still has {dict(self.leftovers)}"


class WorldTime(NamedTuple):
    """The virtual time of a world."""

    standstill: str
    """The work that is repeated without time going on; empty if there is none."""

    def __str__(self) -> str:
        return self.standstill


EPISODE_CLAIMS: Sequence[FactClaim[Any]] = (
    FactClaim(
        "episode.no_process_crashes",
        "no process crashes",
        UnexpectedError,
        lambda error: error.part != PROCESS,
    ),
    FactClaim(
        "episode.no_request_crashes",
        "no request crashes",
        UnexpectedError,
        lambda error: error.part != REQUEST,
    ),
    FactClaim(
        "episode.no_client_request_crashes",
        "no request of a client crashes",
        UnexpectedError,
        lambda error: error.part != CLIENT_REQUEST,
    ),
    FactClaim(
        "episode.no_worker_loop_crashes",
        "no loop of a worker crashes",
        UnexpectedError,
        lambda error: error.part != WORKER_LOOP,
    ),
    FactClaim(
        "episode.worker_exits",
        "a worker exits in time after a shutdown request",
        ShutdownDeadline,
        lambda deadline: deadline.exited,
    ),
    FactClaim(
        "episode.settles",
        "after the last fault everything settles",
        SettledEpisode,
        lambda end: not end.unfinished and not end.undelivered,
    ),
    FactClaim(
        "episode.journal_replays",
        "the journal replays to the record",
        AuditedRecord,
        lambda record: not record.fault,
    ),
    FactClaim(
        "episode.memory_is_bounded", "memory is bounded", WorkerMemory, lambda worker: not worker.leftovers
    ),
    FactClaim("episode.time_goes_on", "time passes", WorldTime, lambda time: not time.standstill),
)
