"""Bodies of jobs with holes in them: what is cut out is what no decision may depend on.

A mark stands in each hole while the rest is decided about. Whoever decides sees the mark and not the value,
so that what was decided holds for every value. Where a mark turns up anywhere else, or is gone, because
somebody's data look like one or because a decision has used it after all, there is no stencil.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from interlock.store.records import Record
from interlock.systems.orchestrator.texts import is_json

_MARK = "~of~no~job~"
JOB_ID = f"id{_MARK}"
DIGEST = f"digest{_MARK}"
INPUT = msgspec.Raw(f'"input{_MARK}"'.encode())
RESULT = msgspec.Raw(f'"result{_MARK}"'.encode())
_MARK_BYTES = _MARK.encode()
_encode = msgspec.json.Encoder().encode


class Stencil:
    """What is the same in bodies that are alike: the parts before, between and after the holes."""

    __slots__ = ("_head", "_parts", "_tail")

    def __init__(self, parts: Sequence[bytes]) -> None:
        self._parts = parts
        self._head, self._tail = parts[0], parts[-1]

    def filled(self, *values: bytes | msgspec.Raw) -> bytes:
        """A body with these values in its holes."""
        pieces = [self._head]
        for value, part in zip(values, self._parts[1:], strict=True):
            pieces.append(value)
            pieces.append(part)
        return b"".join(pieces)

    def found_in(self, body: bytes) -> bytes | None:
        """What is in the only hole; None where a body is not made with this stencil."""
        if not (body.startswith(self._head) and body.endswith(self._tail)):
            return None
        value = body[len(self._head) : len(body) - len(self._tail)]
        return value if is_json(value) else None


class Pattern(msgspec.Struct, frozen=True, gc=False):
    """How the body of a job that was granted is put together: its stencil has holes for input and digest."""

    stencil: Stencil
    input: bytes


def standing_like(record: Record, body: bytes, now: datetime) -> Record:
    """A job that is none, in the place of this one: with nothing of it that jobs alike may differ in."""
    return Record(
        kind=record.kind,
        id=JOB_ID,
        state=record.state,
        version=record.version,
        body=body,
        parent=record.parent,
        queue=record.queue,
        labels=record.labels,
        priority=record.priority,
        deadline_at=record.deadline_at,
        created_at=now,
        updated_at=now,
    )


def stands_like(record: Record, other: Record) -> bool:
    """Whether whoever decides about the one would find the other in the same place."""
    return (
        record.version == other.version
        and record.state == other.state
        and record.queue == other.queue
        and record.priority == other.priority
        and record.parent == other.parent
        and record.labels == other.labels
        and record.deadline_at == other.deadline_at
    )


def stencil_of(body: bytes, *marks: bytes | msgspec.Raw) -> Stencil | None:
    """The stencil of a body in which each of these marks stands once, in this order, and no other mark."""
    parts, rest = [], body
    for mark in map(bytes, marks):
        part, found, rest = rest.partition(mark)
        if not found or mark in part or mark in rest:
            return None
        parts.append(part)
    parts.append(rest)
    return None if any(_MARK_BYTES in part for part in parts) else Stencil(parts)


def is_marked(value: object) -> bool:
    """Whether a mark is anywhere in it."""
    return _MARK_BYTES in _encode(value)
