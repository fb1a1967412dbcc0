"""Each pair of state and event, compiled into one function.

A table never changes after declaration, so each pair is evaluated once: a cell is a function of data and
event that returns the decision. Deciding is then a lookup and a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from interlock.machine.decision import Decision, Moved, Refusal, Refused, Step
from interlock.machine.events import Event
from interlock.machine.table import Act, Deadline, Row, State, Table, name_of

Cell: TypeAlias = Callable[[Any, Any], Decision[Any, Any]]
Decide: TypeAlias = Callable[[Any, Any, Event], Decision[Any, Any]]


def compile_cell(table: Table[Any, Any], source: State[Any], event: type[Event], decide: Decide) -> Cell:
    """Return the function that decides `event` in `source`. `decide` is that of the machine, for walks."""
    rows = table.rows_at(source.name, event)
    if not rows or rows[0].act.silent:
        return _always(refusal(table, source, event))
    takes = [_take(table, source, row, decide) for row in rows]
    if len(rows) == 1 and not rows[0].when:
        return takes[0]
    return _first_that_may(table, source, event, [(r.when, t) for r, t in zip(rows, takes, strict=True)])


def refusal(table: Table[Any, Any], source: State[Any], event: type[Event]) -> Refused[Any]:
    """Return why `event` has no effect in `source`: explicitly, or because there is no row."""
    allowed = accepted(table, source)
    spoken = next((row for row in table.rows_at(source.name, event)), None)
    if spoken is not None and spoken.act is Act.IGNORE:
        return Refused(Refusal.IGNORED, table.name, source.name, event.name, spoken.why, allowed)
    targets = {row.target for row in table.rows if row.event is event and row.target is not None}
    kind = refusal_kind(already_there=targets == {source.name}, terminal=source.terminal)
    why = "" if spoken is None else spoken.why
    to = str(next(iter(targets))) if len(targets) == 1 else ""
    return Refused(kind, table.name, source.name, event.name, why, allowed, to=to)


def refusal_kind(*, already_there: bool, terminal: bool) -> Refusal:
    """Return the kind of refusal, in order of precedence."""
    if already_there:
        return Refusal.ALREADY_THERE
    return Refusal.TERMINAL if terminal else Refusal.NOT_ALLOWED


def accepted(table: Table[Any, Any], source: State[Any]) -> tuple[str, ...]:
    """Return the names of the events that have a row in `source`."""
    rows = (row for row in table.rows if source.name in row.sources and not row.act.silent)
    return tuple(dict.fromkeys(row.event.name for row in rows))


def step_of(table: Table[Any, Any], source: State[Any], row: Row[Any, Any]) -> Step[Any]:
    """Return the journal step of `row` from `source`."""
    moves = row.act is Act.MOVE
    target = row.target if moves else source.name
    entered = _armed_by_entering(source, table.entry(target)) if moves else ()
    arms = tuple(dict.fromkeys((*row.arms, *entered)))
    return Step(table.name, row.event.name, source.name, target, row.owner, row.why, arms, moves)


def _armed_by_entering(source: State[Any], target: State[Any]) -> tuple[Deadline, ...]:
    """Return the deadline to start: one that two adjacent states share keeps running."""
    if target.within is None or (source is not target and source.within == target.within):
        return ()
    return (target.within,)


def _take(table: Table[Any, Any], source: State[Any], row: Row[Any, Any], decide: Decide) -> Cell:
    """Return the function that takes `row`, once its guards hold."""
    if row.first is not None:
        sure = _sure_step(table, source, row.first)
        if sure is not None:
            return _walk_on(source.name, sure, decide, accepted(table, source))
        return _walk(source.name, row.first, decide, accepted(table, source))
    step = step_of(table, source, row)
    state, steps, then, emits = step.target, (step,), row.then, row.emits
    change = then if then is not None else _unchanged

    def move(data: Any, _: Event) -> Decision[Any, Any]:
        return Moved(state, data, steps)

    def update(data: Any, event: Event) -> Decision[Any, Any]:
        return Moved(state, change(data, event), steps)

    def update_and_emit(data: Any, event: Event) -> Decision[Any, Any]:
        changed = change(data, event)
        return Moved(state, changed, steps, tuple([emit(changed, event) for emit in emits]))

    # Most rows emit nothing, and building an empty tuple of effects would double their cost.
    if emits:
        return update_and_emit
    return move if then is None else update


def _unchanged(data: Any, _: Event) -> Any:
    return data


def _always(refused: Refused[Any]) -> Cell:
    def refuse(_data: Any, _event: Event) -> Decision[Any, Any]:
        return refused

    return refuse


def _sure_step(table: Table[Any, Any], source: State[Any], first: Event) -> Step[Any] | None:
    """Return the first step of a walk, if it has no guard, update or effect."""
    rows = table.rows_at(source.name, type(first))
    if len(rows) != 1 or rows[0].act is not Act.MOVE or rows[0].first is not None:
        return None
    (row,) = rows
    return None if row.when or row.then is not None or row.emits else step_of(table, source, row)


def _walk_on(source: Any, step: Step[Any], decide: Decide, allowed: tuple[str, ...]) -> Cell:
    """Return a walk with a known first step: only the rest is decided."""
    known: dict[int, tuple[Step[Any], ...]] = {}

    def walk_on(data: Any, event: Event) -> Decision[Any, Any]:
        after = decide(step.target, data, event)
        if not isinstance(after, Moved):
            return msgspec.structs.replace(after, state=source, allowed=allowed)
        # Like a single step, a walk is the same object every time, so that its effects can be cached.
        steps = known.get(id(after.steps))
        if steps is None:
            steps = known[id(after.steps)] = (step, *after.steps)
        return Moved(after.state, after.data, steps, after.effects)

    return walk_on


def _walk(source: Any, first: Event, decide: Decide, allowed: tuple[str, ...]) -> Cell:
    known: dict[tuple[int, int], tuple[Step[Any], ...]] = {}

    def refuse(refused: Refused[Any]) -> Refused[Any]:
        """Return the refusal in the original state, since nothing has moved."""
        return msgspec.structs.replace(refused, state=source, allowed=allowed)

    def walk(data: Any, event: Event) -> Decision[Any, Any]:
        before = decide(source, data, first)
        if not isinstance(before, Moved):
            return refuse(before)
        after = decide(before.state, before.data, event)
        if not isinstance(after, Moved):
            return refuse(after)
        both = id(before.steps), id(after.steps)
        steps = known.get(both)
        if steps is None:
            steps = known[both] = before.steps + after.steps
        return Moved(after.state, after.data, steps, before.effects + after.effects)

    return walk


def _first_that_may(
    table: Table[Any, Any],
    source: State[Any],
    event: type[Event],
    options: list[tuple[tuple[Callable[[Any, Any], bool], ...], Cell]],
) -> Cell:
    allowed = accepted(table, source)

    def choose(data: Any, occurrence: Event) -> Decision[Any, Any]:
        held: dict[Callable[[Any, Any], bool], None] | None = None
        for guards, take in options:
            for guard in guards:
                if not guard(data, occurrence):
                    held = held or {}
                    held[guard] = None
                    break
            else:
                return take(data, occurrence)
        why = "; ".join(" ".join((guard.__doc__ or "").split()).rstrip(".") for guard in held or ())
        names = tuple(name_of(guard) for guard in held or ())
        return Refused(Refusal.GUARD, table.name, source.name, event.name, why, allowed, names)

    return choose
