"""Expressions in workflow files: variables, patterns, `if:` conditions, and texts with `${{ … }}`.

Variables: the facts about a change, one table of names for conditions, texts and the environment.

Patterns for branches, tags and paths: `*` within a part, `**` across parts, `?` for one character.

    main              exactly that          docs/          everything below docs
    release/*         one more part         src/**/*.py    any depth, also none
    !docs/**          none of those: the last pattern that matches decides

Conditions can read a change, and have no side effects.

    branch == 'main' and changed('src/**', '!src/docs/**')
    event in ('push', 'manual') or not inputs.quick
    tag matches 'v*'

`and`, `or`, `not` and parentheses; variables; `==`, `!=`, `in`, `matches`; and `changed(patterns…)`, which
is true if a matching path has changed, or if the changed paths are unknown. All values are text; a single
value is true unless it is empty or `false`.

Texts are filled in when the plan is made. Facts of a change (its branch, its author) are untrusted, so they
never become part of a command: in `run` only the values of the matrix are replaced, which are in the file
itself. Steps read all others from environment variables, which a shell takes as text.

Why: decision 0179.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TypeAlias

from interlock.wire.runs import Source

VARIABLE = "INTERLOCK_"


@dataclass(frozen=True, slots=True)
class ChangeFacts:
    """The facts about one change for conditions. Every value is text; false is `false` or empty."""

    source: Source
    inputs: Mapping[str, str] = field(default_factory=dict)
    matrix: Mapping[str, str] = field(default_factory=dict)

    def value(self, name: str) -> str:
        """Return the value of a name; a missing matrix value or input is empty."""
        family, dot, key = name.partition(".")
        if dot:
            return (self.matrix if family == "matrix" else self.inputs).get(key, "")
        return NAMES[name].get(self.source)


@dataclass(frozen=True, slots=True)
class Name:
    """A name that conditions may use."""

    get: Callable[[Source], str]
    doc: str


def branch_of(source: Source) -> str:
    """Return the branch, without `refs/heads/`."""
    return source.ref.removeprefix("refs/heads/") if source.ref.startswith("refs/heads/") else ""


def tag_of(source: Source) -> str:
    """Return the tag, without `refs/tags/`."""
    return source.ref.removeprefix("refs/tags/") if source.ref.startswith("refs/tags/") else ""


def _number(source: Source) -> str:
    return "" if source.pull_request is None else str(source.pull_request)


NAMES: Mapping[str, Name] = {
    "event": Name(lambda source: source.event, "push, pull_request, manual, or the name in a webhook."),
    "branch": Name(branch_of, "The branch of a push: `main`; otherwise empty."),
    "tag": Name(tag_of, "The tag of a push: `v1.2`; otherwise empty."),
    "ref": Name(lambda source: source.ref, "The whole name: `refs/heads/main`."),
    "sha": Name(lambda source: source.sha, "The commit."),
    "base_sha": Name(lambda source: source.base_sha, "The commit that it is compared with."),
    "repository": Name(lambda source: source.repository, "`owner/name`."),
    "pull_request": Name(_number, "The number of the pull request, or empty."),
    "from_fork": Name(lambda source: "true" if source.from_fork else "false", "true or false."),
    "actor": Name(lambda source: source.actor, "Author of the change, as reported by the provider."),
}
FAMILIES: Mapping[str, str] = {
    "inputs": "Inputs of the request, by name.",
    "matrix": "The value of an axis in this job.",
}


def environment(known: ChangeFacts) -> dict[str, str]:
    """Return the facts as environment variables, which a shell takes as text."""
    named = {f"{VARIABLE}{name.upper()}": known.value(name) for name in NAMES}
    given = {f"{VARIABLE}INPUT_{_upper(name)}": value for name, value in known.inputs.items()}
    return {key: value for key, value in (named | given).items() if value}


def _upper(name: str) -> str:
    return name.upper().replace("-", "_")


MOST_PARTS = 20


def matching(name: str, patterns: Sequence[str]) -> str | None:
    """Return the pattern that decides that a name matches.

    Return None if it does not match.
    """
    found = None
    for pattern in patterns:
        if _matches(name, pattern.removeprefix("!")):
            found = None if pattern.startswith("!") else pattern
    return found


def first_matching(names: Sequence[str], patterns: Sequence[str]) -> tuple[str, str] | None:
    """Return the first matching name, with its pattern."""
    return next(
        ((name, pattern) for name in names if (pattern := matching(name, patterns)) is not None), None
    )


def fault_of(pattern: str) -> str | None:
    """Return the fault of a pattern; None if it is valid."""
    bare = pattern.removeprefix("!")
    if not bare or bare.startswith("/"):
        return f"{pattern!r} matches nothing; paths begin without a slash"
    if bare.count("/") >= MOST_PARTS:
        return f"{pattern!r} has more than {MOST_PARTS} parts"
    return None


def _matches(name: str, pattern: str) -> bool:
    wanted = (f"{pattern}**" if pattern.endswith("/") else pattern).split("/")
    return _match_parts(name.split("/"), wanted)


def _match_parts(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether the parts match.

    For each pattern it keeps the set of positions that were reached.
    """
    reached = {0}
    for place, pattern in enumerate(wanted):
        if pattern == "**":
            least = min(reached, default=len(parts) + 1)
            # At the end it matches at least one part: `docs/**` is everything below docs, not docs itself.
            first = least + 1 if place == len(wanted) - 1 else least
            reached = set(range(first, len(parts) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(parts) and fnmatchcase(parts[at], pattern)}
    return len(parts) in reached


MAX_LENGTH = 2_000
MAX_DEPTH = 20

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'[^']*'|"[^"]*")|(?P<word>[A-Za-z_][\w.-]*|-?\d+(?:\.\d+)?)|(?P<sign>==|!=|[(),]))""",
    re.ASCII,
)
_KEY = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
_WORDS = ("and", "or", "not", "in", "matches", "true", "false")


