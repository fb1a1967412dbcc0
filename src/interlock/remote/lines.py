"""What attempts have written, as it comes."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

from interlock.remote.answers import LineRead, LogPage
from interlock.remote.http_client import ApiClient
from interlock.systems.orchestrator.attachments import Chunk

PAGE = 500


class NewLines:
    """The lines of one job; each call gives what has come since the one before.

    The last page is read again each time. Of two chunks that arrive at once one may show later, before
    the other, so what was given already is known line by line.
    """

    def __init__(self, asker: ApiClient, job_id: str) -> None:
        self._asker = asker
        self._job_id = job_id
        self._cursor = ""
        self._given: Counter[LineRead] = Counter()

    async def __call__(self) -> AsyncIterator[Chunk]:
        """What is new."""
        while True:
            path = f"/api/jobs/{self._job_id}/logs"
            page = await self._asker.get(path, LogPage, cursor=self._cursor, limit=PAGE)
            seen: Counter[LineRead] = Counter()
            for line in page.lines:
                seen[line] += 1
                if seen[line] > self._given[line]:
                    yield line.chunk()
            self._given = seen
            if not page.cursor:
                return
            self._cursor, self._given = page.cursor, Counter()
