"""Arguments, results and checkpoints are JSON, never pickle.

The data of a job can be read in the database, written in a shell and given to a worker that runs another
version of the program. Beyond JSON's own types, these can be sent: msgspec structs, dataclasses, attrs
classes, pydantic models, named and plain tuples, sets, enums, dates and times, Decimal and UUID (as strings),
bytes (as base64) and paths (as strings). The receiver gets such a value back only with a type annotation;
without one it is plain JSON, so that a tuple arrives as a list and the keys of every object are strings.

The input of a job is an object of its arguments by name, however they were passed:

    @task
    def resize(path: Path, width: int, *filters: str) -> None: ...

    resize.spec("a.png", 640)           {"path": "a.png", "width": 640}
    resize.spec("a.png", 640, "blur")   {"path": "a.png", "width": 640, "*": ["blur"]}

Omitted arguments are not in it: the defaults are those of the program that runs the job. Arguments of
`**options` are included under their own names.

If a value does not fit into JSON, `find_misfit` walks it from its root to name the part that does not;
this is slow, and only for errors. `spec_of` makes a job spec from anything that can be submitted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from pathlib import PurePath
from typing import Any, Protocol, TypeAlias, get_args, get_origin

import msgspec
import msgspec.inspect

from interlock.errors import InvalidArguments, NotJson
from interlock.wire.jobs import JobSpec
from interlock.wire.json_values import LEARNING, MOST_LEVELS, SHALLOW, is_too_deep

DEEPEST = 50
"""Maximum depth of a path; an error below is reported as too deep."""

NamedValue = tuple[str, object]
"""A path from the root, and the value there."""


@dataclass(frozen=True)
class Misfit:
    """The innermost value that does not fit into JSON."""

    path: str
    type_name: str
    why: str
    todo: str


def find_misfit(value: object, root: str, *, is_json: Callable[[object], bool]) -> Misfit:
    """Follow the first part that does not fit, down to the innermost one."""
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
    """Return the name of a type: `socket.socket`, and `float` for a builtin."""
    module, name = getattr(kind, "__module__", ""), getattr(kind, "__qualname__", None) or repr(kind)
    return name if module in ("builtins", "") else f"{module}.{name}"


_BREAK = "Leave out the reference back to the object around it, or send an id in its place."
_FLATTEN = "Send a flatter structure, such as a list of rows that name their parent."
_PLAIN = "Send its content: text, numbers, lists, dicts, a dataclass, a msgspec struct or a pydantic model."


def _first_misfit(value: object, is_json: Callable[[object], bool]) -> NamedValue | None:
    return next((part for part in _parts(value) if not is_json(part[1])), None)


def _parts(value: object) -> Iterator[NamedValue]:
    match value:
        case type():  # a class has fields too, but they are not its parts
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
            return "is not valid text: it holds half of a surrogate pair", "Send bytes, or repair the text."
        case dict() if bad := [key for key in value if not is_json({key: 0})]:
            return (
                f"has the key {bad[0]!r}, and keys in JSON are text",
                "Use strings, or send a list of pairs.",
            )
        case _:
            return f"is of type {name_of(type(value))}, which JSON cannot hold", _PLAIN


Decode = Callable[[msgspec.Raw | bytes], Any]

NULL = msgspec.Raw(b"null")
_UNFIT = (TypeError, ValueError, OverflowError, RecursionError)
"""Exceptions of encoders, msgspec's and those of models."""


def encode(value: object, root: str = "result") -> msgspec.Raw:
    """Encode a value as JSON; `root` is its name in errors."""
    if value is None:
        return NULL
    try:
        data = _encode(value)
    except _UNFIT as error:
        raise _not_json(value, root, error) from error
    if len(data) > SHALLOW and is_too_deep(data):
        raise NotJson(
            f"{root} is nested too deeply: more than {MOST_LEVELS} arrays and objects inside each other.",
            todo=_FLATTEN,
            facts={"at": root, "type": name_of(type(value)), "most": MOST_LEVELS},
        )
    return msgspec.Raw(data)


def decode(raw: msgspec.Raw | bytes, kind: Any = Any, root: str = "result") -> Any:
    """Decode JSON as the type `kind`."""
    try:
        return decoder_of(kind)(raw)
    except (msgspec.DecodeError, RecursionError, TypeError) as error:
        raise InvalidArguments(
            f"The {root} does not fit: {decoding_error(error)}.",
            todo=f"Use the type that it has. It is: {shortened(raw)}",
            facts={"at": root, "cause": decoding_error(error)},
        ) from error


def decoder_of(kind: Any) -> Decode:
    """Return a cached decoder from JSON to `kind`.

    Raise TypeError if there can be none.
    """
    try:
        return _cached_decoder(kind)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _new_decoder(kind)


def decoding_error(error: BaseException, at: str = "") -> str:
    """Return the message of a decoder, with its path below `at`.

    For example `items[3]: expected int, got str`.
    """
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    message, _, place = str(error).partition(" - at `$")
    path = f"{at}{place.rstrip('`')}".lstrip(".")
    sentence = " ".join(message.replace("`", "").split())
    sentence = sentence[:1].lower() + sentence[1:]
    return f"{path}: {sentence}" if path else sentence


