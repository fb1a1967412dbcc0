"""The words in which a table is written, and the names in it.

A table is a list of states (`state`, `rest`, `end`) and a list of rows:

    on      an event moves the machine from any of its sources to one target; with the target
            STAY it is accepted and may change data, but is no transition
    walk    an event takes the machine through another event first, in the same decision
    ignore  an event deliberately does nothing here, and this is why
    refuse  an event is refused here, and this is why

Rows are tried in order, the first whose guards hold is taken. Guards, updates and effects are
ordinary functions of the data and the event, so mypy checks them; no string is ever evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Any, Generic, TypeAlias, TypeVar, overload

from interlock.machine.events import E, Event, EventRef, Kind, type_of


def fold_name(name: str) -> str:
    """One form for all spellings: any case, dashes or underscores, one l or two in cancel(l)ed."""
    return name.casefold().replace("-", "_").replace("cancelled", "canceled")


def name_of(function: Callable[..., object]) -> str:
    """What a guard, an update or an effect is called."""
    return getattr(function, "__name__", type(function).__name__)


S = TypeVar("S", bound=StrEnum)
D = TypeVar("D")

Guard: TypeAlias = Callable[[D, E], bool]
"""Whether a row may be taken. Its name and docstring are what a refused caller is told."""

Update: TypeAlias = Callable[[D, E], D]
"""The data after the row; the old data is never changed in place."""

Effect: TypeAlias = Callable[[D, E], object]
"""What the outside has to do once the decision is committed, as a value, from the new data."""

Sources: TypeAlias = S | tuple[S, ...]


@dataclass(frozen=True, slots=True)
class Deadline:
    """A limit to how long something may last. `setting` is the name users change it by."""

    event: EventRef
    setting: str
    seconds: float
    since: str = "entering the state"


class Rank(Enum):
    """What kind of place a state is."""

    ACTIVE = auto()  # something has to happen next
    RESTING = auto()  # may last for ever: the machine is at home
    TERMINAL = auto()  # the end: absorbs


class Tone(StrEnum):
    """How a state looks to people: every screen has one colour for each tone, and none for a state."""

    WAITING = "waiting"
    ACTIVE = "active"
    GOOD = "good"
    BAD = "bad"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class State(Generic[S]):
    """One state: what it means, who must move it on, and how long it may last."""

    name: S
    doc: str
    rank: Rank
    turn: str | None = None
    within: Deadline | None = None
    tone: Tone | None = None
    """Given where the table does not tell it; see `Table.tone`."""

    @property
    def terminal(self) -> bool:
        """Whether this is an end."""
        return self.rank is Rank.TERMINAL


def state(
    name: S, doc: str, *, turn: str | None = None, within: Deadline | None = None, tone: Tone | None = None
) -> State[S]:
    """A state that has to be left: `turn` says by whom, `within` by when."""
    return State(name, doc, Rank.ACTIVE, turn, within, tone)


def rest(name: S, doc: str, *, tone: Tone | None = None) -> State[S]:
    """A state that may last for ever although the machine can go on."""
    return State(name, doc, Rank.RESTING, tone=tone)


def end(name: S, doc: str, *, tone: Tone | None = None) -> State[S]:
    """A terminal state."""
    return State(name, doc, Rank.TERMINAL, tone=tone)


class Stay(Enum):
    """The target of a row that is accepted without a transition."""

    STAY = auto()


STAY = Stay.STAY


class Act(Enum):
    """What a row does with its event."""

    MOVE = auto()
    KEEP = auto()
    WALK = auto()
    IGNORE = auto()
    REFUSE = auto()

    @property
    def silent(self) -> bool:
        """Whether the event changes nothing at all."""
        return self in (Act.IGNORE, Act.REFUSE)


@dataclass(frozen=True, slots=True)
class Row(Generic[S, D]):
    """One row of a table; written with `on`, `walk`, `ignore` or `refuse`."""

    act: Act
    event: type[Event]
    sources: tuple[S, ...]
    why: str
    target: S | None = None
    owner: str = ""
    when: tuple[Callable[[D, Any], bool], ...] = ()
    then: Callable[[D, Any], D] | None = None
    emits: tuple[Callable[[D, Any], object], ...] = ()
    arms: tuple[Deadline, ...] = ()
    first: Event | None = None
    leaves_terminal: bool = False


@overload
def on(
    event: type[E],
    sources: Sources[S],
    target: S | Stay,
    *,
    owner: str,
    why: str,
    when: Guard[D, E] | tuple[Guard[D, E], ...] = ...,
    then: Update[D, E] | None = ...,
    emits: Effect[D, E] | tuple[Effect[D, E], ...] = ...,
    arms: Deadline | tuple[Deadline, ...] = ...,
    leaves_terminal: bool = ...,
) -> Row[S, D]: ...
@overload
def on(
    event: Event,
    sources: Sources[S],
    target: S | Stay,
    *,
    owner: str,
    why: str,
    when: Guard[D, Event] | tuple[Guard[D, Event], ...] = ...,
    then: Update[D, Event] | None = ...,
    emits: Effect[D, Event] | tuple[Effect[D, Event], ...] = ...,
    arms: Deadline | tuple[Deadline, ...] = ...,
    leaves_terminal: bool = ...,
) -> Row[S, D]: ...
def on(
    event: EventRef,
    sources: Sources[S],
    target: S | Stay,
    *,
    owner: str,
    why: str,
    when: Any = (),
    then: Any = None,
    emits: Any = (),
    arms: Deadline | tuple[Deadline, ...] = (),
    leaves_terminal: bool = False,
) -> Row[S, D]:
    """The event moves the machine from any of `sources` to `target`.

    Entering a state arms that state's own deadline, and `arms` adds others; a row that stays arms
    only what it names. `leaves_terminal` declares that leaving a terminal state is meant.
    """
    stays = isinstance(target, Stay)
    return Row(
        Act.KEEP if stays else Act.MOVE,
        type_of(event),
        _tuple(sources),
        why,
        target=None if stays else target,
        owner=owner,
        when=_tuple(when),
        then=then,
        emits=_tuple(emits),
        arms=_tuple(arms),
        leaves_terminal=leaves_terminal,
    )


def walk(event: EventRef, states: Sources[S], *, first: Event, why: str) -> Row[S, Any]:
    """In these states the event implies `first`: take that, then decide the event again."""
    return Row(Act.WALK, type_of(event), _tuple(states), why, first=first)


def ignore(event: EventRef, states: Sources[S], *, why: str) -> Row[S, Any]:
    """In these states the event deliberately does nothing."""
    return Row(Act.IGNORE, type_of(event), _tuple(states), why)


def refuse(event: EventRef, states: Sources[S], *, why: str) -> Row[S, Any]:
    """In these states the event is turned away, and the sender is told why."""
    return Row(Act.REFUSE, type_of(event), _tuple(states), why)


@dataclass(frozen=True, slots=True)
class Always(Generic[S, D]):
    """A claim about every moment: for each state and data that can be reached."""

    claim: str
    holds: Callable[[S, D], bool]


@dataclass(frozen=True, slots=True)
class Across(Generic[S, D]):
    """A claim about every step: the data before and after it."""

    claim: str
    holds: Callable[[S, D, S, D], bool]


@dataclass(frozen=True, slots=True)
class Table(Generic[S, D]):
    """A machine as it was written down, before anybody has checked it."""

    name: str
    doc: str
    initial: S
    states: Sequence[State[S]]
    rows: Sequence[Row[S, D]]
    stop: Sequence[EventRef] = ()
    spine: Sequence[S] = ()
    invariants: Sequence[Always[S, D] | Across[S, D]] = field(default=())

    @property
    def events(self) -> tuple[type[Event], ...]:
        """Every event the rows name, in the order of the table."""
        firsts = (type_of(row.first) for row in self.rows if row.first is not None)
        return tuple(dict.fromkeys((*(row.event for row in self.rows), *firsts)))

    def entry(self, name: S) -> State[S]:
        """What the table says about a state."""
        return next(entry for entry in self.states if entry.name == name)

    def tone(self, name: S) -> Tone:
        """Return how a state looks: as it was declared, or else by its place in the table."""
        entry = self.entry(name)
        if entry.tone is not None:
            return entry.tone
        return self._tone_of_end(name) if entry.terminal else self._tone_of_live(entry)

    def _tone_of_end(self, name: S) -> Tone:
        leads = {row.event for row in self.rows if row.act is Act.MOVE and row.target == name}
        stops = {type_of(event) for event in self.stop}
        if self.spine and name == self.spine[-1]:
            timers = {event for event in self.events if event.kind is Kind.TIMER}
            return Tone.STOPPED if leads <= timers | stops else Tone.GOOD
        return Tone.STOPPED if leads <= stops else Tone.BAD

    def _tone_of_live(self, entry: State[S]) -> Tone:
        begins = entry.name == self.initial and len(self.spine) != 2
        return Tone.WAITING if begins or entry.rank is Rank.RESTING else Tone.ACTIVE

    def rows_at(self, source: S, event: type[Event]) -> tuple[Row[S, D], ...]:
        """The rows that speak of this state and event, in the order in which they are tried."""
        return tuple(row for row in self.rows if row.event is event and source in row.sources)


def _tuple(one_or_more: Any) -> tuple[Any, ...]:
    return one_or_more if isinstance(one_or_more, tuple) else (one_or_more,)
