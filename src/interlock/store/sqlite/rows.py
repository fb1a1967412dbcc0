"""Between rows and what they stand for."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from interlock.store.ranking import lane_of, microseconds, moment
from interlock.store.records import Answer, Change, Entry, Note, Record, Recorded, StepLine

Row: TypeAlias = tuple[Any, ...]

RECORD = (
    "kind, id, state, version, body, parent, queue, labels, priority,"
    " ready_us, deadline_us, chain, created_us, updated_us"
)
ENTRY = "sequence, at_us, kind, id, version, steps, actor, reason, cause, request_id, refusal, chain"
REQUEST = "id, endpoint, fingerprint, status, body, created_us, expires_us"

INSERT_RECORD = (
    "INSERT INTO records (state, version, body, parent, queue, labels, priority, lane,"
    " ready_us, deadline_us, chain, updated_us, number, kind, id, created_us)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
UPDATE_RECORD = (
    "UPDATE records SET state = ?, version = ?, body = ?, parent = ?, queue = ?, labels = ?, priority = ?,"
    " lane = ?, ready_us = ?, deadline_us = ?, chain = ?, updated_us = ? WHERE number = ?"
)
INSERT_ENTRY = f"INSERT INTO journal ({ENTRY}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# A request that has expired counts as unknown, so that its id may be used anew.
INSERT_REQUEST = f"INSERT OR REPLACE INTO requests ({REQUEST}) VALUES (?, ?, ?, ?, ?, ?, ?)"

NO_LABELS = "[]"

_encode = msgspec.json.Encoder().encode
_labels = msgspec.json.Decoder(tuple[str, ...])
_steps = msgspec.json.Decoder(tuple[StepLine, ...])


def list_text(values: list[str] | tuple[str, ...]) -> str:
    """A list of texts as one parameter, for `json_each`; also how labels are kept."""
    return _encode(values).decode()


def record_of(row: Row) -> Record:
    """From the columns of `RECORD`."""
    kind, name, state, version, body, parent, queue, labels, priority = row[:9]
    ready_us, deadline_us, chain, created_us, updated_us = row[9:14]
    return Record(
        kind=kind,
        id=name,
        state=state,
        version=version,
        body=body,
        parent=parent,
        queue=queue,
        labels=() if labels == NO_LABELS else _labels.decode(labels),
        priority=priority,
        ready_at=None if ready_us is None else moment(ready_us),
        deadline_at=None if deadline_us is None else moment(deadline_us),
        chain=chain,
        created_at=moment(created_us),
        updated_at=moment(updated_us),
    )


def row_of(change: Change, number: int, now_us: int) -> Row:
    """For `UPDATE_RECORD`; with kind, id and now behind it also for `INSERT_RECORD`."""
    ready_at, labels = change.ready_at, change.labels
    return (
        change.state,
        change.expected + 1,
        change.body,
        change.parent,
        change.queue,
        list_text(labels) if labels else NO_LABELS,
        change.priority,
        None if ready_at is None else lane_of(change.queue or "", labels),
        _us(ready_at),
        _us(change.deadline_at),
        change.chain,
        now_us,
        number,
    )


def entry_of(row: Row) -> Entry:
    """From the columns of `ENTRY`."""
    sequence, at_us, kind, name, version, steps, actor, reason, cause, request_id, refusal, chain = row
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
        chain=chain,
    )


def row_of_note(
    sequence: int, now_us: int, kind: str, name: str, version: int, note: Note, chain: str
) -> Row:
    """For `INSERT_ENTRY`."""
    return (
        sequence,
        now_us,
        kind,
        name,
        version,
        _encode(note.steps).decode(),
        note.actor,
        note.reason,
        note.cause,
        note.request_id,
        note.refusal,
        chain,
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
        recorded.answer.body,
        microseconds(recorded.created_at),
        microseconds(recorded.expires_at),
    )


def _us(at: datetime | None) -> int | None:
    return None if at is None else microseconds(at)
