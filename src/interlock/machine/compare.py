"""The changes between two tables, and the records that they would strand.

A record outlives the program that wrote it. Before a new table is deployed, `compare` lists the records in
flight that the new table could not bring to an end.
"""

from __future__ import annotations

import msgspec

from interlock.machine.blueprint import Blueprint, KeptSheet, TransitionSheet


class Stranded(msgspec.Struct, frozen=True):
    """A state in which records may be waiting, and why the new table cannot help them."""

    state: str
    why: str


class Difference(msgspec.Struct, frozen=True):
    """All differences; empty if the tables behave the same."""

    old: str
    new: str
    changes: tuple[str, ...] = ()
    stranded: tuple[Stranded, ...] = ()


def compare(old: Blueprint, new: Blueprint) -> Difference:
    """Return the differences for replacing `old` by `new`."""
    changes = (
        *_changed_values("initial", {"state": old.initial}, {"state": new.initial}),
        *_changed_values("state", _states(old), _states(new)),
        *_changed_values("event", _events(old), _events(new)),
        *_changed_values("row", _rows(old), _rows(new)),
        *_changed_values("silence", _silences(old), _silences(new)),
        *_changed_values("deadline", _deadlines(old), _deadlines(new)),
        *_changed_values("stop", dict.fromkeys(old.stop, ""), dict.fromkeys(new.stop, "")),
    )
    return Difference(
        f"{old.machine}@{old.fingerprint}",
        f"{new.machine}@{new.fingerprint}",
        changes,
        _stranded_states(old, new),
    )


def _changed_values(noun: str, old: dict[str, str], new: dict[str, str]) -> list[str]:
    removed = [f"- {noun} {_line(name, old[name])}" for name in old if name not in new]
    added = [f"+ {noun} {_line(name, new[name])}" for name in new if name not in old]
    changed = [
        f"~ {noun} {name}: was {old[name] or 'nothing'}, is {new[name] or 'nothing'}"
        for name in old
        if name in new and old[name] != new[name]
    ]
    return [*removed, *added, *changed]


def _line(name: str, value: str) -> str:
    return f"{name}: {value}" if value else name


def _states(blueprint: Blueprint) -> dict[str, str]:
    def rank(terminal: bool, resting: bool) -> str:
        return "terminal" if terminal else "resting" if resting else "active"

    return {
        state.name: ", ".join(
            [
                rank(state.terminal, state.resting),
                *([f"turn {state.turn}"] if state.turn else []),
                *([f"within {state.within.setting}"] if state.within else []),
            ]
        )
        for state in blueprint.states
    }


def _events(blueprint: Blueprint) -> dict[str, str]:
    return {
        event.name: f"{event.kind} by {event.by}{' with ' if event.payload else ''}{', '.join(event.payload)}"
        for event in blueprint.events
    }


def _rows(blueprint: Blueprint) -> dict[str, str]:
    """Return the action for each state and event, with the order of rows."""
    choices: dict[str, list[tuple[int, str]]] = {}
    for row in blueprint.transitions:
        way = f"→ {row.target}{_terms(row)}"
        choices.setdefault(f"{row.source} {row.event}", []).append((row.choice, way))
    for kept in blueprint.kept:
        choices.setdefault(f"{kept.state} {kept.event}", []).append((kept.choice, f"stays{_terms(kept)}"))
    for walk in blueprint.walks:
        choices.setdefault(f"{walk.state} {walk.event}", []).append((walk.choice, f"first {walk.first}"))
    return {pair: ", else ".join(way for _, way in sorted(ways)) for pair, ways in choices.items()}


def _terms(row: TransitionSheet | KeptSheet) -> str:
    guards = f" if {' and '.join(row.guards)}" if row.guards else ""
    done = [row.owner, *([row.then] if row.then else []), *row.emits, *(f"arms {arm}" for arm in row.arms)]
    return f"{guards} ({', '.join(done)})"


def _silences(blueprint: Blueprint) -> dict[str, str]:
    ignored = {f"{silence.state} {silence.event}": "ignored" for silence in blueprint.ignored}
    return ignored | {f"{silence.state} {silence.event}": "refused" for silence in blueprint.refused}


def _deadlines(blueprint: Blueprint) -> dict[str, str]:
    return {d.setting: f"{d.seconds:g} s, then {d.event}" for d in blueprint.deadlines}


def _stranded_states(old: Blueprint, new: Blueprint) -> tuple[Stranded, ...]:
    """Return the states that the new table would strand, final ones left out."""
    known = {state.name: state for state in new.states}
    ending = _states_that_can_end(new)
    stranded = []
    for state in old.states:
        if state.terminal:
            continue
        if state.name not in known:
            stranded.append(Stranded(state.name, "the new table has no such state"))
        elif state.name not in ending:
            stranded.append(Stranded(state.name, "in the new table nothing leads from it to an end"))
        elif known[state.name].terminal:
            stranded.append(Stranded(state.name, "it was active and is now terminal"))
    return tuple(stranded)


def _states_that_can_end(blueprint: Blueprint) -> set[str]:
    """Return the states from which a terminal or resting one can be reached."""
    ending = {state.name for state in blueprint.states if state.terminal or state.resting}
    while more := {t.source for t in blueprint.transitions if t.target in ending} - ending:
        ending |= more
    return ending
