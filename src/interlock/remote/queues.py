"""What is done with queues, over HTTP; and what a store and a server both offer about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from interlock.remote.answers import Queues
from interlock.remote.http_client import ApiClient
from interlock.wire.jobs import QueueHold, QueueView


class QueuesApi(Protocol):
    """Everything that people do with queues."""

    async def paused(self) -> list[QueueHold]:
        """Return the paused queues, by name."""
        ...

    async def list(self) -> list[QueueView]:
        """Return the queues that have jobs which have not ended, or are paused."""
        ...

    async def pause(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> QueueHold:
        """Give out no job of a queue until it is resumed; jobs that run go on."""
        ...

    async def resume(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> QueueHold:
        """Give out the jobs of a queue again."""
        ...


class HttpQueues:
    """The queues behind a server. Who did it the server knows by the token."""

    def __init__(self, asker: ApiClient, *, names: Callable[[], str]) -> None:
        self._asker = asker
        self._names = names

    async def paused(self) -> list[QueueHold]:
        """Return the paused queues, by name."""
        return [
            QueueHold(
                name=view.name, state=view.state, reason=view.reason, by=view.paused_by, at=view.paused_at
            )
            for view in await self.list()
            if view.state == "paused"
        ]

    async def list(self) -> list[QueueView]:
        """Return the queues, with what the server knows about each."""
        return list((await self._asker.get("/api/queues", Queues)).queues)

    async def pause(
        self,
        name: str,
        *,
        reason: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> QueueHold:
        """Give out no job of a queue until it is resumed; jobs that run go on."""
        return await self._tell("pause", name, reason, request_id)

    async def resume(
        self,
        name: str,
        *,
        reason: str = "",
        actor: str = "",  # noqa: ARG002 - the server knows who it is
        request_id: str | None = None,
    ) -> QueueHold:
        """Give out the jobs of a queue again."""
        return await self._tell("resume", name, reason, request_id)

    async def _tell(self, verb: str, name: str, reason: str, request_id: str | None) -> QueueHold:
        told = {"queue": name, "reason": reason, "request_id": request_id or self._names()}
        return await self._asker.post(f"/api/queues/{verb}", QueueHold, msgspec.json.encode(told))
