"""Read-only queries: lists and counts of records by filter, and the status of the database.

The records of each state are stored in the order of their creation, which is that of their numbers; a list of
several states, or of all, merges them. So the cost of a page is independent of its position.

Why: decision 0283.
"""

from __future__ import annotations

import heapq
import sqlite3
from itertools import islice

import msgspec

from interlock.store.contract import StoreStatus
from interlock.store.cursors import read_cursor, write_cursor
from interlock.store.ranking import microseconds, moment
from interlock.store.records import Count, Page, Query
from interlock.store.sqlite.database import MIGRATIONS, applied_version
from interlock.store.sqlite.reads import (
    GIVEN_OF_STATE,
    ID,
    KEY,
    NUMBERS,
    PLACE_BITS,
    RECORD,
    STATE_OF_GIVEN,
    list_text,
    record_of,
)

_KEYED = f"""
SELECT {RECORD} FROM record_state AS s {GIVEN_OF_STATE} WHERE s.key IN (SELECT value FROM json_each(?))
"""
_STATES = f"""
SELECT name, place FROM states WHERE kind = ? AND EXISTS (
  SELECT 1 FROM record_state WHERE key BETWEEN place << {PLACE_BITS} AND (place << {PLACE_BITS}) + {NUMBERS}
)
"""
_OF_STATE = f"""
SELECT {{columns}} FROM record_state AS s {GIVEN_OF_STATE}
WHERE {{conditions}} ORDER BY s.key {{direction}}
"""
_OF_PARENT = f"""
SELECT {{columns}} FROM record_given AS g INDEXED BY record_given_by_parent {STATE_OF_GIVEN}
WHERE {{conditions}} ORDER BY g.number {{direction}}
"""
_NEXT = "SELECT number, created_us FROM record_given WHERE number >= ? ORDER BY number LIMIT 1"
_HAS_LABEL = "EXISTS (SELECT 1 FROM json_each(g.labels) WHERE value = ?)"
_STATUS_CAP = 10_000


def find(connection: sqlite3.Connection, query: Query) -> Page:
    """Return one page of matches, and the cursor of the next."""
    after = read_cursor(query.cursor)[0] if query.cursor else None
    if query.within is not None and query.looks_through:
        return _find_within(connection, query, query.within, after)
    streams = [connection.execute(*statement) for statement in _statements(connection, query, RECORD, after)]
    merged = heapq.merge(*streams, key=_number, reverse=query.newest_first)
    rows = list(islice(merged, query.limit + 1))
    for stream in streams:
        stream.close()
    page = rows[: query.limit]
    cursor = write_cursor(_number(page[-1]), page[-1][ID]) if len(rows) > query.limit else ""
    return Page(tuple(map(record_of, page)), cursor)


def _find_within(connection: sqlite3.Connection, query: Query, within: int, after: int | None) -> Page:
    """Return the matches among the next records of all states together.

    The query names a queue or labels.
    """
    conditions, values = _looked_at(query)
    columns = f"s.key, {' AND '.join(conditions)}"
    streams = [
        connection.execute(sql, (*values, *parameters))
        for sql, parameters in _statements(connection, _anywhere(query), columns, after)
    ]
    found: list[int] = []
    end = last = None
    merged = heapq.merge(*streams, key=_number, reverse=query.newest_first)
    for place, (key, matches) in enumerate(merged):
        if place == within:
            end = last
            break
        if matches and len(found) == query.limit:
            end = found[-1]
            break
        if matches:
            found.append(key)
        last = key
    for stream in streams:
        stream.close()
    rows = connection.execute(_KEYED, (list_text(found),)).fetchall()
    rows.sort(key=_number, reverse=query.newest_first)
    return Page(tuple(map(record_of, rows)), "" if end is None else write_cursor(end & NUMBERS, ""))


def _anywhere(query: Query) -> Query:
    return msgspec.structs.replace(query, queue=None, labels=())


def count(connection: sqlite3.Connection, query: Query, cap: int, within: int | None = None) -> Count:
    """Return the number of matches, up to one more than the cap.

    Without an index it examines `within` records.
    """
    if within is not None and query.looks_through:
        return _count_within(connection, query, cap, within)
    number = 0
    for sql, parameters in _statements(connection, query, "1", None):
        left = cap + 1 - number
        capped = f"SELECT count(*) FROM ({sql} LIMIT ?)"
        number += connection.execute(capped, (*parameters, left)).fetchone()[0]
        if number > cap:
            break
    return Count(min(number, cap), capped=number > cap)


