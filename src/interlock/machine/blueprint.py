"""A machine as plain data: exported, drawn, compared and fingerprinted.

A blueprint holds names and sentences, no functions, so it can be written to a file, read back years later,
and compared with the current table. All displays of a machine (diagrams, pages, the API, `interlock machine`)
use only the blueprint.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from interlock.errors import MalformedBlueprint, UnknownState
from interlock.machine.events import Event, payload_of, type_of
from interlock.machine.machine import Machine
from interlock.machine.table import Act, Deadline, Rank, Row, State, fold_name, name_of

FORMAT = 1
"""The version of the JSON; raised when an older reader would misread a newer file."""


class _Sheet(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}):
    """Base of the parts; `from` is a Python keyword, so the fields are called source and target."""


class DeadlineSheet(_Sheet, frozen=True):
    """The limit of a duration, and the event that ends it."""

    event: str
    setting: str
    seconds: float
    since: str


class StateSheet(_Sheet, frozen=True):
    """One state. `turn` is the role that acts next; `within` is its time limit."""

    name: str
    terminal: bool
    resting: bool = False
    doc: str = ""
    turn: str | None = None
    within: DeadlineSheet | None = None


class EventSheet(_Sheet, frozen=True):
    """One event, and the role that sends it."""

    name: str
    kind: str
    by: str
    doc: str = ""
    payload: tuple[str, ...] = ()


class TransitionSheet(_Sheet, frozen=True):
    """One transition from one state."""

    event: str
    source: str
    target: str
    owner: str
    why: str = ""
    guards: tuple[str, ...] = ()
    then: str | None = None
    emits: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    leaves_terminal: bool = False
    choice: int = 0
    """Its position among the rows of its state and event, which are tried in this order."""


class KeptSheet(_Sheet, frozen=True):
    """An event that is accepted and may change data, but is no transition."""

    event: str
    state: str
    owner: str
    why: str = ""
    guards: tuple[str, ...] = ()
    then: str | None = None
    emits: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    choice: int = 0


class WalkSheet(_Sheet, frozen=True):
    """An event that takes the machine through another event first, in the same decision."""

    event: str
    state: str
    first: str
    why: str = ""
    choice: int = 0


class SilenceSheet(_Sheet, frozen=True):
    """A pair of state and event that is ignored or refused on purpose."""

    event: str
    state: str
    why: str


class Blueprint(msgspec.Struct, frozen=True):
    """A whole machine."""

    machine: str
    initial: str
    states: tuple[StateSheet, ...]
    transitions: tuple[TransitionSheet, ...]
    doc: str = ""
    spine: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    events: tuple[EventSheet, ...] = ()
    kept: tuple[KeptSheet, ...] = ()
    walks: tuple[WalkSheet, ...] = ()
    ignored: tuple[SilenceSheet, ...] = ()
    refused: tuple[SilenceSheet, ...] = ()
    deadlines: tuple[DeadlineSheet, ...] = ()
    """Every deadline that a state has or a row arms."""
    invariants: tuple[str, ...] = ()
    format: int = FORMAT

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits that change when the behaviour of the table does.

        Sentences and the spine are left out: a better explanation or picture is not another machine.
        """
        canonical = msgspec.json.encode(_without_prose(msgspec.to_builtins(self)), order="sorted")
        return hashlib.sha256(canonical).hexdigest()[:16]

    @property
    def owners(self) -> tuple[str, ...]:
        """The roles that move this machine, in the order of the table."""
        moving = [transition.owner for transition in self.transitions]
        return tuple(dict.fromkeys((*moving, *(kept.owner for kept in self.kept))))

    def state(self, name: str) -> StateSheet:
        """Return the sheet of the state called `name`, which must exist."""
        return next(s for s in self.states if s.name == name)

    def state_named(self, name: str) -> str:
        """Return the state called `name`; raise if it is unknown.

        The error names the known states.
        """
        known = {fold_name(state.name): state.name for state in self.states}
        if fold_name(name) not in known:
            raise UnknownState(name, tuple(known.values()), where=self.machine)
        return known[fold_name(name)]

    def as_dict(self) -> dict[str, Any]:
        """Return the blueprint for JSON, with its fingerprint."""
        return {**msgspec.to_builtins(self), "fingerprint": self.fingerprint}

    def to_json(self) -> str:
        """Return the blueprint as an indented JSON document."""
        return msgspec.json.format(msgspec.json.encode(self.as_dict()), indent=2).decode() + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str = "the text") -> Blueprint:
        """Parse the output of `to_json`; raise one clear error for anything else."""
        try:
            blueprint = msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise _malformed(where, str(error)) from None
        if blueprint.format != FORMAT:
            raise _malformed(where, f"it has format {blueprint.format}, this program reads {FORMAT}")
        if strangers := [*blueprint.unknown_states(), *blueprint.unknown_events()]:
            raise _malformed(where, "; ".join(strangers))
        return blueprint

    def unknown_states(self) -> list[str]:
        """Return a sentence for each reference to a missing or duplicate state."""
        names = [state.name for state in self.states]
        used = [("initial", self.initial), *(("spine", name) for name in self.spine)]
        used += [(f"transition {t.event!r}", n) for t in self.transitions for n in (t.source, t.target)]
        used += [(f"the entry of {event!r}", name) for event, name in self._entries()]
        twice = [f"the state {name!r} comes twice" for name in dict.fromkeys(names) if names.count(name) > 1]
        return [*twice, *_strangers("state", used, names)]

    def unknown_events(self) -> list[str]:
        """Return a sentence for each reference to a missing event.

        There are none if the document does not list events.
        """
        if not self.events:
            return []
        names = [event.name for event in self.events]
        used = [("stop", name) for name in self.stop]
        used += [("a transition", transition.event) for transition in self.transitions]
        used += [("an entry", event) for event, _ in self._entries()]
        used += [("a walk", walk.first) for walk in self.walks]
        limits = [*self.deadlines, *(state.within for state in self.states if state.within)]
        used += [("a deadline", limit.event) for limit in limits]
        return _strangers("event", used, names)

    def _entries(self) -> list[tuple[str, str]]:
        """Return the pairs of event and state that are no transition."""
        entries = [(kept.event, kept.state) for kept in self.kept]
        entries += [(walk.event, walk.state) for walk in self.walks]
        return entries + [(silence.event, silence.state) for silence in (*self.ignored, *self.refused)]


