"""What is wrong with what a workload is given, in the words of whoever wrote it: `with`, and its keys.

On the wire it is called spec, because `with` is taken in most languages; people write it in a workload
file, under `with`, and look for it there.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from interlock.agent.kinds import Offered
from interlock.suggestions import nearest

_AT = r"(?: - at `\$(?P<at>.*)`)?"
_UNKNOWN = re.compile(rf"Object contains unknown field `(?P<key>.+?)`{_AT}")
_MISSING = re.compile(rf"Object missing required field `(?P<key>.+?)`{_AT}")
_TYPE = re.compile(rf"Expected `(?P<wanted>.+?)`, got `(?P<found>.+?)`{_AT}")
_NOUNS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "nothing",
    "object": "keys with values",
    "str": "text",
}


def faults_of_given(spec: bytes, offered: Offered) -> list[str]:
    """Everything that is wrong with it, each in one line; nothing when it can be run."""
    kind = offered.kind
    try:
        decoded: Any = msgspec.json.decode(spec or b"{}", type=kind.spec_type)
        kind.check(decoded)
    except msgspec.ValidationError as error:
        return [_told(str(error), kind.kind, _keys(kind.spec_type))]
    except msgspec.DecodeError as error:
        return [f"spec is no JSON: {error}"]
    except ValueError as error:
        return [f"with: {error}"]
    return []


def _told(words: str, kind: str, keys: tuple[str, ...]) -> str:
    if match := _UNKNOWN.fullmatch(words):
        return _unknown(match["key"], _place(match), kind, () if match["at"] else keys)
    if match := _MISSING.fullmatch(words):
        return f"{_place(match)} has no key `{match['key']}`, which {kind} needs"
    if match := _TYPE.fullmatch(words):
        return f"{_place(match)} has to be {_nouns(match['wanted'])}, not {_nouns(match['found'])}"
    return f"with: {words.replace('`$.', '`with.')}"


def _unknown(key: str, place: str, kind: str, keys: tuple[str, ...]) -> str:
    near = nearest(key, keys)
    guess = f" (did you mean {near}?)" if near else ""
    allowed = f"; there is {', '.join(keys)}" if keys else ""
    return f"{place} has the key `{key}`{guess}, which {kind} does not know{allowed}"


def _place(match: re.Match[str]) -> str:
    return f"with{match['at'] or ''}"


def _nouns(types: str) -> str:
    return " or ".join(_NOUNS.get(each, each) for each in types.split(" | "))


def _keys(spec_type: Any) -> tuple[str, ...]:
    """What may be given, where that is known: a plugin may take anything that can be decoded."""
    if isinstance(spec_type, type) and issubclass(spec_type, msgspec.Struct):
        return tuple(field.encode_name for field in msgspec.structs.fields(spec_type))
    return ()
