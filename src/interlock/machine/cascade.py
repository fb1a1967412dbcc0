"""Carry out an event: decide by the table, set the timer, and follow the couplings to the end.

A `Cascade` is the working copy of machines that change together: the record of a job with its attempts
and leases, or a worker process with its tasks. Each machine in it is a *part*, an object with `state`,
`data` and `timer_at`. A part may belong to another one, its *owner* (a lease to its attempt).

Its `Wiring` has a route for each receiver of a coupling:

    to(MACHINE, find)    send the event to the part that `find` returns
    each(MACHINE, find)  send it to each of the parts that `find` returns
    create(make)         `make` creates the new part
    order(carry)         `carry` records an order to other records, for the commit
    outward()            another record: the coupling and its step are collected in `outward`
    elsewhere(deliverer) another wiring delivers the coupling: it learns of the step in another way

The key of a route is its receiver, or (receiver, event) if events have different routes.

Couplings that another wiring delivers name it as their *deliverer* (`Couplings.delivered_by`). The wiring of
the cause must name the same one, and the deliverer must have a route for each of them.

A coupling without a route, a timer without a duration and an event that is never sent are faults, and a
wiring with faults cannot be made. This module knows no lifecycle, clock or store.

A cascade of a record collects its steps for the journal, and sets the one timer of each part. One that is
`in_memory` reports each step and carries out its effects at once, and its parts may have several timers.

Why: decisions 0119, 0375 and 0605.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any, ClassVar, Protocol, TypeAlias

import msgspec

from interlock.errors import MalformedCouplings
from interlock.machine.check import running_deadlines, unknown_settings
from interlock.machine.couplings import AnyMachine, Condition, Coupling, Couplings, Fact
from interlock.machine.decision import Moved, Refused, Step
from interlock.machine.events import Event, EventRef, Kind, payload_of, type_of
from interlock.machine.table import Deadline
from interlock.text import counted

_MOST = 4_096
"""Maximum size of each cache: tables have fewer steps, but tests create tables."""

StepsTaken: TypeAlias = tuple[Step[Any], ...]
Timers: TypeAlias = tuple[Deadline, ...]
Refusal: TypeAlias = Refused[Any] | None
Owner: TypeAlias = Any
"""The part that another one belongs to; None for a part without an owner."""


class Part(Protocol):
    """One machine of a cascade."""

    state: Any
    data: Any

    @property
    def timer_at(self) -> datetime | None:
        """The time at which its timer expires; None while none is running."""
        ...


class Root(msgspec.Struct, eq=False):
    """A single part, with its data."""

    state: Any
    data: Any = None
    timer_at: datetime | None = None


class RootOf:
    """A single part, whose data are a field of the body of its record."""

    __slots__ = ("body", "state", "timer_at")

    def __init__(self, state: Any, body: Any, timer_at: datetime | None = None) -> None:
        self.state: Any = state
        self.body: Any = body
        self.timer_at: datetime | None = timer_at

    @property
    def data(self) -> Any:
        """The data in the body."""
        return self.body.data

    @data.setter
    def data(self, data: Any) -> None:
        self.body.data = data


Find: TypeAlias = Callable[[Any, Owner], Any]
"""Maps a cascade and the owner of the part that stepped to another part of that owner, or None."""
FindEach: TypeAlias = Callable[[Any, Owner], Iterable[tuple[Any, Owner]]]
"""Maps to several parts, each with its owner."""
Make: TypeAlias = Callable[[Any, Owner], None]
MakeEvent: TypeAlias = Callable[[Any, Owner], Event]


class CouplingRoute(msgspec.Struct, frozen=True):
    """The route to a receiver; made with `to`, `create`, `outward` or `elsewhere`."""

    machine: Any = None
    find: Find | None = None
    find_each: FindEach | None = None
    make: Make | None = None
    carry: Make | None = None
    is_outward: bool = False
    judged_there: bool = False
    deliverer: str = ""


def to(machine: AnyMachine, find: Find, *, create: Make | None = None) -> CouplingRoute:
    """Send the event to the part that `find` returns, or `create` it."""
    return CouplingRoute(machine, find, make=create)


def each(machine: AnyMachine, find: FindEach) -> CouplingRoute:
    """Send the event to each of the parts that `find` returns."""
    return CouplingRoute(machine, find_each=find)


def create(make: Make) -> CouplingRoute:
    """Create the new part with `make`."""
    return CouplingRoute(make=make)


def order(carry: Make) -> CouplingRoute:
    """Record an order by `carry` to other records, for this record's commit."""
    return CouplingRoute(carry=carry)


