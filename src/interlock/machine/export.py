"""From a machine to its blueprint."""

from __future__ import annotations

from typing import Any

from interlock.machine.blueprint import (
    Blueprint,
    DeadlineSheet,
    EventSheet,
    KeptSheet,
    SilenceSheet,
    StateSheet,
    TransitionSheet,
    WalkSheet,
)
from interlock.machine.events import Event, payload_of, type_of
from interlock.machine.machine import Machine
from interlock.machine.names import name_of
from interlock.machine.table import Act, Deadline, Rank, Row, State


def blueprint_of(machine: Machine[Any, Any]) -> Blueprint:
    """The machine as plain data, one entry per source state."""
    table = machine.table
    return Blueprint(
        machine=machine.name,
        initial=str(machine.initial),
        states=tuple(_state(entry) for entry in table.states),
        transitions=tuple(_transition(machine, row, source) for row, source in _each(machine, Act.MOVE)),
        doc=table.doc,
        spine=tuple(map(str, table.spine)),
        stop=tuple(type_of(event).name for event in table.stop),
        events=tuple(_event(event) for event in machine.events),
        kept=tuple(_kept(machine, row, source) for row, source in _each(machine, Act.KEEP)),
        walks=tuple(_walk(machine, row, source) for row, source in _each(machine, Act.WALK)),
        ignored=tuple(
            SilenceSheet(r.event.name, str(source), r.why) for r, source in _each(machine, Act.IGNORE)
        ),
        refused=tuple(
            SilenceSheet(r.event.name, str(source), r.why) for r, source in _each(machine, Act.REFUSE)
        ),
        deadlines=tuple(_deadline(deadline) for deadline in _deadlines(machine)),
        invariants=tuple(claim.claim for claim in table.invariants),
    )


def _each(machine: Machine[Any, Any], act: Act) -> list[tuple[Row[Any, Any], Any]]:
    return [(row, source) for row in machine.table.rows if row.act is act for source in row.sources]


def _deadlines(machine: Machine[Any, Any]) -> list[Deadline]:
    own = [entry.within for entry in machine.table.states if entry.within is not None]
    return list(dict.fromkeys([*own, *(deadline for row in machine.table.rows for deadline in row.arms)]))


def _state(entry: State[Any]) -> StateSheet:
    return StateSheet(
        name=str(entry.name),
        terminal=entry.rank is Rank.TERMINAL,
        resting=entry.rank is Rank.RESTING,
        doc=entry.doc,
        turn=None if entry.turn is None else str(entry.turn),
        within=None if entry.within is None else _deadline(entry.within),
    )


def _deadline(deadline: Deadline) -> DeadlineSheet:
    name = type_of(deadline.event).name
    return DeadlineSheet(name, deadline.setting, float(deadline.seconds), deadline.since)


def _event(event: type[Event]) -> EventSheet:
    return EventSheet(event.name, str(event.kind), event.by, event.doc, payload_of(event))


def _transition(machine: Machine[Any, Any], row: Row[Any, Any], source: Any) -> TransitionSheet:
    kept = _kept(machine, row, source)
    return TransitionSheet(
        event=kept.event,
        source=kept.state,
        target=str(row.target),
        owner=kept.owner,
        why=kept.why,
        guards=kept.guards,
        then=kept.then,
        emits=kept.emits,
        arms=kept.arms,
        leaves_terminal=row.leaves_terminal,
        choice=kept.choice,
    )


def _kept(machine: Machine[Any, Any], row: Row[Any, Any], source: Any) -> KeptSheet:
    return KeptSheet(
        event=row.event.name,
        state=str(source),
        owner=str(row.owner),
        why=row.why,
        guards=tuple(name_of(guard) for guard in row.when),
        then=None if row.then is None else name_of(row.then),
        emits=tuple(name_of(emit) for emit in row.emits),
        arms=tuple(deadline.setting for deadline in row.arms),
        choice=_choice(machine, row, source),
    )


def _walk(machine: Machine[Any, Any], row: Row[Any, Any], source: Any) -> WalkSheet:
    first = "" if row.first is None else row.first.name
    return WalkSheet(row.event.name, str(source), first, row.why, _choice(machine, row, source))


def _choice(machine: Machine[Any, Any], row: Row[Any, Any], source: Any) -> int:
    return machine.table.rows_at(source, row.event).index(row)
