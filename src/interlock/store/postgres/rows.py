"""Rows as records, requests and entries; cursors as places in the journal; queries as SQL conditions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import asyncpg
import msgspec

from interlock.store.contract import StoreStatus
from interlock.store.cursors import bad_cursor, read_cursor
from interlock.store.ranking import moment, moment_in_seconds, ready_at_of
from interlock.store.records import Entry, Feed, Note, Query, Record, Recorded, RequestAnswer

_CURSOR = re.compile(r"(\d{1,19})\.(\d{1,19})(?:\.(\d{1,19}):(\d{1,19}):([\d,]*))?")
_LARGEST = 2**63 - 1


class JournalPlace(msgspec.Struct, frozen=True, order=True, gc=False):
    """A place after one entry of the journal."""

    xact: int = 0
    entry: int = 0
    snapshot: str | None = None

    @property
    def cursor(self) -> str:
        """The cursor for readers of the feed."""
        tail = f".{self.snapshot}" if self.snapshot else ""
        return f"{self.xact}.{self.entry}{tail}"

    def at(self, xact: int, entry: int, xact_offset: int) -> JournalPlace:
        """Return the place of an entry that was read from here on.

        Past the end of the snapshot it needs none.
        """
        if self.snapshot is None or xact - xact_offset >= int(self.snapshot.split(":")[1]):
            return JournalPlace(xact, entry)
        return JournalPlace(xact, entry, self.snapshot)


def place_of(cursor: str) -> JournalPlace:
    """Return the place of a cursor; without one, the beginning."""
    if not cursor:
        return JournalPlace()
    match = _CURSOR.fullmatch(cursor)
    if match is None or not cursor.isascii():
        raise bad_cursor(cursor)
    xact, entry = int(match[1]), int(match[2])
    if max(xact, entry) > _LARGEST:
        raise bad_cursor(cursor)
    return JournalPlace(xact, entry, cursor.split(".", 2)[2] if match[3] else None)


BEGINNING = JournalPlace()

_EDGE = 5
"""Number of leading columns of `feed.sql` about the journal itself."""
_decode = msgspec.json.Decoder(Note).decode


@lru_cache(maxsize=256)
def _note(text: str) -> Note:
    """Decode a note; cached, since entries of a batch share it."""
    return _decode(text)


def record_of(row: asyncpg.Record, first: int = 0) -> Record:
    """Return the record whose columns begin at `first`.

    Without an update time, it was never changed.
    """
    (
        kind,
        name,
        state,
        version,
        body,
        given,
        result,
        parent,
        queue,
        labels,
        priority,
        ready_at,
        deadline_at,
        created_at,
        updated_at,
    ) = row[first:]
    return Record(
        kind=kind,
        id=name,
        state=state,
        version=version,
        body=body.encode(),
        given=given.encode() if given else b"",
        result=result.encode() if result else b"",
        parent=parent,
        queue=queue,
        labels=tuple(labels) if labels else (),
        priority=priority,
        ready_at=ready_at,
        deadline_at=deadline_at,
        created_at=created_at,
        updated_at=created_at if updated_at is None else updated_at,
    )


def foreseen_records_of(rows: Sequence[asyncpg.Record], like: Record) -> list[Record]:
    """Return the records of `claim_foreseen` as they were before.

    They equal `like`, except for data of their own.
    """
    records: list[Record] = []
    last_created_s, last_rank = -1.0, -1
    created_at = ready_at = moment(0)
    for name, given, rank, created_s, updated_at, _, _, _ in rows:
        if created_s != last_created_s:
            last_created_s, created_at = created_s, moment_in_seconds(created_s)
        if rank != last_rank:
            last_rank, ready_at = rank, ready_at_of(rank, like.priority)
        own = {"id": name, "given": given.encode() if given else b"", "ready_at": ready_at}
        records.append(
            msgspec.structs.replace(like, created_at=created_at, updated_at=updated_at or created_at, **own)
        )
    return records


def ready_records_of(rows: Sequence[asyncpg.Record], of_kind: str) -> list[Record]:
    """Return the records of `take_ready` or `peek_ready`.

    See `sql/0016_claim.sql`. Adjacent rows share most values.
    """
    records: list[Record] = []
    last_created_s, last_ready, last_body = -1.0, (-1, 0), None
    created_at = ready_at = moment(0)
    data = b""
    for (
        name,
        state,
        version,
        body,
        given,
        result,
        parent,
        queue,
        labels,
        priority,
        rank,
        deadline_at,
        created_s,
        updated_at,
        _,
        _,
        _,
        _,
    ) in rows:
        if created_s != last_created_s:
            last_created_s, created_at = created_s, moment_in_seconds(created_s)
        ready = rank, priority
        if ready != last_ready:
            last_ready, ready_at = ready, ready_at_of(rank, priority)
        if body != last_body:
            last_body, data = body, body.encode()
        records.append(
            Record(
                kind=of_kind,
                id=name,
                state=state,
                version=version,
                body=data,
                given=given.encode() if given else b"",
                result=result.encode() if result else b"",
                parent=parent,
                queue=queue,
                labels=tuple(labels) if labels else (),
                priority=priority,
                ready_at=ready_at,
                deadline_at=deadline_at,
                created_at=created_at,
                updated_at=updated_at or created_at,
            )
        )
    return records


def entry_of(
    row: asyncpg.Record, start: JournalPlace = BEGINNING, xact_offset: int = 0, first: int = 0
) -> Entry:
    """Return the entry whose columns begin at `first`, read from `start` on."""
    xact, entry, at, kind, name, version, note = row[first:]
    return Entry(
        cursor=f"{xact}.{entry}" if start.snapshot is None else start.at(xact, entry, xact_offset).cursor,
        at=at,
        kind=kind,
        id=name,
        version=version,
        note=_note(note),
    )


def recorded_of(row: asyncpg.Record, name: str) -> Recorded:
    """Return the recorded request with this id."""
    return Recorded(
        id=name,
        endpoint=row["endpoint"],
        fingerprint=row["fingerprint"],
        answer=RequestAnswer(status=row["status"], body=row["body"]),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
    )


def feed_of(rows: Sequence[asyncpg.Record], start: JournalPlace, after: str) -> Feed:
    """Return the feed of `feed.sql` from a place on; `after` is its cursor."""
    head = rows[0]
    pruned = JournalPlace(head["pruned_xact"], head["pruned_entry"])
    gap = (start.xact, start.entry) < (pruned.xact, pruned.entry)
    entries: tuple[Entry, ...] = ()
    if head["xact"] is not None:
        offset = head["xact_offset"]
        entries = tuple([entry_of(row, start, offset, _EDGE) for row in rows])
    if entries:
        return Feed(entries, entries[-1].cursor, gap)
    # The same gap is reported only once.
    passed = gap and pruned.xact < head["settled"]
    return Feed((), pruned.cursor if passed or not after else after, gap)


def status_of(rows: Sequence[asyncpg.Record], **facts: Any) -> StoreStatus:
    """Return the status from the counts of `status.sql`."""
    records: dict[str, dict[str, int]] = {}
    others: dict[str, tuple[int, datetime | None]] = {}
    for what, kind, state, number, at in rows:
        if what == "record":
            records.setdefault(kind, {})[state] = number
        else:
            others[what] = (number, at)
    return StoreStatus(
        schema_version=others["schema"][0],
        records=records,
        entries=others["journal"][0],
        oldest_entry_at=others["journal"][1],
        requests=others["request"][0],
        **facts,
    )


def place_after(cursor: str) -> tuple[datetime, str]:
    """Return the creation time and id after which a walk continues."""
    created_us, name = read_cursor(cursor) if cursor else (0, "")
    return _moment(cursor, created_us), name


class Conditions:
    """The conditions of a query over numbered arguments.

    The first arguments are always there: the limit, the kind, and the states, if any. With `within`, queue
    and labels are not conditions: a number of records is examined whether or not they match.
    """

    def __init__(self, query: Query, limit: int, within: int | None = None) -> None:
        states = list(dict.fromkeys(query.states)) or None
        self.arguments: list[Any] = [limit, query.kind, states]
        self._conditions: list[str] = ["record.kind = $2"]
        self._matching: list[str] = []
        looked_at = self._conditions if within is None else self._matching
        self._add("record.parent = {}", query.parent)
        self._add("record.queue = {}", query.queue, to=looked_at)
        self.labelled: bool = bool(query.labels) and query.parent is None and within is None
        """Whether labels are the access path, and not a condition: see find_labelled.sql."""
        self._labels = list(query.labels) if self.labelled else None
        labels = list(query.labels) if query.labels and not self.labelled else None
        self._add("record.labels @> {}", labels, to=looked_at)
        self._add("record.created_at >= {}", query.since)
        self._add("record.created_at < {}", query.until)
        self.order = "DESC" if query.newest_first else "ASC"
        self._within = within

    def after(self, cursor: str) -> None:
        """Add the condition that records come after this cursor."""
        if cursor:
            created_us, name = read_cursor(cursor)
            sign = "<" if self.order == "DESC" else ">"
            self._add(
                f"(record.created_at, record.id) {sign} ({{}}, {{}})", _moment(cursor, created_us), name
            )

    def fill(self, sql: str) -> str:
        """Return the statement with its conditions and arguments."""
        if self._labels is not None:
            self.arguments.append(self._labels)
            sql = sql.replace("{last}", f"${len(self.arguments)}")
        if self._within is not None:
            self.arguments.append(self._within)
            sql = sql.replace("{within}", f"${len(self.arguments)}::bigint")
        sql = sql.replace("{conditions}", " AND ".join(self._conditions)).replace("{order}", self.order)
        return sql.replace("{matching}", " AND ".join(self._matching))

    def _add(self, phrase: str, *values: Any, to: list[str] | None = None) -> None:
        if None in values:
            return
        self.arguments += values
        last = len(self.arguments)
        written = phrase.format(*(f"${n}" for n in range(last - len(values) + 1, last + 1)))
        (self._conditions if to is None else to).append(written)


def _moment(cursor: str, created_us: int) -> datetime:
    try:
        return moment(created_us)
    except OverflowError:
        raise bad_cursor(cursor) from None