def shortened(raw: msgspec.Raw | bytes) -> str:
    """Return the beginning of some JSON, for an error."""
    text = bytes(memoryview(raw)[:200]).decode(errors="replace")
    return text if len(text) <= 60 else f"{text[:60]}…"


def _encode(value: object) -> bytes:
    data = _ENCODER.encode(value)
    # msgspec writes NaN and the infinities as null: without a null, there was none of them.
    if b"null" in data:
        _REFUSING_NAN.encode(msgspec.to_builtins(value, enc_hook=_opened))
    return data


def _to_json(value: Any) -> Any:
    """Encode types that msgspec does not support."""
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(type(value), "model_dump"):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    raise TypeError(f"{name_of(type(value))} cannot be written as JSON")


def _opened(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else _to_json(value)


_ENCODER = msgspec.json.Encoder(enc_hook=_to_json)
_REFUSING_NAN = json.JSONEncoder(allow_nan=False)


def _not_json(value: object, root: str, error: BaseException) -> NotJson:
    misfit = find_misfit(value, root, is_json=_is_json)
    return NotJson(
        f"{misfit.path} {misfit.why}.",
        todo=misfit.todo,
        facts={"at": misfit.path, "type": misfit.type_name, "cause": " ".join(str(error).split())},
    )


def _is_json(value: object) -> bool:
    try:
        _encode(value)
    except _UNFIT:
        return False
    return True


def _new_decoder(kind: Any) -> Decode:
    wanted = concrete(kind)
    with LEARNING:
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(wanted, dec_hook=_from_json)
    for stranger in _custom_types(wanted):
        if not _can_be_made(stranger):
            raise TypeError(f"{name_of(stranger)} cannot be made from JSON")
    return decoder.decode


_cached_decoder = lru_cache(maxsize=1_024)(_new_decoder)


def concrete(kind: Any) -> Any:
    """Return the type to decode: a list for any Iterable."""
    if kind is Iterable or get_origin(kind) is Iterable:
        return list[(*get_args(kind), Any)[0]]  # type: ignore[misc]
    return kind


def _custom_types(kind: Any) -> Iterator[Any]:
    """Yield every type within `kind` that msgspec does not support.

    Fields of structs are examined as well.
    """
    seen: set[int] = set()
    left: list[object] = [msgspec.inspect.type_info(kind)]
    while left:
        info = left.pop()
        if id(info) in seen:
            continue
        seen.add(id(info))
        if isinstance(info, msgspec.inspect.CustomType):
            yield info.cls
        elif isinstance(info, tuple):
            left.extend(info)
        elif isinstance(info, (msgspec.inspect.Type, msgspec.inspect.Field)):
            left.extend(getattr(info, name) for name in info.__struct_fields__)


def _can_be_made(kind: Any) -> bool:
    is_path = isinstance(kind, type) and issubclass(kind, PurePath)
    return kind is object or is_path or hasattr(kind, "model_validate_json")


def _from_json(kind: Any, value: Any) -> Any:
    """Decode types that msgspec does not support."""
    if kind is object:
        return value
    if not issubclass(kind, PurePath):
        return _model_from_json(kind, value)
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    return kind(value)


def _model_from_json(kind: Any, value: Any) -> Any:
    """Validate a model from JSON.

    A strict model takes a date from a string only there.
    """
    try:
        return kind.model_validate_json(msgspec.json.encode(value))
    except ValueError as error:
        faults: list[dict[str, Any]] = error.errors() if hasattr(error, "errors") else []
        told_each = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults[:3]]
        raise ValueError("; ".join(told_each) or str(error)) from error


class Submittable(Protocol):
    """A task: makes a spec from arguments, and validates them."""

    def spec(self, *args: Any, **kwargs: Any) -> JobSpec:
        """Return a job to submit."""
        ...


Work: TypeAlias = Submittable | JobSpec | str
"""A task and its arguments, a finished spec, or the name of a task that is defined elsewhere."""


def spec_of(work: Work, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JobSpec:
    """Return the spec, validated as far as possible without a worker."""
    if isinstance(work, JobSpec):
        if not args and not kwargs:
            return with_json(work)
    elif isinstance(work, str):
        if not args:
            return JobSpec(task=work, input=encode(kwargs, "arguments"))
    elif hasattr(work, "spec"):  # to compare with a protocol costs 10 µs
        return work.spec(*args, **kwargs)
    raise InvalidArguments(
        "A spec has its arguments already, and a task that is known only by name takes them by name.",
        todo="Pass the task itself, or only keyword arguments.",
        facts={"positional": len(args), "by_name": sorted(kwargs)},
    )


def with_json(spec: JobSpec) -> JobSpec:
    """Return the spec with its input as JSON; plain values are encoded."""
    given: object = spec.input
    if isinstance(given, msgspec.Raw):
        return spec
    return msgspec.structs.replace(spec, input=encode(given, "input"))