def outward(*, judged_there: bool = False) -> CouplingRoute:
    """Collect the coupling for a message to another record.

    With `judged_there` its conditions are about that record, and evaluated by the coupling's deliverer.
    """
    return CouplingRoute(is_outward=True, judged_there=judged_there)


def elsewhere(deliverer: str) -> CouplingRoute:
    """Leave the coupling to a wiring that learns of the step otherwise."""
    return CouplingRoute(deliverer=deliverer)


class Consequence:
    """A coupling, ready to be carried out."""

    __slots__ = ("conditions", "coupling", "deliver")

    def __init__(
        self, coupling: Coupling[Any], route: CouplingRoute, deliver: Callable[[Any, Owner], None]
    ) -> None:
        self.coupling: Coupling[Any] = coupling
        self.conditions: tuple[tuple[Condition[Any], bool], ...] = tuple(
            (attrgetter(each.fact), each.holds) if isinstance(each, Fact) else (each, True)
            for each in (() if route.judged_there else coupling.when)
        )
        """Each condition with the answer that is needed; that of a fact only reads it."""
        self.deliver: Callable[[Any, Owner], None] = deliver


class StepEffects:
    """The effects of the steps of one decision, independent of the part. Computed once."""

    __slots__ = ("arms", "consequences", "is_news", "lines", "machine", "named", "steps", "timers")

    def __init__(self, wiring: Wiring, machine: AnyMachine, steps: StepsTaken) -> None:
        self.machine: AnyMachine = machine
        self.steps: StepsTaken = steps
        self.named: bool = machine is not wiring.root
        self.arms: str | None = None
        """The duration of the timer of the part that starts; "" if it ends, None if it keeps running."""
        self.timers: tuple[Timers, Timers] = ((), ())
        """For parts in memory: the timers that the steps stop, if they run, and those that they start."""
        if machine not in wiring.own_timers:
            self._look_for_timers(machine)
        self.is_news: bool = any(step.moves or step.event not in wiring.quiet for step in steps)
        parts = ((wiring.noted(machine, step), wiring.consequences(step)) for step in steps)
        self.consequences: tuple[tuple[Step[Any] | None, tuple[Consequence, ...]], ...] = tuple(
            filter(any, parts)
        )
        """For each step with effects: the step, if `entered` is to be called, and its possible
        consequences.
        """
        self.lines: dict[str, Any] = {}
        """Journal lines, by the name of the part."""

    def _look_for_timers(self, machine: AnyMachine) -> None:
        """Find the timers of the steps; a part with only one has the last."""
        ended, started = dict[Deadline, None](), dict[Deadline, None]()
        for step in self.steps:
            # A deadline that two adjacent states share keeps running; any other ends with its state.
            kept = machine.table.entry(step.target).within
            if step.arms or (step.moves and kept is None):
                self.arms = step.arms[0].setting if step.arms else ""
            for place, deadline in running_deadlines(machine.table) if step.moves else ():
                if place == step.source and deadline != kept:
                    ended[deadline] = None
                    started.pop(deadline, None)
            started.update(dict.fromkeys(step.arms))
        self.timers = tuple(ended), tuple(started)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRules:
    """Rules for single events of a cascade."""

    made: Mapping[type[Event], MakeEvent] = field(default_factory=dict)
    """Constructors of events with data."""
    quiet: Collection[type[Event] | Event] = ()
    """Events that alone are not journalled."""
    sent: Collection[type[Event] | Event] = ()
    """Consequences that the system sends itself, without a coupling."""


