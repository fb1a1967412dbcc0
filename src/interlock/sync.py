"""The same door for programs without asyncio: a thin edge around `Interlock`, which does everything.

with Interlock("sqlite:///interlock.db") as il:
    job_id = il.submit(resize, "cat.png", width=200)
    print(il.result(job_id, timeout_s=60))
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from interlock import client
from interlock.client import Work
from interlock.errors import StoreUnavailable
from interlock.store.records import Query
from interlock.systems.orchestrator.settings import DEFAULT_SETTINGS, OrchestratorSettings
from interlock.wire.jobs import JobSpec, JobView

T = TypeVar("T")


class Interlock:
    """Jobs in a store or behind a server, for synchronous code, named by their ids. Safe among threads."""

    def __init__(
        self,
        url: str,
        *,
        settings: OrchestratorSettings = DEFAULT_SETTINGS,
        actor: str = "client",
        token: str | None = None,
        ca: str | None = None,
    ) -> None:
        self._inner = client.Interlock(url, settings=settings, actor=actor, token=token, ca=ca)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Connect; a database that is not there yet is made."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="interlock", daemon=True)
            self._thread.start()
        try:
            self._run(self._inner.open())
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        """Let go of everything. Safe to call twice."""
        if self._loop is not None:
            self._run(self._inner.close())
            self._stop()

    def submit(self, work: Work, /, *args: Any, request_id: str | None = None, **kwargs: Any) -> str:
        """The id of a new job; see `interlock.client.Interlock.submit`."""
        return self._run(self._inner.submit(work, *args, request_id=request_id, **kwargs)).id

    def submit_many(self, specs: Sequence[JobSpec], *, request_id: str | None = None) -> list[str]:
        """The ids of many new jobs."""
        return [made.id for made in self._run(self._inner.submit_many(specs, request_id=request_id))]

    def wait(self, job_id: str, *, timeout_s: float | None = None) -> JobView:
        """The job once it has ended, however it did."""
        return self._run(self._inner.wait(job_id, timeout_s=timeout_s))

    def result(self, job_id: str, *, timeout_s: float | None = None, as_type: Any = Any) -> Any:
        """What the handler returned, once it has."""
        return self._run(self._inner.result(job_id, timeout_s=timeout_s, as_type=as_type))

    def cancel(self, job_id: str, *, reason: str = "", request_id: str | None = None) -> JobView:
        """Ask a job to stop."""
        return self._run(self._inner.cancel(job_id, reason=reason, request_id=request_id))

    def retry(self, job_id: str, *, request_id: str | None = None) -> str:
        """The id of a new job that does one again that has ended."""
        return self._run(self._inner.retry(job_id, request_id=request_id)).id

    def job(self, job_id: str) -> JobView:
        """A job as it stands."""
        return self._run(self._inner.job(job_id))

    def jobs(self, query: Query | None = None) -> tuple[list[JobView], str]:
        """A page of jobs, newest first, and the cursor of the next page."""
        return self._run(self._inner.jobs(query))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            coroutine.close()
            raise StoreUnavailable(
                "This Interlock is not open.", todo="Use it in a `with` block, or open it."
            )
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _stop(self) -> None:
        loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
