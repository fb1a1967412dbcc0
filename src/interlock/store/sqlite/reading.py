"""What is only read: records by key and by filter, the journal, requests, and what there is at all.

Lists come from one index in which the records of each state lie in the order of their creation, which is
that of their numbers; a list of several states, or of all, merges them. So a page costs a page, wherever
it begins.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import itemgetter

import msgspec

from interlock.store.contract import StoreStatus
from interlock.store.cursors import bad_cursor, read_cursor, write_cursor
from interlock.store.ranking import microseconds, moment
from interlock.store.records import Count, Feed, Key, Page, Query, Record, Recorded
from interlock.store.sqlite.opening import MIGRATIONS, applied_version
from interlock.store.sqlite.rows import ID, NUMBER, RECORD, entry_of, list_text, record_of, recorded_of
from interlock.store.sqlite.shapes import ENTRY, REQUEST

_LOAD = (
    "SELECT {columns} FROM json_each(?2) AS wanted"
    " CROSS JOIN records AS r ON r.kind = ?1 AND r.id = wanted.value"
).format(columns=", ".join(f"r.{column.strip()}" for column in RECORD.split(",")))
_NUMBERED = f"SELECT {RECORD} FROM records WHERE number IN (SELECT value FROM json_each(?))"
_STATES = """
SELECT name, place FROM states
WHERE kind = ? AND EXISTS (SELECT 1 FROM records WHERE records.place = states.place)
"""
_NEXT = "SELECT number, created_us FROM records WHERE number >= ? ORDER BY number LIMIT 1"
_HAS_LABEL = "EXISTS (SELECT 1 FROM json_each(labels) WHERE value = ?)"
_FEED = f"SELECT {ENTRY} FROM journal WHERE sequence > ? ORDER BY sequence LIMIT ?"
# What a shell has added may not say which record it belongs to.
_HISTORY = f"""
SELECT {ENTRY} FROM journal INDEXED BY journal_by_record
WHERE record = (SELECT number FROM records WHERE kind = ?1 AND id = ?2) AND version > ?3
UNION ALL
SELECT {ENTRY} FROM journal INDEXED BY journal_without_record
WHERE record = 0 AND kind = ?1 AND id = ?2 AND version > ?3
ORDER BY sequence LIMIT ?4
"""
_STATUS_CAP = 10_000
_LARGEST = 2**63 - 1


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Several statements see the same database; writers are not held up by it."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def load(connection: sqlite3.Connection, keys: Sequence[Key]) -> list[Record | None]:
    """The records, in the order of the keys."""
    names: dict[str, list[str]] = {}
    for key in keys:
        names.setdefault(key.kind, []).append(key.id)
    found: dict[tuple[str, str], Record] = {}
    with snapshot(connection):
        for kind, wanted in names.items():
            for row in connection.execute(_LOAD, (kind, list_text(wanted))):
                found[kind, row[ID]] = record_of(row)
    return [found.get((key.kind, key.id)) for key in keys]


def find(connection: sqlite3.Connection, query: Query) -> Page:
    """One page of what matches, and where the next begins."""
    after = read_cursor(query.cursor)[0] if query.cursor else None
    if query.within is not None and query.looks_through:
        with snapshot(connection):
            return _find_within(connection, query, query.within, after)
    with snapshot(connection):
        streams = [connection.execute(*ask) for ask in _asks(connection, query, RECORD, after)]
        merged = heapq.merge(*streams, key=itemgetter(NUMBER), reverse=query.newest_first)
        rows = list(islice(merged, query.limit + 1))
        for stream in streams:
            stream.close()
    page = rows[: query.limit]
    cursor = write_cursor(page[-1][NUMBER], page[-1][ID]) if len(rows) > query.limit else ""
    return Page(tuple(map(record_of, page)), cursor)


def _find_within(connection: sqlite3.Connection, query: Query, within: int, after: int | None) -> Page:
    """Of the next so many in all states together, those that have the queue and the labels."""
    conditions, values = _looked_at(query)
    columns = f"number, {' AND '.join(conditions)}"
    streams = [
        connection.execute(sql, (*values, *parameters))
        for sql, parameters in _asks(connection, _anywhere(query), columns, after)
    ]
    found: list[int] = []
    end = last = None
    merged = heapq.merge(*streams, key=itemgetter(0), reverse=query.newest_first)
    for place, (number, matches) in enumerate(merged):
        if place == within:
            end = last
            break
        if matches and len(found) == query.limit:
            end = found[-1]
            break
        if matches:
            found.append(number)
        last = number
    for stream in streams:
        stream.close()
    rows = connection.execute(_NUMBERED, (list_text(found),)).fetchall()
    rows.sort(key=itemgetter(NUMBER), reverse=query.newest_first)
    return Page(tuple(map(record_of, rows)), "" if end is None else write_cursor(end, ""))


def _anywhere(query: Query) -> Query:
    return msgspec.structs.replace(query, queue=None, labels=())


def count(connection: sqlite3.Connection, query: Query, cap: int, within: int | None = None) -> Count:
    """How many match, looking at no more than the cap and one; or, where there is no index, at so many."""
    if within is not None and query.looks_through:
        return _count_within(connection, query, cap, within)
    number = 0
    with snapshot(connection):
        for sql, parameters in _asks(connection, query, "1", None):
            left = cap + 1 - number
            capped = f"SELECT count(*) FROM ({sql} LIMIT ?)"
            number += connection.execute(capped, (*parameters, left)).fetchone()[0]
            if number > cap:
                break
    return Count(min(number, cap), capped=number > cap)


def _count_within(connection: sqlite3.Connection, query: Query, cap: int, within: int) -> Count:
    """Of the newest of each state, how many have the queue and the labels."""
    anywhere = msgspec.structs.replace(_anywhere(query), newest_first=True)
    conditions, values = _looked_at(query)
    number, cut = 0, False
    with snapshot(connection):
        for sql, parameters in _asks(connection, anywhere, "queue, labels", None):
            some = f"SELECT count(*), total({' AND '.join(conditions)}) FROM ({sql} LIMIT ?)"
            looked_at, found = connection.execute(some, (*values, *parameters, within)).fetchone()
            number += int(found)
            cut = cut or looked_at == within
    return Count(min(number, cap), capped=cut or number > cap)


def recall(connection: sqlite3.Connection, request_id: str, now_us: int) -> Recorded | None:
    """What was answered to a request, unless that has expired."""
    row = connection.execute(
        f"SELECT {REQUEST} FROM requests WHERE id = ? AND expires_us > ?", (request_id, now_us)
    ).fetchone()
    return None if row is None else recorded_of(row)


def feed(connection: sqlite3.Connection, after: str, limit: int) -> Feed:
    """The journal after a cursor: numbers are given out in the order of the commits."""
    sequence = _sequence_of(after)
    with snapshot(connection):
        (pruned_up_to,) = connection.execute("SELECT pruned_up_to FROM progress").fetchone()
        entries = tuple(map(entry_of, connection.execute(_FEED, (sequence, limit))))
    cursor = entries[-1].cursor if entries else str(max(sequence, pruned_up_to))
    return Feed(entries, cursor, gap=sequence < pruned_up_to)


def latest(connection: sqlite3.Connection) -> str:
    """The cursor of the journal's end."""
    (sequence,) = connection.execute("SELECT sequence FROM progress").fetchone()
    return str(sequence)


