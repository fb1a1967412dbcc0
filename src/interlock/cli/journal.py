"""Steps of the journal as they are shown, and jobs followed to their end.

The store's feed says which jobs have news; their journals say what it is. Nothing is missed or shown
twice, because every entry has a version.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import msgspec

from interlock.errors import StoreUnavailable
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB, JobState
from interlock.remote.interfaces import Reach
from interlock.store.records import Entry, Key
from interlock.systems.orchestrator.waiters import waker
from interlock.wire.jobs import JobView


class StepShown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of one machine, or something that was refused."""

    at: datetime
    job_id: str
    version: int
    machine: str
    entity: str = ""
    """Which one of those inside the job, such as the attempt 1.2; empty for the job itself."""
    event: str
    source: str = ""
    target: str = ""
    owner: str = ""
    moves: bool = True
    actor: str = ""
    reason: str = ""
    refused: bool = False

    @property
    def who(self) -> str:
        """The machine, and which one."""
        return f"{self.machine} {self.entity}".rstrip()


def steps_in(entries: Iterable[Entry]) -> Iterator[StepShown]:
    """Every step of these entries, in order; a refusal is a line of its own."""
    for entry in entries:
        note = entry.note
        if note.refusal:
            yield StepShown(
                at=entry.at,
                job_id=entry.id,
                version=entry.version,
                machine=entry.kind,
                event="refused",
                moves=False,
                actor=note.actor,
                reason=note.refusal,
                refused=True,
            )
        for step in note.steps:
            yield StepShown(
                at=entry.at,
                job_id=entry.id,
                version=entry.version,
                machine=step.machine,
                entity=step.entity,
                event=step.event,
                source=step.source,
                target=step.target,
                owner=step.owner,
                moves=step.moves,
                actor=note.actor,
                reason=note.reason,
            )


POLL_S = 1.0
"""How often to look although nobody has called: a call may be lost, and progress makes none."""

PAGE = 500

COMPLETED, FAILED, CANCELED, NOT_IN_TIME = 0, 3, 4, 5
_CODES = {job.COMPLETED: COMPLETED, job.FAILED: FAILED, job.CANCELED: CANCELED}
_WORST_FIRST = (NOT_IN_TIME, FAILED, CANCELED, COMPLETED)


@dataclass(frozen=True, slots=True)
class News:
    """What has happened since the last time."""

    steps: Sequence[StepShown]
    views: Sequence[JobView]
    """Those that may have changed, as they are now."""


def has_ended(view: JobView) -> bool:
    """Whether nothing will happen to it any more."""
    return JobState(view.state) in job.ENDED


def exit_code(views: Iterable[JobView]) -> int:
    """The worst outcome of several jobs."""
    codes = {_CODES.get(JobState(view.state), NOT_IN_TIME) for view in views} or {COMPLETED}
    return next(code for code in _WORST_FIRST if code in codes)


class JobFollower:
    """Some jobs, followed from now on; what has happened before is told first."""

    def __init__(
        self,
        port: Reach,
        job_ids: Sequence[str],
        *,
        tell_steps: bool = True,
        in_trouble: Callable[[StoreUnavailable], None] = lambda _: None,
    ) -> None:
        self._port = port
        self._living = list(dict.fromkeys(job_ids))
        self._fresh: set[str] = set(job_ids)
        """Those that may have steps which nobody has read yet."""
        self._read: dict[str, int] = {}
        """Up to which version of each job the steps were read."""
        self._untold: list[StepShown] = []
        self._tell_steps = tell_steps
        self._in_trouble = in_trouble
        self._cursor = ""
        self._swept_at = float("-inf")

    async def news(self) -> AsyncGenerator[News, None]:
        """All that happens to them, until the last one has ended."""
        called = asyncio.Event()
        stop = self._port.here.store.subscribe(waker(called))
        try:
            while self._living:
                called.clear()
                try:
                    await self._find_fresh()
                    yield await self.look()
                    await self._sweep()
                except StoreUnavailable as error:
                    self._in_trouble(error)  # it may come back; whoever cannot wait has a timeout
                if self._living:
                    await wait_for_wakeup(called, POLL_S)
        finally:
            stop()

    async def _find_fresh(self) -> None:
        """Note which of them may have news: all, when part of the feed was missed."""
        store = self._port.here.store
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
        """The jobs first and their journals after: of what has ended everything is told then.

        Whatever fails half-way is done again; what was read by then is kept until it is told.
        """
        views = await self._views(self._living)
        self._fresh |= {view.id for view in views if has_ended(view)}
        while self._tell_steps and self._fresh:
            job_id = min(self._fresh)
            await self._read_steps(job_id)
            self._fresh.discard(job_id)
        self._living = [view.id for view in views if not has_ended(view)]
        steps, self._untold = self._untold, []
        return News(sorted(steps, key=lambda step: step.at), views)

    async def _read_steps(self, job_id: str) -> None:
        store, key = self._port.here.store, Key(JOB.name, job_id)
        while True:
            entries = (await store.history(key, after_version=self._read.get(job_id, 0), limit=PAGE)).entries
            self._untold += [step for step in steps_in(entries) if step.moves]
            if entries:
                self._read[job_id] = entries[-1].version
            if len(entries) < PAGE:
                return

    async def _views(self, job_ids: Sequence[str]) -> list[JobView]:
        jobs = self._port.here.jobs
        found: list[JobView | None] = []
        for start in range(0, len(job_ids), PAGE):
            found += await jobs.get_many(job_ids[start : start + PAGE])
        if None in found:
            await jobs.get(job_ids[found.index(None)])  # says that there is no such job
        return [view for view in found if view is not None]

    async def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._swept_at >= self._port.settings.durations.sweep_every_s:
            self._swept_at = now
            await self._port.recover()


async def wait_for_wakeup(called: asyncio.Event, seconds: float) -> None:
    """Until somebody calls, or for so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await called.wait()
