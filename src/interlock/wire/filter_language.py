"""The filter language: `key:value,value`, `-key:value`, quoted names, labels, ids and moments.

Filters of jobs, runs and workers (`interlock.wire.filters`) differ in their keys and in nothing else: how
words are parsed and gathered, which may be given twice, and how a moment is written is the same for all of
them. An error in a word names its position, so that it is found in a long line.

Why: decision 0149.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, ClassVar, Self, TypeAlias

import msgspec

from interlock.errors import BadFilter, UnknownState
from interlock.lifecycles.job import JOB
from interlock.machine.couplings import AnyMachine
from interlock.text import nearest, read_duration, write_duration

NEGATABLE = "state"

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_QUOTED_VALUE = re.compile(_QUOTED, re.DOTALL)
_WORD = re.compile(rf'(?:[^\s"]|{_QUOTED})+', re.DOTALL)
_VALUE = re.compile(rf'(?:[^,"]|{_QUOTED})+', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_NEEDS_QUOTES = re.compile(r'[\s,"\\]')


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The keys of a filter, each with an example of its value."""

    examples: Mapping[str, str]

    states: tuple[str, ...] = ()
    """Allowed values of `state`."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, in the order of the documentation."""
        return tuple(self.examples)

    def guess(self, word: str) -> str:
        """Return the filter that a word without a key most likely means.

        It is empty for none.
        """
        near = nearest(word, self.states)
        return f"state:{near.lower()}" if near else ""


JOBS = Vocabulary(
    {
        "state": "failed",
        "queue": "default",
        "label": "gpu",
        "parent": "j_0123456789ab",
        "task": "shop.send",
        "id": "j_0123456789ab",
        "since": "1h",
        "until": "10m",
    },
    states=tuple(map(str, JOB.states)),
)


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a filter and its position."""

    text: str
    place: int
    """Position from 1, in characters."""
    whole: str
    key: str = ""
    negated: bool = False
    values: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The key, with its dash when negated."""
        return f"-{self.key}" if self.negated else self.key

    def bad(self, why: str, *, todo: str, allowed: Iterable[str] = ()) -> BadFilter:
        """Return the error for this word."""
        return BadFilter(
            f"The filter {self.whole!r} has a fault in {self.text!r}, at character {self.place}: {why}.",
            todo=todo,
            allowed=allowed,
            facts={"filter": self.whole, "word": self.text, "position": self.place},
        )


def words_of(text: str, vocabulary: Vocabulary = JOBS) -> Iterator[Word]:
    """Yield the words of a filter, each with its key and its values."""
    place = 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        found = _WORD.match(text, place)
        if found is None or (found.end() < len(text) and not text[found.end()].isspace()):
            word = Word(text[place:], place + 1, text)
            raise word.bad("a quotation mark is not closed", todo='Write queue:"two words".')
        yield _taken_apart(Word(found[0], place + 1, text), vocabulary)
        place = found.end()


def written(name: str, values: Iterable[str]) -> str:
    """Return a word as text."""
    return f"{name}:{','.join(map(_quoted, values))}"


def _taken_apart(word: Word, vocabulary: Vocabulary) -> Word:
    known = vocabulary.keys
    name, colon, rest = word.text.partition(":")
    key = name.removeprefix("-").lower()
    some = f"Use some of: {', '.join(f'{each}:' for each in known)}"
    if not colon:
        meant = vocabulary.guess(word.text)
        hint = f", did you mean {meant}" if meant else ""
        raise word.bad(f"it is not of the form key:value{hint}", todo=some, allowed=known)
    if key not in known:
        guess = nearest(key, known)
        hint = f", did you mean {guess}" if guess else ""
        raise word.bad(f"there is no key {key!r}{hint}", todo=some, allowed=known)
    negated = name.startswith("-")
    if negated and key != NEGATABLE:
        raise word.bad(f"only a {NEGATABLE} can be negated", todo=f"Leave out the dash: {word.text[1:]}")
    values = tuple(_plain(found[0]) for found in _VALUE.finditer(rest))
    commas = _QUOTED_VALUE.sub("", rest).count(",")
    if not all(values) or len(values) != commas + 1:
        raise word.bad(f"a value is missing after {name}:", todo=f"Write {name}:{vocabulary.examples[key]}")
    return replace(word, key=key, negated=negated, values=values)


def _quoted(value: str) -> str:
    if not _NEEDS_QUOTES.search(value):
        return value
    inside = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inside}"'


def _plain(value: str) -> str:
    """Return a value without its quotation marks."""
    return _QUOTED_VALUE.sub(lambda found: _ESCAPED.sub(r"\1", found[0][1:-1]), value)


Moment: TypeAlias = datetime | timedelta
"""A time, or an age."""