def history(connection: sqlite3.Connection, key: Key, after_version: int, limit: int) -> Feed:
    """The journal of one record."""
    rows = connection.execute(_HISTORY, (key.kind, key.id, after_version, limit))
    entries = tuple(map(entry_of, rows))
    return Feed(entries, entries[-1].cursor if entries else "")


def latest_us(connection: sqlite3.Connection) -> int:
    """The time of the latest transaction."""
    return int(connection.execute("SELECT latest_us FROM progress").fetchone()[0])


def epoch(connection: sqlite3.Connection) -> int:
    """Return the epoch as it is stored."""
    return int(connection.execute("SELECT epoch FROM progress").fetchone()[0])


def status(connection: sqlite3.Connection, url: str) -> StoreStatus:
    """What is there, for people."""
    with snapshot(connection):
        records = {
            kind: counts
            for (kind,) in connection.execute("SELECT name FROM kinds ORDER BY name").fetchall()
            if (counts := _count_states(connection, kind))
        }
        entries = _count_up_to_cap(connection, "journal")
        oldest = connection.execute("SELECT at_us FROM journal ORDER BY sequence LIMIT 1").fetchone()
        requests = _count_up_to_cap(connection, "requests")
        version = applied_version(connection)
        pages, page_bytes = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "page_size")
        )
    return StoreStatus(
        url=url,
        server=f"SQLite {sqlite3.sqlite_version}",
        schema_version=version,
        wanted_version=MIGRATIONS[-1].number,
        records=records,
        entries=entries,
        oldest_entry_at=moment(oldest[0]) if oldest else None,
        requests=requests,
        cap=_STATUS_CAP,
        size_bytes=pages * page_bytes,
    )


