"""What a store knows about kinds: which states there are, which are ends, and what may become what.

It is made from the tables and handed to the store, which never sees a machine. SQL stores load it
into the database, so that an illegal state is refused even when somebody types it into a shell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from interlock.machine import Machine, blueprint_of
from interlock.store.records import Change


class Shown(msgspec.Struct, frozen=True):
    """How records of a kind are shown to other tools, by stores that keep values under keys.

    What is shown is written in the very commit that changes the record, and goes with it. It is for
    reading only: nothing here ever reads it back.
    """

    key: str
    """`{id}` stands for the id of the record."""
    value: Callable[[Change], bytes | None]
    """What a change makes of it; None when nothing is shown."""
    ttl_s: float | None = None
    """After so long without a change it goes by itself."""
    index: str = ""
    """A sorted set of the ids by when they were created; empty for none."""
    into: str = ""
    """The key of a JSON object of another kind, in which a change of this one replaces some fields."""
    fields: Callable[[Change], dict[str, bytes]] | None = None
    """Those fields: numbers, times or null, as JSON."""
    keeps: tuple[str, ...] = ()
    """Fields that another kind replaces: a change of this kind leaves them as they are shown."""

    @property
    def around(self) -> tuple[str, str]:
        """What stands before and after the id."""
        before, _, after = self.key.partition("{id}")
        return before, after


class Kind(msgspec.Struct, frozen=True):
    """One kind of record."""

    name: str
    initial: str
    states: tuple[str, ...]
    ended: frozenset[str]
    """Where nothing more is to come of a record, so that it goes when it is old: ends, and where it rests."""
    paths: frozenset[tuple[str, str]]
    """Each pair of states of which the second can be reached from the first, in one commit or more."""
    fingerprint: str
    shown: Shown | None = None

    def allows(self, source: str, target: str) -> bool:
        """Whether a commit may take a record from one state to the other; from "" it creates one."""
        if not source:
            return target == self.initial or (self.initial, target) in self.paths
        return source == target or (source, target) in self.paths


Catalogue = Mapping[str, Kind]


def catalogue_of(machines: Iterable[Machine[Any, Any]]) -> dict[str, Kind]:
    """The kinds of record whose lifecycles these are."""
    return {machine.name: kind_of(machine) for machine in machines}


def kind_of(machine: Machine[Any, Any]) -> Kind:
    """What a store has to know about the records of one machine."""
    edges = {(str(s), str(step.target)) for s in machine.states for step in machine.steps_from(s)}
    ended = frozenset(str(state) for state in machine.terminal | machine.resting)
    return Kind(
        machine.name,
        str(machine.initial),
        tuple(str(state) for state in machine.states),
        ended,
        frozenset(_closure(edges)),
        _fingerprint(blueprint_of(machine).fingerprint, ended),
    )


def fingerprint_of(catalogue: Catalogue) -> str:
    """One digest for all kinds: whether a database has to be loaded anew."""
    parts = "".join(f"{name}:{kind.fingerprint};" for name, kind in sorted(catalogue.items()))
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def _fingerprint(blueprint: str, ended: frozenset[str]) -> str:
    """The table, and what was made of it: another program may make something else of the same table."""
    return hashlib.sha256(";".join((blueprint, *sorted(ended))).encode()).hexdigest()[:16]


def _closure(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """A commit may take several steps, so what a path joins may follow at once."""
    paths = set(edges)
    while more := {(a, d) for a, b in paths for c, d in edges if b == c} - paths:
        paths |= more
    return paths
