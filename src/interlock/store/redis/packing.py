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
from interlock.store.ranking import microseconds, rank_of
from interlock.store.records import Change, Claim, Commit, Note, Query, Refused, Request

_MAX_CALL_BYTES = 32 * 1_048_576
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

    def of(self, change: Change) -> tuple[object, ...] | None:
        """Return what commit.lua has to write for other tools; None for what is not shown.

        Key, value, milliseconds to live, index, the object with fields to replace, these, and fields to keep.
        """
        shown = self._kinds.get(change.kind)
        if shown is None:
            return None
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


def pack_commits(commits: Sequence[Commit], showing: Showing) -> list[tuple[Sequence[Commit], bytes]]:
    """A batch for commit.lua, in calls that the server takes: one, unless the bodies are very large."""
    try:
        return [(part, _pack([_commit(commit, showing) for commit in part])) for part in _parts_of(commits)]
    except UnicodeEncodeError as error:
        raise _no_text(error) from None


def pack_asked(claim: Claim) -> bytes:
    """Who claims, for claim.lua: queues, labels, handlers, and whether it takes all handlers."""
    handlers = claim.handlers
    return pack((list(dict.fromkeys(claim.queues)), claim.labels, handlers or (), handlers is None))


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


def _parts_of(commits: Sequence[Commit]) -> Iterator[Sequence[Commit]]:
    start, size = 0, 0
    for place, commit in enumerate(commits):
        weight = sum(len(change.body) for change in commit.changes)
        if size and size + weight > _MAX_CALL_BYTES:
            yield commits[start:place]
            start, size = place, 0
        size += weight
    yield commits[start:]


def _commit(commit: Commit, showing: Showing) -> tuple[object, ...]:
    return (
        _request(commit.request) if commit.request else None,
        microseconds(commit.not_after) if commit.not_after else None,
        [_change(change, showing) for change in commit.changes],
        [_refusal(refused) for refused in commit.refusals],
    )


def _change(change: Change, showing: Showing) -> tuple[object, ...]:
    ready_at, rank = "", ""
    if change.ready_at is not None:
        ready_at, rank = str(microseconds(change.ready_at)), str(rank_of(change.ready_at, change.priority))
    return (
        change.kind,
        change.id,
        str(change.expected),
        change.state,
        _text(change.body),
        _json(Marks(change.queue, change.labels, change.parent, change.priority, change.handler)).decode(),
        ready_at,
        rank,
        _time(change.deadline_at),
        None if change.note is None else _note(change.note),
        str(change.expected + 1),
        showing.of(change),
        _time(change.expected_at),
    )


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
