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
from interlock.remote.batches import HttpBatches
from interlock.remote.dead_letters import HttpDeadLetters
from interlock.remote.http_client import ApiClient
from interlock.remote.interfaces import JobsApi, JournalApi
from interlock.remote.jobs import HttpArtifacts, HttpJobs, HttpQueues, NewLines
from interlock.remote.limits import HttpLimits
from interlock.remote.overview import HttpOverview, HttpServer
from interlock.remote.records import HttpJournal, HttpRecords, LiveEvents
from interlock.remote.runs import HttpRuns
from interlock.remote.schedules import HttpSchedules
from interlock.remote.simulations import HttpSimulations
from interlock.remote.tokens import HttpTokens
from interlock.remote.waits import HttpWaits
from interlock.remote.workers import HttpQuarantine, HttpWorkers, HttpWorkloads
from interlock.systems.orchestrator.attachments import Chunk
from interlock.systems.settings import DEFAULT_SETTINGS, Settings
from interlock.wire.jobs import JobView

LOOK_EVERY_S = 1.0
"""Interval of polls, for events that are lost or not visible to the token."""
LEAST_PAUSE_S = 0.05
"""Time for which events are collected before each poll."""


class HttpWaiters:
    """Wait for jobs to end, for all waiters of a process."""

    def __init__(self, jobs: JobsApi, journal: JournalApi) -> None:
        self._jobs = jobs
        self._journal = journal
        self._news = asyncio.Event()
        self._waiting = 0
        self._unsubscribe: Callable[[], None] = lambda: None

    async def ended(self, job_id: str) -> JobView:
        """Return a job once it has ended. The wait has no limit: set a timeout."""
        self._enter()
        try:
            while True:
                with suppress(StoreUnavailable):  # the server may come back; the waiter has a timeout
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
    """The services that are available over HTTP."""

    def __init__(self, client: ApiClient, clock: Callable[[], Any]) -> None:
        events = LiveEvents(client)
        self.store: HttpJournal = HttpJournal(client, events)
        self.jobs: HttpJobs = HttpJobs(client, clock=clock)
        self.artifacts: HttpArtifacts = HttpArtifacts(client)
        self.workers: HttpWorkers = HttpWorkers(client)
        self.queues: HttpQueues = HttpQueues(client)
        self.overview: HttpOverview = HttpOverview(client)
        self.server: HttpServer = HttpServer(client)
        self.schedules: HttpSchedules = HttpSchedules(client)
        self.dead_letters: HttpDeadLetters = HttpDeadLetters(client)
        self.limits: HttpLimits = HttpLimits(client)
        self.waits: HttpWaits = HttpWaits(client)
        self.batches: HttpBatches = HttpBatches(client)
        self.quarantine: HttpQuarantine = HttpQuarantine(client)
        self.tokens: HttpTokens = HttpTokens(client)
        self.workloads: HttpWorkloads = HttpWorkloads(client)
        self.runs: HttpRuns = HttpRuns(client)
        self.simulations: HttpSimulations = HttpSimulations(client)
        self.records: HttpRecords = HttpRecords(client, events)
        self.waiting: HttpWaiters = HttpWaiters(self.jobs, self.store)


class RemoteOrchestrator:
    """A connection to a server, for programs that submit and inspect jobs."""

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
        self._store_time: tuple[datetime, float] | None = None
        self._services: HttpServices | None = None

    @property
    def services(self) -> HttpServices:
        """The connected services."""
        if self._services is None:
            raise StoreUnavailable(f"Not connected to {self.url}.", todo="Connect first; nothing was done.")
        return self._services

    async def connect(self) -> None:
        """Check that the server is ready, and read its time."""
        self._client.open()
        asked_at = self._monotonic()
        try:
            ready = await self._client.call(READYZ)
        except BaseException:
            if self._services is None:
                await self._client.close()
            raise
        self._store_time = (ready.store_at, asked_at)
        if self._services is None:
            self._services = HttpServices(self._client, self.now)

    async def disconnect(self) -> None:
        """Close the connections. Safe to call twice."""
        runtime, self._services = self._services, None
        if runtime is not None:
            await runtime.store.close()
        await self._client.close()

    async def now(self) -> datetime:
        """Return the time of the store.

        It is the time that the server reported, plus the time since it was asked. So it is never behind, and
        a job that was submitted before is not taken for one of the future.
        """
        if self._store_time is None:
            raise StoreUnavailable(f"{self.url} has not reported its time yet.", todo="Connect first.")
        at, when = self._store_time
        return at + timedelta(seconds=self._monotonic() - when)

    async def learn(self, kind: object) -> None:
        """Do nothing: a server loads its kinds from its own settings."""

    async def recover(self) -> int:
        """Do nothing: a server fires timers itself."""
        return 0

    def new_chunks(self, job_id: str) -> Callable[[], AsyncIterator[Chunk]]:
        """Return a function that yields the log's chunks since its last call."""
        return NewLines(self._client, job_id)
