"""Runners that keep losing work, as a server tells of them."""

from __future__ import annotations

import msgspec

from interlock.remote.http_client import ApiClient
from interlock.wire.workers import Standings, StandingView


class HttpQuarantine:
    """Who is given no work, and why."""

    def __init__(self, asker: ApiClient) -> None:
        self._asker = asker

    async def list(self) -> list[StandingView]:
        """Every runner that is watched or quarantined."""
        return list((await self._asker.get("/api/quarantine", Standings)).runners)

    async def lift(
        self,
        runner: str,
        *,
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        reason: str = "",
    ) -> StandingView:
        """Give it work again, with a clean sheet. Done twice it is refused, and nothing comes of that."""
        body = msgspec.json.encode({"runner": runner, "reason": reason})
        return await self._asker.post("/api/quarantine/lift", StandingView, body)
