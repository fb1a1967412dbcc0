"""Arguments become JSON by name and come back as what the function is annotated with."""

from __future__ import annotations

import functools
import socket
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import CannotLoad, InvalidArguments, NotJson
from interlock.worker import context as context_module
from interlock.worker.context import Context
from interlock.worker.functions import Arguments

if TYPE_CHECKING:
    from fractions import Fraction


def arguments_of(function: Callable[..., Any]) -> Arguments:
    return Arguments(function, "shop.send", {})


def sent(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    return bytes(arguments_of(function).encode(args, kwargs)).decode()


def called(function: Callable[..., Any], raw: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return arguments_of(function).decode(msgspec.Raw(raw.encode()))


class Point(msgspec.Struct):
    x: int
    y: int


@dataclass
class Item:
    name: str
    price: Decimal


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def plain(x: Any, y: Any = 2) -> None: ...


def typed(
    at: datetime, item: Item, points: list[Point], home: Path, *, key: uuid.UUID | None = None
) -> None: ...


def more(x: int, *others: int, scale: float = 1.0) -> None: ...


def options(x: int, /, y: str = "b", **rest: list[int]) -> None: ...


def nothing() -> None: ...


@pytest.mark.parametrize(
    ("raw", "function", "args", "kwargs"),
    [
        ("{}", nothing, (), {}),
        ('{"x":1}', plain, (1,), {}),
        ('{"x":1}', plain, (), {"x": 1}),
        ('{"x":1,"y":[2]}', plain, (1,), {"y": (2,)}),
        ('{"x":1,"scale":2}', more, (1,), {"scale": 2}),
        ('{"x":1,"*":[2,3]}', more, (1, 2, 3), {}),
        ('{"x":1,"y":"b","z":[3]}', options, (1, "b"), {"z": [3]}),
    ],
)
def test_the_input_is_an_object_of_arguments_by_name(
    raw: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    assert sent(function, *args, **kwargs) == raw


@pytest.mark.parametrize(
    ("function", "raw", "args", "kwargs"),
    [
        (nothing, "{}", (), {}),
        (plain, '{"x":1}', (), {"x": 1, "y": 2}),
        (plain, '{"y":null,"x":{"a":[1.5]}}', (), {"x": {"a": [1.5]}, "y": None}),
        (more, '{"x":1}', (1,), {"scale": 1.0}),
        (more, '{"x":1,"*":[2,3],"scale":2}', (1, 2, 3), {"scale": 2.0}),
        (options, '{"x":1,"z":[3],"w":[]}', (1,), {"y": "b", "z": [3], "w": []}),
    ],
)
def test_the_function_is_called_with_the_arguments_from_the_input(
    function: Callable[..., Any], raw: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    assert called(function, raw) == (args, kwargs)


def test_arguments_come_as_the_types_that_the_function_names() -> None:
    item, number = Item("tea", Decimal("1.10")), uuid.UUID(int=3)
    raw = sent(typed, NOON, item, (Point(1, 2),), home=Path("/srv"), key=number)
    assert called(typed, raw) == (
        (),
        {"at": NOON, "item": item, "points": [Point(1, 2)], "home": Path("/srv"), "key": number},
    )


@given(
    x=st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    y=st.recursive(
        st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    ),
)
def test_plain_arguments_survive_the_way_there_and_back(x: object, y: object) -> None:
    assert called(plain, sent(plain, x, y)) == ((), {"x": x, "y": y})


@given(
    at=st.datetimes(timezones=st.just(UTC)),
    item=st.builds(Item, st.text(), st.decimals(allow_nan=False, allow_infinity=False)),
    points=st.lists(st.builds(Point, st.integers(), st.integers())),
    home=st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1).map(Path),
    key=st.none() | st.uuids(),
)
def test_typed_arguments_survive_the_way_there_and_back(**given_arguments: Any) -> None:
    assert called(typed, sent(typed, **given_arguments)) == ((), given_arguments)


@given(st.lists(st.integers(), min_size=1), st.floats(allow_nan=False, allow_infinity=False))
def test_more_arguments_survive_the_way_there_and_back(numbers: list[int], scale: float) -> None:
    assert called(more, sent(more, *numbers, scale=scale)) == (tuple(numbers), {"scale": scale})


names = st.text(min_size=1).filter(lambda name: name not in ("x", "y", "*"))


@given(st.integers(), st.dictionaries(names, st.lists(st.integers())))
def test_options_of_any_name_survive_the_way_there_and_back(x: int, rest: dict[str, list[int]]) -> None:
    assert called(options, sent(options, x, **rest)) == ((x,), {"y": "b", **rest})


def everything(x: int, /, *more: int, **rest: int) -> None: ...


@given(
    st.lists(st.integers(), min_size=1),
    st.dictionaries(st.sampled_from(["more", "rest", "a"]), st.integers()),
)
def test_a_keyword_argument_may_have_the_name_of_the_varargs_or_kwargs_parameter(
    numbers: list[int], rest: dict[str, int]
) -> None:
    assert called(everything, sent(everything, *numbers, **rest)) == (tuple(numbers), rest)


def test_a_star_is_an_option_like_others_where_it_means_nothing() -> None:
    assert called(options, sent(options, 1, **{"*": [2]})) == ((1,), {"y": "b", "*": [2]})


def test_a_default_is_the_very_object_that_the_function_has() -> None:
    marker = [1, {}]

    def handler(x: Any = marker) -> None: ...

    _, kwargs = called(handler, "{}")
    assert kwargs["x"] is marker


def test_arguments_that_were_not_given_are_not_sent() -> None:
    assert sent(typed, NOON, Item("a", Decimal(1)), [], Path("a")).count('"key"') == 0


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "why"),
    [
        (plain, (), {}, "x is missing"),
        (plain, (), {"xx": 2}, "x is missing; it takes no xx, did you mean x"),
        (plain, (), {"why": 2}, "x is missing; it takes no why"),
        (typed, (), {}, "at and item and points and home are missing"),
        (plain, (1, 2, 3), {}, "3 were given by position, and it takes 2"),
        (plain, (1,), {"x": 2}, "x was given twice, by position and by name"),
        (plain, (1,), {"yy": 2}, "it takes no yy, did you mean y"),
        (nothing, (), {"quite": 2}, "it takes no quite"),
        (more, ("1",), {}, "x: expected int, got str"),
        (more, (1, 2, "3"), {}, "*[1]: expected int, got str"),
        (more, (1,), {"others": [2]}, "it takes no others"),
        (options, (1,), {"z": ["a"]}, "z[0]: expected int, got str"),
        (options, (1,), {"x": 2}, "x was given twice, by position and by name"),
        (options, (), {}, "x is missing"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_where_they_are_given(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        sent(function, *args, **kwargs)
    assert caught.value.sentence == f"The arguments do not fit shop.send: {why}."
    assert caught.value.todo.startswith("It takes (")


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ('{"x":1', 'they are not a JSON object of arguments by name but {"x":1'),
        ("", "they are not a JSON object of arguments by name but nothing"),
        ("[1]", "they are not a JSON object of arguments by name but [1]"),
        ("null", "they are not a JSON object of arguments by name but null"),
        ("{}", "x is missing"),
        ('{"x":1,"z":2}', "it takes no z"),
        ('{"x":1,"*":[2]}', "it takes no *"),
    ],
)
def test_an_input_that_does_not_fit_is_refused_where_it_arrives(raw: str, why: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        called(plain, raw)
    assert caught.value.sentence == f"The arguments do not fit shop.send: {why}."
    assert caught.value.todo == "It takes (x, y=2)."


def test_an_input_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="nested too deeply"):
        called(plain, '{"x":' + "[" * 100_000 + "]" * 100_000 + "}")


def test_an_argument_that_json_cannot_represent_is_refused_with_its_path() -> None:
    with socket.socket() as held, pytest.raises(NotJson, match=r"^arguments\.x\[1\]\.y is of type socket"):
        sent(plain, [1, {"y": held}])


def test_the_parameters_of_a_function_are_shown_in_python_syntax_without_the_context() -> None:
    assert arguments_of(more).takes == "(x: int, *others: int, scale: float = 1.0)"
    assert arguments_of(options).takes == "(x: int, /, y: str = 'b', **rest: list[int])"
    assert arguments_of(annotated).takes == "(x: int)"


def by_name(x: int, ctx: Any) -> None: ...


def annotated(job: Context, x: int) -> None: ...


def optional(x: int, job: Context | None = None) -> None: ...


def old_optional(x: int, job: Optional[Context] = None) -> None: ...  # noqa: UP045


def dotted(x: int, job: context_module.Context) -> None: ...


def keyword(*x: int, ctx: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (by_name, "ctx"),
        (annotated, "job"),
        (optional, "job"),
        (old_optional, "job"),
        (dotted, "job"),
        (keyword, "ctx"),
        (plain, None),
        (options, None),
    ],
)
def test_the_context_is_found_by_its_type_or_its_name(function: Callable[..., Any], name: str | None) -> None:
    assert arguments_of(function).context_name == name


def test_the_context_is_no_argument_of_the_job() -> None:
    assert sent(annotated, 1) == '{"x":1}'
    assert sent(keyword, 1) == '{"*":[1]}'
    assert called(annotated, '{"x":1}') == ((), {"x": 1})
    with pytest.raises(InvalidArguments, match="it takes no job"):
        sent(annotated, 1, job=2)


def test_the_context_cannot_be_slipped_in_among_the_options() -> None:
    def handler(ctx: Context, **rest: Any) -> None: ...

    with pytest.raises(InvalidArguments, match="ctx is given by the worker"):
        called(handler, '{"ctx":1}')


def test_a_context_parameter_is_recognized_by_a_text_annotation_that_cannot_be_resolved() -> None:
    def handler(job: Any, x: int) -> None: ...

    handler.__annotations__["job"] = "sdk.Context | None"
    assert arguments_of(handler).context_name == "job"


def twice(ctx: Any, job: Context) -> None: ...


def before_more(ctx: Any, *x: int) -> None: ...


def by_position_only(ctx: Any, /) -> None: ...


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (twice, "it takes the context twice, as ctx and job"),
        (before_more, "the context ctx cannot be given by name"),
        (by_position_only, "the context ctx cannot be given by name"),
    ],
)
def test_a_context_that_could_not_be_passed_is_refused(function: Callable[..., Any], why: str) -> None:
    with pytest.raises(CannotLoad) as caught:
        arguments_of(function)
    assert caught.value.sentence == f"Cannot make a task of shop.send: {why}."
    assert caught.value.todo


