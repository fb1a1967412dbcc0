"""Fill `-o template=TEXT` with the fields of a record, and name the fault of a template.

Why: decision 0553.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from interlock.errors import InvalidArguments
from interlock.text import counted, nearest

_TODO = "Write the names of fields in braces, such as {id}; `-o json` shows all of them."
_FIRST = re.compile(r"[^.\[]*")
_INNER = re.compile(r"\[([^\]]*)\]")
_CONVERSIONS = ("s", "r", "a")


def filled(template: str, fields: Mapping[str, Any]) -> str:
    """Return the template with the fields of one record."""
    try:
        return _Filler().vformat(template, (), fields)
    except ValueError as error:
        raise InvalidArguments(
            f"The template {template!r} cannot be read: {str(error).rstrip('.')}.",
            allowed=sorted(fields),
            todo="Write {{ and }} for braces that are text, and the names of fields in single braces: {id}.",
        ) from None


def whole(value: Any) -> Any:
    """Return a value as JSON has it, with the fields that JSON leaves out.

    Those have their default.
    """
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {encoded: whole(getattr(value, name)) for encoded, name in names}
    if isinstance(value, Mapping):
        return {str(key): whole(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [whole(each) for each in value]
    return None if value is msgspec.UNSET else msgspec.json.decode(msgspec.json.encode(value))


class _Filler(string.Formatter):
    """The formatter of Python, for values of JSON: these have fields and entries, but no attributes."""

    def __init__(self) -> None:
        self._field = ""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:  # noqa: ARG002
        """Return the value of `attempts[0][state]`."""
        self._field = field_name
        first, rest = _first_of(field_name)
        if not first or first.isdecimal():
            raise InvalidArguments("A field of the template has no name.", allowed=sorted(kwargs), todo=_TODO)
        keys = _INNER.findall(rest)
        if rest != "".join(f"[{key}]" for key in keys):
            raise InvalidArguments(
                f"There is no field {field_name!r}.",
                allowed=sorted(kwargs),
                todo="Write a field within a field in brackets, such as {attempts[0][state]}.",
            )
        if first not in kwargs:
            raise _unknown(first, kwargs, "")
        value, path = kwargs[first], first
        for key in keys:
            value, path = _inner(value, key, path), f"{path}[{key}]"
        return value, first

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        """Return the value after `!s`, `!r` or `!a`."""
        if conversion is not None and conversion not in _CONVERSIONS:
            raise InvalidArguments(
                f"There is no conversion !{conversion} in a template.",
                allowed=[f"!{each}" for each in _CONVERSIONS],
                todo=f"Leave it out: {{{self._field}}}",
            )
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> Any:
        """Return the text of the value in a format such as `>20`."""
        try:
            return super().format_field(value, format_spec)
        except (ValueError, TypeError, OverflowError):
            raise InvalidArguments(
                f"{self._field} is {_kind_of(value)}, and {format_spec!r} is no format for that.",
                todo=f"Leave out the format, or format its text, for example {{{self._field}!s:>20}}.",
            ) from None


def _first_of(field_name: str) -> tuple[str, str]:
    found = _FIRST.match(field_name)
    first = found[0] if found else ""
    return first, field_name[len(first) :]


def _inner(value: Any, key: str, path: str) -> Any:
    """Return the field or the entry of a value."""
    if isinstance(value, dict):
        if key not in value:
            raise _unknown(key, value, f" in {path}")
        return value[key]
    if not isinstance(value, list):
        raise InvalidArguments(
            f"There is no field {key!r} in {path}, which is {_kind_of(value)}.", todo=f"Write {{{path}}}."
        )
    if not key.isdecimal():
        raise InvalidArguments(
            f"There is no field {key!r} in {path}, which is a list.",
            todo=f"Write the number of an entry, for example {{{path}[0]}}.",
        )
    if int(key) >= len(value):
        raise InvalidArguments(
            f"There is no entry {key} in {path}, which is a list of {counted(len(value), 'entry')}.",
            todo="Write the number of an entry that every record has; the first is 0.",
        )
    return value[int(key)]


def _unknown(name: str, known: Mapping[str, Any], where: str) -> InvalidArguments:
    guess = nearest(name, sorted(known))
    return InvalidArguments(
        f"There is no field {name!r}{where}." + (f" Did you mean {guess}?" if guess else ""),
        allowed=sorted(known),
        todo=_TODO,
    )


def _kind_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"
