"""Records, entries and outcomes on their way back from the scripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from interlock.store.ranking import moment
from interlock.store.records import (
    Answer,
    Commit,
    Committed,
    Conflict,
    Entry,
    Illegal,
    Note,
    Outcome,
    Record,
    Recorded,
    Repeated,
    RequestReused,
    TooLate,
)
from interlock.store.redis.packing import Marks


class _Row(msgspec.Struct, array_like=True, gc=False):
    """A record as `read_row` in common.lua answers it."""

    state: str
    version: str
    created_at: str
    updated_at: str
    ready_at: str
    deadline_at: str
    marks: str
    body_bytes: int
    kind: str
    id: str


class _Taken(msgspec.Struct, array_like=True):
    now: int
    hold: str
    rows: list[_Row]


class _Found(msgspec.Struct, array_like=True):
    on: tuple[str, str]
    rows: list[_Row]


class _Line(msgspec.Struct, array_like=True, gc=False):
    cursor: str
    kind: str
    id: str
    version: str
    at: str
    note: str


class _Lines(msgspec.Struct, array_like=True):
    pruned: str
    lines: list[_Line]


_read_note = msgspec.json.Decoder(Note).decode
_read_marks = msgspec.json.Decoder(Marks).decode
_read_taken = msgspec.msgpack.Decoder(_Taken).decode
_read_found = msgspec.msgpack.Decoder(_Found).decode
_read_rows = msgspec.msgpack.Decoder(list[_Row | bool]).decode
_read_lines = msgspec.msgpack.Decoder(_Lines).decode
_read_answers = msgspec.msgpack.Decoder(tuple[int, list[Any]]).decode
read_count = msgspec.msgpack.Decoder(tuple[int, tuple[str, str]]).decode
read_pruned = msgspec.msgpack.Decoder(tuple[int, int, int, bool]).decode
read_status = msgspec.msgpack.Decoder(tuple[int, list[list[int]], int, str, int]).decode


_Value = TypeVar("_Value")


class _Known(dict[str, _Value]):
    """Texts that were read already: records that were made together have most of them in common."""

    def __init__(self, read: Callable[[str], _Value]) -> None:
        self._read = read

    def __missing__(self, text: str) -> _Value:
        value = self[text] = self._read(text)
        return value


def _read_moment(us: str) -> datetime:
    return moment(int(us))


def read_taken(answer: Any) -> tuple[datetime, int, str, list[Record]]:
    """From claim.lua and due.lua: the time, also in microseconds, the number of the hold, the records."""
    taken = _read_taken(answer[0])
    return moment(taken.now), taken.now, taken.hold, _records(taken.rows, answer[1])


def read_found(answer: Any) -> tuple[tuple[str, str], list[Record]]:
    """From find.lua: where to go on, and the records."""
    found = _read_found(answer[0])
    return found.on, _records(found.rows, answer[1])


def read_loaded(answer: Any) -> list[Record | None]:
    """From load.lua: the records, None where there is none."""
    rows = _read_rows(answer[0])
    records = iter(_records([row for row in rows if isinstance(row, _Row)], answer[1]))
    return [next(records) if isinstance(row, _Row) else None for row in rows]


def read_entries(answer: bytes) -> tuple[str, tuple[Entry, ...]]:
    """From feed.lua and history.lua: up to where the journal was pruned, and the entries."""
    found = _read_lines(answer)
    return found.pruned, tuple(_entry(line) for line in found.lines)


def read_outcomes(answer: Any, commits: Sequence[Commit]) -> tuple[int, list[Outcome]]:
    """From commit.lua: its time in microseconds, and what became of each commit."""
    now, answers = _read_answers(answer[0])
    committed = Committed(moment(now))
    return now, [
        committed if said == 0 else _refused(said, commit, now, answer)
        for said, commit in zip(answers, commits, strict=True)
    ]


def read_recorded(name: str, fields: Sequence[bytes]) -> Recorded:
    """A request as recall.lua answers it."""
    fingerprint, endpoint, status, created_at, expires_at = (field.decode() for field in fields[:5])
    return _recorded(name, fingerprint, endpoint, status, created_at, expires_at, fields[5])


def _records(rows: Sequence[_Row], bodies: bytes) -> list[Record]:
    records: list[Record] = []
    marks_of, moments, start = _Known(_read_marks), _Known(_read_moment), 0
    for row in rows:
        marks = marks_of[row.marks]
        end = start + row.body_bytes
        records.append(
            Record(
                kind=row.kind,
                id=row.id,
                state=row.state,
                version=int(row.version),
                body=bodies[start:end],
                parent=marks.parent,
                queue=marks.queue,
                labels=marks.labels,
                priority=marks.priority,
                ready_at=moments[row.ready_at] if row.ready_at else None,
                deadline_at=moments[row.deadline_at] if row.deadline_at else None,
                created_at=moments[row.created_at],
                updated_at=moments[row.updated_at],
            )
        )
        start = end
    return records


def _entry(line: _Line) -> Entry:
    return Entry(
        cursor=line.cursor,
        at=moment(int(line.at)),
        kind=line.kind,
        id=line.id,
        version=int(line.version),
        note=_read_note(line.note),
    )


def _refused(said: Sequence[Any], commit: Commit, now: int, answer: Sequence[bytes]) -> Outcome:
    match said:
        case ["late"]:
            assert commit.not_after is not None
            return TooLate(commit.not_after, moment(now))
        case ["conflict", place, found]:
            change = commit.changes[place]
            return Conflict(change.key, change.expected, int(found))
        case ["illegal", place, source]:
            change = commit.changes[place]
            return Illegal(change.key, source, change.state)
        case [code, fingerprint, endpoint, status, created_at, expires_at, text]:
            assert commit.request is not None
            name, body = commit.request.id, answer[text]
            recorded = _recorded(name, fingerprint, endpoint, status, created_at, expires_at, body)
            if code == "repeated":
                return Repeated(recorded)
            return RequestReused(recorded, commit.request.fingerprint)
        case _:
            raise AssertionError(said)


def _recorded(
    name: str, fingerprint: str, endpoint: str, status: str, created_at: str, expires_at: str, body: bytes
) -> Recorded:
    return Recorded(
        id=name,
        endpoint=endpoint,
        fingerprint=fingerprint,
        answer=Answer(status=int(status), body=body),
        created_at=moment(int(created_at)),
        expires_at=moment(int(expires_at)),
    )
