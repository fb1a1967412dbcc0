"""The client behind `Interlock.batches`.

batch = await il.batches.submit([invoice.spec(customer) for customer in customers], callback=report)
print((await batch.wait()).counts)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from interlock.errors import ResultNotReady, StoreUnavailable
from interlock.remote.interfaces import BatchesApi, Services
from interlock.systems.orchestrator.batches import BATCH
from interlock.systems.orchestrator.waiters import waker
from interlock.wire.batches import BatchJob, BatchSpec, BatchView
from interlock.wire.jobs import After, AfterEnd, JobSpec
from interlock.worker.codec import Work, spec_of
from interlock.worker.middleware import Chain
from interlock.worker.tasks import Task

PORTION = 500
"""Number of jobs that are added in one request."""
PORTION_BYTES = 700_000
LOOK_EVERY_S = 1.0
OVER: frozenset[str] = frozenset(map(str, BATCH.terminal))


class BatchHandle:
    """A batch of jobs."""

    def __init__(self, batches: BatchesClient, batch_id: str) -> None:
        self._batches = batches
        self.id = batch_id

    def __repr__(self) -> str:
        return f"<batch {self.id}>"

    async def view(self) -> BatchView:
        """Return the batch with its progress."""
        return await self._batches.get(self.id)

    async def wait(self, *, timeout_s: float | None = None) -> BatchView:
        """Wait until all of its jobs have ended and return it."""
        return await self._batches.wait(self.id, timeout_s=timeout_s)

    async def cancel(self, *, reason: str = "") -> BatchView:
        """Request the cancellation of all of its jobs that have not ended."""
        return await self._batches.cancel(self.id, reason=reason)


class BatchesClient:
    """The batches of a store, or of a server before one."""

    def __init__(
        self,
        services: Callable[[], Services],
        recover: Callable[[], Any],
        actor: str,
        middleware: Callable[[], Chain],
    ) -> None:
        self._services, self._recover = services, recover
        self._actor, self._middleware = actor, middleware

    @property
    def _batches(self) -> BatchesApi:
        return self._services().batches

    async def submit(
        self,
        jobs: Sequence[JobSpec],
        *,
        callback: Work | None = None,
        on: AfterEnd = "end",
        into: str = "",
        description: str = "",
        request_id: str | None = None,
    ) -> BatchHandle:
        """Submit many jobs as a batch: `[task.spec(n) for n in range(10_000)]`.

        `callback`, a task or the spec of a job, is submitted when all of them have ended; with `on="success"`
        only if all have succeeded. Its argument `into` gets the counts. The jobs are created in portions;
        with `request_id` an interrupted call continues where it was.
        """
        called = [] if callback is None else [_callback_of(callback, into)]
        specs = await self._middleware().submission([*jobs, *called])
        last = specs[-1] if called else None
        spec = BatchSpec(description=description, callback=last, on=on, into=into)
        first, *more = _portions(specs[: len(jobs)])
        name = f"{request_id}.0" if request_id is not None else None
        made = await self._batches.create(spec, first, close=not more, actor=self._actor, request_id=name)
        for number, some in enumerate(more, start=1):
            name = f"{request_id}.{number}" if request_id is not None else None
            close = number == len(more)
            await self._batches.add(made.batch_id, some, close=close, actor=self._actor, request_id=name)
        return BatchHandle(self, made.batch_id)

    async def get(self, batch_id: str) -> BatchView:
        """Return a batch, with the counts of its jobs as of now."""
        return await self._batches.get(batch_id)

    async def list(self, *, limit: int = 50, cursor: str = "") -> tuple[list[BatchView], str]:
        """Return a page of batches, newest first, and the cursor of the next page."""
        page = await self._batches.page(limit=limit, cursor=cursor)
        return list(page.batches), page.cursor

    async def jobs(self, batch_id: str) -> Sequence[BatchJob]:
        """Return all jobs of a batch in their order, with outcomes of ended ones."""
        found: list[BatchJob] = []
        cursor = ""
        while True:
            page = await self._batches.jobs(batch_id, cursor=cursor)
            found += page.jobs
            if not (cursor := page.cursor):
                return found

    async def cancel(self, batch_id: str, *, reason: str = "", request_id: str | None = None) -> BatchView:
        """Request the cancellation of all jobs of a batch that have not ended."""
        return await self._batches.cancel(batch_id, reason=reason, actor=self._actor, request_id=request_id)

    async def wait(self, batch_id: str, *, timeout_s: float | None = None) -> BatchView:
        """Wait until all jobs of a batch have ended and return it.

        Raise `ResultNotReady` on a timeout.
        """
        called = asyncio.Event()
        stop = self._services().store.subscribe(waker(called))
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    called.clear()
                    with suppress(StoreUnavailable):  # the store may come back; the caller has a timeout
                        view = await self.get(batch_id)
                        if view.state in OVER:
                            return view
                        await self._recover()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_EVERY_S):
                            await called.wait()
        except TimeoutError:
            raise ResultNotReady(
                f"The batch {batch_id} has not ended within {timeout_s:g} s.",
                todo=f"See its progress with `interlock batch show {batch_id}`.",
                facts={"batch_id": batch_id, "timeout_s": timeout_s},
            ) from None
        finally:
            stop()


def _portions(specs: Sequence[JobSpec]) -> list[list[JobSpec]]:
    """Return the jobs in portions that fit into one request each.

    There is at least one portion.
    """
    portions: list[list[JobSpec]] = [[]]
    size = 0
    for spec in specs:
        more = len(spec.input) + 1_000
        if portions[-1] and (len(portions[-1]) == PORTION or size + more > PORTION_BYTES):
            portions.append([])
            size = 0
        portions[-1].append(spec)
        size += more
    return portions


def _callback_of(callback: Work, into: str) -> JobSpec:
    """Return the job; the argument `into` of a task is not given yet."""
    if isinstance(callback, Task) and into:
        return replace(callback.partial_spec(After(jobs=(), into=into), (), {}), after=None)
    return spec_of(callback, (), {})
