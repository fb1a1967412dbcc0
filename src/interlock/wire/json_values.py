"""JSON: decoders that threads can share, and checks of values that are stored as they are.

msgspec inspects a struct on first use and shows it to other threads before it is done; decoding by it then
crashes the process. So one thread at a time makes decoders, and only complete ones are used.

One value that a common reader cannot read makes every list that holds it unreadable. So inputs, results and
checkpoints are I-JSON (RFC 7493) where it matters: UTF-8, numbers that are finite as doubles, integers of
64 bits, bounded nesting.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn, TypeVar

import msgspec

T = TypeVar("T")

LEARNING = threading.Lock()
"""Lock that a thread holds while it makes a decoder."""


def decode_as(raw: bytes | str | msgspec.Raw, kind: type[T]) -> T:
    """Decode JSON as one of the types that cross the wire."""
    known: Any = kind
    decoded: T = _decoder_of(known)(raw)
    return decoded


@lru_cache(maxsize=1_024)
def _decoder_of(kind: Any) -> Callable[[bytes | str | msgspec.Raw], Any]:
    with LEARNING:
        return msgspec.json.Decoder(kind).decode


LEAST, LARGEST = -(2**63), 2**64 - 1
"""Range of integers that all languages can represent. Readers that only know doubles round them."""
MOST_LEVELS = 64
"""Maximum depth of nested arrays and objects, also in the body of a request."""
SHALLOW = 2 * MOST_LEVELS
"""Length in bytes of JSON that cannot be deeper: each level has two brackets."""

_skip = msgspec.json.Decoder(msgspec.Raw).decode
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SQUARE = bytes.maketrans(b"{}", b"[]")
_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
_MANY_DIGITS = b"0" * 19
"""A run of digits that an integer of 64 bits may not fit; a shorter one always does."""
_LARGE_EXPONENT = b"0e000"
"""Characters of a number that may not be finite; without them it always is."""
_SHORT = 64
"""Maximum length of values whose faults are remembered."""


def json_fault(value: bytes | msgspec.Raw) -> str:
    """Return the fault of a value that is to be stored, or "".

    Short values repeat themselves (`null`, the same input checked twice), so their faults are remembered.
    """
    raw = bytes(value)
    return _known_fault(raw) if len(raw) <= _SHORT else _fault(raw)


def _fault(raw: bytes) -> str:
    """Return the fault of a value, or "".

    Most values pass after a scan of their bytes; only those with long runs of digits are decoded.
    """
    try:
        _skip(raw)
    except RecursionError:
        return _too_deep()
    except msgspec.DecodeError:
        return "is not one value of JSON"
    if not raw.isascii() and not _is_utf8(raw):
        return "is not UTF-8"
    deep, large = _may_be_deep(raw), _has_large_numbers(raw)
    return _fault_outside_strings(raw, deep, large) if deep or large else ""


_known_fault = lru_cache(maxsize=1_024)(_fault)


def _fault_outside_strings(raw: bytes, deep: bool, large: bool) -> str:
    """Repeat the scan without strings.

    Strings contain most of the bytes that look like numbers and brackets.
    """
    outside = _outside_strings(raw)
    if deep and _is_deep(outside):
        return _too_deep()
    return _number_fault(raw) if large and _has_large_numbers(outside) else ""


def is_too_deep(raw: bytes) -> bool:
    """Return whether valid JSON is nested deeper than `MOST_LEVELS`.

    Arrays and objects inside each other count.
    """
    return _may_be_deep(raw) and _is_deep(_outside_strings(raw))


def _may_be_deep(raw: bytes) -> bool:
    return len(raw) > SHALLOW and len(raw.translate(None, _NOT_BRACKETS)) > SHALLOW


def _outside_strings(raw: bytes) -> bytes:
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw
    return b'"'.join(plain.split(b'"')[::2])


def _too_deep() -> str:
    return f"has more than {MOST_LEVELS} arrays and objects inside each other"


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_deep(outside: bytes) -> bool:
    brackets = outside.translate(_SQUARE, _NOT_BRACKETS)
    for _ in range(MOST_LEVELS):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")  # the innermost pairs
    return bool(brackets)


def _has_large_numbers(raw: bytes) -> bool:
    looks = raw.translate(_DIGITS, b"+")
    return _MANY_DIGITS in looks or _LARGE_EXPONENT in looks


def _number_fault(raw: bytes) -> str:
    try:
        json.loads(raw, parse_int=_whole, parse_float=_finite)
    except _BadNumber as error:
        return str(error)
    return ""


class _BadNumber(Exception):
    """A number that readers cannot represent."""


def _whole(digits: str) -> None:
    if len(digits) > 20 or not LEAST <= int(digits) <= LARGEST:
        _refuse(digits, "64-bit integers (-2^63 to 2^64-1) are stored; write it as a string")


def _finite(digits: str) -> None:
    if not math.isfinite(float(digits)):
        _refuse(digits, "numbers up to 1.8e308 are stored; write it as a string")


def _refuse(digits: str, allowed: str) -> NoReturn:
    shown = digits if len(digits) <= 24 else f"{digits[:20]}… ({len(digits):,} characters)"
    raise _BadNumber(f"has the number {shown}: {allowed}")
