"""The table in `transitions`, once as its README shows and once as its FAQ advises for many models.

The settings are the lightest that are documented: no automatic `to_<state>` triggers, no queue,
states as plain strings, and event data only where a callback needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from transitions import Machine, MachineError

from bench.machines.contender import AT, ENTITY, REASON
from bench.rounds import Work
from bench.table import EDGES, HAPPY_PATH, ILLEGAL, INITIAL, NAME, OWNERS, Attempt
from interlock.machine import Entry


class Model:
    """What carries the state; `add_model` hangs its triggers on it, so it cannot have slots."""

    def __init__(self) -> None:
        self.state = INITIAL.value
        self.entity = ENTITY
        self.steps = 0


class SlottedModel:
    """The same, for a machine that is shared and hangs nothing on its models."""

    __slots__ = ("entity", "state", "steps")

    def __init__(self) -> None:
        self.state = INITIAL.value
        self.entity = ENTITY
        self.steps = 0


def _machine(**settings: Any) -> Machine:
    return Machine(
        model=None,
        states=[state.value for state in Attempt],
        transitions=[[edge.event, edge.source.value, edge.target.value] for edge in EDGES],
        initial=INITIAL.value,
        auto_transitions=False,
        **settings,
    )


def _audited_machine(journal: list[Entry]) -> Machine:
    """A machine whose one callback makes the same change and the same entry as the other libraries."""

    def record(happened: Any) -> None:
        model, step, details = happened.model, happened.transition, happened.kwargs
        event = happened.event.name
        model.steps += 1
        at, reason = details["at"], details["reason"]
        journal.append(Entry(at, NAME, model.entity, event, step.source, step.dest, OWNERS[event], reason))

    return _machine(send_event=True, after_state_change=record)


class Transitions:
    """As the README shows: each model is added to the machine and gets triggers of its own."""

    name = "transitions"

    def answer(self, state: str, event: str) -> str | None:
        """See `Contender`."""
        machine = _machine()
        model = self._model(machine)
        machine.set_state(state, model)
        try:
            self._triggers(machine, model, [event])[0]()
        except MachineError:
            return None
        return str(model.state)

    def trail(self, events: Iterable[str]) -> tuple[str, int, list[Entry]]:
        """See `Contender`."""
        journal: list[Entry] = []
        machine = _audited_machine(journal)
        model = self._model(machine)
        for trigger in self._triggers(machine, model, events):
            trigger(at=AT, reason=REASON)
        return model.state, model.steps, journal

    def bare(self, walks: int) -> Work:
        """See `Contender`; one model walks again and again, which spares it cold caches."""
        machine = _machine()
        model = self._model(machine)
        triggers = self._triggers(machine, model, HAPPY_PATH)
        start = INITIAL.value

        def work() -> None:
            for _ in range(walks):
                model.state = start
                for trigger in triggers:
                    trigger()

        return work

    def audited(self, walks: int) -> Work:
        """See `Contender`."""
        machine = _audited_machine([])
        model = self._model(machine)
        triggers = self._triggers(machine, model, HAPPY_PATH)
        start = INITIAL.value

        def work() -> None:
            for _ in range(walks):
                model.state = start
                for trigger in triggers:
                    trigger(at=AT, reason=REASON)

        return work

    def refusals(self, times: int) -> Work:
        """See `Contender`."""
        machine = _machine()
        trigger = self._triggers(machine, self._model(machine), [ILLEGAL])[0]

        def work() -> None:
            for _ in range(times):
                try:
                    trigger()
                except MachineError:
                    continue
                raise AssertionError

        return work

    def creations(self, times: int) -> Work:
        """See `Contender`; the machine itself is made once, outside the clock."""
        machine = _machine()
        return lambda: [self._model(machine) for _ in range(times)]

    def _model(self, machine: Machine) -> Any:
        model = Model()
        machine.add_model(model)
        return model

    def _triggers(self, machine: Machine, model: Any, events: Iterable[str]) -> list[Callable[..., object]]:
        del machine
        return [getattr(model, event) for event in events]


class TransitionsShared(Transitions):
    """As the FAQ advises for thousands of models: one machine that knows none of them."""

    name = "transitions shared"

    def _model(self, machine: Machine) -> Any:
        del machine
        return SlottedModel()

    def _triggers(self, machine: Machine, model: Any, events: Iterable[str]) -> list[Callable[..., object]]:
        return [partial(machine.events[event].trigger, model) for event in events]
