"""Tokens over HTTP, as an admin manages them.

The server knows the actor by the token, so an `actor` that is named here is not passed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from interlock.api import access as api
from interlock.remote.http_client import ApiClient
from interlock.wire.access import OVERLAPPING, USUAL, Issued, Role, TokenView


class HttpTokens:
    """The tokens behind a server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def create(
        self,
        name: str,
        role: Role,
        *,
        queues: Sequence[str] = (),
        lasts: timedelta | None = USUAL,
        actor: str = "",
    ) -> Issued:
        """Create a token and return it with its secret."""
        lasts_s = None if lasts is None else lasts.total_seconds()
        sent = api.NewToken(name=name, role=role, queues=tuple(queues), lasts_s=lasts_s)
        return await self._client.call(api.CREATE_TOKEN, sent)

    async def list(self, *, ended: bool = False) -> list[TokenView]:
        """Return the working tokens, or all."""
        return list((await self._client.call(api.LIST_TOKENS, api.TokensQuery(ended=ended))).tokens)

    async def get(self, name: str) -> TokenView:
        """Return a token by its name or its id."""
        return await self._client.call(api.GET_TOKEN, token_name=name)

    async def rotate(
        self, name: str, *, overlap: timedelta = OVERLAPPING, actor: str = "", reason: str = ""
    ) -> Issued:
        """Rotate a token."""
        sent = api.RotateRequest(overlap_s=overlap.total_seconds(), reason=reason)
        return await self._client.call(api.ROTATE_TOKEN, sent, token_name=name)

    async def revoke(self, name: str, *, actor: str = "", reason: str = "") -> TokenView:
        """Revoke a token."""
        return await self._client.call(api.REVOKE_TOKEN, api.RevokeRequest(reason=reason), token_name=name)
