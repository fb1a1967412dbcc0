"""JSON Schemas of structs, by msgspec itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import _json_schema

REF = "#/components/schemas/{name}"


def schemas_of(types: Iterable[Any]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Where each type is in the document, and every struct that they are made of."""
    distinct = list(dict.fromkeys(types))
    with _raw_defaults():
        references, components = msgspec.json.schema_components(
            distinct, schema_hook=_anything, ref_template=REF
        )
    return dict(zip(distinct, references, strict=True)), components


def _anything(kind: type) -> dict[str, Any]:
    """Facts are values of any kind."""
    if kind is object:
        return {"description": "Anything that JSON holds."}
    raise TypeError(f"no JSON Schema is known for {kind}")


@contextmanager
def _raw_defaults() -> Iterator[None]:
    """A field of raw JSON may have a default, which msgspec takes but cannot write into a schema."""
    plain: Any = vars(_json_schema)["to_builtins"]

    def to_builtins(value: Any, **options: Any) -> Any:
        return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else plain(value, **options)

    vars(_json_schema)["to_builtins"] = to_builtins
    try:
        yield
    finally:
        vars(_json_schema)["to_builtins"] = plain
