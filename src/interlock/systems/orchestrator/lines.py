"""What follows from a step alone, worked out once: tables share their steps, so thousands of jobs do."""

from __future__ import annotations

from typing import Any

from interlock.machine import Event, Machine, Step
from interlock.store.records import StepLine

_NAMED: dict[type[Event], Event] = {}
_LINES: dict[tuple[int, str], tuple[Step[Any], StepLine]] = {}
_KEEPS: dict[int, tuple[Step[Any], bool]] = {}
_MOST = 65_536


def named(event: type[Event]) -> Event:
    """An event that carries nothing is the same value every time."""
    if event not in _NAMED:
        _NAMED[event] = event()
    return _NAMED[event]


def line_of(step: Step[Any], name: str) -> StepLine:
    """Steps are shared by all who take them and names repeat from job to job, and so do lines."""
    known = _LINES.get((id(step), name))
    if known is None or known[0] is not step:
        line = StepLine(step.machine, name, step.event, step.source, step.target, step.owner, step.moves)
        known = (step, line)
        if len(_LINES) < _MOST:
            _LINES[id(step), name] = known
    return known[1]


def keeps_timer(machine: Machine[Any, Any], step: Step[Any]) -> bool:
    """A deadline that two neighbouring states share keeps running."""
    known = _KEEPS.get(id(step))
    if known is None or known[0] is not step:
        known = (step, machine.table.entry(step.target).within is not None)
        if len(_KEEPS) < _MOST:
            _KEEPS[id(step)] = known
    return known[1]
