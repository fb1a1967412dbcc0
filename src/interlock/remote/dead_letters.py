"""Dead letters over HTTP.

The server knows the actor by the token, so an `actor` that is named here is not passed on.
"""

from __future__ import annotations

import msgspec

from interlock.api import dead_letters as api
from interlock.api.jobs import JobsQuery
from interlock.api.messages import MAX_PAGE
from interlock.remote.http_client import ApiClient
from interlock.wire.filters import Filter
from interlock.wire.jobs import DeadLetterView


class HttpDeadLetters:
    """The dead letters behind a server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def get(self, job_id: str) -> DeadLetterView:
        """Return a dead letter, and the action taken on it."""
        return await self._client.call(api.GET_DEAD_LETTER, job_id=job_id)

    async def find(
        self, wanted: Filter, *, limit: int = 100, cursor: str = ""
    ) -> tuple[list[DeadLetterView], str]:
        """Return a page of open dead letters, newest first, and the next cursor."""
        query = JobsQuery(q=str(wanted), limit=min(limit, MAX_PAGE), cursor=cursor)
        page = await self._client.call(api.LIST_DEAD_LETTERS, query)
        return list(page.letters), page.cursor

    async def retry(
        self,
        job_id: str,
        *,
        input: msgspec.Raw | None = None,  # noqa: A002 - as in the spec of a job
        reason: str = "",
        actor: str = "",
        request_id: str | None = None,
    ) -> str:
        """Submit a dead letter again, perhaps with another input; return the id."""
        given = msgspec.UNSET if input is None else input
        sent = api.RetryLetter(input=given, reason=reason, request_id=request_id)
        return (await self._client.call(api.RETRY_DEAD_LETTER, sent, job_id=job_id)).ids[0]

    async def discard(
        self, job_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> DeadLetterView:
        """Discard a dead letter; its job stays failed."""
        sent = api.DiscardLetter(reason=reason, request_id=request_id)
        return await self._client.call(api.DISCARD_DEAD_LETTER, sent, job_id=job_id)
