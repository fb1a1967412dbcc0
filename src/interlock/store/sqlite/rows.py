"""Conversion of rows.

Each state of each kind has a number, its *place*. The key of a row of `record_state` is the place of its
state, shifted, and the number of its record: see `sql/0005_three_parts.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from interlock.store.ranking import microseconds, moment
from interlock.store.records import Answer, Note, Record, Recorded, StepLine

Row: TypeAlias = tuple[Any, ...]

PLACE_BITS = 40
NUMBERS = (1 << PLACE_BITS) - 1
"""The highest number of a record, and the mask of the number in a key."""

RECORD = (
    "s.key, g.id, s.version, s.body, g.given, s.result, g.parent, s.ready_us, s.deadline_us,"
    " g.created_us, s.updated_us, g.kind, g.queue, g.labels, g.priority, p.name"
)
GIVEN_OF_STATE = f"""
CROSS JOIN record_given AS g ON g.number = s.key & {NUMBERS}
CROSS JOIN states AS p ON p.place = s.key >> {PLACE_BITS}
"""
STATE_OF_GIVEN = f"""
CROSS JOIN states AS p ON p.kind = g.kind
CROSS JOIN record_state AS s ON s.key = (p.place << {PLACE_BITS}) + g.number
"""
"""The key does not follow from a number alone: the few places of the kind are searched."""
KEY, ID, READY_US, DEADLINE_US = 0, 1, 7, 8

REQUEST = "id, endpoint, fingerprint, status, body, created_us, expires_us"

_encode = msgspec.json.Encoder().encode
_labels = msgspec.json.Decoder(tuple[str, ...])
_steps = msgspec.json.Decoder(tuple[StepLine, ...])


def list_text(values: Sequence[Any]) -> str:
    """Return a list as one parameter, for `json_each`; also the format of labels and steps."""
    return _encode(values).decode()


def labels_of(text: str | None) -> tuple[str, ...]:
    """Decode `list_text`."""
    return _labels.decode(text) if text else ()


def record_of(row: Row) -> Record:
    """Return a record from the columns of `RECORD`."""
    (
        _,
        name,
        version,
        body,
        given,
        result,
        parent,
        ready_us,
        deadline_us,
        created_us,
        updated_us,
        kind,
        queue,
        labels,
        priority,
        state,
    ) = row
    created_at = moment(created_us)
    return Record(
        kind=kind,
        id=name,
        state=state,
        version=version,
        body=body,
        given=given,
        result=result,
        parent=parent,
        queue=queue,
        labels=labels_of(labels),
        priority=priority,
        ready_at=None if ready_us is None else moment(ready_us),
        deadline_at=None if deadline_us is None else moment(deadline_us),
        created_at=created_at,
        updated_at=created_at if updated_us == created_us else moment(updated_us),
    )


def note_of(steps: str, actor: str, reason: str, cause: str, request_id: str, refusal: str) -> Note:
    """Return a note from the last columns of a row of the journal."""
    return Note(
        steps=_steps.decode(steps),
        actor=actor,
        reason=reason,
        cause=cause,
        request_id=request_id,
        refusal=refusal,
    )


def recorded_of(row: Row) -> Recorded:
    """Return a request from the columns of `REQUEST`."""
    name, endpoint, fingerprint, status, body, created_us, expires_us = row
    return Recorded(
        id=name,
        endpoint=endpoint,
        fingerprint=fingerprint,
        answer=Answer(status=status, body=body),
        created_at=moment(created_us),
        expires_at=moment(expires_us),
    )


def row_of_recorded(recorded: Recorded) -> Row:
    """Return the columns of `REQUEST`."""
    return (
        recorded.id,
        recorded.endpoint,
        recorded.fingerprint,
        recorded.answer.status,
        bytearray(recorded.answer.body),
        microseconds(recorded.created_at),
        microseconds(recorded.expires_at),
    )
