"""Commits and queries on their way to the scripts; records, entries, outcomes and cursors on their way back.

One argument for a whole batch, as msgpack: an argument for each value took six times as long, nearly
all of it in the driver (JSON took as long as msgpack). Times are whole microseconds, written as text
where the scripts only store them.

Why: decision 0384.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from interlock.errors import InvalidRecord
from interlock.store.catalogue import Catalogue
from interlock.store.cursors import bad_cursor, read_cursor, write_cursor
from interlock.store.plain_changes import split_plain
from interlock.store.ranking import lane_parts_of, microseconds, moment
from interlock.store.records import (
    Batch,
    Change,
    Claim,
    Commit,
    Committed,
    Conflict,
    Entry,
    Illegal,
    JournalledRefusal,
    Note,
    Outcome,
    Query,
    Record,
    Recorded,
    Repeated,
    Request,
    RequestAnswer,
    RequestReused,
    TooLate,
    Work,
)

START = ("", "")
"""Before the first record of a list."""

BEGINNING = (0, 0)
"""Before the first entry of the journal."""

_EXACT = 2**53
"""Sorted sets keep numbers as doubles, in which whole ones are exact up to here: until the year 2255."""


def page_start(query: Query) -> tuple[str, str]:
    """Return the creation time and id after which a page begins."""
    return place_after(query.cursor)


def place_after(cursor: str) -> tuple[str, str]:
    """Return the time and the id of a cursor; `START` without one."""
    if not cursor:
        return START
    us, name = read_cursor(cursor)
    if us >= _EXACT:
        raise bad_cursor(cursor)
    return str(us), name


def cursor_of(record: Record) -> str:
    """Return the cursor of a record in a list."""
    return write_cursor(microseconds(record.created_at), record.id)


def journal_place(cursor: str) -> tuple[int, int]:
    """Return the place of a cursor in the journal: epoch and number."""
    if not cursor:
        return BEGINNING
    epoch, dash, number = cursor.partition("-")
    if not (dash and epoch.isdecimal() and number.isdecimal()):
        raise bad_cursor(cursor)
    if max(int(epoch), int(number)) >= _EXACT:
        raise bad_cursor(cursor)
    return int(epoch), int(number)


def stream_id(place: tuple[int, int]) -> str:
    """Return a place in the journal in the server's notation."""
    return f"{place[0]}-{place[1]}"


_MAX_CALL_BYTES = 32 * 1_048_576
_MOST_IN_A_BATCH = 1_000
_BODY = 5
"""The place of the body in a change for commit.lua."""
_MICROSECOND = timedelta(microseconds=1)
_TEXT_HEADER = struct.Struct(">BI")
_pack = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder().encode


