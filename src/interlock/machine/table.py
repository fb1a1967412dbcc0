"""The elements of a table.

A table is a list of states (`state`, `rest`, `end`) and a list of rows:

    on      an event moves the machine from any of its sources to one target; with the target
            STAY it is accepted and may change data, but is no transition
    walk    an event takes the machine through another event first, in the same decision
    ignore  an event deliberately has no effect here, with the reason
    refuse  an event is refused here, with the reason

Rows are tried in order, the first whose guards hold is taken. Guards, updates and effects are ordinary
functions of the data and the event, so mypy checks them; no string is ever evaluated.

Why: decisions 0101, 0102 and 0103.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Any, Generic, TypeAlias, TypeVar, overload

from interlock.machine.events import E, Event, EventRef, Kind, type_of


def fold_name(name: str) -> str:
    """Return one form for all spellings of a name.

    That is any case, dashes or underscores, and one l or two in cancel(l)ed.
    """
    return name.casefold().replace("-", "_").replace("cancelled", "canceled")


def name_of(function: Callable[..., object]) -> str:
    """Return the name of a guard, an update or an effect."""
    return getattr(function, "__name__", type(function).__name__)


S = TypeVar("S", bound=StrEnum)
D = TypeVar("D")

GuardCheck: TypeAlias = Callable[[D, E], bool]
"""Returns whether a row may be taken. Its name and docstring are shown when it refuses."""

Update: TypeAlias = Callable[[D, E], D]
"""Returns the data after the row; the old data are never changed in place."""

Effect: TypeAlias = Callable[[D, E], object]
"""Returns a value that describes an external effect of the committed decision, from the new data."""

Sources: TypeAlias = S | tuple[S, ...]


@dataclass(frozen=True, slots=True)
class Deadline:
    """A time limit. `setting` is the name of the setting that changes it."""

    event: EventRef
    setting: str
    seconds: float
    since: str = "entering the state"


class Rank(Enum):
    """The kind of a state."""

    ACTIVE = auto()  # has to be left
    RESTING = auto()  # may last forever
    TERMINAL = auto()  # final


class Tone(StrEnum):
    """The appearance of a state: displays have one colour for each tone."""

    WAITING = "waiting"
    ACTIVE = "active"
    GOOD = "good"
    BAD = "bad"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class State(Generic[S]):
    """One state: its meaning, the role that acts next, and its time limit."""

    name: S
    doc: str
    rank: Rank
    turn: str | None = None
    within: Deadline | None = None
    tone: Tone | None = None
    """Set if it cannot be derived from the table; see `Table.tone`."""

    @property
    def terminal(self) -> bool:
        """Whether it is final."""
        return self.rank is Rank.TERMINAL


def state(
    name: S, doc: str, *, turn: str | None = None, within: Deadline | None = None, tone: Tone | None = None
) -> State[S]:
    """Declare a state that has to be left.

    `turn` is the role that acts, and `within` is the time limit.
    """
    return State(name, doc, Rank.ACTIVE, turn, within, tone)


def rest(name: S, doc: str, *, tone: Tone | None = None) -> State[S]:
    """Declare a state that may last forever although the machine can continue."""
    return State(name, doc, Rank.RESTING, tone=tone)


def end(name: S, doc: str, *, tone: Tone | None = None) -> State[S]:
    """Declare a terminal state."""
    return State(name, doc, Rank.TERMINAL, tone=tone)


class Stay(Enum):
    """The target of a row that is accepted without a transition."""

    STAY = auto()


STAY = Stay.STAY


class Act(Enum):
    """The action of a row."""

    MOVE = auto()
    KEEP = auto()
    WALK = auto()
    IGNORE = auto()
    REFUSE = auto()

    @property
    def silent(self) -> bool:
        """Whether the event has no effect at all."""
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
    when: GuardCheck[D, E] | tuple[GuardCheck[D, E], ...] = ...,
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
    when: GuardCheck[D, Event] | tuple[GuardCheck[D, Event], ...] = ...,
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
    """Declare that the event moves the machine from `sources` to `target`.

    Any of the sources is enough. Entering a state starts that state's own deadline, and `arms` adds others; a
    row that stays starts only those that it names. `leaves_terminal` declares that leaving a terminal state
    is intended.
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
    """Declare that in these states the event implies `first`.

    The machine takes `first`, and then decides the event again.
    """
    return Row(Act.WALK, type_of(event), _tuple(states), why, first=first)


def ignore(event: EventRef, states: Sources[S], *, why: str) -> Row[S, Any]:
    """Declare that in these states the event deliberately has no effect."""
    return Row(Act.IGNORE, type_of(event), _tuple(states), why)


def refuse(event: EventRef, states: Sources[S], *, why: str) -> Row[S, Any]:
    """Declare that in these states the event is refused, with the reason."""
    return Row(Act.REFUSE, type_of(event), _tuple(states), why)


@dataclass(frozen=True, slots=True)
class Always(Generic[S, D]):
    """An invariant of every reachable state and its data."""

    claim: str
    holds: Callable[[S, D], bool]


@dataclass(frozen=True, slots=True)
class Across(Generic[S, D]):
    """An invariant of every step: the data before and after it."""

    claim: str
    holds: Callable[[S, D, S, D], bool]


@dataclass(frozen=True, slots=True)
class Table(Generic[S, D]):
    """A declared machine, before it is checked."""

    name: str
    doc: str
    initial: S
    states: Sequence[State[S]]
    rows: Sequence[Row[S, D]]
    stop: Sequence[EventRef] = ()
    spine: Sequence[S] = ()
    invariants: Sequence[Always[S, D] | Across[S, D]] = field(default=())
    _rows_by_cell: Mapping[tuple[S, type[Event]], tuple[Row[S, D], ...]] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        found: dict[tuple[S, type[Event]], tuple[Row[S, D], ...]] = {}
        for row in self.rows:
            for source in dict.fromkeys(row.sources):
                found[source, row.event] = (*found.get((source, row.event), ()), row)
        object.__setattr__(self, "_rows_by_cell", found)

    @property
    def events(self) -> tuple[type[Event], ...]:
        """Every event in the rows, in the order of the table."""
        firsts = (type_of(row.first) for row in self.rows if row.first is not None)
        return tuple(dict.fromkeys((*(row.event for row in self.rows), *firsts)))

    def entry(self, name: S) -> State[S]:
        """Return the entry of a state."""
        return next(entry for entry in self.states if entry.name == name)

    def tone(self, name: S) -> Tone:
        """Return the tone of a state: declared, or derived from the table."""
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
        """Return the rows of this state and event, in the order of trial."""
        return self._rows_by_cell.get((source, event), ())


def _tuple(one_or_more: Any) -> tuple[Any, ...]:
    return one_or_more if isinstance(one_or_more, tuple) else (one_or_more,)