_PLAIN = EventRules()


class Wiring:
    """The machines of a cascade, and the routes to the receivers of their couplings."""

    def __init__(
        self,
        machines: tuple[AnyMachine, ...],
        couplings: Couplings[Any] | tuple[Couplings[Any], ...],
        routes: Mapping[str | tuple[str, EventRef], CouplingRoute],
        *,
        deliverer: str = "",
        events: EventRules = _PLAIN,
        own_timers: Collection[AnyMachine] = (),
        notes: Mapping[AnyMachine, Collection[Any | tuple[Any, EventRef]]] | None = None,
        durations: Collection[str] | None = None,
    ) -> None:
        """Declare a cascade.

        `machines`: the root first. `deliverer`: its name among the deliverers of the couplings, if steps of
        machines elsewhere reach this cascade. `own_timers`: machines whose data determine when they end.
        `notes`: states, or (state, event) for one event, on whose entry `entered` is called. `durations`:
        the names of all durations, to check the timers.
        """
        self.machines = machines
        self.root: AnyMachine = machines[0]
        self.couplings: tuple[Couplings[Any], ...] | tuple[Couplings[Any]] = (
            couplings if isinstance(couplings, tuple) else (couplings,)
        )
        self.routes: dict[str | tuple[str, type[Event]], CouplingRoute] = {
            key if isinstance(key, str) else (key[0], type_of(key[1])): route for key, route in routes.items()
        }
        self.deliverer: str = deliverer
        self.own_timers: frozenset[AnyMachine] = frozenset(own_timers)
        self.quiet: frozenset[str] = frozenset(type_of(event).name for event in events.quiet)
        self._sends = frozenset(type_of(event) for event in events.sent)
        self._notes = {machine: frozenset(map(_note, noted)) for machine, noted in (notes or {}).items()}
        self._events = dict(events.made)
        self.known: dict[int, StepEffects] = {}
        """Cached effects of steps, by their identity."""
        for each_list in self.couplings:
            each_list.memos.append(self.known)
        if faults := [*self._faults(durations)]:
            raise MalformedCouplings(
                f"The wiring of {self.root.name!r} has {counted(len(faults), 'fault')}.\n"
                + "\n".join(f"  {fault}" for fault in faults),
                todo="Mend every fault above.",
                facts={"wiring": self.root.name, "faults": faults},
            )

    def effects_of(self, machine: AnyMachine, steps: StepsTaken) -> StepEffects:
        """Return the effects of these steps, cached, as tables share steps."""
        known = self.known.get(id(steps))
        if known is None or known.steps is not steps:
            known = StepEffects(self, machine, steps)
            if len(self.known) < _MOST:
                self.known[id(steps)] = known
        return known

    def consequences(self, step: Step[Any]) -> tuple[Consequence, ...]:
        """Return the possible consequences of a step that are delivered here."""
        found = []
        for each_list in self.couplings:
            for coupling in each_list.caused_by(step):
                route = self._route(coupling) if self._delivers(each_list, coupling) else None
                if route is not None and not route.deliverer:
                    found.append(Consequence(coupling, route, self._delivery(coupling, route, step)))
        return tuple(found)

    def _delivers(self, couplings: Couplings[Any], coupling: Coupling[Any]) -> bool:
        return coupling.cause in self.machines or (
            self.deliverer != "" and _deliverer_of(couplings, coupling) == self.deliverer
        )

    def _route(self, coupling: Coupling[Any]) -> CouplingRoute | None:
        own = None if coupling.event is None else self.routes.get((coupling.to, coupling.event))
        return own or self.routes.get(coupling.to)

    def noted(self, machine: AnyMachine, step: Step[Any]) -> Step[Any] | None:
        """Return the step if `entered` is to be called for it."""
        notes = self._notes.get(machine)
        if notes is None or not step.moves:
            return None
        return step if step.target in notes or (step.target, step.event) in notes else None

    def event_for(self, event: type[Event]) -> MakeEvent:
        """Return the constructor of an event, or a constant one without data."""
        made = self._events.get(event)
        if made is not None:
            return made
        same = event()
        return lambda _, __: same

    def _delivery(
        self, coupling: Coupling[Any], route: CouplingRoute, step: Step[Any]
    ) -> Callable[[Any, Owner], None]:
        if route.is_outward:
            gathered = coupling, step
            return lambda cascade, _: cascade.outward.append(gathered)
        if route.carry is not None:
            return route.carry
        if coupling.event is None:
            assert route.make is not None
            return route.make
        machine, find, find_each = route.machine, route.find, route.find_each
        make = self.event_for(coupling.event)

        # A consequence that its receiver refuses or ignores has no effect: its table says so.

        def deliver(cascade: Cascade, owner: Owner) -> None:
            part = find(cascade, owner)  # type: ignore[misc]
            if part is not None:
                cascade.take(machine, part, make(cascade, owner), owner)

        def deliver_each(cascade: Cascade, owner: Owner) -> None:
            for part, its_owner in find_each(cascade, owner):  # type: ignore[misc]
                cascade.take(machine, part, make(cascade, its_owner), its_owner)

        return deliver if find is not None else deliver_each

    # Faults

    def _faults(self, durations: Collection[str] | None) -> Iterator[str]:
        for each_list in self.couplings:
            for coupling in each_list:
                if self._delivers(each_list, coupling):
                    yield from self._unrouted(coupling)
                    yield from self._abandoned(each_list, coupling)
        names = {name for each_list in self.couplings for name in each_list.delivered_by.values()}
        if self.deliverer and self.deliverer not in names:
            yield f"no coupling names “{self.deliverer}” as its deliverer"
        sent = {(coupling.to, coupling.event) for coupling in chain.from_iterable(self.couplings)}
        for key in self.routes:
            if not isinstance(key, str) and key not in sent:
                yield f"there is a route to “{key[0]}” for {key[1].name}, which no coupling sends there"
        for machine in self.machines:
            for setting in unknown_settings(machine.table, durations):
                yield f"the {machine.name} has a timer of {setting}, and there is no such duration"
            yield from self._unsent(machine)

    def _unrouted(self, coupling: Coupling[Any]) -> Iterator[str]:
        route = self._route(coupling)
        if route is None:
            yield f"“{coupling.sentence}”: there is no route to “{coupling.to}”"
        elif route.is_outward or route.deliverer or route.carry is not None:
            return
        elif coupling.event is None:
            if route.make is None:
                yield f"“{coupling.sentence}”: the route to “{coupling.to}” creates nothing"
        elif route.machine is not coupling.effect:
            yield f"“{coupling.sentence}”: the route to “{coupling.to}” leads to no {coupling.effect.name}"
        elif coupling.event not in self._events and payload_of(coupling.event):
            yield f"“{coupling.sentence}”: there is no maker of {coupling.event.name}"

    def _abandoned(self, couplings: Couplings[Any], coupling: Coupling[Any]) -> Iterator[str]:
        """Find couplings that each of two wirings leaves to the other."""
        route, deliverer = self._route(coupling), _deliverer_of(couplings, coupling)
        if route is None:
            return
        if coupling.cause not in self.machines:
            if route.deliverer:
                yield f"“{coupling.sentence}” is delivered here, and its route leads to “{route.deliverer}”"
        elif route.deliverer and route.deliverer != deliverer:
            yield f"“{coupling.sentence}”: its deliverer is not “{route.deliverer}”"
        elif route.judged_there and not deliverer:
            yield f"“{coupling.sentence}”: no deliverer evaluates its conditions"

    def _unsent(self, machine: AnyMachine) -> Iterator[str]:
        """Yield consequences that nothing sends, and timers that never fire."""
        sent = {
            coupling.event for coupling in chain.from_iterable(self.couplings) if coupling.effect is machine
        } | self._sends
        fired = {type_of(deadline.event) for deadline in deadlines_of(machine)}
        for event in machine.events:
            if event.kind is Kind.CONSEQUENCE and event not in sent and event not in fired:
                if not any(type_of(row.first) is event for row in machine.table.rows if row.first):
                    yield f"no coupling sends {event.name} to a {machine.name}"
            elif event.kind is Kind.TIMER and event not in fired and event not in sent:
                yield f"no deadline of the {machine.name} fires {event.name}"