class ConditionError(Exception):
    """A syntax error in a condition, with its offset."""

    def __init__(self, sentence: str, offset: int, allowed: tuple[str, ...] = (), name: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.offset = offset
        self.allowed = allowed
        self.name = name
        """The unknown name, if that is the error."""


@dataclass(frozen=True, slots=True)
class Text:
    """A literal: quoted text, a number, or true or false."""

    text: str


@dataclass(frozen=True, slots=True)
class NameReference:
    """A name of the table."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of a value with one or several others."""

    sign: str
    value: Text | NameReference
    others: tuple[Text | NameReference, ...]


@dataclass(frozen=True, slots=True)
class PathTest:
    """A test for changed paths."""

    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BooleanExpression:
    """Several conditions: all of them, any of them, or none."""

    word: str
    parts: tuple[Expression, ...]


Expression: TypeAlias = "Text | NameReference | Comparison | PathTest | BooleanExpression"

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
class ParsedCondition:
    """A parsed condition."""

    text: str
    expression: Expression

    def holds(self, known: ChangeFacts) -> bool:
        """Return whether the condition is true."""
        return _holds(self.expression, known)

    def seen(self, known: ChangeFacts) -> str:
        """Return the values that the condition has read, as a reason."""
        values = dict.fromkeys(_looked_at(self.expression, known))
        return ", ".join(values)

    @property
    def names(self) -> Iterator[NameReference]:
        """Yield the names that it uses, with their offsets."""
        return _names(self.expression)


def read_condition(text: str) -> ParsedCondition:
    """Parse a condition; raise `ConditionError`."""
    if len(text) > MAX_LENGTH:
        raise ConditionError(f"a condition has at most {MAX_LENGTH:,} characters", 0)
    parser = _Parser(text)
    expression = parser.joined("or", 0)
    parser.done()
    return ParsedCondition(text.strip(), expression)


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
            raise ConditionError(f"{text[place : place + 10]!r} is not understood", place)
        kind = str(match.lastgroup)
        found.append(_Token(kind, match[kind], match.start(kind)))
        place = match.end()
    found.append(_Token("end", "", end))
    return found


class _Parser:
    """Parses from left to right, with one token of lookahead."""

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
            raise ConditionError(f"{text} is missing {self._here()}", self._next.offset)

    def _here(self) -> str:
        return "at the end" if self._next.kind == "end" else f"before {self._next.text}"

    def done(self) -> None:
        """Raise if a token is left."""
        if self._next.kind != "end":
            raise ConditionError(
                f"and, or, or a comparison is missing before {self._next.text}", self._next.offset
            )

    def joined(self, word: str, depth: int) -> Expression:
        """Parse operands joined by one operator; `and` binds closer than `or`."""
        if depth > MAX_DEPTH:
            raise ConditionError("the parentheses are too deep", self._next.offset)
        part = self._negated if word == "and" else lambda depth: self.joined("and", depth)
        parts = [part(depth)]
        while self._take(word):
            parts.append(part(depth))
        return parts[0] if len(parts) == 1 else BooleanExpression(word, tuple(parts))

    def _negated(self, depth: int) -> Expression:
        if self._take("not"):
            return BooleanExpression("not", (self.joined_below(depth),))
        if self._take("("):
            inside = self.joined("or", depth + 1)
            self._need(")")
            return inside
        if self._next.text in FUNCTIONS and self._tokens[self._at + 1].text == "(":
            return self._changed()
        return self._compared()

    def joined_below(self, depth: int) -> Expression:
        """Parse the operand of `not`."""
        if depth > MAX_DEPTH:
            raise ConditionError("there are too many nots", self._next.offset)
        return self._negated(depth + 1)

    def _changed(self) -> PathTest:
        self._at += 1
        patterns = []
        for value, offset in self._several():
            if isinstance(value, NameReference):
                raise ConditionError("changed takes patterns in quotation marks", offset)
            if fault := fault_of(value.text):
                raise ConditionError(fault, offset)
            patterns.append(value.text)
        return PathTest(tuple(patterns))

    def _compared(self) -> Expression:
        value, _ = self._value()
        sign = self._take(*COMPARING)
        if sign is None:
            return value
        others = [self._value()[0]] if sign.text != "in" else [one for one, _ in self._several()]
        return Comparison(sign.text, value, tuple(others))

    def _several(self) -> Iterator[tuple[Text | NameReference, int]]:
        self._need("(")
        yield self._value()
        while self._take(","):
            yield self._value()
        self._need(")")

    def _value(self) -> tuple[Text | NameReference, int]:
        token = self._next
        self._at += token.kind in ("text", "word")
        match token.kind:
            case "text":
                return Text(token.text[1:-1]), token.offset
            case "word" if token.text in ("true", "false") or token.text.lstrip("-")[0].isdigit():
                return Text(token.text), token.offset
            case "word" if token.text not in _WORDS:
                return _checked(NameReference(token.text, token.offset)), token.offset
        raise ConditionError(f"a name or a text is missing {self._here_of(token)}", token.offset)

    def _here_of(self, token: _Token) -> str:
        return "at the end" if token.kind == "end" else f"before {token.text}"


def _checked(named: NameReference) -> NameReference:
    family, dot, key = named.name.partition(".")
    if named.name in NAMES or (dot and family in FAMILIES and _KEY.fullmatch(key)):
        return named
    known = (*NAMES, *(f"{family}.NAME" for family in FAMILIES), *(f"{name}(…)" for name in FUNCTIONS))
    raise ConditionError(f"there is no name {named.name!r}", named.offset, known, named.name)


def _holds(expression: Expression, known: ChangeFacts) -> bool:
    match expression:
        case BooleanExpression("or", parts):
            return any(_holds(part, known) for part in parts)
        case BooleanExpression("and", parts):
            return all(_holds(part, known) for part in parts)
        case BooleanExpression(_, parts):
            return not _holds(parts[0], known)
        case PathTest(patterns):
            paths = known.source.changed_paths
            return paths is None or first_matching(paths, patterns) is not None
        case Comparison(sign, value, others):
            return COMPARING[sign][0](_text(value, known), tuple(_text(other, known) for other in others))
        case Text() | NameReference():
            return _text(expression, known) not in ("", "false")


def _text(value: Text | NameReference, known: ChangeFacts) -> str:
    return value.text if isinstance(value, Text) else known.value(value.name)


def _names(expression: Expression) -> Iterator[NameReference]:
    match expression:
        case NameReference():
            yield expression
        case BooleanExpression(parts=parts):
            for part in parts:
                yield from _names(part)
        case Comparison(value=value, others=others):
            for part in (value, *others):
                yield from _names(part)
        case PathTest() | Text():
            pass


def _looked_at(expression: Expression, known: ChangeFacts) -> Iterator[str]:
    for named in _names(expression):
        yield f"{named.name} is {known.value(named.name)[:100]!r}"
    for patterns in _patterns(expression):
        yield changed_sentence(known, patterns)


def changed_sentence(known: ChangeFacts, patterns: tuple[str, ...]) -> str:
    """Return a sentence about the matching path that has changed, if any."""
    paths = known.source.changed_paths
    if paths is None:
        return "the changed paths are unknown"
    found = first_matching(paths, patterns)
    if found is None:
        return f"no changed path matches {' '.join(patterns)} (there are {len(paths)})"
    return f"{found[0]} has changed, which matches {found[1]}"


def _patterns(expression: Expression) -> Iterator[tuple[str, ...]]:
    match expression:
        case PathTest(patterns):
            yield patterns
        case BooleanExpression(parts=parts):
            for part in parts:
                yield from _patterns(part)
        case _:
            pass


_HOLE = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)


