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
    """The whole journal of one record, the oldest first.

    Refusals have the version that the record had, so many entries may share one: a page that ends
    within a version is read again from its beginning.
    """
    version, page = 0, PAGE
    while True:
        entries = (await store.history(key, after_version=version, limit=page)).entries
        full = len(entries) == page
        told = [entry for entry in entries if not full or entry.version < entries[-1].version]
        for entry in told:
            yield entry
        if not full:
            return
        if told:
            version = entries[-1].version - 1
        else:
            page *= 2  # all of it is one version
