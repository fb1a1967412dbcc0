"""`check_lifecycle`: check your own machine under every order of its events.

    def test_a_ticket_keeps_its_promises() -> None:
        check_lifecycle(TICKET)

Pass the data of a new record and one occurrence of each event that has fields. Every reachable state and data
is visited, and the claims of the table are checked there. Nothing is assumed about the order of events: the
network, users and timers may act at any time. It raises `LifecycleBroken` with the shortest counterexample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from interlock.errors import InvalidSettings
from interlock.machine import STAY, Event, EventRef, Moved
from interlock.machine.couplings import AnyMachine
from interlock.machine.events import payload_of, type_of
from interlock.testing.model_checker import (
    ExplorationReport,
    ModelClaim,
    ModelStep,
    always,
    bit,
    check,
    eventually,
    look_with,
    sometimes,
)

MOST = 100_000
_CHOICE = "before it begins"


class Here(NamedTuple):
    """A record at one moment."""

    state: Any
    data: Any


class Answer(NamedTuple):
    """A claim about the effect of an event, given the record before, the event, and the record after it.

    The third is None where the event was refused. Distinguish events by their `name` or their type.
    """

    claim: str
    holds: Callable[[Here, Any, Here | None], bool]


class Lifecycle(msgspec.Struct, frozen=True, kw_only=True):
    """The environment in which a lifecycle is checked."""

    data: Any = None
    """Data of a new record."""
    starts: tuple[Any, ...] = ()
    """Further data of a new record; each is another start."""
    events: tuple[Event, ...] = ()
    """Occurrences of events that have fields, as many as matter; the others are created automatically."""
    claims: tuple[ModelClaim, ...] = ()
    """Further claims, about a `Here`."""
    answers: tuple[Answer, ...] = ()
    """Claims about the effects of events."""
    only: Callable[[Any], bool] | None = None
    """Limit of the exploration: data for which this is False is not explored further. For counters."""
    most: int = MOST


def must(
    event: EventRef, sources: Sequence[Any], target: Any, *, when: Callable[[Any, Any], bool] | None = None
) -> Callable[[Here, Any, Here | None], bool]:
    """Return the predicate of an `Answer`.

    In these states the event leads to the target (STAY: no change). With `when`, a function of data and
    event, it does so if that holds and is refused otherwise.
    """
    kind = type_of(event)

    def holds(before: Here, event: Any, after: Here | None) -> bool:
        if type(event) is not kind or before.state not in sources:
            return True
        if when is not None and not when(before.data, event):
            return after is None
        return after is not None and after.state == (before.state if target is STAY else target)

    return holds


class LifecycleBroken(AssertionError):
    """A claim about a lifecycle does not hold; the message is the shortest counterexample."""


def check_lifecycle(machine: AnyMachine, environment: Lifecycle | None = None) -> ExplorationReport:
    """Explore every reachable record of a machine; raise for failed claims.

    Besides the claims of the table (`Always`, `Across`) and of the environment, it checks that ended records
    stay as they are, that every state of the table can be reached, and that from every state an end or a
    state of rest can be reached.
    """
    model = LifecycleModel(machine, environment or Lifecycle())
    report = check(model, most=model.environment.most)
    if not report.complete and not report.violations:
        raise LifecycleBroken(
            f"The {machine.name} has more than {model.environment.most} things: "
            "bound its data with `only`, or allow more with `most`."
        )
    if report.violations:
        raise LifecycleBroken(_summary(report))
    return report


class LifecycleModel:
    """A model of one record of a machine, with every event at any moment."""

    def __init__(self, machine: AnyMachine, environment: Lifecycle) -> None:
        self.machine = machine
        self.name: str = machine.name
        self.environment = environment
        self.events: list[Event] = [*environment.events, *_without_payload(machine, environment.events)]
        ends = machine.terminal | machine.resting
        self.claims: Sequence[ModelClaim] = [
            always("each step keeps the claims of the table"),
            always("a terminal state never changes"),
            always("the claims of the table hold", lambda here: not machine.broken(here.state, here.data)),
            *(sometimes(f"{state} is reached", _is_in(state)) for state in machine.states),
            eventually("an end or a state of rest is reached", lambda h: h.state in ends or self._is_cut(h)),
            *environment.claims,
            *(always(answer.claim) for answer in environment.answers),
        ]
        first = len(self.claims) - len(environment.answers)
        self._answers = [(bit(first + n), answer.holds) for n, answer in enumerate(environment.answers)]
        self._look = look_with(self.claims)

    def initial(self) -> Any:
        """Return a new record; or, with several starts, the choice between them."""
        if self.environment.starts:
            return _CHOICE
        return Here(self.machine.initial, self.environment.data)

    def canonical(self, state: Here) -> Here:
        """Return the state itself; a record has no names to normalise."""
        return state

    def look(self, state: Any) -> int:
        """Return the bits of the claims.

        A step that breaks one leads to a state of its own.
        """
        return state if isinstance(state, int) else 0 if state is _CHOICE else self._look(state)

    def steps(self, state: Any) -> list[ModelStep]:
        """Return the steps of every event, accepted or refused."""
        if isinstance(state, int):
            return []
        if state is _CHOICE:
            known = (self.environment.data, *self.environment.starts)
            return [(data, Here(self.machine.initial, data), 0) for data in known]
        if self._is_cut(state):
            return []
        found: list[ModelStep] = []
        for event in self.events:
            decision = self.machine.decide(state.state, state.data, event)
            after = Here(decision.state, decision.data) if isinstance(decision, Moved) else None
            broken = self._broken(state, event, after)
            if after is not None or broken:
                found.append(((event, decision), broken or after, 0))
        return found

    def _is_cut(self, here: Here) -> bool:
        """Return whether the exploration stops at this state."""
        only = self.environment.only
        return only is not None and not only(here.data)

    def _broken(self, before: Here, event: Event, after: Here | None) -> int:
        broken = sum(its_bit for its_bit, holds in self._answers if not holds(before, event, after))
        return broken or (0 if after is None else self._broken_step(before, after))

    def _broken_step(self, before: Here, after: Here) -> int:
        if self.machine.broken_across(*before, *after):
            return bit(0)
        leaves = before.state in self.machine.terminal and after.state != before.state
        rows = self.machine.table.rows
        meant = any(row.leaves_terminal and before.state in row.sources for row in rows)
        return bit(1) if leaves and not meant else 0

    def tell(self, done: Any, before: Any, after: Any) -> list[str]:  # noqa: ARG002 - the decision is enough
        """Return the event, and the rows that it takes."""
        if before is _CHOICE:
            return [f"It begins with {done}"]
        event, decision = done
        if not isinstance(decision, Moved):
            return [f"{event.name} ({event.kind}, by {event.by})", f"  {decision.sentence}"]
        steps = [f"  {step.source} → {step.target}: {step.why}" for step in decision.steps]
        return [f"{event.name} ({event.kind}, by {event.by})", *steps, f"  now {decision.data}"]


def _without_payload(machine: AnyMachine, given: Sequence[Event]) -> list[Event]:
    known = {type(event) for event in given}
    missing = [event for event in machine.events if event not in known]
    loaded = [event.name for event in missing if payload_of(event)]
    if loaded:
        raise InvalidSettings(
            f"{', '.join(loaded)} of {machine.name} carry data, and no example of them is given.",
            todo="Give at least one of each in `events`.",
            facts={"machine": machine.name, "events": loaded},
        )
    return [event() for event in missing]


def _is_in(state: Any) -> Callable[[Here], bool]:
    return lambda here: bool(here.state == state)


def _summary(report: ExplorationReport) -> str:
    first = report.violations[0]
    lines = [f"{report.model}: not {first.mode}: {first.claim}"]
    for number, step in enumerate(first.story, 1):
        lines += [f"{number:>3}. {step[0]}", *(f"     {line}" for line in step[1:])]
    return "\n".join(lines)


__all__ = [
    "Answer",
    "Here",
    "Lifecycle",
    "LifecycleBroken",
    "always",
    "check_lifecycle",
    "eventually",
    "must",
    "sometimes",
]
