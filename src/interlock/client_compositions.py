"""Submitted chains, groups and chords: wait for their result, inspect them, cancel them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from interlock.engine.loops import gather_all
from interlock.errors import TransitionRefused
from interlock.worker.composition import Ends

if TYPE_CHECKING:
    from interlock.client import Interlock, JobHandle
    from interlock.wire.jobs import JobView

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
AT_ONCE = 20
"""Number of jobs that are canceled at the same time."""


class CompositionHandle(Generic[R_co]):
    """A submitted chain, group or chord. `CompositionHandle[int]` has a result of that type."""

    def __init__(self, interlock: Interlock, jobs: Sequence[JobHandle], ends: Ends) -> None:
        self._interlock = interlock
        self._ends = ends
        self.jobs: tuple[JobHandle[Any], ...] = tuple(jobs)
        """All of its jobs, each after those that it comes after."""

    def __repr__(self) -> str:
        return f"<composition of {len(self.jobs)} jobs>"

    @property
    def last(self) -> tuple[JobHandle, ...]:
        """The jobs that have the result: the last one, or those of the last group."""
        return tuple([self.jobs[place] for place in self._ends.places])

    async def result(self, *, timeout_s: float | None = None) -> R_co:
        """Wait for the result and return it; of a group the list of results, in its order.

        Raise `JobFailed` or `JobCanceled` if there is none, and `ResultNotReady` on a timeout.
        """
        found: list[Any] = await _every([job.result(timeout_s=timeout_s) for job in self.last])
        answer: Any = found if self._ends.listed else found[0]
        return answer  # type: ignore[no-any-return]

    async def wait(self, *, timeout_s: float | None = None) -> list[JobView]:
        """Wait until all of its jobs have ended and return them; raise `ResultNotReady` on a timeout."""
        wait = self._interlock.wait
        return await _every([wait(job.id, timeout_s=timeout_s) for job in self.jobs])

    async def cancel(self, *, reason: str = "") -> None:
        """Request the cancellation of all of its jobs that have not ended, the last ones first."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(job: JobHandle) -> None:
            async with turns:
                with suppress(TransitionRefused):
                    await job.cancel(reason=reason)

        await gather_all(one(job) for job in reversed(self.jobs))


async def _every(waiting: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the answer of each; after the first failure none is waited for any more."""
    tasks = [asyncio.ensure_future(each) for each in waiting]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


class SyncComposition(Generic[R_co]):
    """A submitted chain, group or chord, for synchronous code; see `CompositionHandle`."""

    def __init__(
        self, inner: CompositionHandle[R_co], run: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        self._inner, self._run = inner, run
        self.ids: tuple[str, ...] = tuple([job.id for job in inner.jobs])
        """The ids of its jobs, each after those that it comes after."""

    def __repr__(self) -> str:
        return repr(self._inner)

    def result(self, *, timeout_s: float | None = None) -> R_co:
        """Wait for the result and return it; of a group the list of results, in its order."""
        found: R_co = self._run(self._inner.result(timeout_s=timeout_s))
        return found

    def wait(self, *, timeout_s: float | None = None) -> list[JobView]:
        """Wait until all of its jobs have ended and return them."""
        found: list[JobView] = self._run(self._inner.wait(timeout_s=timeout_s))
        return found

    def cancel(self, *, reason: str = "") -> None:
        """Request the cancellation of all of its jobs that have not ended."""
        self._run(self._inner.cancel(reason=reason))
