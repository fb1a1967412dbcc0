"""Values go out as JSON and come back as what they were; what JSON cannot hold is named by its path."""

from __future__ import annotations

import collections
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, computed_field

from interlock.errors import InvalidArguments, NotJson
from interlock.wire.json_values import MOST_LEVELS, json_fault
from interlock.worker.codec import decode, decoder_of, decoding_error, encode


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1


class Word(StrEnum):
    HELLO = "hello"


class Point(msgspec.Struct):
    x: float
    tags: set[str] = set()


@dataclass
class Order:
    id: uuid.UUID
    price: Decimal
    at: datetime
    lines: list[tuple[str, int]] = field(default_factory=list)
    parent: Order | None = None


class Pair(NamedTuple):
    left: int
    right: str


class Row(TypedDict):
    name: str


class User(BaseModel):
    name: str
    extra: Any = None


class Strict(BaseModel):
    """A model that takes nothing but exact types, names and fields."""

    model_config = ConfigDict(strict=True, extra="forbid")

    at: datetime
    tags: set[str]
    number: int = Field(alias="theNumber")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.number


def text_of(value: object) -> str:
    return bytes(encode(value)).decode()


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ID = uuid.UUID(int=7)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "null"),
        ({"a": [1, 2.5, True, None, "ü"]}, '{"a":[1,2.5,true,null,"ü"]}'),
        (Point(1.5, {"a"}), '{"x":1.5,"tags":["a"]}'),
        (Pair(1, "b"), '[1,"b"]'),
        ((1, (2, 3)), "[1,[2,3]]"),
        (frozenset({3}), "[3]"),
        (Colour.RED, '"red"'),
        (Size.SMALL, "1"),
        (Word.HELLO, '"hello"'),
        (NOON, '"2026-01-02T12:00:00Z"'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (time(1, 2, 3), '"01:02:03"'),
        (timedelta(hours=1), '"PT3600S"'),
        (Decimal("0.1"), '"0.1"'),
        (ID, '"00000000-0000-0000-0000-000000000007"'),
        (b"\x00\xff", '"AP8="'),
        (Path("/tmp/a"), '"/tmp/a"'),
        (PurePosixPath("a/b"), '"a/b"'),
        ({1: "one", ID: 2}, '{"1":"one","00000000-0000-0000-0000-000000000007":2}'),
        (User(name="ada"), '{"name":"ada","extra":null}'),
        ([User(name="ada"), Path("x")], '[{"name":"ada","extra":null},"x"]'),
        (2**70, "1180591620717411303424"),
        (msgspec.Raw(b'{"a":null}'), '{"a":null}'),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_each_supported_python_type_are_encoded_as_the_expected_json(
    value: object, written: str
) -> None:
    assert text_of(value) == written


def test_a_nested_dataclass_is_decoded_to_an_equal_object() -> None:
    order = Order(ID, Decimal("1.10"), NOON, [("a", 1)], Order(ID, Decimal(2), NOON))
    assert decode(encode(order), Order) == order


def test_a_strict_model_with_aliases_and_computed_fields_is_decoded_to_an_equal_object() -> None:
    model = Strict(at=NOON, tags={"a"}, theNumber=3)
    assert text_of(model) == '{"at":"2026-01-02T12:00:00Z","tags":["a"],"theNumber":3}'
    assert decode(encode([model]), list[Strict]) == [model]


def test_the_first_few_faults_of_a_model_are_reported() -> None:
    with pytest.raises(InvalidArguments) as caught:
        decode(b'{"at":true,"other":1}', Strict)
    assert "at: Input should be a valid datetime; tags: Field required; theNumber" in caught.value.sentence
    assert "other" not in caught.value.sentence


def test_decoding_without_a_type_returns_plain_json_values() -> None:
    assert decode(encode((1, {2: Decimal("3")}, Colour.RED))) == [1, {"2": "3"}, "red"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({1: "a"}, dict[int, str]),
        ((1, "a"), tuple[int, str]),
        ({"a"}, set[str]),
        ([User(name="ada")], list[User]),
        (None, User | None),
        ({"home": Path("/root")}, dict[str, Path]),
        (3, float),
        (Pair(1, "b"), Pair),
        (Colour.RED, Colour),
        (Size.SMALL, Size),
        (NOON, datetime),
        (timedelta(hours=1), timedelta),
        (Decimal("0.1"), Decimal),
        (ID, uuid.UUID),
        (b"\x00\xff", bytes),
        (PurePosixPath("a/b"), PurePosixPath),
        ("red", Literal["red"]),
        (4, Annotated[int, msgspec.Meta(gt=3)]),
        ([Point(1.0)], Iterable[Point]),
        ({"name": "ada"}, Row),
        ([1], object),
    ],
)
def test_a_value_is_decoded_to_an_equal_value_of_its_declared_type(value: object, kind: Any) -> None:
    assert decode(encode(value), kind) == value


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=25,
)
orders = st.builds(
    Order,
    id=st.uuids(),
    price=st.decimals(allow_nan=False, allow_infinity=False),
    at=st.datetimes(timezones=st.just(UTC)),
    lines=st.lists(st.tuples(st.text(), st.integers(-(2**63), 2**63))),
    parent=st.none(),
)


