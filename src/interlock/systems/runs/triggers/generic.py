"""What anybody's webhook says: a whole `RunSpec`, or some fields of one, found by a mapping."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from interlock.systems.runs.triggers.errors import BadPayload
from interlock.systems.runs.triggers.rules import Hook
from interlock.wire.runs import RunSpec, Source

MAX_VALUE = 4_096
_INPUT = "inputs."
_SOURCE = "source."
_OPTIONAL = "?"

T = TypeVar("T")


def spec_of(hook: Hook, body: bytes) -> RunSpec:
    """The run that a delivery asks for."""
    if hook.takes == "run":
        return _decoded(body, RunSpec)
    content = _decoded(body, dict[str, Any])
    source: dict[str, Any] = {"event": hook.name}
    inputs = dict(hook.run.inputs)
    for target, path in hook.fields.items():
        value = _at(content, path)
        if value is None:
            continue
        if target.startswith(_INPUT):
            inputs[target.removeprefix(_INPUT)] = _text(value, path)
        else:
            source[target.removeprefix(_SOURCE)] = value
    said = hook.run
    return RunSpec(
        workflow=said.workflow,
        planner=said.planner,
        definition=said.definition,
        inputs=inputs,
        source=_source(source),
        concurrency_group=said.concurrency_group,
        labels=said.labels,
        priority=said.priority,
    )


def unknown_targets(fields: dict[str, str]) -> list[str]:
    """Those parts of a mapping that mean nothing."""
    parts = {f"{_SOURCE}{field}" for field in Source.__struct_fields__}
    return [t for t in fields if t not in parts and not (t.startswith(_INPUT) and t != _INPUT)]


def _at(content: Any, path: str) -> Any:
    """The value at a dotted path; None where there is none and that is allowed."""
    value = content
    for part in path.removesuffix(_OPTIONAL).split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None and not path.endswith(_OPTIONAL):
        raise _misfit(f"there is nothing at {path}")
    return value


def _text(value: object, path: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise _misfit(f"what is at {path} is no text and no number")
    text = str(value)
    if len(text) > MAX_VALUE:
        raise _misfit(f"what is at {path} has more than {MAX_VALUE} characters")
    return text


def _source(given: dict[str, Any]) -> Source:
    try:
        return msgspec.convert(given, Source)
    except msgspec.ValidationError as error:
        raise _misfit(str(error).replace("`", "")) from None


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _misfit(str(error).replace("`", "")) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _misfit("it is not JSON") from None


def _misfit(why: str) -> BadPayload:
    return BadPayload(
        f"The body is not what this webhook takes: {why}.",
        todo="See docs/guides/webhooks-and-statuses.md; nothing was done.",
        facts={"why": why},
    )