def _count_up_to_cap(connection: sqlite3.Connection, table: str) -> int:
    sql = f"SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT ?)"
    return int(connection.execute(sql, (_STATUS_CAP,)).fetchone()[0])


def number_at(connection: sqlite3.Connection, us: int) -> int:
    """The lowest number of what was created then or later: numbers and times are in the same order."""
    low = 0
    found = connection.execute("SELECT max(number) FROM records").fetchone()[0]
    high = 1 if found is None else found + 1
    while low < high:
        middle = (low + high) // 2
        number, created_us = connection.execute(_NEXT, (middle,)).fetchone() or (high, us)
        if created_us >= us:
            high = middle
        else:
            low = number + 1
    return low


def _count_states(connection: sqlite3.Connection, kind: str) -> dict[str, int]:
    capped = "SELECT count(*) FROM (SELECT 1 FROM records WHERE place = ? LIMIT ?)"
    return {
        state: connection.execute(capped, (place, _STATUS_CAP)).fetchone()[0]
        for state, place in sorted(connection.execute(_STATES, (kind,)).fetchall())
    }


def _asks(
    connection: sqlite3.Connection, query: Query, columns: str, after: int | None
) -> list[tuple[str, list[object]]]:
    """One statement for each stretch of an index that holds matches, in the order of creation."""
    conditions, parameters = _conditions(connection, query, after)
    order = f"ORDER BY number {'DESC' if query.newest_first else 'ASC'}"
    stretches: list[tuple[str, str, list[object]]]
    if query.parent is not None:
        stretches = [("records_by_parent", "kind = ? AND parent = ?", [query.kind, query.parent])]
        if query.states:
            conditions.append(f"state IN ({', '.join('?' * len(query.states))})")
            parameters += query.states
    else:
        places = dict(connection.execute(_STATES, (query.kind,)).fetchall())
        states = dict.fromkeys(query.states) if query.states else places
        stretches = [("records_by_place", "place = ?", [places[s]]) for s in states if s in places]
    asks: list[tuple[str, list[object]]] = []
    for index, narrowed, values in stretches:
        matching = " AND ".join((narrowed, *conditions))
        sql = f"SELECT {columns} FROM records INDEXED BY {index} WHERE {matching} {order}"
        asks.append((sql, [*values, *parameters]))
    return asks


def _conditions(
    connection: sqlite3.Connection, query: Query, after: int | None
) -> tuple[list[str], list[object]]:
    conditions, parameters = _looked_at(query)
    if query.since is not None:
        conditions.append("number >= ?")
        parameters.append(number_at(connection, microseconds(query.since)))
    if query.until is not None:
        conditions.append("number < ?")
        parameters.append(number_at(connection, microseconds(query.until)))
    if after is not None:
        conditions.append(f"number {'<' if query.newest_first else '>'} ?")
        parameters.append(after)
    return conditions, parameters


def _looked_at(query: Query) -> tuple[list[str], list[object]]:
    """What no index knows."""
    conditions: list[str] = []
    parameters: list[object] = []
    if query.queue is not None:
        conditions.append("queue = ?")
        parameters.append(query.queue)
    for label in query.labels:
        conditions.append(_HAS_LABEL)
        parameters.append(label)
    return conditions, parameters


def _sequence_of(cursor: str) -> int:
    if not cursor:
        return 0
    if not cursor.isdecimal() or (sequence := int(cursor)) > _LARGEST:
        raise bad_cursor(cursor)
    return sequence