class Scope(StrEnum):
    """The names that a text may use."""

    NONE = "none"
    MATRIX = "matrix"
    EVERYTHING = "everything"


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A name to replace, and its offset in the text."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed text."""

    parts: tuple[str | Placeholder, ...]

    def filled(self, known: ChangeFacts) -> str:
        """Return the text with its placeholders replaced."""
        return "".join(part if isinstance(part, str) else known.value(part.name) for part in self.parts)

    @property
    def holes(self) -> Iterator[Placeholder]:
        """Yield the placeholders."""
        return (part for part in self.parts if isinstance(part, Placeholder))


class TemplateError(Exception):
    """A placeholder that is not allowed, with its offset."""

    def __init__(self, sentence: str, offset: int, allowed: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.offset = offset
        self.allowed = allowed


def literal(text: str) -> Template:
    """Return a template without placeholders."""
    return Template((text,))


def read_text(text: str, scope: Scope) -> Template:
    """Parse a text; raise `TemplateError`."""
    parts: list[str | Placeholder] = []
    place = 0
    for found in _HOLE.finditer(text):
        name = found[1].strip()
        if fault := _fault(name, scope):
            raise TemplateError(fault, found.start(), _allowed(scope))
        parts += [text[place : found.start()], Placeholder(name, found.start())]
        place = found.end()
    parts.append(text[place:])
    return Template(tuple(part for part in parts if part != ""))


def _fault(name: str, scope: Scope) -> str | None:
    family, dot, key = name.partition(".")
    if family == "secrets":
        return "a secret is a variable of the job: name it under secrets and write $NAME"
    if family == "env":
        return f"a variable is written as the shell writes it: ${key or 'NAME'}"
    known = name in NAMES or (dot and family in FAMILIES and _KEY.fullmatch(key))
    if not known:
        return f"there is no name {name[:100]!r}"
    if scope is Scope.EVERYTHING or (scope is Scope.MATRIX and family == "matrix"):
        return None
    if scope is Scope.NONE:
        return "nothing is replaced here"
    variable = f"INPUT_{key}" if dot else name
    return (
        f"{name} comes with the change and could hold a command; use the variable "
        f"${VARIABLE}{variable.upper().replace('-', '_')}, or put it into env"
    )


def _allowed(scope: Scope) -> tuple[str, ...]:
    if scope is Scope.NONE:
        return ()
    return ("matrix.NAME",) if scope is Scope.MATRIX else (*NAMES, *(f"{name}.NAME" for name in FAMILIES))