def _deliverer_of(couplings: Couplings[Any], coupling: Coupling[Any]) -> str:
    """Return the wiring that delivers a coupling; "" for that of its cause."""
    return couplings.delivered_by.get((coupling.cause, coupling.to), "")


def _note(noted: Any) -> Any:
    """Return a state, or a state with the name of its event."""
    return (noted[0], type_of(noted[1]).name) if isinstance(noted, tuple) else noted


def deadlines_of(machine: AnyMachine) -> Iterator[Deadline]:
    """Return the deadlines of a table: of its states, and armed by its rows."""
    for entry in machine.table.states:
        if entry.within is not None:
            yield entry.within
    for row in machine.table.rows:
        yield from row.arms


class Cascade(ABC):
    """The working copy of machines that change together."""

    __slots__ = ("_waiting", "is_news", "now", "outward", "taken")
    wiring: ClassVar[Wiring]
    in_memory: ClassVar[bool] = False
    """Whether its parts live in this process, instead of in a record."""
    is_reported: bool = True
    """Whether its steps are reported, if it is in memory."""

    def __init__(self, now: datetime) -> None:
        self.now: datetime = now
        self.taken: list[tuple[Owner, StepEffects]] = []
        """The decisions in order, each with the owner of the part."""
        self.is_news: bool = False
        self.outward: list[tuple[Coupling[Any], Step[Any]]] = []
        """Consequences for other records, each with its cause."""
        self._waiting: list[tuple[Consequence, Owner]] = []

    # Interface of subclasses

    @abstractmethod
    def parts(self) -> Iterable[tuple[AnyMachine, Any, Owner]]:
        """Return every part that may have a timer, with its machine and its owner."""

    def facts(self, owner: Owner) -> Any:  # noqa: ARG002 - a cascade without conditions has none
        """Return the facts for couplings, as this owner's part sees them."""
        return None

    @abstractmethod
    def seconds(self, setting: str) -> float:
        """Return how long a timer runs."""

    def name_of(self, owner: Owner) -> str:  # noqa: ARG002 - most have only a root
        """Return the name of a part of `owner` in the journal."""
        return ""

    def entered(self, step: Step[Any], owner: Owner) -> None:  # noqa: B027 - only some have notes
        """Record data of the new state; called for states in `Wiring.notes`."""

    def timer_event(self, within: Deadline, owner: Owner) -> Event:
        """Return the event of an expired timer."""
        return self.wiring.event_for(type_of(within.event))(self, owner)

    # Interface of subclasses in memory

    def report(self, effects: StepEffects, owner: Owner) -> None:  # noqa: B027 - records have a journal
        """Report steps to log and metrics."""

    def report_refusal(self, refused: Refused[Any], owner: Owner) -> None:  # noqa: B027
        """Report an event that the table has refused or ignored."""

    def carry_out(self, effect: object, owner: Owner) -> None:  # noqa: B027
        """Carry out an effect of a row."""

    def set_timers(self, ended: Timers, started: Timers, owner: Owner) -> None:  # noqa: B027
        """Stop timers, as far as they run, and start others."""

    # Operations

    def send_to(self, machine: AnyMachine, part: Part, event: Event, owner: Owner = None) -> Refusal:
        """Send an event, follow the consequences, and return any refusal."""
        refused = self.take(machine, part, event, owner)
        if self._waiting:
            self.settle()
        return refused

    def take(self, machine: AnyMachine, part: Part, event: Event, owner: Owner) -> Refusal:
        """Let the table decide about one part. Consequences wait for `settle`."""
        decision = machine.decide(part.state, part.data, event)
        if not isinstance(decision, Moved):
            if self.in_memory:
                self.report_refusal(decision, owner)
            return decision
        part.state, part.data = decision.state, decision.data
        steps = decision.steps
        effects = self.wiring.known.get(id(steps))
        if effects is None or effects.steps is not steps:
            effects = self.wiring.effects_of(machine, steps)
        if self.in_memory:
            self._apply(effects, decision.effects, owner)
        else:
            self.taken.append((owner, effects))
            if effects.is_news:
                self.is_news = True
            if effects.arms is not None:
                seconds = self.seconds(effects.arms) if effects.arms else math.inf
                part.timer_at = None if seconds == math.inf else self.now + timedelta(seconds=seconds)  # type: ignore[misc]
        if effects.consequences:
            self._follow(effects, owner)
        return None

    def _apply(self, effects: StepEffects, emitted: tuple[object, ...], owner: Owner) -> None:
        """Report steps in memory, set timers, and carry out the effects of rows."""
        if self.is_reported:
            self.report(effects, owner)
        ended, started = effects.timers
        if ended or started:
            self.set_timers(ended, started, owner)
        for effect in emitted:
            self.carry_out(effect, owner)

    def follow_step(self, machine: AnyMachine, step: Step[Any], owner: Owner) -> None:
        """Follow the consequences of a step of a machine elsewhere."""
        self._follow(self.wiring.effects_of(machine, _as_steps(step)), owner)
        self.settle()

    def arm(self, machine: AnyMachine, part: Any, since: datetime | None = None) -> None:
        """Start the timer of a part's state, for a new or reloaded part.

        It runs from now on, or since another time.
        """
        within = machine.table.entry(part.state).within
        seconds = math.inf if within is None else self.seconds(within.setting)
        part.timer_at = None if seconds == math.inf else (since or self.now) + timedelta(seconds=seconds)

    def has_entered(self, states: Collection[Any]) -> bool:
        """Return whether a step of the root has led to one of these states."""
        root = self.wiring.root
        for _, effects in self.taken:
            if effects.machine is root:
                for step in effects.steps:
                    if step.moves and step.target in states:
                        return True
        return False

    def settle(self) -> None:
        """Carry out waiting consequences, and theirs, in order."""
        while self._waiting:
            waiting, self._waiting = self._waiting, []  # further consequences wait for those before them
            for consequence, owner in waiting:
                consequence.deliver(self, owner)

    def fire_due(self) -> None:
        """Send the events of all expired timers, the earliest first."""
        while due := min(
            ((at, order) for order, at in enumerate(self._timers()) if at is not None and at <= self.now),
            default=None,
        ):
            machine, part, owner = list(self.parts())[due[1]]
            within = machine.table.entry(part.state).within
            if machine not in self.wiring.own_timers:
                part.timer_at = None
            before = len(self.taken)
            if within is not None:
                self.send_to(machine, part, self.timer_event(within, owner), owner)
            if len(self.taken) == before and part.timer_at is not None:
                return  # the table ignores it: avoid an endless loop

    @property
    def deadline_at(self) -> datetime | None:
        """The time at which the next of its timers expires."""
        return min((at for at in self._timers() if at is not None), default=None)

    def _timers(self) -> list[datetime | None]:
        return [part.timer_at for _, part, _ in self.parts()]

    def _follow(self, effects: StepEffects, owner: Owner) -> None:
        for step, consequences in effects.consequences:
            if step is not None:
                self.entered(step, owner)
            for consequence in consequences:
                facts = self.facts(owner) if consequence.conditions else None
                for condition, needed in consequence.conditions:
                    if bool(condition(facts)) is not needed:
                        break
                else:
                    self._waiting.append((consequence, owner))


@lru_cache(maxsize=_MOST)
def _as_steps(step: Step[Any]) -> StepsTaken:
    return (step,)
