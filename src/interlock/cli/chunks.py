"""What attempts have written, as it comes, from a store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import msgspec

from interlock.store.contract import Store
from interlock.store.records import Query
from interlock.systems.orchestrator.attachments import LOG, Chunk

PAGE = 500
OVERLAP = timedelta(seconds=10)
"""So far back chunks are looked for again: of two that arrive at once one may show later."""


class StoredChunks:
    """The chunks of one job; each call gives what has come since the one before."""

    def __init__(self, store: Store, job_id: str) -> None:
        self._store = store
        self._job_id = job_id
        self._since: datetime | None = None
        self._seen: set[str] = set()

    async def __call__(self) -> AsyncIterator[Chunk]:
        """What is new."""
        query = Query(kind=LOG.name, parent=self._job_id, newest_first=False, since=self._since, limit=PAGE)
        while True:
            page = await self._store.find(query)
            for record in (record for record in page.records if record.id not in self._seen):
                self._since = record.created_at - OVERLAP
                self._seen.add(record.id)
                yield msgspec.json.decode(record.body, type=Chunk)
            if not page.cursor:
                return
            query = msgspec.structs.replace(query, cursor=page.cursor)
