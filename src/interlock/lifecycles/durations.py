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
    simulation_stale_s: float = 30.0
    simulation_silence_s: float = 60.0
    schedule_look_s: float = 5.0

    request_ttl_s: float = 3_600.0

    @property
    def workload_silence_s(self) -> float:
        """Maximum silence of the controller of a fleet: that of a worker, but at least three heartbeats."""
        return max(self.worker_silence_s, 3 * WORKLOAD_BEAT_S)

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


def deadline(event: EventRef, setting: str, *, since: str = "entering the state") -> Deadline:
    """Return a deadline with the default of a setting."""
    return Deadline(event, setting, float(getattr(DEFAULTS, setting)), since)
