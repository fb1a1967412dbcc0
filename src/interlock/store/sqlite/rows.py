"""From rows to what they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from interlock.store.ranking import microseconds, moment
from interlock.store.records import Answer, Entry, Note, Record, Recorded, StepLine

Row: TypeAlias = tuple[Any, ...]

OWN_RECORD = "number, id, state, version, body, parent, ready_us, deadline_us, created_us, updated_us"
"""What the lane of a record does not tell."""
RECORD = f"{OWN_RECORD}, kind, queue, labels, priority"
NUMBER, ID = 0, 1

NO_LABELS = "[]"

_encode = msgspec.json.Encoder().encode
_labels = msgspec.json.Decoder(tuple[str, ...])
_steps = msgspec.json.Decoder(tuple[StepLine, ...])


def list_text(values: Sequence[Any]) -> str:
    """A list as one parameter, for `json_each`; also how labels and steps are kept."""
    return _encode(values).decode()


def labels_of(text: str) -> tuple[str, ...]:
    """What `list_text` has written."""
    return () if text == NO_LABELS else _labels.decode(text)


def record_of(row: Row) -> Record:
    """From the columns of `RECORD`."""
    kind, queue, labels, priority = row[10:14]
    return placed_record_of(row[:10], kind, queue, labels_of(labels), priority)


def placed_record_of(
    row: Row, kind: str, queue: str | None, labels: tuple[str, ...], priority: int
) -> Record:
    """From the columns of `OWN_RECORD`, where the lane has told the rest."""
    _, name, state, version, body, parent, ready_us, deadline_us, created_us, updated_us = row
    created_at = moment(created_us)
    return Record(
        kind=kind,
        id=name,
        state=state,
        version=version,
        body=body,
        parent=parent,
        queue=queue,
        labels=labels,
        priority=priority,
        ready_at=None if ready_us is None else moment(ready_us),
        deadline_at=None if deadline_us is None else moment(deadline_us),
        created_at=created_at,
        updated_at=created_at if updated_us == created_us else moment(updated_us),
    )


def entry_of(row: Row) -> Entry:
    """From the columns of `ENTRY`."""
    sequence, at_us, _, kind, name, version, steps, actor, request_id, reason, cause, refusal = row
    return Entry(
        cursor=str(sequence),
        at=moment(at_us),
        kind=kind,
        id=name,
        version=version,
        note=Note(
            steps=_steps.decode(steps),
            actor=actor,
            reason=reason,
            cause=cause,
            request_id=request_id,
            refusal=refusal,
        ),
    )


def recorded_of(row: Row) -> Recorded:
    """From the columns of `REQUEST`."""
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
    """For `INSERT_REQUEST`."""
    return (
        recorded.id,
        recorded.endpoint,
        recorded.fingerprint,
        recorded.answer.status,
        bytearray(recorded.answer.body),
        microseconds(recorded.created_at),
        microseconds(recorded.expires_at),
    )
