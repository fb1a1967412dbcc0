"""Many small runners that speak HTTP to servers which may go away under them."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
from tests.waiting import PATIENCE_S, PROGRAM_S


class Fleet:
    """Runners that do what there is, and know nothing but the addresses of servers.

    One that is not answered says the same thing again, to the next server, once somebody says that
    there is one.
    """

    def __init__(self, client: httpx2.AsyncClient, urls: Sequence[str], jobs: int) -> None:
        self.up = asyncio.Event()
        """There is a server that would answer."""
        self.up.set()
        self.told: Counter[str] = Counter()
        """How often somebody was given each job."""
        self.done: Counter[str] = Counter()
        self.refused: list[str] = []
        """What was not believed."""
        self.unanswered = 0
        self._client = client
        self._urls = tuple(urls)
        self._places: Counter[str] = Counter()
        """Which server each runner asks, counting on without end."""
        self._jobs = jobs
        self._progress = asyncio.Condition()

    async def until_done(self, jobs: int) -> None:
        """Until so many are done."""
        async with asyncio.timeout(PROGRAM_S), self._progress:
            await self._progress.wait_for(lambda: len(self.done) >= jobs)

    async def run(self, number: int) -> None:
        """One runner, until everything is done; the next one begins with the next server."""
        name = f"runner-{number}"
        self._places[name] = number
        while len(self.done) < self._jobs:
            claim = {"runner_id": name, "limit": 1, "wait_s": 1.0, "claim_id": secrets.token_hex(8)}
            for grant in (await self._ask("lease", claim)).json()["grants"]:
                self.told[grant["job_id"]] += 1
                await self._work(name, grant)

    async def _work(self, name: str, grant: dict[str, Any]) -> None:
        message = {"token": grant["token"], "runner_id": name}
        await self._say("heartbeat", {**message, "sequence": 1, "progress": {"done": 1, "total": 2}})
        outcome = {"outcome": "succeeded", "result": name}
        if await self._say("complete", {**message, "sequence": 2, "outcome": outcome}):
            self.done[grant["job_id"]] += 1
            async with self._progress:
                self._progress.notify_all()

    async def _say(self, what: str, message: dict[str, Any]) -> bool:
        answer = await self._ask(what, message)
        if answer.status_code != 200:
            self.refused.append(f"{what}: {answer.text}")
        return answer.status_code == 200

    async def _ask(self, what: str, message: dict[str, Any]) -> httpx2.Response:
        name = message["runner_id"]
        while True:
            url = self._urls[self._places[name] % len(self._urls)]
            with suppress(httpx2.TransportError):
                answer = await self._client.post(f"{url}/api/runner/{what}", json=message)
                if answer.status_code != 503:
                    return answer
            self.unanswered += 1
            self._places[name] += 1
            await self.up.wait()


@asynccontextmanager
async def at_work(runners: int, urls: Sequence[str], jobs: int) -> AsyncIterator[Fleet]:
    """So many runners, until these jobs are done."""
    limits = httpx2.Limits(max_connections=runners + 10)
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=PATIENCE_S, limits=limits) as client:
        fleet = Fleet(client, urls, jobs)
        running = [asyncio.create_task(fleet.run(number)) for number in range(runners)]
        try:
            yield fleet
            async with asyncio.timeout(PROGRAM_S):
                await asyncio.gather(*running)
        finally:
            for each in running:
                each.cancel()
            await asyncio.wait(running)
