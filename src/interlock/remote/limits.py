"""Limits over HTTP.

The server knows the actor by the token, so an `actor` that is named here is not passed on.
"""

from __future__ import annotations

from interlock.api import limits as api
from interlock.remote.http_client import ApiClient
from interlock.wire.limits import LimitSpec, LimitView


class HttpLimits:
    """The limits behind a server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def set(
        self,
        name: str,
        spec: LimitSpec,
        *,
        source: str = "api",
        actor: str = "",
        request_id: str | None = None,
    ) -> LimitView:
        """Declare a limit, or change it; running jobs continue."""
        sent = api.NewLimit(limit=name, spec=spec, source=source, request_id=request_id)
        return await self._client.call(api.SET_LIMIT, sent)

    async def delete(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> LimitView:
        """Delete a limit; jobs that wait for it are admitted. Return it as it was."""
        sent = api.LimitRequest(limit=name, reason=reason, request_id=request_id)
        return await self._client.call(api.DELETE_LIMIT, sent)

    async def list(self) -> list[LimitView]:
        """Return all limits, by name, with the keys that are in use."""
        return list((await self._client.call(api.LIST_LIMITS)).limits)

    async def get(self, name: str) -> LimitView:
        """Return a limit with the jobs that hold its slots, and how many wait."""
        return await self._client.call(api.GET_LIMIT, api.LimitQuery(limit=name))
