"""JSON values that one writes and everybody reads: what is refused, and that nothing else is."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from interlock.wire.json_values import LARGEST, LEAST, MOST_LEVELS, json_fault

UNREADABLE = {
    "not finite": (b"1e999", "1e999"),
    "not finite, in capitals and inside": (b'{"a":[1,-1E+0400]}', "-1E+0400"),
    "not finite, without an exponent": (b"1" * 400 + b".5", "(402 characters)"),
    "an integer of 5,000 digits": (b"[" + b"9" * 5_000 + b"]", "(5,000 characters)"),
    "an integer of 65 bits": (b"18446744073709551616", "18446744073709551616"),
    "a negative integer of 65 bits": (b"-9223372036854775809", "-9223372036854775809"),
    "not UTF-8": (b'"\xff"', "UTF-8"),
    "a name that is not UTF-8": (b'{"\xff":1}', "UTF-8"),
    "half a character as bytes": (b'"\xed\xa0\x80"', "UTF-8"),
    "half a character": (b'"\\ud800"', "JSON"),
    "half a character before another": (b'"\\ud800\\u0041 and more"', "JSON"),
    "arrays that are too deep": (b"[" * 65 + b"]" * 65, "64"),
    "objects that are too deep": (b'{"a":' * 65 + b"1" + b"}" * 65, "64"),
    "100,000 arrays": (b"[" * 100_000 + b"]" * 100_000, "64"),
    "depth that brackets in strings hide": (b'["]",' * 300 + b"1" + b',"["]' * 300, "64"),
    "depth that quotes in strings hide": (b'["\\"",' * 300 + b"1" + b"]" * 300, "64"),
    "no number": (b"NaN", "JSON"),
    "nothing": (b"", "JSON"),
    "two values": (b"1 2", "JSON"),
}


@pytest.mark.parametrize(("raw", "named"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_value_that_common_readers_cannot_read_is_refused(raw: bytes, named: str) -> None:
    assert named in json_fault(raw)
    assert json_fault(msgspec.Raw(raw)) == json_fault(raw)
    assert len(json_fault(raw)) < 200


@pytest.mark.parametrize(
    "raw",
    [
        b"%d" % LEAST,
        b"%d" % LARGEST,
        b"1e308",
        b"-1.7976931348623157e308",
        b"1e-999",
        b"0." + b"1" * 5_000,
        b"1" * 300 + b".5",
        b'"1e999"',
        b'"\\"1e999"',
        b'{"' + b"9" * 5_000 + b'":"' + b"9" * 5_000 + b'"}',
        b'["\\\\",1e99]',
        b'"\\u0000"',
        b'"\\ud83d\\ude00"',
        '"größe 名"'.encode(),
        b'"' + b"[" * 5_000 + b'"',
        b"[" * 64 + b"]" * 64,
        b"[" + b",".join([b'{"a":[1]}'] * 1_000) + b"]",
        b" \n[ 1 ,\t2 ] ",
    ],
)
def test_a_value_that_readers_can_read_is_taken(raw: bytes) -> None:
    assert json_fault(raw) == ""


TEXT = st.text(st.characters(blacklist_categories=["Cs"]))
ANY: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(LEAST, LARGEST)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
)


@given(ANY, st.booleans())
def test_every_value_encoded_by_json_or_msgspec_is_accepted(value: Any, ascii_only: bool) -> None:
    assert json_fault(json.dumps(value, ensure_ascii=ascii_only).encode()) == ""
    assert json_fault(msgspec.json.encode(value)) == ""


@given(ANY, st.from_regex(r"\A-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,5})?([eE][+-]?[0-9]{1,5})?\Z"))
@example([], "1e309")
def test_a_number_is_taken_if_readers_can_hold_it(value: Any, number: str) -> None:
    whole = number.lstrip("-").isdigit()
    good = LEAST <= int(number) <= LARGEST if whole else math.isfinite(float(number))
    raw = json.dumps([value, {"n": 0}]).replace('"n": 0', f'"n": {number}')
    assert (json_fault(raw.encode()) == "") == good


@given(st.integers(1, 300), st.booleans(), TEXT)
def test_depth_is_counted_as_it_is(levels: int, arrays: bool, text: str) -> None:
    quoted, inner = json.dumps(text), "1"
    for _ in range(levels):
        inner = f"[{quoted},{inner}]" if arrays else f'{{"]":{inner},"[":{quoted}}}'
    assert (json_fault(inner.encode()) == "") == (levels <= MOST_LEVELS)
