"""Tokens behind a server, as an admin manages them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import msgspec

from interlock.remote.http_client import ApiClient
from interlock.systems.access.principals import Role
from interlock.systems.access.tokens import OVERLAPPING, USUAL, Issued, TokenView


class _Listed(msgspec.Struct, frozen=True):
    tokens: tuple[TokenView, ...]


class HttpTokens:
    """The same as `Tokens`, over HTTP; the server knows who asks."""

    def __init__(self, asker: ApiClient, *, names: Callable[[], str]) -> None:
        self._asker = asker
        self._names = names

    async def create(
        self,
        name: str,
        role: Role,
        *,
        queues: Sequence[str] = (),
        lasts: timedelta | None = USUAL,
        actor: str = "",  # noqa: ARG002 - the server knows who it is
    ) -> Issued:
        """Make a token and return it with its secret."""
        lasts_s = None if lasts is None else lasts.total_seconds()
        asked = {"name": name, "role": role, "queues": list(queues), "lasts_s": lasts_s}
        return await self._asker.post("/api/tokens", Issued, self._body(asked))

    async def list(self, *, ended: bool = False) -> list[TokenView]:
        """Return the working tokens, or all."""
        query = {"ended": "true"} if ended else {}
        return list((await self._asker.get("/api/tokens", _Listed, **query)).tokens)

    async def get(self, name: str) -> TokenView:
        """Return a token by its name or its id."""
        return await self._asker.get(_path(name), TokenView)

    async def rotate(
        self,
        name: str,
        *,
        overlap: timedelta = OVERLAPPING,
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        reason: str = "",
    ) -> Issued:
        """Give a token a new secret."""
        asked = {"overlap_s": overlap.total_seconds(), "reason": reason}
        return await self._asker.post(f"{_path(name)}/rotate", Issued, self._body(asked))

    async def revoke(
        self,
        name: str,
        *,
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        reason: str = "",
    ) -> TokenView:
        """Take a token back."""
        return await self._asker.post(f"{_path(name)}/revoke", TokenView, self._body({"reason": reason}))

    def _body(self, asked: dict[str, Any]) -> bytes:
        return msgspec.json.encode({**asked, "request_id": self._names()})


def _path(name: str) -> str:
    return f"/api/tokens/{quote(name, safe='@')}"
