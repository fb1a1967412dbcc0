"""What follows from the steps of one decision, worked out once.

Tables share their steps, so thousands of jobs take the very same ones; whatever the tables and the
couplings say about them alone is looked up the first time and remembered.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, TypeAlias

from interlock.lifecycles import attempt, lease
from interlock.lifecycles.attempt import ATTEMPT
from interlock.lifecycles.couplings import COUPLINGS, Facts
from interlock.lifecycles.lease import LEASE
from interlock.lifecycles.moments import Timed
from interlock.machine import Coupling, Event, Machine, Step
from interlock.store.records import StepLine

_MOST = 4_096

IN_A_RUN = frozenset({"each job that needs it", "its run"})
"""Receivers that only a job of a run has."""

Steps: TypeAlias = tuple[Step[Any], ...]
Consequences: TypeAlias = tuple[Coupling[Facts], ...]


class Track:
    """What the taking of these steps entails, whoever takes them."""

    __slots__ = ("_lines", "alone", "arms", "is_news", "parts", "sets_timer", "steps")

    def __init__(self, machine: Machine[Any, Any], steps: Steps) -> None:
        self.steps = steps
        self.arms, self.sets_timer = "", False
        if machine is not LEASE:  # a lease carries its own end
            self._look_for_timers(machine)
        self.is_news = any(step.moves or step.event != "heartbeat" for step in steps)
        """Renewals alone are none."""
        parts = ((_noteworthy(machine, step), COUPLINGS.caused_by(step)) for step in steps)
        self.parts: tuple[tuple[Step[Any] | None, Consequences], ...] = tuple(filter(any, parts))
        """For each step that has any: what an attempt notes about it, and the consequences it may have."""
        self.alone = tuple(filter(any, ((noted, _without_run(then)) for noted, then in self.parts)))
        """The same for a job that is in no run."""
        self._lines: dict[str, tuple[StepLine, ...]] = {}

    def lines(self, name: str) -> tuple[StepLine, ...]:
        """What the journal says; names repeat from job to job, and so do lines."""
        known = self._lines.get(name)
        if known is None:
            known = tuple(
                StepLine(step.machine, name, step.event, step.source, step.target, step.owner, step.moves)
                for step in self.steps
            )
            if len(self._lines) < _MOST:
                self._lines[name] = known
        return known

    def _look_for_timers(self, machine: Machine[Any, Any]) -> None:
        """The last step that arms a timer, or ends one, decides."""
        for step in self.steps:
            # A deadline that two neighbouring states share keeps running; any other ends with its state.
            ends = step.moves and machine.table.entry(step.target).within is None
            if step.arms or ends:
                self.arms, self.sets_timer = step.arms[0].setting if step.arms else "", True


def _without_run(consequences: Consequences) -> Consequences:
    return tuple(coupling for coupling in consequences if coupling.to not in IN_A_RUN)


def _noteworthy(machine: Machine[Any, Any], step: Step[Any]) -> Step[Any] | None:
    """A step that the record of an attempt says more about than the state."""
    noted = machine is ATTEMPT and step.moves and step.target in (attempt.STARTING, *attempt.ENDED)
    return step if noted else None


_TRACKS: dict[int, Track] = {}
_NAMED: dict[type[Event], Event] = {}


def track_of(machine: Machine[Any, Any], steps: Steps) -> Track:
    """The track of these steps; it keeps them, so that no others can come to have their identity."""
    known = _TRACKS.get(id(steps))
    if known is None or known.steps is not steps:
        known = Track(machine, steps)
        if len(_TRACKS) < _MOST:
            _TRACKS[id(steps)] = known
    return known


def forget() -> None:
    """Work everything out anew: the tables were exchanged."""
    _TRACKS.clear()


def named(event: type[Event]) -> Event:
    """An event that carries nothing is the same value every time."""
    known = _NAMED.get(event)
    if known is None:
        known = _NAMED[event] = event()
    return known


# A batch is decided at one moment, so that hundreds of jobs are told the same and get the same timers.


@lru_cache(maxsize=1_024)
def timed(event: type[Timed], at: datetime) -> Timed:
    """An event that carries nothing but its moment."""
    return event(at=at)


@lru_cache(maxsize=1_024)
def acknowledged(at: datetime, runner_id: str, ttl_s: float) -> lease.Ack:
    """A runner takes what it is given at this moment."""
    return lease.Ack(at=at, runner_id=runner_id, ttl_s=ttl_s)


@lru_cache(maxsize=1_024)
def completed(at: datetime, runner_id: str) -> lease.Complete:
    """A runner says at this moment how something ended."""
    return lease.Complete(at=at, runner_id=runner_id)


@lru_cache(maxsize=1_024)
def later(at: datetime, seconds: float) -> datetime:
    """So many seconds after it."""
    return at + timedelta(seconds=seconds)