def _strangers(noun: str, used: list[tuple[str, str]], names: list[str]) -> list[str]:
    known, listed = set(names), ", ".join(sorted(names))
    return [
        f"{place} names the unknown {noun} {name!r} (known: {listed})"
        for place, name in dict.fromkeys(used)
        if name not in known
    ]


_PROSE = frozenset({"doc", "why", "format", "invariants", "since", "spine"})


def _without_prose(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_prose(item) for key, item in value.items() if key not in _PROSE}
    if isinstance(value, (list, tuple)):
        return [_without_prose(item) for item in value]
    return value


def _malformed(where: str, what: str) -> MalformedBlueprint:
    return MalformedBlueprint(
        f"{where} is not the blueprint of a machine: {what}.",
        todo="Export one with: interlock machine draw NAME --format json -o FILE.",
        facts={"where": where, "what": what},
    )


def blueprint_of(machine: Machine[Any, Any]) -> Blueprint:
    """Return the machine as plain data, one entry per source state."""
    table = machine.table
    return Blueprint(
        machine=machine.name,
        initial=str(machine.initial),
        states=tuple(_state(entry) for entry in table.states),
        transitions=tuple(_transition(machine, row, source) for row, source in _each(machine, Act.MOVE)),
        doc=table.doc,
        spine=tuple(map(str, table.spine)),
        stop=tuple(type_of(event).name for event in table.stop),
        events=tuple(_event(event) for event in machine.events),
        kept=tuple(_kept(machine, row, source) for row, source in _each(machine, Act.KEEP)),
        walks=tuple(_walk(machine, row, source) for row, source in _each(machine, Act.WALK)),
        ignored=tuple(
            SilenceSheet(r.event.name, str(source), r.why) for r, source in _each(machine, Act.IGNORE)
        ),
        refused=tuple(
            SilenceSheet(r.event.name, str(source), r.why) for r, source in _each(machine, Act.REFUSE)
        ),
        deadlines=tuple(_deadline(deadline) for deadline in _deadlines(machine)),
        invariants=tuple(claim.claim for claim in table.invariants),
    )


def _each(machine: Machine[Any, Any], act: Act) -> list[tuple[Row[Any, Any], Any]]:
    return [(row, source) for row in machine.table.rows if row.act is act for source in row.sources]


def _deadlines(machine: Machine[Any, Any]) -> list[Deadline]:
    own = [entry.within for entry in machine.table.states if entry.within is not None]
    return list(dict.fromkeys([*own, *(deadline for row in machine.table.rows for deadline in row.arms)]))


def _state(entry: State[Any]) -> StateSheet:
    return StateSheet(
        name=str(entry.name),
        terminal=entry.rank is Rank.TERMINAL,
        resting=entry.rank is Rank.RESTING,
        doc=entry.doc,
        turn=None if entry.turn is None else str(entry.turn),
        within=None if entry.within is None else _deadline(entry.within),
    )


def _deadline(deadline: Deadline) -> DeadlineSheet:
    name = type_of(deadline.event).name
    return DeadlineSheet(name, deadline.setting, float(deadline.seconds), deadline.since)


def _event(event: type[Event]) -> EventSheet:
    return EventSheet(event.name, str(event.kind), event.by, event.doc, payload_of(event))


def _transition(machine: Machine[Any, Any], row: Row[Any, Any], source: Any) -> TransitionSheet:
    kept = _kept(machine, row, source)
    return TransitionSheet(
        event=kept.event,
        source=kept.state,
        target=str(row.target),
        owner=kept.owner,
        why=kept.why,
        guards=kept.guards,
        then=kept.then,
        emits=kept.emits,
        arms=kept.arms,
        leaves_terminal=row.leaves_terminal,
        choice=kept.choice,
    )


def _kept(machine: Machine[Any, Any], row: Row[Any, Any], source: Any) -> KeptSheet:
    return KeptSheet(
        event=row.event.name,
        state=str(source),
        owner=str(row.owner),
        why=row.why,
        guards=tuple(name_of(guard) for guard in row.when),
        then=None if row.then is None else name_of(row.then),
        emits=tuple(name_of(emit) for emit in row.emits),
        arms=tuple(deadline.setting for deadline in row.arms),
        choice=_choice(machine, row, source),
    )


def _walk(machine: Machine[Any, Any], row: Row[Any, Any], source: Any) -> WalkSheet:
    first = "" if row.first is None else row.first.name
    return WalkSheet(row.event.name, str(source), first, row.why, _choice(machine, row, source))


def _choice(machine: Machine[Any, Any], row: Row[Any, Any], source: Any) -> int:
    return machine.table.rows_at(source, row.event).index(row)
