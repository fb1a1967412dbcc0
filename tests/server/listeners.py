"""Somebody who listens to live events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx2
import msgspec
from tests.waiting import PATIENCE_S


class Event:
    """One event, as it came."""

    def __init__(self, lines: list[str]) -> None:
        fields = [line.partition(": ") for line in lines if not line.startswith(":")]
        self.comments = [line for line in lines if line.startswith(":")]
        self.fields = {name: value for name, _, value in fields}

    @property
    def kind(self) -> str:
        """What it is: an entry, a gap, or nothing that is told to anybody."""
        return self.fields.get("event", "")

    @property
    def cursor(self) -> str | None:
        """From where to go on after it."""
        return self.fields.get("id")

    @property
    def data(self) -> Any:
        """What it says."""
        return msgspec.json.decode(self.fields["data"])


class Listening:
    """A stream that is open."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()
        self.cursor = ""

    async def event(self) -> Event:
        """The next one, whatever it is."""
        lines: list[str] = []
        async with asyncio.timeout(PATIENCE_S):
            async for line in self._lines:
                if line:
                    lines.append(line)
                elif lines:
                    event = Event(lines)
                    self.cursor = event.cursor or self.cursor
                    return event
        raise EOFError

    async def entry(self) -> Any:
        """The next entry; comments that keep the stream alive do not prolong the wait for it."""
        async with asyncio.timeout(PATIENCE_S):
            while (event := await self.event()).kind != "entry":
                assert event.kind == ""
        return event.data

    async def entries(self, number: int) -> list[Any]:
        """So many of them."""
        return [await self.entry() for _ in range(number)]

    async def until(self, job_id: str, state: str) -> list[Any]:
        """All entries up to the one in which a job comes to a state."""
        found: list[Any] = []
        wanted = ("job", state)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found.append(await self.entry())
                steps = [(step["machine"], step["to"]) for step in found[-1].get("steps", ())]
                if found[-1]["id"] == job_id and wanted in steps:
                    return found

    async def ended(self) -> Self:
        """Until the server has ended it."""
        async with asyncio.timeout(PATIENCE_S):
            async for _ in self._lines:
                pass
        return self


@asynccontextmanager
async def listening(
    client: httpx2.AsyncClient, after: str = "", *, at: str = "/api/events", **query: str
) -> AsyncIterator[Listening]:
    """A stream, while somebody wants it; the server has begun it."""
    headers = {"Last-Event-ID": after} if after else {}
    async with client.stream("GET", at, params=query, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        made = Listening(response)
        await made.event()
        yield made
