"""Commits and queries on their way to the scripts.

One argument for a whole batch, as msgpack: an argument for each value took six times as long, nearly
all of it in the driver (JSON took as long as msgpack). Times are whole microseconds, written as text
where the scripts only store them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from interlock.errors import InvalidRecord
from interlock.store.catalogue import Catalogue
from interlock.store.ranking import had_by, microseconds
from interlock.store.records import Batch, Change, Claim, Commit, Note, Query, Refused, Request, Work

_MAX_CALL_BYTES = 32 * 1_048_576
_MOST_IN_A_BATCH = 1_000
_MICROSECOND = timedelta(microseconds=1)
_TEXT_HEADER = struct.Struct(">BI")
_pack = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder().encode


class Marks(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a record can be found by, as one field of it."""

    queue: str | None = None
    labels: tuple[str, ...] = ()
    parent: str | None = None
    priority: int = 0
    handler: str = ""


def pack(value: object) -> bytes:
    """Anything plain, for a script."""
    try:
        return _pack(value)
    except UnicodeEncodeError as error:
        raise _no_text(error) from None


def plain(text: str) -> bytes:
    """One text, for a script."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _no_text(error) from None


class Showing:
    """Where and how changes are shown to other tools, for the kinds that are."""

    def __init__(self, catalogue: Catalogue, prefix: str) -> None:
        self._prefix = prefix
        self._kinds = {name: kind.shown for name, kind in catalogue.items() if kind.shown is not None}

    def shows(self, kind: str) -> bool:
        """Whether records of the kind are shown."""
        return kind in self._kinds

    def of(self, change: Change) -> tuple[object, ...] | bool:
        """Return what commit.lua has to write for other tools; False for what is not shown.

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
        """What stands before and after the id, and the index, for prune.lua."""
        shown = self._kinds.get(kind)
        if shown is None:
            return _pack(False)
        before, after = shown.around
        index = f"{self._prefix}:{shown.index}" if shown.index else False
        return _pack((f"{self._prefix}:{before}", after, index))


def _replacing(fields: dict[str, bytes]) -> list[tuple[str, str]]:
    """What a field begins with in a JSON object, and what follows that."""
    return [(f'"{name}":', value.decode()) for name, value in fields.items()]


def pack_work(work: Sequence[Work], showing: Showing) -> list[tuple[Sequence[Work], bytes]]:
    """Work for commit.lua, in calls that the server takes: one, unless the data are very large."""
    try:
        pieces = [piece for item in work for piece in _pieces(item, showing)]
        return [(part, _pack([_work(item, showing) for item in part])) for part in _parts_of(pieces)]
    except UnicodeEncodeError as error:
        raise _no_text(error) from None


def pack_asked(claim: Claim) -> bytes:
    """Who claims, for claim.lua: queues, the parts of lanes that it has, whether it takes all handlers."""
    has = had_by(claim.labels, claim.handlers)
    return pack((list(dict.fromkeys(claim.queues)), sorted(has), claim.handlers is None))


def pack_query(query: Query, after: tuple[str, str]) -> bytes:
    """A query for find.lua and count.lua, from a place on."""
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


def _pieces(item: Work, showing: Showing) -> Sequence[Work]:
    """The same work in pieces: a batch is a row of the journal, and what is shown is said by record."""
    if isinstance(item, Commit):
        return (item,)
    if showing.shows(item.change.kind):
        return item.commits()
    if len(item.ids) <= _MOST_IN_A_BATCH and _weight(item) <= _MAX_CALL_BYTES:
        return (item,)
    size = len(item.ids) // 2 or 1
    halves = [_slice(item, 0, size), _slice(item, size, len(item.ids))] if len(item.ids) > 1 else []
    return [piece for half in halves for piece in _pieces(half, showing)] or (item,)


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
    """How many bytes of data it has, of which the server keeps a second copy while it works."""
    if isinstance(item, Batch):
        body = len(item.change.body) * len(item.ids)
        return body + sum(map(len, item.given)) + sum(map(len, item.result))
    return sum(len(each.body) + len(each.given or b"") + len(each.result or b"") for each in item.changes)


def _work(item: Work, showing: Showing) -> tuple[object, ...]:
    not_after = microseconds(item.not_after) if item.not_after else None
    if isinstance(item, Batch):
        given, result = [_text(each) for each in item.given], [_text(each) for each in item.result]
        return None, not_after, [_changes(item, given or False, result or False)], (), True
    return (
        _request(item.request) if item.request else None,
        not_after,
        [_change(change, showing) for change in item.changes],
        [_refusal(refused) for refused in item.refusals],
    )


def _changes(batch: Batch, given: object, result: object) -> tuple[object, ...]:
    return *_said(batch.change, batch.ids), _seen(batch.expected_at), given, result, False


def _change(change: Change, showing: Showing) -> tuple[object, ...]:
    return (
        *_said(change, (change.id,)),
        _time(change.expected_at),
        [_text(change.given)] if change.given else False,
        False if change.result is None else [_text(change.result)],
        showing.of(change),
    )


def _said(change: Change, ids: Sequence[str]) -> tuple[object, ...]:
    """What a change says about all of its records."""
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
    """When the expected versions were written: one text where it is the same for all, as it mostly is."""
    known = {at: _time(at) for at in dict.fromkeys(times)}
    return [known[at] for at in times] if len(known) > 1 else "".join(known.values())


def _note(note: Note) -> str:
    return _json(note).decode()


def _refusal(refused: Refused) -> tuple[object, ...]:
    return refused.kind, refused.id, _note(refused.note)


def _request(request: Request) -> tuple[object, ...]:
    answer = request.answer
    ttl = timedelta(seconds=request.ttl_s) // _MICROSECOND
    return request.id, request.endpoint, request.fingerprint, str(answer.status), _text(answer.body), ttl


def _text(content: bytes) -> msgspec.Raw:
    """Bytes as msgpack's text: the server's reader knows no binary, and asks no text to be UTF-8."""
    return msgspec.Raw(_TEXT_HEADER.pack(0xDB, len(content)) + content)


def _time(at: datetime | None) -> str:
    return "" if at is None else str(microseconds(at))


def _no_text(error: UnicodeEncodeError) -> InvalidRecord:
    return InvalidRecord(
        f"{ascii(error.object)[:80]} is no text: it holds half a character.",
        todo="Correct it and send it again; nothing was written.",
    )
