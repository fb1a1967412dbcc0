"""The checks of a table.

`find_faults` returns all faults at once, so that a table can be fixed in one go. Each fault has a stable
code; the meanings of the codes are in `MEANINGS`, from which the page docs/reference/machine-checks.md is
made.

Why: decisions 0104 and 0107.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from interlock.machine.events import Event, Kind, type_of
from interlock.machine.table import Act, Deadline, Rank, Row, State, Table, fold_name, name_of

MEANINGS: dict[str, str] = {
    "unknown-state": "A row, the initial state or the spine names something that is not a state here.",
    "undescribed-state": "A member of the state enum has no entry among the states.",
    "described-twice": "A state has two entries.",
    "unexplained": "A machine, state, event, guard or row has no description or reason.",
    "same-name": "Two events, or two states, have names that a caller or a journal cannot tell apart.",
    "unowned-row": "A row that moves the machine has no owner.",
    "contradiction": "A pair of state and event has a row and is also ignored or refused.",
    "shadowed-row": "A row can never be taken: an earlier one always is, or it applies in no state.",
    "undecided-event": "An event that can arrive at any moment is not decided in some state.",
    "unreachable-state": "No path leads from the initial state to this one.",
    "no-way-out": "From this state no terminal or resting state can be reached.",
    "undeclared-exit": "A row leaves (or changes) a terminal state without `leaves_terminal=True`.",
    "unattended-state": "A state that has to be left has neither a turn nor a deadline.",
    "idle-turn": "The role that acts next has no row or event to leave the state.",
    "bad-deadline": "A deadline is not a positive number of seconds, or its setting does not end in `_s`.",
    "idle-deadline": "A deadline runs in a state where its event is not a timer, or does nothing.",
    "unstoppable-state": "In this state no stop event of the machine leads anywhere, and no reason is given.",
    "no-stop-event": "The machine declares no event by which it can be stopped.",
    "broken-spine": "Two neighbours of the happy path are not joined by a row.",
    "lost-walk": "A walk's first step is no plain row there, or leads to where its event is not accepted.",
}


class Fault(msgspec.Struct, frozen=True):
    """One fault of a table."""

    code: str
    sentence: str


AnyTable: TypeAlias = Table[Any, Any]


def find_faults(table: AnyTable) -> tuple[Fault, ...]:
    """Return every fault of the table, in the order of the checks."""
    if not isinstance(table.initial, StrEnum):
        return (Fault("unknown-state", f"the initial state {table.initial!r} is no StrEnum member"),)
    return tuple(dict.fromkeys(fault for check in _CHECKS for fault in check(table)))


def _unknown_states(table: AnyTable) -> Iterator[Fault]:
    known = _members(table)
    listed = ", ".join(known)
    used = [("the initial state", table.initial)]
    used += [("the spine", name) for name in table.spine]
    used += [("the list of states", entry.name) for entry in table.states]
    for row in table.rows:
        named = (*row.sources, *(() if row.target is None else (row.target,)))
        used += [(f"the row of {row.event.name}", name) for name in named]
    for place, name in dict.fromkeys((p, n if isinstance(n, str) else repr(n)) for p, n in used):
        if name not in known:
            yield Fault("unknown-state", f"{place} names {str(name)!r}; the states are: {listed}")


def _undescribed_states(table: AnyTable) -> Iterator[Fault]:
    described = [entry.name for entry in table.states]
    for name in _members(table):
        if name not in described:
            yield Fault("undescribed-state", f"{name} is in the enum but not among the states")
    for name in dict.fromkeys(described):
        if described.count(name) > 1:
            yield Fault("described-twice", f"{name} has {described.count(name)} entries")


def _same_names(table: AnyTable) -> Iterator[Fault]:
    for noun, names in (("events", [e.name for e in table.events]), ("states", list(_members(table)))):
        alike: dict[str, list[str]] = {}
        for name in names:
            alike.setdefault(fold_name(name), []).append(repr(str(name)))
        for twins in alike.values():
            if len(twins) > 1:
                yield Fault("same-name", f"these {noun} cannot be told apart: {', '.join(twins)}")


def _unexplained(table: AnyTable) -> Iterator[Fault]:
    things = [(f"the machine {table.name}", table.doc)]
    things += [(f"the state {entry.name}", entry.doc) for entry in table.states]
    things += [(f"the event {event.name}", event.doc) for event in table.events]
    things += [(f"the row {_title(row)}", row.why) for row in table.rows]
    guards = dict.fromkeys(guard for row in table.rows for guard in row.when)
    things += [(f"the guard {name_of(guard)}", _sentence_of(guard)) for guard in guards]
    for thing, sentence in things:
        if not sentence.strip():
            yield Fault("unexplained", f"{thing} has no description")


def _unowned_rows(table: AnyTable) -> Iterator[Fault]:
    for row in table.rows:
        if row.act in (Act.MOVE, Act.KEEP) and not row.owner:
            yield Fault("unowned-row", f"{_title(row)} has no owner")


def _overlaps(table: AnyTable) -> Iterator[Fault]:
    """Yield rows that can never be reached.

    Rows of one state and event are tried in order.
    """
    for row in table.rows:
        if not row.sources:
            yield Fault("shadowed-row", f"{_title(row)} applies in no state")
    for entry in table.states:
        for event in table.events:
            yield from _overlaps_at(entry, event, table.rows_at(entry.name, event))


def _overlaps_at(entry: State[Any], event: type[Event], rows: tuple[Row[Any, Any], ...]) -> Iterator[Fault]:
    pair = f"{event.name} in {entry.name}"
    if len(rows) > 1 and any(row.act.silent for row in rows):
        yield Fault("contradiction", f"{pair} is ignored or refused and also has another row")
        return
    for later, row in enumerate(rows):
        for earlier in rows[:later]:
            if set(earlier.when) <= set(row.when):
                yield Fault("shadowed-row", f"{pair}: {_title(row)} comes after {_title(earlier)}")
                break


def _undecided_events(table: AnyTable) -> Iterator[Fault]:
    for event in table.events:
        silent = [s.name for s in table.states if not table.rows_at(s.name, event)]
        if event.kind.arrives and silent:
            yield Fault(
                "undecided-event",
                f"the {event.kind} {event.name} can arrive at any moment, but is not handled in: "
                + ", ".join(silent),
            )


def _unreachable_states(table: AnyTable) -> Iterator[Fault]:
    reached = _reach({table.initial}, _edges(table))
    for entry in table.states:
        if entry.name not in reached:
            yield Fault("unreachable-state", f"no path leads from {table.initial} to {entry.name}")


def _no_way_out(table: AnyTable) -> Iterator[Fault]:
    goals = {entry.name for entry in table.states if entry.rank is not Rank.ACTIVE}
    backwards = [(target, source) for source, target in _edges(table)]
    home = _reach(goals, backwards)
    for entry in table.states:
        if entry.name not in home:
            yield Fault("no-way-out", f"no terminal or resting state can be reached from {entry.name}")


def _undeclared_exits(table: AnyTable) -> Iterator[Fault]:
    terminal = {entry.name for entry in table.states if entry.rank is Rank.TERMINAL}
    for row in table.rows:
        leaving = [name for name in row.sources if name in terminal]
        if leaving and not row.act.silent and not row.leaves_terminal:
            yield Fault("undeclared-exit", f"{_title(row)} leaves the terminal {', '.join(leaving)}")


def _unattended_states(table: AnyTable) -> Iterator[Fault]:
    for entry in _active(table):
        if entry.turn is None and entry.within is None:
            yield Fault("unattended-state", f"{entry.name} has neither a turn nor a deadline")
        if entry.turn is not None and entry.turn not in _movers(table, entry):
            yield Fault(
                "idle-turn", f"in {entry.name} it is the turn of {entry.turn}, which has no event to leave it"
            )


def _bad_deadlines(table: AnyTable) -> Iterator[Fault]:
    for _, deadline in running_deadlines(table):
        if not 0 < deadline.seconds < float("inf") or not deadline.setting.endswith("_s"):
            yield Fault("bad-deadline", f"{deadline.setting} = {deadline.seconds}")


def _idle_deadlines(table: AnyTable) -> Iterator[Fault]:
    for place, deadline in running_deadlines(table):
        event = type_of(deadline.event)
        if event.kind is not Kind.TIMER:
            yield Fault("idle-deadline", f"{place}: {event.name} is a {event.kind}, not a timer")
        elif not any(not row.act.silent for row in table.rows_at(place, event)):
            yield Fault("idle-deadline", f"{place}: {event.name} fires there but has no effect")


def _unstoppable_states(table: AnyTable) -> Iterator[Fault]:
    if not table.stop:
        yield Fault("no-stop-event", f"{table.name} cannot be stopped")
        return
    stops = [type_of(event) for event in table.stop]
    for entry in table.states:
        if not entry.terminal and not any(table.rows_at(entry.name, event) for event in stops):
            names = " or ".join(event.name for event in stops)
            yield Fault("unstoppable-state", f"in {entry.name} {names} leads nowhere")


def _broken_spine(table: AnyTable) -> Iterator[Fault]:
    edges = set(_edges(table))
    for source, target in zip(table.spine, table.spine[1:], strict=False):
        if (source, target) not in edges:
            yield Fault("broken-spine", f"no row leads from {source} to {target}")


def _lost_walks(table: AnyTable) -> Iterator[Fault]:
    for row in table.rows:
        for source in row.sources if row.first is not None else ():
            lost = _why_lost(table, row, source)
            if lost:
                yield Fault("lost-walk", f"{row.event.name} in {source}: {lost}")


def _why_lost(table: AnyTable, row: Row[Any, Any], source: Any) -> str:
    """Return why a walk never ends: no unique first row, or a loop."""
    place, passed = source, {source}
    walking: Row[Any, Any] | None = row
    while walking is not None and walking.first is not None:
        firsts = table.rows_at(place, type_of(walking.first))
        if len(firsts) != 1 or firsts[0].act is not Act.MOVE or firsts[0].when:
            return f"{walking.first.name} is not one plain row in {place}"
        place = firsts[0].target
        rows = table.rows_at(place, row.event)
        if place in passed or not any(not found.act.silent for found in rows):
            return f"it leads to {place}, where {row.event.name} is not accepted"
        passed.add(place)
        walking = next((found for found in rows if found.act is Act.WALK), None)
    return ""


def _sentence_of(guard: Callable[..., bool]) -> str:
    """Return the docstring of a guard; an object without its own has none."""
    return (guard.__doc__ or "") if hasattr(guard, "__name__") else ""


def _members(table: AnyTable) -> tuple[str, ...]:
    kind: type[StrEnum] = type(table.initial)
    return tuple(kind)


def running_deadlines(table: AnyTable) -> list[tuple[Any, Deadline]]:
    """Return every deadline with a state in which it runs.

    A state has deadlines of its own, and those that rows arm.
    """
    running = [(entry.name, entry.within) for entry in table.states if entry.within is not None]
    for row in table.rows:
        places = row.sources if row.target is None else (row.target,)
        running += [(place, deadline) for deadline in row.arms for place in places]
    return list(dict.fromkeys(running))


def unknown_settings(table: AnyTable, durations: Collection[str] | None) -> tuple[str, ...]:
    """Return the settings of deadlines that are no known durations."""
    settings = dict.fromkeys(deadline.setting for _, deadline in running_deadlines(table))
    return tuple(setting for setting in settings if durations is not None and setting not in durations)


def _active(table: AnyTable) -> Iterator[State[Any]]:
    return (entry for entry in table.states if entry.rank is Rank.ACTIVE)


def _movers(table: AnyTable, entry: State[Any]) -> set[str]:
    """Return the roles that can leave a state.

    These are the owners of its rows, and the senders of their events.
    """
    leaving = [r for r in table.rows if entry.name in r.sources and r.act in (Act.MOVE, Act.WALK)]
    return {row.owner for row in leaving} | {row.event.by for row in leaving}


def _edges(table: AnyTable) -> list[tuple[Any, Any]]:
    return [(s, row.target) for row in table.rows if row.target is not None for s in row.sources]


def _reach(start: set[Any], edges: list[tuple[Any, Any]]) -> set[Any]:
    reached = set(start)
    while more := {target for source, target in edges if source in reached} - reached:
        reached |= more
    return reached


def _title(row: Row[Any, Any]) -> str:
    target = f" → {row.target}" if row.target is not None else ""
    return f"{row.event.name}: {', '.join(map(str, row.sources))}{target}"


_Check: TypeAlias = Callable[[AnyTable], Iterator[Fault]]

_CHECKS: tuple[_Check, ...] = (
    _unknown_states,
    _undescribed_states,
    _same_names,
    _unexplained,
    _unowned_rows,
    _overlaps,
    _undecided_events,
    _unreachable_states,
    _no_way_out,
    _undeclared_exits,
    _unattended_states,
    _bad_deadlines,
    _idle_deadlines,
    _unstoppable_states,
    _broken_spine,
    _lost_walks,
)
