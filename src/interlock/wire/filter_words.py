"""The words of a filter: `key:value,value`, `-key:value`, and quotation marks around odd names.

What is wrong with a word is told with its place, so that somebody who typed a long line finds it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from interlock.errors import InterlockError
from interlock.lifecycles.job import JOB
from interlock.suggestions import nearest

NEGATABLE = "state"

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_QUOTED_VALUE = re.compile(_QUOTED, re.DOTALL)
_WORD = re.compile(rf'(?:[^\s"]|{_QUOTED})+', re.DOTALL)
_VALUE = re.compile(rf'(?:[^,"]|{_QUOTED})+', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_NEEDS_QUOTES = re.compile(r'[\s,"\\]')


class BadFilter(InterlockError):
    """A filter that cannot be understood, and where in it the word is."""

    code = "bad_filter"
    status = 422


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The keys that a filter may have, each with an example of its value."""

    examples: Mapping[str, str]

    states: tuple[str, ...] = ()
    """What the value of `state` may be."""

    @property
    def keys(self) -> tuple[str, ...]:
        """In the order in which they are told."""
        return tuple(self.examples)

    def guess(self, word: str) -> str:
        """Return the filter that a word without a key most likely means; empty for none."""
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
    """One word of a filter, and where it stands."""

    text: str
    place: int
    """Counted from 1, in characters."""
    whole: str
    key: str = ""
    negated: bool = False
    values: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The key with its dash."""
        return f"-{self.key}" if self.negated else self.key

    def bad(self, why: str, *, todo: str, allowed: Iterable[str] = ()) -> BadFilter:
        """What is wrong with it."""
        return BadFilter(
            f"The filter {self.whole!r} has a fault in {self.text!r}, at character {self.place}: {why}.",
            todo=todo,
            allowed=allowed,
            facts={"filter": self.whole, "word": self.text, "position": self.place},
        )


def words_of(text: str, vocabulary: Vocabulary = JOBS) -> Iterator[Word]:
    """The words, each with its key and its values."""
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
    """A word as text."""
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
    """A value without its quotation marks."""
    return _QUOTED_VALUE.sub(lambda found: _ESCAPED.sub(r"\1", found[0][1:-1]), value)
