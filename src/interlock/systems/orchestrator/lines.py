"""What follows from a step alone, worked out once: tables share their steps, so thousands of jobs do."""

from __future__ import annotations

from typing import Any

from interlock.lifecycles.attempt import ATTEMPT
from interlock.lifecycles.couplings import COUPLINGS
from interlock.lifecycles.lease import LEASE
from interlock.machine import Event, Machine, Step
from interlock.store.records import StepLine

_MOST = 4_096


class Track:
    """What the taking of one step entails, whoever takes it."""

    __slots__ = ("_lines", "arms", "consequences", "disarms", "noteworthy", "step")

    def __init__(self, machine: Machine[Any, Any], step: Step[Any]) -> None:
        self.step = step
        timed = machine is not LEASE  # a lease carries its own end
        self.arms = step.arms[0].setting if step.arms and timed else ""
        # A deadline that two neighbouring states share keeps running; any other ends with its state.
        lasting = machine.table.entry(step.target).within is not None
        self.disarms = timed and step.moves and not step.arms and not lasting
        self.noteworthy = machine is ATTEMPT and step.moves
        self.consequences = COUPLINGS.caused_by(step)
        self._lines: dict[str, StepLine] = {}

    def line(self, name: str) -> StepLine:
        """What the journal says; names repeat from job to job, and so do lines."""
        known = self._lines.get(name)
        if known is None:
            step = self.step
            known = StepLine(step.machine, name, step.event, step.source, step.target, step.owner, step.moves)
            if len(self._lines) < _MOST:
                self._lines[name] = known
        return known


_TRACKS: dict[int, Track] = {}
_NAMED: dict[type[Event], Event] = {}


def track_of(machine: Machine[Any, Any], step: Step[Any]) -> Track:
    """The track of a step; it keeps the step, so that no other one can come to have its identity."""
    known = _TRACKS.get(id(step))
    if known is None or known.step is not step:
        known = Track(machine, step)
        if len(_TRACKS) < _MOST:
            _TRACKS[id(step)] = known
    return known


def named(event: type[Event]) -> Event:
    """An event that carries nothing is the same value every time."""
    known = _NAMED.get(event)
    if known is None:
        known = _NAMED[event] = event()
    return known
