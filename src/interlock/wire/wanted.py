"""What all filters have in common: states, labels, ids and times of the records of one lifecycle."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, ClassVar, Self, TypeAlias

import msgspec

from interlock.errors import UnknownState
from interlock.machine import Machine
from interlock.wire.filter_parts import Moment, Parts, is_one_of, text_of
from interlock.wire.filter_words import BadFilter, Word, written

ID_DIGITS = 12
LOOKED_AT = 20_000
"""How many records a store looks at for one page where it has no index of what is asked for."""
LOOKS = 50
"""How many pages that ended for this reason are followed by others before a list stops early."""

AnyMachine: TypeAlias = Machine[Any, Any]
Said: TypeAlias = tuple[str, tuple[str, ...]]
"""A key and what it may be."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which records are meant; empty parts do not filter. A kind adds its own parts."""

    machine: ClassVar[AnyMachine]
    states: tuple[str, ...] = ()
    other_than: tuple[str, ...] = ()
    """States that they are not in."""
    labels: tuple[tuple[str, ...], ...] = ()
    """One of each group."""
    ids: tuple[str, ...] = ()
    since: Moment | None = None
    until: Moment | None = None

    def __str__(self) -> str:
        """The filter as text, which reads back as the same filter."""
        return " ".join(written(name, values) for name, values in self._words() if values)

    @property
    def wanted_states(self) -> tuple[str, ...]:
        """The states that one may be in."""
        return tuple(state for state in self.states or self._all_states() if state not in self.other_than)

    @property
    def asked_states(self) -> tuple[str, ...]:
        """The same as a store is asked for them: none of them means all."""
        states = self.wanted_states
        return states if len(states) < len(self._all_states()) else ()

    @property
    def sure_labels(self) -> tuple[str, ...]:
        """What each of them is labelled with, which a store can look for."""
        return tuple(sorted({group[0] for group in self.labels if len(group) == 1}))

    def among(self, states: Iterable[str]) -> Self:
        """The same records, but only those in one of these states."""
        wanted = set(states)
        left_out = (state for state in self._all_states() if state not in wanted or state in self.other_than)
        return msgspec.structs.replace(self, other_than=tuple(left_out))

    def knows(self, name: str, state: str, labels: Iterable[str]) -> bool:
        """Whether one of that id, in that state, with these labels may be meant."""
        had = set(labels)
        return (
            state in self.wanted_states
            and is_one_of(self.ids, name)
            and all(not had.isdisjoint(group) for group in self.labels)
        )

    def own_words(self) -> Iterator[Said]:
        """What this kind can be asked for besides."""
        yield from ()

    def _words(self) -> Iterator[Said]:
        yield "state", self.states
        yield "-state", self.other_than
        yield from self.own_words()
        yield from (("label", group) for group in self.labels)
        yield "id", self.ids
        yield "since", () if self.since is None else (text_of(self.since),)
        yield "until", () if self.until is None else (text_of(self.until),)

    @classmethod
    def _all_states(cls) -> tuple[str, ...]:
        return _states_of(cls.machine)


@cache
def _states_of(machine: AnyMachine) -> tuple[str, ...]:
    return tuple(map(str, machine.states))


def common_parts(parts: Parts) -> dict[str, Any]:
    """What was said of what all have in common, by the names that it has there."""
    return {
        "states": parts.names.get("state", ()),
        "other_than": parts.names.get("-state", ()),
        "labels": tuple(parts.labels),
        "ids": parts.names.get("id", ()),
        "since": parts.moments.get("since"),
        "until": parts.moments.get("until"),
    }


def check_possible(wanted: Wanted, text: str) -> None:
    """Refuse what leaves no state."""
    if not wanted.wanted_states:
        raise BadFilter(
            f"The filter {text!r} leaves no state that a {wanted.machine.name} could be in.",
            todo="Leave out state: or -state:.",
            facts={"filter": text},
        )


def state_of(word: Word, name: str, machine: AnyMachine) -> str:
    """A state as the table spells it."""
    try:
        return str(machine.state(name))
    except UnknownState as error:
        raise word.bad(error.sentence.rstrip(".?"), allowed=error.allowed, todo=error.todo) from None


def id_of(text: str, prefix: str) -> str | None:
    """An id or the beginning of one, also without its prefix; None for what is none."""
    pattern = rf"(?:{prefix}_)?([0-9a-f]{{1,{ID_DIGITS}}})"
    found = re.fullmatch(pattern, text.strip(), re.ASCII | re.IGNORECASE)
    return f"{prefix}_{found[1].lower()}" if found else None


def whole_id(word: Word, name: str, prefix: str, kind: str) -> str:
    """An id with all of its digits."""
    found = id_of(name, prefix)
    if found is None or len(found) < len(prefix) + 1 + ID_DIGITS:
        raise word.bad(
            f"{name!r} is not the id of a {kind}, which is {prefix}_ and {ID_DIGITS} hex digits",
            todo=f"Take ids from `interlock {kind} list`.",
        )
    return found