class Marks(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The indexed fields of a record."""

    queue: str | None = None
    labels: tuple[str, ...] = ()
    parent: str | None = None
    priority: int = 0
    handler: str = ""


def pack(value: object) -> bytes:
    """Encode plain values for a script."""
    try:
        return _pack(value)
    except UnicodeEncodeError as error:
        raise _no_text(error) from None


def pack_text(text: str) -> bytes:
    """Encode a text for a script."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _no_text(error) from None


class Projections:
    """The projections of changes for other tools."""

    def __init__(self, catalogue: Catalogue, prefix: str) -> None:
        self._prefix = prefix
        self._kinds = {name: kind.shown for name, kind in catalogue.items() if kind.shown is not None}

    def shows(self, kind: str) -> bool:
        """Return whether records of the kind have a projection."""
        return kind in self._kinds

    def of(self, change: Change) -> tuple[object, ...] | bool:
        """Return the projection of a change for commit.lua, or False.

        Key, value, milliseconds to live, index, the object with fields to replace, these, and fields to keep.
        """
        shown = self._kinds.get(change.kind)
        if shown is None:
            return False
        value = shown.value(change)
        before, after = shown.around
        return (
            f"{self._prefix}:{before}{change.id}{after}",
            False if value is None else _text(value),
            False if shown.ttl_s is None else round(1_000 * shown.ttl_s),
            f"{self._prefix}:{shown.index}" if shown.index else False,
            f"{self._prefix}:{shown.into.format(id=change.id)}" if shown.into else False,
            _replacing(shown.fields(change)) if shown.fields is not None else False,
            [f'"{name}":' for name in shown.keeps],
        )

    def places(self, kind: str) -> bytes:
        """Return the key around the id, and the index, for prune.lua."""
        shown = self._kinds.get(kind)
        if shown is None:
            return _pack(False)
        before, after = shown.around
        index = f"{self._prefix}:{shown.index}" if shown.index else False
        return _pack((f"{self._prefix}:{before}", after, index))


def _replacing(fields: dict[str, bytes]) -> list[tuple[str, str]]:
    """Return the prefix of each field in a JSON object, and its value."""
    return [(f'"{name}":', value.decode()) for name, value in fields.items()]


def pack_work(work: Sequence[Work], projections: Projections) -> list[tuple[Sequence[Work], bytes]]:
    """Encode work for commit.lua, in calls that the server accepts.

    It is one call, unless the data are very large.
    """
    try:
        pieces = [piece for item in work for piece in _pieces(item, projections)]
        return [(part, _pack([_work(item, projections) for item in part])) for part in _parts_of(pieces)]
    except UnicodeEncodeError as error:
        raise _no_text(error) from None


def pack_claim(claim: Claim) -> bytes:
    """Encode a claim for claim.lua.

    These are its queues, its parts of lanes, whether it takes all handlers, and the guard.
    """
    has, guard = lane_parts_of(claim.labels, claim.handlers), claim.guard
    held = () if guard is None else (guard.key.kind, guard.key.id, list(guard.states))
    return pack((list(dict.fromkeys(claim.queues)), sorted(has), claim.handlers is None, held))


def pack_query(query: Query, after: tuple[str, str]) -> bytes:
    """Encode a query for find.lua and count.lua, from a place on."""
    return pack(
        (
            query.kind,
            list(dict.fromkeys(query.states)),
            False if query.parent is None else query.parent,
            False if query.queue is None else query.queue,
            query.labels,
            _time(query.since),
            _time(query.until),
            query.newest_first,
            *after,
        )
    )


def _pieces(item: Work, projections: Projections) -> Sequence[Work]:
    """Split work into pieces that commit.lua can apply.

    A batch is one row of the journal, and projections are by record.
    """
    if isinstance(item, Commit):
        return (item,)
    if projections.shows(item.change.kind):
        return item.commits()
    if len(item.ids) <= _MOST_IN_A_BATCH and _weight(item) <= _MAX_CALL_BYTES:
        return (item,)
    size = len(item.ids) // 2 or 1
    halves = [_slice(item, 0, size), _slice(item, size, len(item.ids))] if len(item.ids) > 1 else []
    return [piece for half in halves for piece in _pieces(half, projections)] or (item,)


def _slice(batch: Batch, start: int, end: int) -> Batch:
    return msgspec.structs.replace(
        batch,
        ids=batch.ids[start:end],
        expected_at=batch.expected_at[start:end],
        given=batch.given[start:end],
        result=batch.result[start:end],
    )


def _parts_of(work: Sequence[Work]) -> Iterator[Sequence[Work]]:
    start, size = 0, 0
    for place, item in enumerate(work):
        weight = _weight(item)
        if size and size + weight > _MAX_CALL_BYTES:
            yield work[start:place]
            start, size = place, 0
        size += weight
    yield work[start:]


def _weight(item: Work) -> int:
    """Return the bytes of its data, which the server copies while it works."""
    if isinstance(item, Batch):
        body = len(item.change.body) * len(item.ids)
        return body + sum(map(len, item.given)) + sum(map(len, item.result))
    return sum(len(each.body) + len(each.given or b"") + len(each.result or b"") for each in item.changes)


def _work(item: Work, projections: Projections) -> tuple[object, ...]:
    not_after = microseconds(item.not_after) if item.not_after else None
    if isinstance(item, Batch):
        given, result = [_text(each) for each in item.given], [_text(each) for each in item.result]
        return None, not_after, [_changes(item, given or False, result or False)], (), True
    first, plain = split_plain(item.changes)
    if plain and projections.shows(plain[0].kind):
        first, plain = item.changes, ()
    return (
        _request(item.request) if item.request else None,
        not_after,
        [*[_change(change, projections) for change in first], *_plain(plain)],
        [_refusal(refused) for refused in item.refusals],
    )


def _changes(batch: Batch, given: object, result: object) -> tuple[object, ...]:
    return *_shared_values(batch.change, batch.ids), _seen(batch.expected_at), given, result, False


def _plain(changes: Sequence[Change]) -> Iterator[tuple[object, ...]]:
    """Yield plain creations, many as one change with a list of bodies."""
    for start in range(0, len(changes), _MOST_IN_A_BATCH):
        some = changes[start : start + _MOST_IN_A_BATCH]
        about = list(_shared_values(some[0], [each.id for each in some]))
        about[_BODY] = [_text(each.body) for each in some]
        yield *about, "", False, False, False


def _change(change: Change, projections: Projections) -> tuple[object, ...]:
    return (
        *_shared_values(change, (change.id,)),
        _time(change.expected_at),
        [_text(change.given)] if change.given else False,
        False if change.result is None else [_text(change.result)],
        projections.of(change),
    )


def _shared_values(change: Change, ids: Sequence[str]) -> tuple[object, ...]:
    """Return the values of a change for all of its records."""
    return (
        change.kind,
        ids,
        str(change.expected),
        str(change.expected + 1),
        change.state,
        _text(change.body),
        _json(Marks(change.queue, change.labels, change.parent, change.priority, change.handler)).decode(),
        _time(change.ready_at),
        _time(change.deadline_at),
        False if change.note is None else _note(change.note),
    )


def _seen(times: Sequence[datetime | None]) -> object:
    """Return when the expected versions were written.

    It is one text if all are equal, as they mostly are.
    """
    known = {at: _time(at) for at in dict.fromkeys(times)}
    return [known[at] for at in times] if len(known) > 1 else "".join(known.values())


def _note(note: Note) -> str:
    return _json(note).decode()


def _refusal(refused: JournalledRefusal) -> tuple[object, ...]:
    return refused.kind, refused.id, _note(refused.note)


def _request(request: Request) -> tuple[object, ...]:
    answer = request.answer
    ttl = timedelta(seconds=request.ttl_s) // _MICROSECOND
    return request.id, request.endpoint, request.fingerprint, str(answer.status), _text(answer.body), ttl


def _text(content: bytes) -> msgspec.Raw:
    """Encode bytes as msgpack text.

    The server's reader has no binary type, and text need not be UTF-8.
    """
    return msgspec.Raw(_TEXT_HEADER.pack(0xDB, len(content)) + content)


def _time(at: datetime | None) -> str:
    return "" if at is None else str(microseconds(at))


def _no_text(error: UnicodeEncodeError) -> InvalidRecord:
    return InvalidRecord(
        f"{ascii(error.object)[:80]} is not valid text: it holds half of a surrogate pair.",
        todo="Correct it and send it again; nothing was written.",
    )


class _Rows(msgspec.Struct, array_like=True, gc=False):
    """Records in the format of `packed` in answering.lua: each has an id and one of the lines."""

    ids: list[str]
    which: list[int]
    given_bytes: list[int]
    kinds: list[str]
    line_bytes: list[int]


class _Line(msgspec.Struct, gc=False):
    """The mutable part of a record: see LINE in common.lua."""

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
    """A row of the journal: equal entries about several records, and which of them were pruned."""

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
read_count: Callable[[bytes], tuple[int, tuple[str, str]]] = msgspec.msgpack.Decoder(
    tuple[int, tuple[str, str]]
).decode
read_pruned: Callable[[bytes], tuple[int, int, int, bool, str, str]] = msgspec.msgpack.Decoder(
    tuple[int, int, int, bool, str, str]
).decode
read_status: Callable[[bytes], tuple[int, list[list[int]], int, str, int]] = msgspec.msgpack.Decoder(
    tuple[int, list[list[int]], int, str, int]
).decode


def read_taken(answer: Any) -> tuple[datetime, int, str, list[Record]]:
    """Decode the answer of claim.lua or due.lua.

    These are the time, the same in microseconds, the number of the hold, and the records.
    """
    rows, now, hold = _read_taken(answer[0])
    return moment(now), now, hold, _records(rows, answer[1])


def read_found(answer: Any) -> tuple[tuple[str, str], list[Record]]:
    """Decode find.lua: where to continue, and the records."""
    rows, on = _read_found(answer[0])
    return on, _records(rows, answer[1])


def read_loaded(answer: Any) -> list[Record | None]:
    """Decode load.lua: the records, None for missing ones."""
    rows, there = _read_loaded(answer[0])
    records = iter(_records(rows, answer[1]))
    return [next(records) if is_there else None for is_there in there]


def read_entries(answer: bytes, after: tuple[int, int], limit: int) -> tuple[str, tuple[Entry, ...]]:
    """Decode the answer of feed.lua or history.lua.

    These are the place up to which the journal was pruned, and entries after a place.
    """
    pruned, rows = _read_journal(answer)
    entries: list[Entry] = []
    for row in rows:
        entries += _entries(row, after, limit - len(entries))
    return pruned, tuple(entries)


def read_outcomes(answer: Any, work: Sequence[Work]) -> tuple[int, list[Outcome]]:
    """Decode the answer of commit.lua: its time and the outcomes.

    The time is in microseconds. There is an outcome for each record or commit.
    """
    now, answers = _read_answers(answer[0])
    committed = Committed(moment(now))
    outcomes: list[Outcome] = []
    for found, item in zip(answers, work, strict=True):
        if isinstance(item, Commit):
            outcomes.append(committed if found == 0 else _refused(found, item, now, answer))
        elif found == 0:
            outcomes += [committed] * len(item.ids)
        else:
            each = found[1] if found[0] == "each" else [found] * len(item.ids)
            outcomes += [
                committed if found == 0 else _refused(found, commit, now, answer)
                for found, commit in zip(each, item.commits(), strict=True)
            ]
    return now, outcomes


def read_recorded(name: str, fields: Sequence[bytes]) -> Recorded:
    """Decode a request of recall.lua."""
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
    epoch, last = journal_place(row.cursor)
    first = last - row.number + 1
    gone = {int(place) for place in row.gone.split()}
    at, version, note = moment(int(row.at)), int(row.version), _read_note(row.note)
    named = [
        (number, name)
        for place, (number, name) in enumerate(enumerate(row.ids.split("\n"), first), 1)
        if (epoch, number) > after and place not in gone
    ]
    return [
        Entry(cursor=stream_id((epoch, number)), at=at, kind=row.kind, id=name, version=version, note=note)
        for number, name in named[:most]
    ]


def _refused(refusal: Sequence[Any], commit: Commit, now: int, answer: Sequence[bytes]) -> Outcome:
    match refusal:
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
            raise AssertionError(refusal)


def _recorded(
    name: str, fingerprint: str, endpoint: str, status: str, created_at: str, expires_at: str, body: bytes
) -> Recorded:
    return Recorded(
        id=name,
        endpoint=endpoint,
        fingerprint=fingerprint,
        answer=RequestAnswer(status=int(status), body=body),
        created_at=moment(int(created_at)),
        expires_at=moment(int(expires_at)),
    )