_DATE = re.compile(r"\d{4}-", re.ASCII)
_EARLIEST, _LATEST = datetime(1970, 1, 2, tzinfo=UTC), datetime(2199, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FilterParts:
    """The parsed parts of a filter."""

    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Names by key; a negated key has its dash."""
    labels: list[tuple[str, ...]] = field(default_factory=list)
    """Groups of labels; a record must have one label of each group."""
    moments: dict[str, Moment] = field(default_factory=dict)


def gather(text: str, vocabulary: Vocabulary, check: Callable[[Word], tuple[str, ...]]) -> FilterParts:
    """Parse a filter; raise `BadFilter` with the position of a fault.

    `check` validates names.
    """
    parts = FilterParts()
    for word in words_of(text, vocabulary):
        if (word.name in parts.names and not word.negated) or word.name in parts.moments:
            raise _twice(word, parts.names.get(word.name, ()))
        match word.key:
            case "label":
                parts.labels.append(word.values)
            case "since" | "until":
                parts.moments[word.key] = _moment(word)
            case _:
                before = parts.names.get(word.name, ())
                parts.names[word.name] = tuple(dict.fromkeys((*before, *check(word))))
    return parts


def text_of(moment: Moment) -> str:
    """Return a moment as text."""
    if isinstance(moment, timedelta):
        return write_duration(moment)
    return moment.isoformat().replace("+00:00", "Z")


def instant(moment: Moment | None, now: datetime) -> datetime | None:
    """Return a moment as a time, within the range that a store supports."""
    if moment is None:
        return None
    try:
        at = now - moment if isinstance(moment, timedelta) else moment
    except OverflowError:
        return _EARLIEST
    return min(max(at, _EARLIEST), _LATEST)


def is_one_of(wanted: tuple[str, ...], name: str | None) -> bool:
    """Return whether a name is wanted; an empty list wants all."""
    return not wanted or name in wanted


def _moment(word: Word) -> Moment:
    if len(word.values) > 1:
        raise word.bad(f"{word.key} takes one time", todo="Give one.")
    text = word.values[0]
    try:
        return _utc(datetime.fromisoformat(text)) if _DATE.match(text) else read_duration(text)
    except (ValueError, OverflowError):
        key = word.key
        raise word.bad(
            f"{text!r} is neither a duration nor a date",
            todo=f"Write {key}:1h (also 90s, 15m, 30d, 4w), or a date such as {key}:2026-01-31.",
        ) from None


def _twice(word: Word, before: tuple[str, ...]) -> BadFilter:
    if not before:
        return word.bad(f"{word.name} is there twice", todo="Give it once.")
    either = written(word.name, dict.fromkeys((*before, *word.values)))
    return word.bad(f"{word.name} is there twice", todo=f"To mean any of them, write {either}")


def _utc(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


ID_DIGITS = 12
LOOKED_AT = 20_000
"""Records that a store examines for one page of an unindexed filter."""
LOOKS = 50
"""Short pages in a row that a list reads before it stops early."""

Said: TypeAlias = tuple[str, tuple[str, ...]]
"""A key and its allowed values."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A filter of records; empty parts do not filter. Each kind adds its own parts."""

    machine: ClassVar[AnyMachine]
    states: tuple[str, ...] = ()
    other_than: tuple[str, ...] = ()
    """Excluded states."""
    labels: tuple[tuple[str, ...], ...] = ()
    """Groups of labels; a record must have one label of each group."""
    ids: tuple[str, ...] = ()
    since: Moment | None = None
    until: Moment | None = None

    def __str__(self) -> str:
        """Return the filter as text that parses to the same filter."""
        return " ".join(written(name, values) for name, values in self._words() if values)

    @property
    def wanted_states(self) -> tuple[str, ...]:
        """The states that match."""
        return tuple(state for state in self.states or self._all_states() if state not in self.other_than)

    @property
    def queried_states(self) -> tuple[str, ...]:
        """The same states for a query to the store, where an empty tuple means all."""
        states = self.wanted_states
        return states if len(states) < len(self._all_states()) else ()

    @property
    def sure_labels(self) -> tuple[str, ...]:
        """Labels that every match has, for the index of the store."""
        return tuple(sorted({group[0] for group in self.labels if len(group) == 1}))

    def among(self, states: Iterable[str]) -> Self:
        """Return the same filter limited to these states."""
        wanted = set(states)
        left_out = (state for state in self._all_states() if state not in wanted or state in self.other_than)
        return msgspec.structs.replace(self, other_than=tuple(left_out))

    def knows(self, name: str, state: str, labels: Iterable[str]) -> bool:
        """Return whether a record with this id, state and labels may match."""
        had = set(labels)
        return (
            state in self.wanted_states
            and is_one_of(self.ids, name)
            and all(not had.isdisjoint(group) for group in self.labels)
        )

    def own_words(self) -> Iterator[Said]:
        """Yield the parts that this kind adds."""
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


def common_parts(parts: FilterParts) -> dict[str, Any]:
    """Return the parsed parts that all kinds share, by field name."""
    return {
        "states": parts.names.get("state", ()),
        "other_than": parts.names.get("-state", ()),
        "labels": tuple(parts.labels),
        "ids": parts.names.get("id", ()),
        "since": parts.moments.get("since"),
        "until": parts.moments.get("until"),
    }


def check_possible(wanted: Wanted, text: str) -> None:
    """Raise `BadFilter` when no state remains."""
    if not wanted.wanted_states:
        raise BadFilter(
            f"The filter {text!r} leaves no state that a {wanted.machine.name} could be in.",
            todo="Leave out state: or -state:.",
            facts={"filter": text},
        )


def state_of(word: Word, name: str, machine: AnyMachine) -> str:
    """Return a state as the table spells it."""
    try:
        return str(machine.state(name))
    except UnknownState as error:
        raise word.bad(error.sentence.rstrip(".?"), allowed=error.allowed, todo=error.todo) from None


def id_of(text: str, prefix: str) -> str | None:
    """Return an id or a prefix of one, or None if the text is neither.

    The letter before it may be missing.
    """
    pattern = rf"(?:{prefix}_)?([0-9a-f]{{1,{ID_DIGITS}}})"
    found = re.fullmatch(pattern, text.strip(), re.ASCII | re.IGNORECASE)
    return f"{prefix}_{found[1].lower()}" if found else None


def whole_id(word: Word, name: str, prefix: str, kind: str) -> str:
    """Return an id with all of its digits."""
    found = id_of(name, prefix)
    if found is None or len(found) < len(prefix) + 1 + ID_DIGITS:
        raise word.bad(
            f"{name!r} is not the id of a {kind}, which is {prefix}_ and {ID_DIGITS} hex digits",
            todo=f"Take ids from `interlock {kind} list`.",
        )
    return found
