"""All durations in one place, and the base of events with a time (`Timed`).

Every duration is a setting, in seconds, and may be a fraction of one. They nest: an agent is killed
before its cancel is forced, a cancel is forced before a shutdown is, and all of that ends before the
lease does, so that no worker takes the work over while its old holder is still being stopped. For the same
reason a silent worker is not declared lost before the leases that it trusts have ended.

The time of an event is always the store's: the clock of a client is information, never authority. It is
part of the event, so that deciding stays a pure function and can be replayed.

Why: decisions 0034 and 0279.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import msgspec

from interlock.errors import InvalidSettings
from interlock.machine import Deadline, Event, EventRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed(Event):
    """Base of events with a time."""

    at: datetime


NESTING = (
    ("abort_warning_s", "less than", "abort_kill_s"),
    ("abort_kill_s", "less than", "cancel_deadline_s"),
    ("cancel_deadline_s", "at most", "shutdown_deadline_s"),
    ("shutdown_soft_s", "less than", "shutdown_deadline_s"),
    ("shutdown_deadline_s", "less than", "lease_ttl_s"),
    ("ack_window_s", "at most", "lease_ttl_s"),
    ("worker_beat_every_s", "less than", "worker_silence_s"),
    ("lease_ttl_s", "at most", "worker_silence_s"),
    ("simulation_stale_s", "less than", "simulation_silence_s"),
)


HURRY_S = 5.0
"""Deadline of an immediate shutdown."""
_HURRY_SHARE = 0.8
"""Share of it that the process itself uses; then its watchdog ends it."""
_SAVING_SHARE = 0.6
"""Share of the time between the soft and the hard deadline in which handlers can save their work. In the rest
those that have not are killed, and outcomes are reported."""
_CLOSING_S = 1.0
_CLOSING_SHARE = 1 / 20
"""Maximum share of the hard deadline for closing the connection."""
_LAST_ACTS = 3
"""Multiple of that time reserved for the last acts: closing executors, the connection, and the exit."""


class ShutdownTimes(msgspec.Struct, frozen=True):
    """The course of the shutdown of a worker process, in seconds since the request."""

    shutdown_soft_s: float
    shutdown_deadline_s: float

    @property
    def shutdown_saving_s(self) -> float:
        """Time at which handlers that still save their work are killed."""
        return self.shutdown_soft_s + _SAVING_SHARE * (self.shutdown_deadline_s - self.shutdown_soft_s)

    @property
    def closing_s(self) -> float:
        """Maximum time for closing the connection."""
        return min(_CLOSING_S, self.shutdown_deadline_s * _CLOSING_SHARE)

    @property
    def last_acts_at_s(self) -> float:
        """Time at which the process stops waiting, to exit by the hard deadline."""
        return self.shutdown_deadline_s - _LAST_ACTS * self.closing_s


WORKLOAD_BEAT_S = 15.0
"""Interval of heartbeats of a controller of a fleet."""
MAX_REQUEST_TTL_S = 366 * 86_400.0


def _holds(small: float, word: str, large: float) -> bool:
    return small < large if word == "less than" else small <= large


class Durations(msgspec.Struct, frozen=True, kw_only=True):
    """The durations, with their defaults."""

    ack_window_s: float = 30.0
    lease_ttl_s: float = 120.0
    heartbeat_every_s: float = 20.0
    sweep_every_s: float = 5.0
    cancel_deadline_s: float = 30.0
    attempt_timeout_s: float = 3_600.0
    job_timeout_s: float = 86_400.0
    run_timeout_s: float = 21_600.0
    planner_timeout_s: float = 60.0
    approval_timeout_s: float = 604_800.0
    worker_beat_every_s: float = 10.0
    worker_silence_s: float = 120.0
    shutdown_soft_s: float = 20.0
    shutdown_deadline_s: float = 30.0
    backoff_cap_s: float = 10.0
    start_wait_s: float = 60.0
    workload_duration_s: float = 3_600.0
    abort_warning_s: float = 5.0
    abort_kill_s: float = 15.0
    error_unread_s: float = 5.0
    simulation_stale_s: float = 30.0
    simulation_silence_s: float = 60.0
    schedule_look_s: float = 5.0

    request_ttl_s: float = 3_600.0

    @property
    def workload_silence_s(self) -> float:
        """Maximum silence of the controller of a fleet: that of a worker, but at least three heartbeats."""
        return max(self.worker_silence_s, 3 * WORKLOAD_BEAT_S)

    @property
    def shutdown_saving_s(self) -> float:
        """Time from a shutdown request until handlers are killed."""
        return self.shutdown().shutdown_saving_s

    def shutdown(self, *, hurried: bool = False) -> ShutdownTimes:
        """Return the course of a shutdown; a hurried one has no grace period."""
        if hurried:
            return ShutdownTimes(0.0, min(self.shutdown_deadline_s, _HURRY_SHARE * HURRY_S))
        return ShutdownTimes(self.shutdown_soft_s, self.shutdown_deadline_s)

    def __post_init__(self) -> None:
        if faults := list(self._faults()):
            raise InvalidSettings(
                "The durations contradict each other: " + "; ".join(faults) + ".",
                todo="Change the settings so that each of these holds.",
                facts={"faults": faults},
            )

    def _faults(self) -> Iterator[str]:
        yield from (
            f"{name} is {value:g} and must be more than 0"
            for name, value in msgspec.structs.asdict(self).items()
            if not value > 0
        )
        yield from (
            f"{small} ({getattr(self, small):g}) must be {word} {large} ({getattr(self, large):g})"
            for small, word, large in NESTING
            if not _holds(getattr(self, small), word, getattr(self, large))
        )
        if self.request_ttl_s > MAX_REQUEST_TTL_S:
            yield f"request_ttl_s ({self.request_ttl_s:g}) must be at most {MAX_REQUEST_TTL_S:g} (a year)"
        if not self.lease_ttl_s > 2 * self.heartbeat_every_s:
            yield (
                f"lease_ttl_s ({self.lease_ttl_s:g}) must be more than twice "
                f"heartbeat_every_s ({self.heartbeat_every_s:g}), or one lost heartbeat loses the lease"
            )


DEFAULTS = Durations()
DURATIONS = (*Durations.__struct_fields__, "shutdown_saving_s")
"""Names of the durations that timers of tables may have: the settings, and those that follow from them."""


def deadline(event: EventRef, setting: str, *, since: str = "entering the state") -> Deadline:
    """Return a deadline with the default of a setting."""
    return Deadline(event, setting, float(getattr(DEFAULTS, setting)), since)
