"""Records, entries and outcomes on their way back from the scripts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

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
    Work,
)
from interlock.store.redis.packing import Marks
from interlock.store.redis.places import place_of, written


class _Rows(msgspec.Struct, array_like=True, gc=False):
    """Records as `packed` in answering.lua answers them: each has an id and one of the lines."""

    ids: list[str]
    which: list[int]
    given_bytes: list[int]
    kinds: list[str]
    line_bytes: list[int]


class _Line(msgspec.Struct, gc=False):
    """What changes of a record: see LINE in common.lua."""

    kind: str
    state: str
    version: int
    created_at: datetime
    updated_at: datetime
    ready_at: datetime | None
    deadline_at: datetime | None
    marks: Marks
    body: bytes
    result: bytes


class _Entries(msgspec.Struct, array_like=True, gc=False):
    """A row of the journal: entries that say the same about several records, and which of them are gone."""

    cursor: str
    kind: str
    ids: str
    number: int
    version: str
    at: str
    note: str
    gone: str


_read_note = msgspec.json.Decoder(Note).decode
_read_marks = msgspec.json.Decoder(Marks).decode
_read_taken = msgspec.msgpack.Decoder(tuple[_Rows, int, str]).decode
_read_found = msgspec.msgpack.Decoder(tuple[_Rows, tuple[str, str]]).decode
_read_loaded = msgspec.msgpack.Decoder(tuple[_Rows, list[bool]]).decode
_read_journal = msgspec.msgpack.Decoder(tuple[str, list[_Entries]]).decode
_read_answers = msgspec.msgpack.Decoder(tuple[int, list[Any]]).decode
read_count = msgspec.msgpack.Decoder(tuple[int, tuple[str, str]]).decode
read_pruned = msgspec.msgpack.Decoder(tuple[int, int, int, bool]).decode
read_status = msgspec.msgpack.Decoder(tuple[int, list[list[int]], int, str, int]).decode


def read_taken(answer: Any) -> tuple[datetime, int, str, list[Record]]:
    """From claim.lua and due.lua: the time, also in microseconds, the number of the hold, the records."""
    rows, now, hold = _read_taken(answer[0])
    return moment(now), now, hold, _records(rows, answer[1])


def read_found(answer: Any) -> tuple[tuple[str, str], list[Record]]:
    """From find.lua: where to go on, and the records."""
    rows, on = _read_found(answer[0])
    return on, _records(rows, answer[1])


def read_loaded(answer: Any) -> list[Record | None]:
    """From load.lua: the records, None where there is none."""
    rows, there = _read_loaded(answer[0])
    records = iter(_records(rows, answer[1]))
    return [next(records) if is_there else None for is_there in there]


def read_entries(answer: bytes, after: tuple[int, int], limit: int) -> tuple[str, tuple[Entry, ...]]:
    """From feed.lua and history.lua: up to where the journal was pruned, and entries after a place."""
    pruned, rows = _read_journal(answer)
    entries: list[Entry] = []
    for row in rows:
        entries += _entries(row, after, limit - len(entries))
    return pruned, tuple(entries)


def read_outcomes(answer: Any, work: Sequence[Work]) -> tuple[int, list[Outcome]]:
    """From commit.lua: its time in microseconds, and what became of each record or commit."""
    now, answers = _read_answers(answer[0])
    committed = Committed(moment(now))
    outcomes: list[Outcome] = []
    for said, item in zip(answers, work, strict=True):
        if isinstance(item, Commit):
            outcomes.append(committed if said == 0 else _refused(said, item, now, answer))
        elif said == 0:
            outcomes += [committed] * len(item.ids)
        else:
            each = said[1] if said[0] == "each" else [said] * len(item.ids)
            outcomes += [
                committed if said == 0 else _refused(said, commit, now, answer)
                for said, commit in zip(each, item.commits(), strict=True)
            ]
    return now, outcomes


def read_recorded(name: str, fields: Sequence[bytes]) -> Recorded:
    """A request as recall.lua answers it."""
    fingerprint, endpoint, status, created_at, expires_at = (field.decode() for field in fields[:5])
    return _recorded(name, fingerprint, endpoint, status, created_at, expires_at, fields[5])


def _records(rows: _Rows, data: bytes) -> list[Record]:
    lines: list[_Line] = []
    start = 0
    for kind, size in zip(rows.kinds, rows.line_bytes, strict=True):
        lines.append(_line(kind, data[start : start + size]))
        start += size
    records: list[Record] = []
    for name, which, size in zip(rows.ids, rows.which, rows.given_bytes, strict=True):
        line, end = lines[which], start + size
        marks = line.marks
        records.append(
            Record(
                kind=line.kind,
                id=name,
                state=line.state,
                version=line.version,
                body=line.body,
                given=data[start:end],
                result=line.result,
                parent=marks.parent,
                queue=marks.queue,
                labels=marks.labels,
                priority=marks.priority,
                ready_at=line.ready_at,
                deadline_at=line.deadline_at,
                created_at=line.created_at,
                updated_at=line.updated_at,
            )
        )
        start = end
    return records


def _line(kind: str, text: bytes) -> _Line:
    version, state, created_at, updated_at, ready_at, deadline_at, marks, _, size, data = text.split(b"\n", 9)
    body_bytes = int(size)
    return _Line(
        kind=kind,
        state=state.decode(),
        version=int(version),
        created_at=moment(int(created_at)),
        updated_at=moment(int(updated_at)),
        ready_at=moment(int(ready_at)) if ready_at else None,
        deadline_at=moment(int(deadline_at)) if deadline_at else None,
        marks=_read_marks(marks),
        body=data[:body_bytes],
        result=data[body_bytes:],
    )


def _entries(row: _Entries, after: tuple[int, int], most: int) -> list[Entry]:
    epoch, last = place_of(row.cursor)
    first = last - row.number + 1
    gone = {int(place) for place in row.gone.split()}
    at, version, note = moment(int(row.at)), int(row.version), _read_note(row.note)
    told = [
        (number, name)
        for place, (number, name) in enumerate(enumerate(row.ids.split("\n"), first), 1)
        if (epoch, number) > after and place not in gone
    ]
    return [
        Entry(cursor=written((epoch, number)), at=at, kind=row.kind, id=name, version=version, note=note)
        for number, name in told[:most]
    ]


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
