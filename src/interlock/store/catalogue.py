"""The catalogue of a store: the states of each kind, its final states, and the legal transitions.

It is made from the tables and handed to the store, which never sees a machine. SQL stores load it into the
database, so that an illegal state is refused even from a bare shell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from interlock.machine import Machine, blueprint_of
from interlock.store.records import Change


class Shown(msgspec.Struct, frozen=True):
    """A projection of records for other tools, in key-value stores.

    It is written in the commit that changes the record, and removed with it. It is write-only: Interlock
    never reads it back.
    """

    key: str
    """`{id}` stands for the id of the record."""
    value: Callable[[Change], bytes | None]
    """Returns the projection of a change; None if there is none."""
    ttl_s: float | None = None
    """Expiry after the last change."""
    index: str = ""
    """A sorted set of the ids by when they were created; empty for none."""
    into: str = ""
    """The key of a JSON object of another kind, in which a change of this one replaces some fields."""
    fields: Callable[[Change], dict[str, bytes]] | None = None
    """Computes the fields: numbers, times or null, as JSON."""
    keeps: tuple[str, ...] = ()
    """Fields that another kind replaces: a change of this kind leaves them as they are shown."""

    @property
    def around(self) -> tuple[str, str]:
        """The parts of the key before and after the id."""
        before, _, after = self.key.partition("{id}")
        return before, after


class StoredKind(msgspec.Struct, frozen=True):
    """One kind of record."""

    name: str
    initial: str
    states: tuple[str, ...]
    ended: frozenset[str]
    """Final and resting states, in which old records are pruned."""
    paths: frozenset[tuple[str, str]]
    """All pairs of states of which the second is reachable from the first, in one commit or more."""
    fingerprint: str
    shown: Shown | None = None

    def allows(self, source: str, target: str) -> bool:
        """Return whether a commit may move or, from "", create a record."""
        if not source:
            return target == self.initial or (self.initial, target) in self.paths
        return source == target or (source, target) in self.paths


Catalogue = Mapping[str, StoredKind]


def catalogue_of(machines: Iterable[Machine[Any, Any]]) -> dict[str, StoredKind]:
    """Return the kinds of these lifecycles."""
    return {machine.name: kind_of(machine) for machine in machines}


def kind_of(machine: Machine[Any, Any]) -> StoredKind:
    """Return the kind of one machine's records."""
    edges = {(str(s), str(step.target)) for s in machine.states for step in machine.steps_from(s)}
    ended = frozenset(str(state) for state in machine.terminal | machine.resting)
    return StoredKind(
        machine.name,
        str(machine.initial),
        tuple(str(state) for state in machine.states),
        ended,
        frozenset(_closure(edges)),
        _fingerprint(blueprint_of(machine).fingerprint, ended),
    )


def _fingerprint(blueprint: str, ended: frozenset[str]) -> str:
    """Return a digest of the table and of the derived states.

    Other versions of Interlock may derive other states from the same table.
    """
    return hashlib.sha256(";".join((blueprint, *sorted(ended))).encode()).hexdigest()[:16]


def _closure(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the transitive closure, since a commit may take several steps."""
    paths = set(edges)
    while more := {(a, d) for a, b in paths for c, d in edges if b == c} - paths:
        paths |= more
    return paths
