"""Validate a request before READY: quickly, without a side effect, and all faults at once.

The spec of a workload is written under `with` in a workload file and called spec on the wire, because `with`
is a keyword in most languages. Faults name it `with`, and its keys, as the author of the file does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from interlock.agent.port import KindLocation
from interlock.errors import InvalidWorkload
from interlock.lifecycles.durations import Durations
from interlock.text import nearest

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


def faults_of_given(spec: bytes, offered: KindLocation) -> list[str]:
    """Return the faults of a spec, each in one line; empty when it can be run."""
    kind = offered.kind
    try:
        decoded: Any = msgspec.json.decode(spec or b"{}", type=kind.spec_type)
        kind.check(decoded)
    except msgspec.ValidationError as error:
        return [_fault(str(error), kind.kind, _keys(kind.spec_type))]
    except msgspec.DecodeError as error:
        return [f"spec is not JSON: {error}"]
    except ValueError as error:
        return [f"with: {error}"]
    return []


def _fault(words: str, kind: str, keys: tuple[str, ...]) -> str:
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
    """Return the keys of a spec; none if a plugin accepts anything."""
    if isinstance(spec_type, type) and issubclass(spec_type, msgspec.Struct):
        return tuple(field.encode_name for field in msgspec.structs.fields(spec_type))
    return ()


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
MAX_CONCURRENCY = 10_000
MAX_RATE = 1_000_000.0
MAX_PREPARE_S = 60.0
MAX_SPEC_BYTES = 1024 * 1024


class RequestedWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a workload, as received."""

    workload_id: str
    kind: str
    spec: bytes = b"{}"
    start_at_unix_ns: int | None = None
    duration_s: float = 0.0
    rate: float = 0.0
    concurrency: int = 1
    max_operations: int = 0
    prepare_s: float | None = None
    controller: str = ""


class ValidRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A valid request."""

    request: RequestedWorkload
    home: str
    spec: msgspec.Raw
    duration_s: float
    prepare_s: float


def look_at(
    request: RequestedWorkload, kinds: Mapping[str, KindLocation], durations: Durations, now_unix_ns: int
) -> ValidRequest:
    """Validate a request; raise `InvalidWorkload` with all its faults."""
    faults = list(_faults(request, durations, now_unix_ns))
    offered = kinds.get(request.kind)
    if offered is None:
        near = nearest(request.kind, tuple(kinds))
        guess = f" (did you mean {near}?)" if near else ""
        faults.append(f"kind is {request.kind!r}{guess} and must be one of {', '.join(kinds)}")
    else:
        faults += faults_of_given(request.spec, offered)
    if faults or offered is None:
        raise InvalidWorkload(
            "The workload cannot be run: " + "; ".join(faults) + ".",
            todo="Change the request so that each of these holds.",
            facts={"faults": faults, "kinds": list(kinds)},
        )
    return ValidRequest(
        request=request,
        home=offered.home,
        spec=msgspec.Raw(request.spec or b"{}"),
        duration_s=request.duration_s or durations.workload_duration_s,
        prepare_s=offered.kind.prepare_s if request.prepare_s is None else request.prepare_s,
    )


def too_far(start_at_unix_ns: int, now_unix_ns: int, durations: Durations) -> str | None:
    """Return the fault of a start time that is too far ahead, or None."""
    if start_at_unix_ns < 0:
        return f"start_at_unix_ns is {start_at_unix_ns} and must be nanoseconds since 1970"
    ahead_s = (start_at_unix_ns - now_unix_ns) / 1e9
    if ahead_s <= durations.start_wait_s:
        return None
    return f"the start is {ahead_s:.1f} s ahead, and must be at most {durations.start_wait_s:g} s ahead"


def _faults(request: RequestedWorkload, durations: Durations, now_unix_ns: int) -> Iterator[str]:
    if not NAME.fullmatch(request.workload_id):
        yield "workload_id must be 1 to 64 letters, digits, dots, colons, dashes or underscores"
    ranges = (
        ("duration_s", request.duration_s, durations.workload_duration_s),
        ("rate", request.rate, MAX_RATE),
        ("concurrency", request.concurrency, MAX_CONCURRENCY),
        ("prepare_s", request.prepare_s or 0.0, MAX_PREPARE_S),
    )
    for name, value, most in ranges:
        if not (math.isfinite(value) and 0 <= value <= most):
            yield f"{name} is {value:g} and must be between 0 and {most:g}"
    start = request.start_at_unix_ns
    if start is not None and (fault := too_far(start, now_unix_ns, durations)):
        yield fault
    if len(request.spec) > MAX_SPEC_BYTES:
        yield f"spec has {len(request.spec):,} bytes, and may have {MAX_SPEC_BYTES:,}"
