"""A checked table that decides.

`Machine(...)` checks the table and raises `MalformedTable` with every fault, so an existing machine is valid.
`decide` is a pure function of state, data and event.

A table never changes after declaration, so each pair of state and event is compiled once into its *cell*: a
function of data and event that returns the decision. Deciding is then a lookup and a call.

Why: decisions 0009 and 0051.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias

import msgspec

from interlock.errors import MalformedTable, UnknownEvent, UnknownState
from interlock.machine.check import find_faults
from interlock.machine.decision import Decision, Moved, Refusal, Refused, Step
from interlock.machine.events import Event, EventRef
from interlock.machine.table import (
    Across,
    Act,
    Always,
    D,
    Deadline,
    Rank,
    Row,
    S,
    State,
    Table,
    Tone,
    fold_name,
    name_of,
)
from interlock.text import counted

DecideCell: TypeAlias = Callable[[Any, Any], Decision[Any, Any]]
DecideEvent: TypeAlias = Callable[[Any, Any, Event], Decision[Any, Any]]


class Machine(Generic[S, D]):
    """A state machine that has passed its checks."""

    def __init__(
        self,
        name: str,
        doc: str,
        *,
        initial: S,
        states: Sequence[State[S]],
        rows: Sequence[Row[S, D]],
        stop: Sequence[EventRef] = (),
        spine: Sequence[S] = (),
        invariants: Sequence[Always[S, D] | Across[S, D]] = (),
    ) -> None:
        self.table: Table[S, D]
        self.table = table = Table(name, doc, initial, states, rows, stop, spine, invariants)
        if faults := find_faults(table):
            raise MalformedTable(
                f"The table of {name!r} has {counted(len(faults), 'fault')}.\n"
                + "\n".join(f"  {fault.code}: {fault.sentence}" for fault in faults),
                todo="Mend every fault above; docs/reference/machine-checks.md explains each code.",
                facts={"machine": name, "faults": [[f.code, f.sentence] for f in faults]},
            )
        self.name = name
        self.initial = initial
        self.states: tuple[S, ...] = tuple(entry.name for entry in states)
        self.events: tuple[type[Event], ...] = table.events
        self.terminal: frozenset[S] = frozenset(entry.name for entry in states if entry.rank is Rank.TERMINAL)
        self.tones: dict[S, Tone] = {state: table.tone(state) for state in self.states}
        self.resting: frozenset[S] = frozenset(entry.name for entry in states if entry.rank is Rank.RESTING)
        self._cells: dict[S, dict[type[Event], DecideCell]] = {
            entry.name: {event: _compile_cell(table, entry, event, self.decide) for event in self.events}
            for entry in states
        }
        self._states_by_name = {fold_name(member): member for member in self.states}
        self._events_by_name = {fold_name(event.name): event for event in self.events}

    def __repr__(self) -> str:
        return f"<machine {self.name}: {len(self.states)} states, {len(self.table.rows)} rows>"

    def decide(self, state: S, data: D, event: Event) -> Decision[S, D]:
        """Decide about `event` for a record in `state` with `data`. Pure."""
        try:
            cell = self._cells[state][type(event)]
        except KeyError:
            raise self._unknown(state, event) from None
        return cell(data, event)

    def cell(self, state: S, event: type[Event]) -> DecideCell:
        """Return the decision function of this state and event, for repeated use."""
        return self._cells[state][event]

    def toward(self, state: S, target: S) -> tuple[Step[S], ...] | Refused[S]:
        """Return the steps that lead from `state` directly to `target`.

        If there are none, return the reason. For callers that name a state instead of an event. Guards are
        not evaluated: they need data, and `decide` evaluates them.
        """
        source, wanted = self.state(state), self.state(target)
        steps = self.steps_from(source)
        found = tuple(step for step in steps if step.target == wanted)
        if found:
            return found
        allowed = tuple(dict.fromkeys(str(step.target) for step in steps if step.target != source))
        kind = _refusal_kind(already_there=source is wanted, terminal=source in self.terminal)
        return Refused(kind, self.name, source, str(wanted), allowed=allowed, to=str(wanted))

    def state(self, name: str) -> S:
        """Return the state called `name`.

        Either spelling of cancel(l)ed is known, in any case.
        """
        try:
            return self._states_by_name[fold_name(name)]
        except KeyError:
            raise UnknownState(name, self.states, where=self.name) from None

    def event(self, name: str) -> type[Event]:
        """Return the event called `name`."""
        try:
            return self._events_by_name[fold_name(name)]
        except KeyError:
            raise UnknownEvent(name, self._event_names(), where=self.name) from None

    def accepts(self, state: S) -> tuple[str, ...]:
        """Return the names of the events that have a row in `state`."""
        return _accepted(self.table, self._entry(state).name)

    def steps_at(self, state: S) -> tuple[Step[S], ...]:
        """Return every step of `state`, transitions or not, in table order."""
        entry = self._entry(state)
        rows = [row for row in self.table.rows if state in row.sources and row.act in (Act.MOVE, Act.KEEP)]
        return tuple([_step_of(self.table, entry, row) for row in rows])

    def steps_from(self, state: S) -> tuple[Step[S], ...]:
        """Return every transition from `state`."""
        return tuple(step for step in self.steps_at(state) if step.moves)

    def broken(self, state: S, data: D) -> tuple[str, ...]:
        """Return the invariants that do not hold for this state and data."""
        claims = (claim for claim in self.table.invariants if isinstance(claim, Always))
        return tuple(claim.claim for claim in claims if not claim.holds(state, data))

    def broken_across(self, state: S, data: D, new_state: S, new_data: D) -> tuple[str, ...]:
        """Return the step invariants that do not hold for this step."""
        claims = (claim for claim in self.table.invariants if isinstance(claim, Across))
        return tuple(claim.claim for claim in claims if not claim.holds(state, data, new_state, new_data))

    def _entry(self, state: S) -> State[S]:
        if state not in self._cells:
            raise UnknownState(state, self.states, where=self.name)
        return self.table.entry(state)

    def _unknown(self, state: S, event: Event) -> UnknownState | UnknownEvent:
        if state not in self._cells:
            return UnknownState(state, self.states, where=self.name)
        return UnknownEvent(getattr(event, "name", event), self._event_names(), where=self.name)

    def _event_names(self) -> tuple[str, ...]:
        return tuple(event.name for event in self.events)


def _compile_cell(
    table: Table[Any, Any], source: State[Any], event: type[Event], decide: DecideEvent
) -> DecideCell:
    """Return the function that decides `event`; walks use `decide`."""
    rows = table.rows_at(source.name, event)
    if not rows or rows[0].act.silent:
        return _refuse_always(table, source, event)
    takes = [_take(table, source, row, decide) for row in rows]
    if len(rows) == 1 and not rows[0].when:
        return takes[0]
    return _first_that_may(table, source, event, [(r.when, t) for r, t in zip(rows, takes, strict=True)])


def _refusal(table: Table[Any, Any], source: State[Any], event: type[Event]) -> Refused[Any]:
    """Return why `event` has no effect: an explicit reason, or no row."""
    allowed = _accepted(table, source.name)
    spoken = next(iter(table.rows_at(source.name, event)), None)
    if spoken is not None and spoken.act is Act.IGNORE:
        return Refused(Refusal.IGNORED, table.name, source.name, event.name, spoken.why, allowed)
    targets = {row.target for row in table.rows if row.event is event and row.target is not None}
    kind = _refusal_kind(already_there=targets == {source.name}, terminal=source.terminal)
    why = "" if spoken is None else spoken.why
    to = str(next(iter(targets))) if len(targets) == 1 else ""
    return Refused(kind, table.name, source.name, event.name, why, allowed, to=to)


def _accepted(table: Table[Any, Any], source: object) -> tuple[str, ...]:
    """Return the names of the events with a row in `source` that acts."""
    rows = [row for row in table.rows if source in row.sources and not row.act.silent]
    return tuple(dict.fromkeys(row.event.name for row in rows))


def _refusal_kind(*, already_there: bool, terminal: bool) -> Refusal:
    """Return the kind of refusal, in order of precedence."""
    if already_there:
        return Refusal.ALREADY_THERE
    return Refusal.TERMINAL if terminal else Refusal.NOT_ALLOWED


def _step_of(table: Table[Any, Any], source: State[Any], row: Row[Any, Any]) -> Step[Any]:
    """Return the journal step of `row` from `source`."""
    moves = row.act is Act.MOVE
    target = row.target if moves else source.name
    entered = _armed_by_entering(source, table.entry(target)) if moves else ()
    arms = tuple(dict.fromkeys((*row.arms, *entered)))
    return Step(table.name, row.event.name, source.name, target, row.owner, row.why, arms, moves)


def _armed_by_entering(source: State[Any], target: State[Any]) -> tuple[Deadline, ...]:
    """Return the deadline to start; one shared with the source keeps running."""
    if target.within is None or (source is not target and source.within == target.within):
        return ()
    return (target.within,)


def _take(table: Table[Any, Any], source: State[Any], row: Row[Any, Any], decide: DecideEvent) -> DecideCell:
    """Return the function that takes `row`, once its guards hold."""
    if row.first is not None:
        sure = _sure_step(table, source, row.first)
        if sure is not None:
            return _walk_on(source.name, sure, decide, _accepted(table, source.name))
        return _walk(source.name, row.first, decide, _accepted(table, source.name))
    step = _step_of(table, source, row)
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


def _refuse_always(table: Table[Any, Any], source: State[Any], event: type[Event]) -> DecideCell:
    """Return a cell that refuses, with a refusal made when first needed."""
    refused: Refused[Any] | None = None

    def refuse(_data: Any, _event: Event) -> Decision[Any, Any]:
        nonlocal refused
        if refused is None:
            refused = _refusal(table, source, event)
        return refused

    return refuse


def _sure_step(table: Table[Any, Any], source: State[Any], first: Event) -> Step[Any] | None:
    """Return the first step of a walk, if it has no guard, update or effect."""
    rows = table.rows_at(source.name, type(first))
    if len(rows) != 1 or rows[0].act is not Act.MOVE or rows[0].first is not None:
        return None
    (row,) = rows
    return None if row.when or row.then is not None or row.emits else _step_of(table, source, row)


def _walk_on(source: Any, step: Step[Any], decide: DecideEvent, allowed: tuple[str, ...]) -> DecideCell:
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


def _walk(source: Any, first: Event, decide: DecideEvent, allowed: tuple[str, ...]) -> DecideCell:
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
    options: list[tuple[tuple[Callable[[Any, Any], bool], ...], DecideCell]],
) -> DecideCell:
    allowed = _accepted(table, source.name)

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