@given(json_values)
def test_plain_values_survive_the_way_there_and_back(value: object) -> None:
    assert decode(encode(value)) == value


@given(orders)
def test_typed_values_survive_the_way_there_and_back(order: Order) -> None:
    assert decode(encode(order), Order) == order


@given(json_values, st.sampled_from([float("nan"), float("inf"), float("-inf")]))
def test_nan_and_infinity_are_refused_at_any_place_in_a_value(value: object, bad: float) -> None:
    for around in ([value, bad], {"a": value, "b": {"c": bad}}, [None, (bad,)]):
        with pytest.raises(NotJson):
            encode(around)


class Holder(msgspec.Struct):
    socket: object = None


def ring() -> list[object]:
    outer: list[object] = [1, {}]
    outer[1] = {"again": outer}
    return outer


def deep() -> list[object]:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    return value


with socket.socket() as SOCKET:
    pass


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            {"items": [1, 2, 3, Holder(SOCKET)]},
            "arguments.items[3].socket is of type socket.socket, which JSON cannot hold.",
        ),
        ({"key": lambda: 1}, "arguments.key is of type function, which JSON cannot hold."),
        ({"a b": [object()]}, "arguments['a b'][0] is of type object, which JSON cannot hold."),
        ({"price": float("nan")}, "arguments.price is nan, which JSON cannot hold."),
        ([float("-inf")], "arguments[0] is -inf, which JSON cannot hold."),
        (Point(float("inf")), "arguments.x is inf, which JSON cannot hold."),
        (
            {"user": User(name="x", extra=object())},
            "arguments.user.extra is of type object, which JSON cannot hold.",
        ),
        ({"a": {(1, 2): 3}}, "arguments.a has the key (1, 2), and keys in JSON are text."),
        ({"a": {None: 3}}, "arguments.a has the key None, and keys in JSON are text."),
        (ring(), "arguments[1].again contains itself, which JSON cannot express."),
        (["\ud800"], "arguments[0] is not valid text: it holds half of a surrogate pair."),
        (MappingProxyType({}), "arguments is of type mappingproxy, which JSON cannot hold."),
        (collections.deque([1]), "arguments is of type collections.deque, which JSON cannot hold."),
        (Order, "arguments is of type type, which JSON cannot hold."),
        (msgspec.UNSET, "arguments is of type msgspec.UnsetType, which JSON cannot hold."),
    ],
)
def test_a_value_that_json_cannot_represent_is_refused_with_its_path(value: object, sentence: str) -> None:
    with pytest.raises(NotJson) as caught:
        encode(value, "arguments")
    assert caught.value.sentence == sentence
    assert caught.value.todo
    assert str(caught.value.facts["at"]) in sentence


