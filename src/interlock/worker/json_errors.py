"""Where in a value the thing is that JSON cannot hold.

Encoding says only that something does not fit. To say what, the value is walked from its root: as
long as one of the parts does not fit by itself, it is that part. This is slow, and only for errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import msgspec

DEEPEST = 50
"""How many levels a path is followed; what fails below is said to be too deep."""

Part = tuple[str, object]
"""How it is reached from the whole, and what it is."""


@dataclass(frozen=True)
class Misfit:
    """The innermost thing that does not fit."""

    path: str
    type_name: str
    why: str
    todo: str


def find_misfit(value: object, root: str, *, is_json: Callable[[object], bool]) -> Misfit:
    """Follow the first part that does not fit, down to where all of its own parts do."""
    path, around = root, [value]
    while (part := _first_misfit(value, is_json)) is not None:
        step, value = part
        path += step
        if any(value is outer for outer in around):
            return Misfit(path, name_of(type(value)), "contains itself, which JSON cannot express", _BREAK)
        if len(around) == DEEPEST:
            return Misfit(f"{path[:100]}…", name_of(type(value)), "is nested too deeply", _FLATTEN)
        around.append(value)
    why, todo = _reason(value, is_json)
    return Misfit(path, name_of(type(value)), why, todo)


def name_of(kind: Any) -> str:
    """A type as people write it: `socket.socket`, and `float` for what is built in."""
    module, name = getattr(kind, "__module__", ""), getattr(kind, "__qualname__", None) or repr(kind)
    return name if module in ("builtins", "") else f"{module}.{name}"


_BREAK = "Leave out the reference back to what it is part of, or send an id in its place."
_FLATTEN = "Send a flatter structure, such as a list of rows that name their parent."
_PLAIN = (
    "Send what it is made of: text, numbers, lists, dicts, a dataclass, a msgspec struct or a pydantic model."
)


def _first_misfit(value: object, is_json: Callable[[object], bool]) -> Part | None:
    return next((part for part in _parts(value) if not is_json(part[1])), None)


def _parts(value: object) -> Iterator[Part]:
    match value:
        case type():  # a class has fields as well, and none of them is a part of it
            return
        case Mapping():
            yield from ((_step(key), item) for key, item in value.items())
        case list() | tuple() | set() | frozenset():
            yield from ((f"[{place}]", item) for place, item in enumerate(value))
        case _:
            yield from ((f".{name}", getattr(value, name, None)) for name in _field_names(value))


def _step(key: object) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"


def _field_names(value: object) -> Iterator[str]:
    if isinstance(value, msgspec.Struct):
        yield from value.__struct_fields__
    elif is_dataclass(value):
        yield from (field.name for field in fields(value))
    else:
        kind: Any = type(value)
        yield from getattr(kind, "model_fields", ())
        yield from (field.name for field in getattr(kind, "__attrs_attrs__", ()))


def _reason(value: object, is_json: Callable[[object], bool]) -> tuple[str, str]:
    match value:
        case float() if not math.isfinite(value):
            return f"is {value}, which JSON cannot hold", "Send null (None) where there is no number."
        case str():
            return "is no valid text: it holds half of a surrogate pair", "Send bytes, or repair the text."
        case dict() if bad := [key for key in value if not is_json({key: 0})]:
            return (
                f"has the key {bad[0]!r}, and keys in JSON are text",
                "Use strings, or send a list of pairs.",
            )
        case _:
            return f"is of type {name_of(type(value))}, which JSON cannot hold", _PLAIN
