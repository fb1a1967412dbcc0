"""A checked table that decides.

`Machine(...)` checks the table and raises `MalformedTable` with every fault, so an existing machine is valid.
`decide` is a pure function of state, data and event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic

from interlock.errors import MalformedTable, UnknownEvent, UnknownState
from interlock.machine.cells import Cell, accepted, compile_cell, refusal_kind, step_of
from interlock.machine.check import find_faults
from interlock.machine.decision import Decision, Refused, Step
from interlock.machine.events import Event, EventRef
from interlock.machine.table import Across, Act, Always, D, Rank, Row, S, State, Table, fold_name
from interlock.text import counted


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
        self.terminal = frozenset(entry.name for entry in states if entry.rank is Rank.TERMINAL)
        self.tones = {state: table.tone(state) for state in self.states}
        self.resting = frozenset(entry.name for entry in states if entry.rank is Rank.RESTING)
        self._cells: dict[S, dict[type[Event], Cell]] = {
            entry.name: {event: compile_cell(table, entry, event, self.decide) for event in self.events}
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

    def cell(self, state: S, event: type[Event]) -> Cell:
        """Return the decision function of this state and event, for repeated use."""
        return self._cells[state][event]

    def toward(self, state: S, target: S) -> tuple[Step[S], ...] | Refused[S]:
        """Return the steps that lead from `state` directly to `target`, or why there are none.

        For callers that name a state instead of an event. Guards are not evaluated: they need data, and
        `decide` evaluates them.
        """
        source, wanted = self.state(state), self.state(target)
        steps = self.steps_from(source)
        found = tuple(step for step in steps if step.target == wanted)
        if found:
            return found
        allowed = tuple(dict.fromkeys(str(step.target) for step in steps if step.target != source))
        kind = refusal_kind(already_there=source is wanted, terminal=source in self.terminal)
        return Refused(kind, self.name, source, str(wanted), allowed=allowed, to=str(wanted))

    def state(self, name: str) -> S:
        """Return the state called `name`; either spelling of cancel(l)ed, in any case."""
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
        return accepted(self.table, self._entry(state))

    def steps_at(self, state: S) -> tuple[Step[S], ...]:
        """Return every step of `state`, transitions or not, in the order of the table."""
        entry = self._entry(state)
        rows = (row for row in self.table.rows if state in row.sources and row.act in (Act.MOVE, Act.KEEP))
        return tuple(step_of(self.table, entry, row) for row in rows)

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