def _count_within(connection: sqlite3.Connection, query: Query, cap: int, within: int) -> Count:
    """Return the number of matches among the newest records of each state.

    The query names a queue or labels.
    """
    anywhere = msgspec.structs.replace(_anywhere(query), newest_first=True)
    conditions, values = _looked_at(query)
    number, cut = 0, False
    for sql, parameters in _statements(connection, anywhere, "g.queue, g.labels", None):
        some = f"SELECT count(*), total({' AND '.join(conditions)}) FROM ({sql} LIMIT ?) AS g"
        looked_at, found = connection.execute(some, (*values, *parameters, within)).fetchone()
        number += int(found)
        cut = cut or looked_at == within
    return Count(min(number, cap), capped=cut or number > cap)


def status(connection: sqlite3.Connection, url: str) -> StoreStatus:
    """Return the status, for people."""
    records = {
        kind: counts
        for (kind,) in connection.execute("SELECT name FROM kinds ORDER BY name").fetchall()
        if (counts := _count_states(connection, kind))
    }
    entries = _count_up_to_cap(connection, "total(remaining)", "journal_rows")
    oldest = connection.execute("SELECT at_us FROM journal_rows ORDER BY sequence LIMIT 1").fetchone()
    requests = _count_up_to_cap(connection, "count(*)", "requests")
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


def _count_up_to_cap(connection: sqlite3.Connection, number: str, table: str) -> int:
    sql = f"SELECT {number} FROM (SELECT * FROM {table} LIMIT ?)"
    return min(_STATUS_CAP, int(connection.execute(sql, (_STATUS_CAP,)).fetchone()[0]))


def number_at(connection: sqlite3.Connection, us: int) -> int:
    """Return the lowest number of records created at or after a time.

    Numbers and times are in the same order.
    """
    low = 0
    found = connection.execute("SELECT max(number) FROM record_given").fetchone()[0]
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
    capped = "SELECT count(*) FROM (SELECT 1 FROM record_state WHERE key BETWEEN ? AND ? LIMIT ?)"
    return {
        state: connection.execute(capped, (*_stretch(place), _STATUS_CAP)).fetchone()[0]
        for state, place in sorted(connection.execute(_STATES, (kind,)).fetchall())
    }


def _statements(
    connection: sqlite3.Connection, query: Query, columns: str, after: int | None
) -> list[tuple[str, list[object]]]:
    """Return one statement for each range of matches in the order of creation."""
    conditions, parameters = _looked_at(query)
    first, last = _numbers_between(connection, query, after)
    direction = "DESC" if query.newest_first else "ASC"
    if query.parent is not None:
        conditions += ["g.kind = ?", "g.parent = ?", "g.number BETWEEN ? AND ?"]
        parameters += [query.kind, query.parent, first, last]
        if query.states:
            conditions.append(f"p.name IN ({', '.join('?' * len(query.states))})")
            parameters += query.states
        return [(_sql(_OF_PARENT, columns, conditions, direction), parameters)]
    places = dict(connection.execute(_STATES, (query.kind,)).fetchall())
    states = dict.fromkeys(query.states) if query.states else places
    sql = _sql(_OF_STATE, columns, ["s.key BETWEEN ? AND ?", *conditions], direction)
    return [(sql, [*_stretch(places[s], first, last), *parameters]) for s in states if s in places]


def _sql(text: str, columns: str, conditions: list[str], direction: str) -> str:
    return text.format(columns=columns, conditions=" AND ".join(conditions), direction=direction)


def _stretch(place: int, first: int = 0, last: int = NUMBERS) -> tuple[int, int]:
    """Return the keys of the records in one state, from one number to another."""
    return (place << PLACE_BITS) + first, (place << PLACE_BITS) + last


def _numbers_between(connection: sqlite3.Connection, query: Query, after: int | None) -> tuple[int, int]:
    """Return the first and the last number that a matching record can have."""
    first, last = 0, NUMBERS
    if query.since is not None:
        first = number_at(connection, microseconds(query.since))
    if query.until is not None:
        last = number_at(connection, microseconds(query.until)) - 1
    if after is not None and query.newest_first:
        last = min(last, after - 1)
    elif after is not None:
        first = max(first, min(after, NUMBERS) + 1)
    return first, last


def _number(row: tuple[int, ...]) -> int:
    return row[KEY] & NUMBERS


def _looked_at(query: Query) -> tuple[list[str], list[object]]:
    """Return the conditions without an index."""
    conditions: list[str] = []
    parameters: list[object] = []
    if query.queue is not None:
        conditions.append("g.queue = ?")
        parameters.append(query.queue)
    for label in query.labels:
        conditions.append(_HAS_LABEL)
        parameters.append(label)
    return conditions, parameters
