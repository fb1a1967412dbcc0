"""Limits over HTTP; and what a store and a server both offer about them.

The server knows the actor by the token, so an `actor` that is named here is not passed on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from interlock.api import limits as api
from interlock.wire.limits import LimitSpec, LimitView

if TYPE_CHECKING:  # who has a store needs no HTTP
    from interlock.remote.http_client import ApiClient


class LimitsApi(Protocol):
    """Operations on limits, of a store or of a server."""

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
        ...

    async def delete(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> LimitView:
        """Delete a limit; jobs that wait for it are admitted. Return it as it was."""
        ...

    async def list(self) -> list[LimitView]:
        """Return all limits, by name, with the keys that are in use."""
        ...

    async def get(self, name: str) -> LimitView:
        """Return a limit with the jobs that hold its slots, and how many wait."""
        ...


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
