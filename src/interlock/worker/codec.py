"""Arguments, results and checkpoints are JSON, never pickle.

What a job carries can be read in the database, written in a shell and given to a worker that runs
another version of the program. Beyond what JSON has by itself, these can be sent: msgspec structs,
dataclasses, attrs classes, pydantic models, named and plain tuples, sets, enums, dates and times,
Decimal and UUID (as strings), bytes (as base64) and paths (as strings). Who receives such a value
gets it back only where a type says so; without one it is what the JSON says, so that a tuple
arrives as a list and the keys of every object are strings.

The input of a job is an object of its arguments by name, whichever way they were given:

    @task
    def resize(path: Path, width: int, *filters: str) -> None: ...

    resize.spec("a.png", 640)           {"path": "a.png", "width": 640}
    resize.spec("a.png", 640, "blur")   {"path": "a.png", "width": 640, "*": ["blur"]}

Arguments that were not given are not in it: the defaults are those of the program that runs the
job. What a function takes as `**options` stands beside the others, under its own name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import PurePath
from typing import Any, get_args, get_origin

import msgspec
import msgspec.inspect

from interlock.errors import InvalidArguments, NotJson
from interlock.wire.decoders import LEARNING
from interlock.worker.json_errors import find_misfit, name_of

Decode = Callable[[msgspec.Raw | bytes], Any]

NULL = msgspec.Raw(b"null")
_UNFIT = (TypeError, ValueError, OverflowError, RecursionError)
"""What encoders raise, msgspec's and those of models."""


def encode(value: object, root: str = "result") -> msgspec.Raw:
    """A value as JSON; `root` is what an error calls it."""
    if value is None:
        return NULL
    try:
        return msgspec.Raw(_encode(value))
    except _UNFIT as error:
        raise _not_json(value, root, error) from error


def encode_result(value: object) -> msgspec.Raw:
    """What a handler has returned, as JSON."""
    return encode(value, "result")


def decode(raw: msgspec.Raw | bytes, kind: Any = Any, root: str = "result") -> Any:
    """What the JSON says, as the type `kind`."""
    try:
        return decoder_of(kind)(raw)
    except (msgspec.DecodeError, RecursionError, TypeError) as error:
        raise InvalidArguments(
            f"The {root} does not fit: {told(error)}.",
            todo=f"Ask for the type that it has. It is: {shortened(raw)}",
            facts={"at": root, "cause": told(error)},
        ) from error


def decoder_of(kind: Any) -> Decode:
    """A function from JSON to `kind`, made once for each type; TypeError when there can be none."""
    try:
        return _cached_decoder(kind)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _new_decoder(kind)


def told(error: BaseException, at: str = "") -> str:
    """What a decoder complains about, its path below `at` first: `items[3]: expected int, got str`."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    message, _, place = str(error).partition(" - at `$")
    path = f"{at}{place.rstrip('`')}".lstrip(".")
    sentence = " ".join(message.replace("`", "").split())
    sentence = sentence[:1].lower() + sentence[1:]
    return f"{path}: {sentence}" if path else sentence


def shortened(raw: msgspec.Raw | bytes) -> str:
    """The beginning of some JSON, for an error."""
    text = bytes(memoryview(raw)[:200]).decode(errors="replace")
    return text if len(text) <= 60 else f"{text[:60]}…"


def _encode(value: object) -> bytes:
    data = _ENCODER.encode(value)
    # msgspec writes NaN and the infinities as null: where there is no null, there was none of them.
    if b"null" in data:
        _REFUSING_NAN.encode(msgspec.to_builtins(value, enc_hook=_opened))
    return data


def _to_json(value: Any) -> Any:
    """What msgspec does not know how to write."""
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
    """Whoever wants something to iterate over is given a list."""
    if kind is Iterable or get_origin(kind) is Iterable:
        return list[(*get_args(kind), Any)[0]]  # type: ignore[misc]
    return kind


def _custom_types(kind: Any) -> Iterator[Any]:
    """Every type within `kind` that msgspec leaves to us, also inside of structs."""
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
    """What msgspec does not know how to make."""
    if kind is object:
        return value
    if not issubclass(kind, PurePath):
        return _model_from_json(kind, value)
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    return kind(value)


def _model_from_json(kind: Any, value: Any) -> Any:
    """A strict model takes a date from a string in JSON only, so JSON is what it gets."""
    try:
        return kind.model_validate_json(msgspec.json.encode(value))
    except ValueError as error:
        faults: list[dict[str, Any]] = error.errors() if hasattr(error, "errors") else []
        told_each = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults[:3]]
        raise ValueError("; ".join(told_each) or str(error)) from error
