"""Couplings: how the moves of one machine become events of another.

A coupling says: when *this* machine enters one of these states (or, `holding`, accepts one of these events
and stays there), and these conditions hold, then send *that* event to *that* machine's record, or create one.
They are data, so they can be listed, drawn and explored, and no consequence is hidden in code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from interlock.errors import MalformedCouplings
from interlock.machine.blueprint import Blueprint, StateSheet, TransitionSheet
from interlock.machine.decision import Step
from interlock.machine.events import Event, EventRef, type_of
from interlock.machine.machine import Machine
from interlock.text import counted

C = TypeVar("C")
"""The type of the facts for conditions, beyond the step itself."""

_MOST_STEPS = 4_096
"""More than all tables have; bounds the cache for steps created elsewhere."""

Condition: TypeAlias = Callable[[C], bool]
AnyMachine: TypeAlias = Machine[Any, Any]


@dataclass(frozen=True, slots=True)
class Fact:
    """A condition that one of the facts holds, or that it does not; a cascade reads it without a call."""

    name: str
    sentence: str
    fact: str
    """The name of the fact."""
    holds: bool = True

    @property
    def __name__(self) -> str:
        """The name, like that of a function."""
        return self.name

    def __call__(self, circumstances: object) -> bool:
        """Return whether the condition is met."""
        return bool(getattr(circumstances, self.fact)) is self.holds


@dataclass(frozen=True, slots=True)
class Coupling(Generic[C]):
    """One consequence. `to` names the record of the other machine."""

    cause: AnyMachine
    into: tuple[Any, ...]
    effect: AnyMachine
    event: type[Event] | None
    """The event to send; None creates a new record in its initial state."""
    to: str
    why: str
    by: tuple[type[Event], ...] = ()
    out_of: tuple[Any, ...] = ()
    when: tuple[Condition[C], ...] = ()
    holding: bool = False

    @property
    def sentence(self) -> str:
        """The coupling in words."""
        by = f" by {_listed(event.name for event in self.by)}" if self.by else ""
        out_of = f" out of {_listed(self.out_of)}" if self.out_of else ""
        verb = "stays" if self.holding else "enters"
        when = f", if {' and '.join(_words_of(condition) for condition in self.when)}" if self.when else ""
        what = f"create {self.to}" if self.event is None else f"send {self.event.name} to {self.to}"
        return f"{self.cause.name} {verb} {_listed(self.into)}{out_of}{by}{when}: {what}"

    def may_follow(self, step: Step[Any]) -> bool:
        """Return whether this step can have this consequence."""
        return (
            step.machine == self.cause.name
            and step.moves is not self.holding
            and step.target in self.into
            and (not self.by or step.event in {event.name for event in self.by})
            and (not self.out_of or step.source in self.out_of)
        )

    def follows(self, step: Step[Any], circumstances: C) -> bool:
        """Return whether this step has this consequence, under these facts."""
        return self.may_follow(step) and self.holds(circumstances)

    def holds(self, circumstances: C) -> bool:
        """Return whether its conditions hold."""
        for condition in self.when:  # noqa: SIM110 - a generator would cost more than most conditions
            if not condition(circumstances):
                return False
        return True


def couple(
    cause: AnyMachine,
    into: Any,
    effect: AnyMachine,
    event: EventRef | None,
    *,
    to: str,
    why: str,
    by: EventRef | tuple[EventRef, ...] = (),
    out_of: Any = (),
    when: Condition[C] | tuple[Condition[C], ...] = (),
    holding: bool = False,
) -> Coupling[C]:
    """Couple: when `cause` enters `into`, send `event` or create an `effect`."""
    return Coupling(
        cause,
        into if isinstance(into, tuple) else (into,),
        effect,
        None if event is None else type_of(event),
        to,
        why,
        tuple(type_of(ref) for ref in (by if isinstance(by, tuple) else (by,))),
        out_of if isinstance(out_of, tuple) else (out_of,),
        when if isinstance(when, tuple) else (when,),
        holding,
    )


class Couplings(Generic[C]):
    """A checked list of couplings."""

    def __init__(
        self,
        couplings: Sequence[Coupling[C]],
        *,
        delivered_by: Mapping[tuple[AnyMachine, str], str] | None = None,
    ) -> None:
        """Declare couplings.

        `delivered_by`: for (cause, receiver), the wiring that delivers, if it is not the cause's own.
        """
        self.all: tuple[Coupling[C], ...] = tuple(couplings)
        self.delivered_by: dict[tuple[AnyMachine, str], str] = dict(delivered_by or {})
        self._caused: dict[int, tuple[Step[Any], tuple[Coupling[C], ...]]] = {}
        self.memos: list[dict[int, Any]] = [self._caused]
        """Caches of these couplings, by the identity of steps."""
        if faults := [fault for coupling in self.all for fault in _faults(coupling)] + [*self._undelivered()]:
            raise MalformedCouplings(
                f"The couplings have {counted(len(faults), 'fault')}.\n"
                + "\n".join(f"  {fault}" for fault in faults),
                todo="Mend every fault above.",
                facts={"faults": faults},
            )

    def __iter__(self) -> Iterator[Coupling[C]]:
        return iter(self.all)

    def _undelivered(self) -> Iterator[str]:
        known = {(coupling.cause, coupling.to) for coupling in self.all}
        for cause, to in self.delivered_by.keys() - known:
            yield f"“{to}” of a {cause.name} has a deliverer, and there is no such coupling"

    def exchange(self, couplings: tuple[Coupling[C], ...]) -> None:
        """Replace the couplings and clear the caches.

        Verification breaks one coupling at a time.
        """
        self.all = couplings
        for memo in self.memos:
            memo.clear()

    def after(self, step: Step[Any], circumstances: C) -> tuple[Coupling[C], ...]:
        """Return the consequences of one step, in the order of the list."""
        return tuple([c for c in self.caused_by(step) if not c.when or c.holds(circumstances)])

    def caused_by(self, step: Step[Any]) -> tuple[Coupling[C], ...]:
        """Return the possible consequences of a step, cached for its table."""
        known = self._caused.get(id(step))
        if known is None or known[0] is not step:
            known = (step, tuple(coupling for coupling in self.all if coupling.may_follow(step)))
            if len(self._caused) < _MOST_STEPS:
                self._caused[id(step)] = known
        return known[1]


def map_of(couplings: Couplings[Any], *, name: str, doc: str, spine: Sequence[AnyMachine]) -> Blueprint:
    """Return the couplings as a blueprint to draw.

    Each machine is a state, and each consequence is a transition. The spine gives the direction: consequences
    along it are intent, those against it are facts.
    """
    machines = list(dict.fromkeys((*spine, *(m for c in couplings for m in (c.cause, c.effect)))))
    place = {machine.name: number for number, machine in enumerate(machines)}

    def way(coupling: Coupling[Any]) -> TransitionSheet:
        event = "create" if coupling.event is None else coupling.event.name
        source, target = coupling.cause.name, coupling.effect.name
        if source == target:
            return TransitionSheet(event, source, target, "itself")
        return TransitionSheet(event, source, target, "intent" if place[target] > place[source] else "fact")

    return Blueprint(
        machine=name,
        initial=machines[0].name,
        states=tuple(StateSheet(machine.name, terminal=False, doc=machine.table.doc) for machine in machines),
        transitions=tuple(dict.fromkeys(way(coupling) for coupling in couplings)),
        doc=doc,
        spine=tuple(machine.name for machine in spine),
    )


def _faults(coupling: Coupling[Any]) -> Iterator[str]:
    """Yield the faults of a coupling.

    These are missing names, an impossible cause, or an unhandled event.
    """
    yield from (
        f"“{coupling.sentence}”: {fault}" for fault in (*_bad_cause(coupling), *_bad_effect(coupling))
    )
    if not coupling.why.strip():
        yield f"“{coupling.sentence}” has no reason"


def _bad_cause(coupling: Coupling[Any]) -> Iterator[str]:
    cause = coupling.cause
    states, events = ", ".join(cause.states), ", ".join(event.name for event in cause.events)
    strange = [name for name in (*coupling.into, *coupling.out_of) if name not in cause.states]
    strangers = [f"{cause.name} has no state {str(name)!r}, but {states}" for name in strange]
    unheard = [event.name for event in coupling.by if event not in cause.events]
    strangers += [f"{cause.name} has no event {name!r}, but {events}" for name in unheard]
    yield from strangers
    steps = (step for name in cause.states for step in cause.steps_at(name))
    if not strangers and not any(coupling.may_follow(step) for step in steps):
        yield f"no row of {cause.name} can ever cause it"


def _bad_effect(coupling: Coupling[Any]) -> Iterator[str]:
    effect, event = coupling.effect, coupling.event
    if event is None:
        return
    if event not in effect.events:
        known = ", ".join(known.name for known in effect.events)
        yield f"{effect.name} has no event {event.name!r}, but {known}"
        return
    undecided = [str(name) for name in effect.states if not effect.table.rows_at(name, event)]
    if undecided:
        yield f"{effect.name} does not say what {event.name} does in {', '.join(undecided)}"


def _listed(names: Any) -> str:
    return " or ".join(str(name) for name in names)


def _words_of(condition: Condition[Any]) -> str:
    if isinstance(condition, Fact):
        return condition.sentence
    return " ".join((condition.__doc__ or condition.__name__).split()).rstrip(".")