def unknown_type(x: Fraction) -> None: ...


def impossible_type(x: list[socket.socket]) -> None: ...


def impossible_options(**x: socket.socket) -> None: ...


def undecidable_type(x: Item | Point) -> None: ...


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (unknown_type, "the type Fraction of x is not found when the program runs"),
        (impossible_type, "x cannot come from JSON: socket.socket cannot be made from JSON"),
        (impossible_options, "x cannot come from JSON: socket.socket cannot be made from JSON"),
        (undecidable_type, "x cannot come from JSON: Type unions may not contain more than one"),
    ],
)
def test_a_type_that_cannot_come_from_json_is_refused(function: Callable[..., Any], why: str) -> None:
    with pytest.raises(CannotLoad) as caught:
        arguments_of(function).prepare()
    assert caught.value.sentence.startswith(f"Cannot make a task of shop.send: {why}")
    assert caught.value.todo


def test_a_type_may_be_declared_after_the_function() -> None:
    space: dict[str, Any] = {}
    exec("from __future__ import annotations\ndef handler(x: list[Later]): ...", space)
    arguments = arguments_of(space["handler"])
    space["Later"] = Point
    arguments.prepare()
    assert arguments.decode(b'{"x":[{"x":1,"y":2}]}') == ((), {"x": [Point(1, 2)]})


def test_a_type_may_be_local_to_where_the_function_is() -> None:
    class Local(msgspec.Struct):
        n: int

    def handler(x: Local) -> None: ...

    arguments = Arguments(handler, "shop.send", {"Local": Local})
    assert arguments.decode(b'{"x":{"n":1}}') == ((), {"x": Local(1)})


def test_an_argument_annotated_as_iterable_is_decoded_as_a_list() -> None:
    def handler(x: Iterable[int]) -> None: ...

    assert called(handler, sent(handler, (1, 2))) == ((), {"x": [1, 2]})


def test_a_function_behind_a_decorator_is_called_as_it_is_written() -> None:
    @functools.wraps(typed)
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    assert arguments_of(wrapper).takes == arguments_of(typed).takes
    arguments_of(wrapper).prepare()
