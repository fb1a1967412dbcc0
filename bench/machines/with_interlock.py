"""The table in Interlock. A record is a state and its data: there is no machine object to create."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from bench.machines.contender import AT, ENTITY, REASON
from bench.rounds import Work
from bench.table import EDGES, EVENTS, FINAL, HAPPY_PATH, ILLEGAL, INITIAL, NAME, OWNERS, Attempt
from interlock.machine import (
    Entry,
    Event,
    Machine,
    Moved,
    Row,
    State,
    command,
    end,
    entries_of,
    on,
    state,
)

# Commands, because then the table need not say something about every event in every state.
EVENT = {name: command(name, f"The event {name}.", by=OWNERS[name]) for name in EVENTS}
WALK = tuple(EVENT[name] for name in HAPPY_PATH)


class Data(msgspec.Struct, frozen=True):
    """What is kept of an attempt beside its state."""

    entity: str
    steps: int = 0


def _count(data: Data, _: Event) -> Data:
    return Data(data.entity, data.steps + 1)


def _machine(then: Callable[[Data, Event], Data] | None) -> Machine[Attempt, Data]:
    rows: list[Row[Attempt, Data]] = [
        on(EVENT[e.event], e.source, e.target, owner=e.owner, why="The table says so.", then=then)
        for e in EDGES
    ]
    return Machine(
        NAME,
        "The attempt of the comparison.",
        initial=INITIAL,
        states=[_state(member) for member in Attempt],
        rows=rows,
        stop=(EVENT["cancel"], EVENT["cancel_overdue"]),
    )


def _state(name: Attempt) -> State[Attempt]:
    if name in FINAL:
        return end(name, f"The attempt is {name}.")
    return state(name, f"The attempt is {name}.", turn="orchestrator")


BARE = _machine(None)
COUNTING = _machine(_count)


class Interlock:
    """This project. Every answer is looked at, as a caller has to: a refusal is a value, not a raise.

    The question is "has it moved?", because a type that matches is found out at once in Python,
    and one that does not takes several times as long.
    """

    name = "interlock"

    def answer(self, state: str, event: str) -> str | None:
        """See `Contender`."""
        decision = BARE.decide(Attempt(state), Data(ENTITY), EVENT[event])
        return decision.state if isinstance(decision, Moved) else None

    def trail(self, events: Iterable[str]) -> tuple[str, int, list[Entry]]:
        """See `Contender`."""
        journal: list[Entry] = []
        last, data = _walk_audited([EVENT[name] for name in events], journal)
        return last, data.steps, journal

    def bare(self, walks: int) -> Work:
        """See `Contender`."""
        decide, data = BARE.decide, Data(ENTITY)

        def work() -> None:
            for _ in range(walks):
                state = INITIAL
                for event in WALK:
                    decision = decide(state, data, event)
                    if not isinstance(decision, Moved):
                        raise decision.error()
                    state = decision.state

        return work

    def audited(self, walks: int) -> Work:
        """See `Contender`."""

        def work() -> None:
            journal: list[Entry] = []
            for _ in range(walks):
                _walk_audited(WALK, journal)

        return work

    def refusals(self, times: int) -> Work:
        """See `Contender`."""
        decide, data, event = BARE.decide, Data(ENTITY), EVENT[ILLEGAL]

        def work() -> None:
            for _ in range(times):
                assert not isinstance(decide(INITIAL, data, event), Moved)

        return work

    def creations(self, times: int) -> Work:
        """See `Contender`."""
        return lambda: [(INITIAL, Data(ENTITY)) for _ in range(times)]


def _walk_audited(events: Iterable[Event], journal: list[Entry]) -> tuple[Attempt, Data]:
    decide = COUNTING.decide
    state, data = INITIAL, Data(ENTITY)
    for event in events:
        decision = decide(state, data, event)
        if not isinstance(decision, Moved):
            raise decision.error()
        journal.extend(entries_of(decision, entity=ENTITY, at=AT, reason=REASON))
        state, data = decision.state, decision.data
    return state, data
