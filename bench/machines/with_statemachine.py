"""The table in `python-statemachine`.

`StateMachine` rather than `StateChart`: it refuses by raising, as the comparison asks. No callback
is a coroutine, so the library picks its synchronous engine. Events are called as methods, which
its documents show first, and are looked up before the clock starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from types import new_class
from typing import Any

from statemachine import State, StateMachine
from statemachine.exceptions import TransitionNotAllowed

from bench.machines.contender import AT, ENTITY, REASON
from bench.rounds import Work
from bench.table import EDGES, EVENTS, FINAL, HAPPY_PATH, ILLEGAL, INITIAL, NAME, OWNERS, Attempt
from interlock.machine import Entry


class Model:
    """What carries the state and the data; the machine keeps the rest."""

    __slots__ = ("entity", "state", "steps")

    def __init__(self) -> None:
        self.state: str | None = None
        self.entity = ENTITY
        self.steps = 0


class AuditedModel(Model):
    """A model that is told of each transition; the library passes what the parameters name."""

    __slots__ = ("journal",)

    def __init__(self, journal: list[Entry]) -> None:
        super().__init__()
        self.journal = journal

    def after_transition(self, event: Any, source: Any, target: Any, at: Any, reason: str) -> None:
        """The same change and the same entry as in the other libraries."""
        name = event.id
        self.steps += 1
        self.journal.append(
            Entry(at, NAME, self.entity, name, source.value, target.value, OWNERS[name], reason)
        )


def _declare() -> Any:
    states = {
        name.value: State(value=name.value, initial=name is INITIAL, final=name in FINAL) for name in Attempt
    }
    body: dict[str, Any] = dict(states)
    for event in EVENTS:
        edges = [edge for edge in EDGES if edge.event == event]
        body[event] = reduce(or_, (states[edge.source].to(states[edge.target]) for edge in edges))
    return new_class("AttemptMachine", (StateMachine,), exec_body=lambda namespace: namespace.update(body))


AttemptMachine = _declare()


class PythonStateMachine:
    """A machine object for each model, and a new one for each walk: a final state cannot be left."""

    name = "python-statemachine"

    def answer(self, state: str, event: str) -> str | None:
        """See `Contender`; a machine in a final state drops events without raising."""
        machine = AttemptMachine(Model(), start_value=state)
        try:
            getattr(machine, event)()
        except TransitionNotAllowed:
            return None
        after = str(machine.current_state_value)
        return None if after == state else after

    def trail(self, events: Iterable[str]) -> tuple[str, int, list[Entry]]:
        """See `Contender`."""
        journal: list[Entry] = []
        machine = AttemptMachine(AuditedModel(journal))
        for event in events:
            getattr(machine, event)(at=AT, reason=REASON)
        return machine.model.state, machine.model.steps, journal

    def bare(self, walks: int) -> Work:
        """See `Contender`."""
        machines = [AttemptMachine(Model()) for _ in range(walks)]
        walkers = [[getattr(machine, event) for event in HAPPY_PATH] for machine in machines]

        def work() -> None:
            for events in walkers:
                for event in events:
                    event()

        return work

    def audited(self, walks: int) -> Work:
        """See `Contender`."""
        journal: list[Entry] = []
        machines = [AttemptMachine(AuditedModel(journal)) for _ in range(walks)]
        walkers = [[getattr(machine, event) for event in HAPPY_PATH] for machine in machines]

        def work() -> None:
            for events in walkers:
                for event in events:
                    event(at=AT, reason=REASON)

        return work

    def refusals(self, times: int) -> Work:
        """See `Contender`."""
        event = getattr(AttemptMachine(Model()), ILLEGAL)

        def work() -> None:
            for _ in range(times):
                try:
                    event()
                except TransitionNotAllowed:
                    continue
                raise AssertionError

        return work

    def creations(self, times: int) -> Work:
        """See `Contender`; the class is declared once, outside the clock."""
        return lambda: [AttemptMachine(Model()) for _ in range(times)]
