"""The little language of `if:`; it can look at a change, and do nothing else.

    branch == 'main' and changed('src/**', '!src/docs/**')
    event in ('push', 'manual') or not inputs.quick
    tag matches 'v*'

`and`, `or`, `not` and parentheses; names from the table in `variables`; `==`, `!=`, `in`, `matches`; and
`changed(patterns…)`, which holds when a path that counts has changed, or when nobody knows which have.
Everything is text; a value that stands alone holds unless it is empty or `false`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from interlock.systems.runs.planning.patterns import fault_of, first_matching, matching
from interlock.systems.runs.planning.variables import FAMILIES, NAMES, Known

MAX_LENGTH = 2_000
MAX_DEPTH = 20

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'[^']*'|"[^"]*")|(?P<word>[A-Za-z_][\w.-]*|-?\d+(?:\.\d+)?)|(?P<sign>==|!=|[(),]))""",
    re.ASCII,
)
_KEY = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
_WORDS = ("and", "or", "not", "in", "matches", "true", "false")


class BadCondition(Exception):
    """A condition that cannot be understood, and where in it."""

    def __init__(self, sentence: str, offset: int, allowed: tuple[str, ...] = (), name: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.offset = offset
        self.allowed = allowed
        self.name = name
        """The unknown name, where that is what is wrong."""


@dataclass(frozen=True, slots=True)
class Text:
    """Something written in quotation marks, or a number, or true or false."""

    text: str


@dataclass(frozen=True, slots=True)
class Named:
    """A name of the table."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Compared:
    """A value held against one or several others."""

    sign: str
    value: Text | Named
    others: tuple[Text | Named, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """Whether paths have changed."""

    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """Several conditions: all of them, one of them, or none."""

    word: str
    parts: tuple[Expression, ...]


Expression: TypeAlias = "Text | Named | Compared | Changed | Joined"

COMPARING: Mapping[str, tuple[Callable[[str, tuple[str, ...]], bool], str]] = {
    "==": (lambda value, others: value == others[0], "Both are the same text."),
    "!=": (lambda value, others: value != others[0], "They are not."),
    "in": (lambda value, others: value in others, "It is one of those in the parentheses."),
    "matches": (lambda value, others: matching(value, others) is not None, "It matches the pattern."),
}
FUNCTIONS: Mapping[str, str] = {
    "changed": "A path that matches has changed; the last pattern that matches decides, `!` excludes.",
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that was understood."""

    text: str
    expression: Expression

    def holds(self, known: Known) -> bool:
        """Whether it is so."""
        return _holds(self.expression, known)

    def seen(self, known: Known) -> str:
        """What it has looked at, for whoever wonders why."""
        told = dict.fromkeys(_looked_at(self.expression, known))
        return ", ".join(told)

    @property
    def names(self) -> Iterator[Named]:
        """The names that it uses, where they are."""
        return _names(self.expression)


def read_condition(text: str) -> Condition:
    """Understand a condition; raises `BadCondition`."""
    if len(text) > MAX_LENGTH:
        raise BadCondition(f"a condition has at most {MAX_LENGTH:,} characters", 0)
    parser = _Parser(text)
    expression = parser.joined("or", 0)
    parser.done()
    return Condition(text.strip(), expression)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    offset: int


def _tokens(text: str) -> list[_Token]:
    found, place = [], 0
    end = len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            place += len(text[place:]) - len(text[place:].lstrip())
            raise BadCondition(f"{text[place : place + 10]!r} is not understood", place)
        kind = str(match.lastgroup)
        found.append(_Token(kind, match[kind], match.start(kind)))
        place = match.end()
    found.append(_Token("end", "", end))
    return found


class _Parser:
    """Reads from the left to the right, one token ahead."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> _Token | None:
        token = self._next
        if token.kind in ("word", "sign") and token.text in texts:
            self._at += 1
            return token
        return None

    def _need(self, text: str) -> None:
        if self._take(text) is None:
            raise BadCondition(f"{text} is missing {self._here()}", self._next.offset)

    def _here(self) -> str:
        return "at the end" if self._next.kind == "end" else f"before {self._next.text}"

    def done(self) -> None:
        """Nothing may be left."""
        if self._next.kind != "end":
            raise BadCondition(
                f"and, or, or a comparison is missing before {self._next.text}", self._next.offset
            )

    def joined(self, word: str, depth: int) -> Expression:
        """Parts with one word between them; `and` binds closer than `or`."""
        if depth > MAX_DEPTH:
            raise BadCondition("the parentheses are too deep", self._next.offset)
        part = self._negated if word == "and" else lambda depth: self.joined("and", depth)
        parts = [part(depth)]
        while self._take(word):
            parts.append(part(depth))
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def _negated(self, depth: int) -> Expression:
        if self._take("not"):
            return Joined("not", (self.joined_below(depth),))
        if self._take("("):
            inside = self.joined("or", depth + 1)
            self._need(")")
            return inside
        if self._next.text in FUNCTIONS and self._tokens[self._at + 1].text == "(":
            return self._changed()
        return self._compared()

    def joined_below(self, depth: int) -> Expression:
        """What follows `not`."""
        if depth > MAX_DEPTH:
            raise BadCondition("there are too many nots", self._next.offset)
        return self._negated(depth + 1)

    def _changed(self) -> Changed:
        self._at += 1
        patterns = []
        for value, offset in self._several():
            if isinstance(value, Named):
                raise BadCondition("changed takes patterns in quotation marks", offset)
            if fault := fault_of(value.text):
                raise BadCondition(fault, offset)
            patterns.append(value.text)
        return Changed(tuple(patterns))

    def _compared(self) -> Expression:
        value, _ = self._value()
        sign = self._take(*COMPARING)
        if sign is None:
            return value
        others = [self._value()[0]] if sign.text != "in" else [one for one, _ in self._several()]
        return Compared(sign.text, value, tuple(others))

    def _several(self) -> Iterator[tuple[Text | Named, int]]:
        self._need("(")
        yield self._value()
        while self._take(","):
            yield self._value()
        self._need(")")

    def _value(self) -> tuple[Text | Named, int]:
        token = self._next
        self._at += token.kind in ("text", "word")
        match token.kind:
            case "text":
                return Text(token.text[1:-1]), token.offset
            case "word" if token.text in ("true", "false") or token.text.lstrip("-")[0].isdigit():
                return Text(token.text), token.offset
            case "word" if token.text not in _WORDS:
                return _checked(Named(token.text, token.offset)), token.offset
        raise BadCondition(f"a name or a text is missing {self._here_of(token)}", token.offset)

    def _here_of(self, token: _Token) -> str:
        return "at the end" if token.kind == "end" else f"before {token.text}"


def _checked(named: Named) -> Named:
    family, dot, key = named.name.partition(".")
    if named.name in NAMES or (dot and family in FAMILIES and _KEY.fullmatch(key)):
        return named
    known = (*NAMES, *(f"{family}.NAME" for family in FAMILIES), *(f"{name}(…)" for name in FUNCTIONS))
    raise BadCondition(f"there is no name {named.name!r}", named.offset, known, named.name)


def _holds(expression: Expression, known: Known) -> bool:
    match expression:
        case Joined("or", parts):
            return any(_holds(part, known) for part in parts)
        case Joined("and", parts):
            return all(_holds(part, known) for part in parts)
        case Joined(_, parts):
            return not _holds(parts[0], known)
        case Changed(patterns):
            paths = known.source.changed_paths
            return paths is None or first_matching(paths, patterns) is not None
        case Compared(sign, value, others):
            return COMPARING[sign][0](_text(value, known), tuple(_text(other, known) for other in others))
        case Text() | Named():
            return _text(expression, known) not in ("", "false")


def _text(value: Text | Named, known: Known) -> str:
    return value.text if isinstance(value, Text) else known.value(value.name)


def _names(expression: Expression) -> Iterator[Named]:
    match expression:
        case Named():
            yield expression
        case Joined(parts=parts):
            for part in parts:
                yield from _names(part)
        case Compared(value=value, others=others):
            for part in (value, *others):
                yield from _names(part)
        case Changed() | Text():
            pass


def _looked_at(expression: Expression, known: Known) -> Iterator[str]:
    for named in _names(expression):
        yield f"{named.name} is {known.value(named.name)[:100]!r}"
    for patterns in _patterns(expression):
        yield changed_sentence(known, patterns)


def changed_sentence(known: Known, patterns: tuple[str, ...]) -> str:
    """Which path has changed that counts, or that none has."""
    paths = known.source.changed_paths
    if paths is None:
        return "nobody knows which paths have changed"
    found = first_matching(paths, patterns)
    if found is None:
        return f"no changed path matches {' '.join(patterns)} (there are {len(paths)})"
    return f"{found[0]} has changed, which matches {found[1]}"


def _patterns(expression: Expression) -> Iterator[tuple[str, ...]]:
    match expression:
        case Changed(patterns):
            yield patterns
        case Joined(parts=parts):
            for part in parts:
                yield from _patterns(part)
        case _:
            pass