def test_a_value_nested_too_deeply_is_refused_with_a_short_error() -> None:
    with pytest.raises(NotJson, match=r"is nested too deeply") as caught:
        encode(deep())
    assert len(caught.value.sentence) < 200


def test_nesting_is_refused_at_the_same_depth_as_by_the_store() -> None:
    value: object = 1
    for _ in range(MOST_LEVELS):
        value = [value, "[[" * MOST_LEVELS]
    assert json_fault(encode(value)) == ""
    with pytest.raises(NotJson, match=f"^arguments is nested too deeply: more than {MOST_LEVELS} arrays"):
        encode([value], "arguments")


def test_a_result_is_called_a_result() -> None:
    with pytest.raises(NotJson, match=r"^result\.a is of type object"):
        encode({"a": object()})


def test_null_beside_good_numbers_is_no_reason_to_refuse() -> None:
    assert text_of([None, 1.5, "null", msgspec.Raw(b"null"), Path("null")]) == '[null,1.5,"null",null,"null"]'


@pytest.mark.parametrize(
    ("raw", "kind", "sentence"),
    [
        (b'"1"', int, "The checkpoint does not fit: expected int, got str."),
        (b'[{"x":"y"}]', list[Point], "The checkpoint does not fit: [0].x: expected float, got str."),
        (b'{"a":5}', dict[str, Path], "The checkpoint does not fit: [...]: expected str, got int."),
        (b"[{}]", list[User], "The checkpoint does not fit: [0]: name: Field required."),
        (b"{", Any, "The checkpoint does not fit: input data was truncated."),
        (b"[" * 100_000, Any, "The checkpoint does not fit: it is nested too deeply."),
    ],
)
def test_json_that_is_something_else_is_refused_with_its_path(raw: bytes, kind: Any, sentence: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        decode(raw, kind, "checkpoint")
    assert caught.value.sentence == sentence
    assert len(caught.value.todo) < 120


class Deep(msgspec.Struct):
    inner: list[dict[str, socket.socket]]


@pytest.mark.parametrize(
    "kind", [socket.socket, list[complex], Deep, Callable[[], int], int | User, dict[str, Iterable[int]]]
)
def test_a_type_that_cannot_come_from_json_is_refused_before_there_is_any(kind: Any) -> None:
    with pytest.raises(TypeError):
        decoder_of(kind)


def test_a_decoder_is_made_once_for_each_type() -> None:
    assert decoder_of(list[Point]).__self__ is decoder_of(list[Point]).__self__  # type: ignore[attr-defined]


def test_a_type_that_cannot_be_remembered_works_as_well() -> None:
    kind = Annotated[int, msgspec.Meta(extra={"a": []})]
    assert decoder_of(kind)(b"3") == 3


def test_a_complaint_is_reported_with_its_path_first() -> None:
    assert (
        decoding_error(msgspec.ValidationError("Expected `int`, got `str` - at `$.a[0]`"))
        == "a[0]: expected int, got str"
    )
    assert decoding_error(msgspec.ValidationError("Expected `int`"), at="x") == "x: expected int"


TOGETHER = """
import sys, threading
import msgspec
from {module} import {function} as decode

sys.setswitchinterval(1e-6)
for number in range(50):
    parts = [msgspec.defstruct("Part", [("size", int, 0)]) for _ in range(20)]
    Whole = msgspec.defstruct("Whole", [("p" + str(place), part, None) for place, part in enumerate(parts)])
    ready = threading.Barrier(4)

    def look():
        ready.wait()
        assert decode(b'{{"p19": {{"size": 3}}}}', Whole).p19.size == 3

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


@pytest.mark.parametrize(
    ("module", "function"),
    [("interlock.worker.codec", "decode"), ("interlock.wire.json_values", "decode_as")],
)
def test_threads_that_need_a_type_for_the_first_time_at_the_same_moment_do_not_crash_the_process(
    module: str, function: str
) -> None:
    program = TOGETHER.format(module=module, function=function)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
