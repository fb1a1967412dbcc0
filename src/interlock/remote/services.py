"""All services of a server over one connection, and waiting for jobs to end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from interlock.api.server import READYZ
from interlock.errors import StoreUnavailable
from interlock.lifecycles import job
from interlock.lifecycles.job import JobState
from interlock.remote.http_client import ApiClient
from interlock.remote.interfaces import JobsApi, JournalApi
from interlock.remote.jobs import HttpArtifacts, HttpJobs, HttpQueues, NewLines
from interlock.remote.records import HttpJournal, HttpRecords
from interlock.remote.runs import HttpRuns
from interlock.remote.schedules import HttpSchedules
from interlock.remote.simulations import HttpSimulations
from interlock.remote.tokens import HttpTokens
from interlock.remote.workers import HttpQuarantine, HttpWorkers, HttpWorkloads
from interlock.systems.orchestrator.attachments import Chunk
from interlock.systems.settings import DEFAULT_SETTINGS, Settings
from interlock.wire.jobs import JobView

LOOK_EVERY_S = 1.0
"""News may be lost, or not be for us; then this is the price."""
LEAST_PAUSE_S = 0.05
"""However much news there is, so long is it gathered."""


class HttpWaiting:
    """Whoever waits for jobs behind a server."""

    def __init__(self, jobs: JobsApi, journal: JournalApi) -> None:
        self._jobs = jobs
        self._journal = journal
        self._news = asyncio.Event()
        self._waiting = 0
        self._unsubscribe: Callable[[], None] = lambda: None

    async def ended(self, job_id: str) -> JobView:
        """The job once it has ended. Raises nothing for one that never does: set a timeout."""
        self._enter()
        try:
            while True:
                with suppress(StoreUnavailable):  # it may come back; who waits has a timeout
                    view = await self._jobs.get(job_id)
                    if JobState(view.state) in job.ENDED:
                        return view
                await self._pause()
        finally:
            self._leave()

    def _enter(self) -> None:
        self._waiting += 1
        if self._waiting == 1:
            self._unsubscribe = self._journal.subscribe(self._wake)

    def _leave(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._unsubscribe()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _pause(self) -> None:
        news = self._news
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY_S):
                await news.wait()
                await asyncio.sleep(LEAST_PAUSE_S)


class HttpServices:
    """The parts, as far as they can be reached over HTTP."""

    def __init__(self, client: ApiClient, clock: Callable[[], Any]) -> None:
        self.store = HttpJournal(client)
        self.jobs = HttpJobs(client, clock=clock)
        self.artifacts = HttpArtifacts(client)
        self.workers = HttpWorkers(client)
        self.queues = HttpQueues(client)
        self.schedules = HttpSchedules(client)
        self.quarantine = HttpQuarantine(client)
        self.tokens = HttpTokens(client)
        self.workloads = HttpWorkloads(client)
        self.runs = HttpRuns(client)
        self.simulations = HttpSimulations(client)
        self.records = HttpRecords(client)
        self.waiting = HttpWaiting(self.jobs, self.store)


class RemoteOrchestrator:
    """A server, for programs that submit work and look at it."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        settings: Settings = DEFAULT_SETTINGS,
        ca: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = url
        self.settings = settings
        self._client = ApiClient(url, token=token, ca=ca)
        self._monotonic = monotonic
        self._told: tuple[datetime, float] | None = None
        self._services: HttpServices | None = None

    @property
    def here(self) -> HttpServices:
        """What is connected now."""
        if self._services is None:
            raise StoreUnavailable(f"Not connected to {self.url}.", todo="Connect first; nothing was done.")
        return self._services

    async def connect(self) -> None:
        """Make sure that the server is there and can do its work, and learn what time it is."""
        self._client.open()
        try:
            ready = await self._client.call(READYZ)
        except BaseException:
            if self._services is None:
                await self._client.close()
            raise
        self._told = (ready.store_at, self._monotonic())
        if self._services is None:
            self._services = HttpServices(self._client, self.now)

    async def disconnect(self) -> None:
        """Let go of the connections. Safe to call twice."""
        runtime, self._services = self._services, None
        if runtime is not None:
            await runtime.store.close()
        await self._client.close()

    async def now(self) -> datetime:
        """The store's time, as the server told it, and what has passed since."""
        if self._told is None:
            raise StoreUnavailable(f"{self.url} has not told the time yet.", todo="Connect first.")
        at, when = self._told
        return at + timedelta(seconds=self._monotonic() - when)

    async def learn(self, kind: object) -> None:
        """Nothing: a server has its kinds from its own settings."""

    async def recover(self) -> int:
        """Nothing: a server looks after deadlines itself."""
        return 0

    def new_chunks(self, job_id: str) -> Callable[[], AsyncIterator[Chunk]]:
        """What attempts write: each call gives what has come since the one before."""
        return NewLines(self._client, job_id)
