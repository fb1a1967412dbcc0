"""The overview of present problems over HTTP, and the server itself: its version, and the caller."""

from __future__ import annotations

from datetime import datetime

from interlock.api import server as api
from interlock.api.access import SHOW_SESSION, SignedIn
from interlock.remote.http_client import ApiClient
from interlock.wire.figures import OverviewView


class HttpOverview:
    """The overview of a server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def take(self) -> OverviewView:
        """Return numbers and problems; they may be a few seconds old."""
        return await self._client.call(api.GET_OVERVIEW)


class HttpServer:
    """A server, as far as it reports about itself."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def now(self) -> datetime:
        """Return the time of its store, by one request."""
        return (await self._client.call(api.READYZ)).store_at

    async def principal(self) -> SignedIn:
        """Return the principal of this connection, and its roles."""
        return await self._client.call(SHOW_SESSION)

    async def status(self) -> api.ServerView:
        """Return version and load of the server; only admins may."""
        return await self._client.call(api.SHOW_SERVER)
