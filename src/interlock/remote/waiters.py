"""Waiting for jobs to end, any number of them: looked at when there is news, and now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from interlock.errors import StoreUnavailable
from interlock.lifecycles import job
from interlock.lifecycles.job import JobState
from interlock.remote.interfaces import JobsApi, JournalApi
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
