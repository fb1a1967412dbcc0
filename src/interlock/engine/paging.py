"""Everything there is, a page at a time: for whoever has to look at all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from interlock.store.contract import Store
from interlock.store.records import Entry, Key, Query, Record

PAGE = 500


async def every_record(store: Store, kind: str) -> AsyncIterator[Record]:
    """All records of a kind, the oldest first."""
    cursor = ""
    while True:
        page = await store.find(Query(kind=kind, newest_first=False, cursor=cursor, limit=PAGE))
        for record in page.records:
            yield record
        cursor = page.cursor
        if not cursor:
            return


async def every_entry(store: Store, key: Key) -> AsyncIterator[Entry]:
    """The whole journal of one record, the oldest first."""
    version = 0
    while True:
        entries = (await store.history(key, after_version=version, limit=PAGE)).entries
        for entry in entries:
            yield entry
        if len(entries) < PAGE:
            return
        version = entries[-1].version
