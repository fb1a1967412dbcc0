"""Workers that only speak with their supervisor, over connections that stay open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import perf_counter

import msgspec

from bench.server.house import House
from bench.server.talking import Line

BEAT_EVERY_S = 10.0
"""How often a worker gives a sign of life, unless somebody says otherwise."""
SPEAKERS = 20
"""How many signs of life are on their way at once."""
WAIT = 25


@dataclass(slots=True)
class Hand:
    """One worker: where it hears its orders, and which it knows."""

    worker_id: str
    line: Line
    heard: int = 0

    async def hear(self) -> dict[str, object]:
        """Wait for newer orders than it knows; nothing newer after a while."""
        path = f"/api/workers/{self.worker_id}/orders?after={self.heard}&wait_s={WAIT}"
        answer: dict[str, object] = msgspec.json.decode(await self.line.ask(b"GET", path.encode()))
        return answer


async def registered(place: House, number: int) -> list[str]:
    """So many workers that are at work; their ids."""
    lines = [await Line.to(place.address) for _ in range(SPEAKERS)]
    ids: list[str] = []

    async def some(line: Line, names: Sequence[int]) -> None:
        for name in names:
            spec = {"name": f"w{name}", "incarnation": "1"}
            made = await line.post(b"/api/workers", spec)
            await line.post(f"/api/workers/{made['id']}/heartbeat".encode(), {"begun": True, "active": 1})
            ids.append(made["id"])

    await asyncio.gather(*(some(line, range(n, number, SPEAKERS)) for n, line in enumerate(lines)))
    for line in lines:
        line.close()
    return ids


async def all_beat(place: House, ids: Sequence[str]) -> float:
    """Every worker gives one sign of life; answers how many seconds that took."""
    lines = [await Line.to(place.address) for _ in range(SPEAKERS)]

    async def some(line: Line, own: Sequence[str]) -> None:
        for worker_id in own:
            await line.post(f"/api/workers/{worker_id}/heartbeat".encode(), {"active": 1, "processed": 1})

    began = perf_counter()
    await asyncio.gather(*(some(line, ids[n::SPEAKERS]) for n, line in enumerate(lines)))
    taken_s = perf_counter() - began
    for line in lines:
        line.close()
    return taken_s


@asynccontextmanager
async def listening(place: House, ids: Sequence[str]) -> AsyncIterator[list[Hand]]:
    """All of them wait for orders, each on a connection of its own."""
    hands = [Hand(worker_id, await Line.to(place.address)) for worker_id in ids]
    try:
        yield hands
    finally:
        for hand in hands:
            hand.line.close()
