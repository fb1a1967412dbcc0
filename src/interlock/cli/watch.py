"""Watch records until they end: one record by polling it, many jobs by the feed of their journals.

The feed lists the jobs that have changed; their journals contain the steps. Each step is shown exactly
once, because every entry has a version.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from dataclasses import dataclass
from typing import Generic, ParamSpec, Protocol, TypeVar

import typer

from interlock.cli import output
from interlock.cli.connection import run_connected
from interlock.cli.journal import JournalStep, steps_in
from interlock.errors import StoreUnavailable
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB, JobState
from interlock.remote.service_connection import ServiceConnection
from interlock.store.records import Key
from interlock.systems.orchestrator.waiters import waker
from interlock.wire.jobs import JobView

V = TypeVar("V")
Row = TypeVar("Row")
P = ParamSpec("P")

POLL_S = 1.0
"""Polling interval without a notification: one may be lost, and progress causes none."""
LEAST_PAUSE_S = 0.1
"""Minimum interval between two updates, over which notifications are gathered."""
PAGE = 500

COMPLETED, FAILED, CANCELED, NOT_IN_TIME = 0, 3, 4, 5
_CODES = {job.COMPLETED: COMPLETED, job.FAILED: FAILED, job.CANCELED: CANCELED}
_WORST_FIRST = (NOT_IN_TIME, FAILED, CANCELED, COMPLETED)


class Screen(Protocol[P]):
    """A display that is given news of the watched records."""

    async def show(self, *news: P.args, **options: P.kwargs) -> None:
        """Show the news."""
        ...


class NewsPrinter(Generic[P, Row]):
    """Prints a line for each row that a function makes of the news."""

    def __init__(self, rows: Callable[P, Iterable[Row]], print_one: Callable[[Row], None]) -> None:
        self._rows = rows
        self._print = print_one

    async def show(self, *news: P.args, **options: P.kwargs) -> None:
        """Print the lines, and flush them."""
        for row in self._rows(*news, **options):
            self._print(row)


def screen(
    *,
    as_json: bool,
    structs: Callable[P, Iterable[object]],
    rows: Callable[P, Iterable[Sequence[str]]],
    live: Callable[[], AbstractContextManager[Screen[P]]],
) -> AbstractContextManager[Screen[P]]:
    """Return the screen for news: JSON, live on a terminal, or lines."""
    if as_json:
        return nullcontext(NewsPrinter(structs, output.print_line))
    return live() if output.on_terminal() else nullcontext(NewsPrinter(rows, output.print_row))


def until_interrupted(
    store: str | None, work: Callable[[ServiceConnection], Awaitable[int]], message: str
) -> int:
    """Connect and follow; return the exit code.

    On Ctrl-C it prints what continues.
    """
    try:
        return run_connected(store, work)
    except KeyboardInterrupt:
        typer.echo(message, err=True)
        raise


class Outage:
    """Reports once that the store is unavailable."""

    def __init__(self) -> None:
        self._reported = False

    def __call__(self, error: StoreUnavailable) -> None:
        if not self._reported:
            typer.echo(f"{error.sentence} Retrying; Ctrl-C stops the watching, not the job.", err=True)
        self._reported = True


async def looks(
    connection: ServiceConnection,
    look: Callable[[], Awaitable[V]],
    is_over: Callable[[V], bool],
    *,
    every_s: float = POLL_S,
) -> AsyncGenerator[V, None]:
    """Yield a record whenever it may have changed, until it is over.

    While the store is unavailable, it waits.
    """
    called, outage = asyncio.Event(), Outage()
    stop = connection.services.store.subscribe(waker(called))
    loop, swept_at = asyncio.get_running_loop(), float("-inf")
    try:
        while True:
            called.clear()
            try:
                view = await look()
                yield view
                if is_over(view):
                    return
                if loop.time() - swept_at >= POLL_S:
                    await connection.recover()
                    swept_at = loop.time()
            except StoreUnavailable as error:
                outage(error)  # it may come back; a timeout limits the wait
            await wait_for_wakeup(called, every_s)
            await asyncio.sleep(LEAST_PAUSE_S)
    finally:
        stop()


async def follow_one(
    views: AsyncGenerator[V, None],
    show: Callable[[V], Awaitable[None]],
    code: Callable[[V], int],
    timeout_s: float | None,
    late: str,
) -> int:
    """Show a record until it is over or late; return the exit code."""
    last: V | None = None
    try:
        async with asyncio.timeout(timeout_s), aclosing(views):
            async for view in views:
                await show(view)
                last = view
    except TimeoutError:
        typer.echo(late, err=True)
        return NOT_IN_TIME
    return NOT_IN_TIME if last is None else code(last)


@dataclass(frozen=True, slots=True)
class News:
    """The steps and changed jobs since the previous update."""

    steps: Sequence[JournalStep]
    views: Sequence[JobView]
    """Current views of the jobs that may have changed."""


def has_ended(view: JobView) -> bool:
    """Return whether the job has ended."""
    return JobState(view.state) in job.ENDED


def exit_code(views: Iterable[JobView]) -> int:
    """Return the exit code for the worst outcome of several jobs."""
    codes = {_CODES.get(JobState(view.state), NOT_IN_TIME) for view in views} or {COMPLETED}
    return next(code for code in _WORST_FIRST if code in codes)


class JobFollower:
    """Follows jobs, from their first step on."""

    def __init__(
        self,
        port: ServiceConnection,
        job_ids: Sequence[str],
        *,
        with_steps: bool = True,
        on_outage: Callable[[StoreUnavailable], None] = lambda _: None,
    ) -> None:
        self._port = port
        self._living = list(dict.fromkeys(job_ids))
        self._fresh: set[str] = set(job_ids)
        """Jobs that may have unread steps."""
        self._read: dict[str, int] = {}
        """The version up to which the steps of each job were read."""
        self._unshown: list[JournalStep] = []
        self._with_steps = with_steps
        self._on_outage = on_outage
        self._cursor = ""
        self._swept_at = float("-inf")

    async def news(self) -> AsyncGenerator[News, None]:
        """Yield all news of the jobs, until the last one has ended."""
        called = asyncio.Event()
        stop = self._port.services.store.subscribe(waker(called))
        try:
            while self._living:
                called.clear()
                try:
                    await self._find_fresh()
                    yield await self.look()
                    await self._sweep()
                except StoreUnavailable as error:
                    self._on_outage(error)  # it may come back; a timeout limits the wait
                if self._living:
                    await wait_for_wakeup(called, POLL_S)
        finally:
            stop()

    async def _find_fresh(self) -> None:
        """Mark the jobs that may have news; all if part of the feed was missed."""
        store = self._port.services.store
        if not self._cursor:
            self._cursor = await store.latest()
            return
        while True:
            feed = await store.feed(self._cursor)
            changed = {entry.id for entry in feed.entries if entry.kind == JOB.name}
            self._fresh |= {job_id for job_id in self._living if feed.gap or job_id in changed}
            self._cursor = feed.cursor or self._cursor
            if not feed.entries:
                return

    async def look(self) -> News:
        """Read the jobs first and their journals after.

        So all steps of an ended job are reported. After an error, the rest is read again; steps that were
        read by then are kept until they are reported.
        """
        views = await self._views(self._living)
        self._fresh |= {view.id for view in views if has_ended(view)}
        while self._with_steps and self._fresh:
            job_id = min(self._fresh)
            await self._read_steps(job_id)
            self._fresh.discard(job_id)
        self._living = [view.id for view in views if not has_ended(view)]
        steps, self._unshown = self._unshown, []
        return News(sorted(steps, key=lambda step: step.at), views)

    async def _read_steps(self, job_id: str) -> None:
        store, key = self._port.services.store, Key(JOB.name, job_id)
        while True:
            entries = (await store.history(key, after_version=self._read.get(job_id, 0), limit=PAGE)).entries
            self._unshown += [step for step in steps_in(entries) if step.moves]
            if entries:
                self._read[job_id] = entries[-1].version
            if len(entries) < PAGE:
                return

    async def _views(self, job_ids: Sequence[str]) -> list[JobView]:
        jobs = self._port.services.jobs
        found: list[JobView | None] = []
        for start in range(0, len(job_ids), PAGE):
            found += await jobs.get_many(job_ids[start : start + PAGE])
        if None in found:
            await jobs.get(job_ids[found.index(None)])  # raises if there is no such job
        return [view for view in found if view is not None]

    async def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._swept_at >= self._port.settings.durations.sweep_every_s:
            self._swept_at = now
            await self._port.recover()


async def wait_for_wakeup(called: asyncio.Event, seconds: float) -> None:
    """Wait for a notification, at most this many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await called.wait()
