"""An Interlock in memory, in which time passes only while a test waits, and then at once.

    async def test_a_letter_is_sent_again_when_the_post_office_is_closed() -> None:
        async with in_memory() as il:
            job = await il.submit(send, "Hello")
            await il.clock.jump("2h")
            assert (await job.view()).state == "COMPLETED"

It is the real orchestrator and the real worker, with the rules and the durations of production, on the
store in memory: retries, timeouts, delays and leases that run out happen at their time, whether that is in
a second or in a year, and the test does not wait for them. The same test does the same each time.

Reading order: `Memory` is the store, `Clock` what a test moves, and `InMemory` the client that has both and
the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import msgspec

from interlock.client import Interlock
from interlock.lifecycles.durations import Durations
from interlock.store.contract import Store
from interlock.store.memory import MemoryStore
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.orchestrator.settings import DEFAULT_SETTINGS, OrchestratorSettings
from interlock.systems.runtime import Host
from interlock.testing.clocks import seconds_of
from interlock.testing.faults import FaultyStore, Plan
from interlock.testing.virtual_time import VirtualTime
from interlock.testing.workers import Worker
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import DEFAULT, Registry

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
A_MOMENT_S = 0.001
"""After a jump everything that is due by then is done; what follows from it takes a moment."""
_SOON_S = 0.000_002
_AGAIN_S = 1.0
_NEVER_S = 30 * 86_400.0
"""Nobody has to look for work or deadlines now and then: everybody is called when there is some."""


class Memory(MemoryStore):
    """The store; it knows what comes next, and outlives those who are connected to it."""

    async def close(self) -> None:
        """Somebody lets go of it, and it goes on."""

    def next_at(self) -> datetime | None:
        """When the next deadline runs out, or the next job may begin that may not yet."""
        now = self._now()
        moments = [record.deadline_at for record in self._timed.values() if record.deadline_at]
        moments += [r.ready_at for r in self._ready.values() if r.ready_at and r.ready_at > now]
        return min(moments, default=None)

    def call_everybody(self) -> None:
        """Something may have become possible without anybody having written anything."""
        for wake in list(self._wakes.values()):
            wake()


class Clock:
    """The time of the store and of everybody in the test."""

    def __init__(self, time: VirtualTime, start: datetime) -> None:
        self._time = time
        self._start = start
        self._began = time.time()

    def __call__(self) -> datetime:
        return self.now

    @property
    def now(self) -> datetime:
        """What time it is."""
        return self._start + timedelta(seconds=self._time.time() - self._began)

    async def jump(self, by: str | float | timedelta) -> datetime:
        """Let time pass: a timedelta, seconds, or words such as "2h", "90s" or "1.5d".

        Whatever is due meanwhile happens, in its order, and each at its own time.
        """
        seconds = seconds_of(by)
        if seconds < 0:
            raise ValueError("Time does not go back here; there is `JumpingClock` for clocks that do.")
        await asyncio.sleep(seconds + A_MOMENT_S)
        return self.now


class InMemory(Interlock):
    """The client of a test, with the clock and the worker."""

    def __init__(self, port: EmbeddedOrchestrator, clock: Clock, worker: Worker, store: Memory) -> None:
        super().__init__("memory:", actor="test")
        self._port = port
        self.clock = clock
        self.worker = worker
        self.store = store
        self.faulty: FaultyStore | None = None
        """The store as the worker sees it, where there are faults; `counts` tells what befell it."""


@asynccontextmanager
async def in_memory(
    registry: Registry = DEFAULT,
    *,
    settings: OrchestratorSettings = DEFAULT_SETTINGS,
    queues: tuple[str, ...] = ("default",),
    labels: tuple[str, ...] = (),
    concurrency: int = 10,
    faults: Plan | None = None,
    start: datetime = BEGINNING,
    seed: int = 1,
) -> AsyncIterator[InMemory]:
    """An Interlock whose worker knows the tasks of `registry`; by default all that were declared.

    `faults` befall the worker's side of the store. `seed` is where names and secrets come from.
    """
    time = VirtualTime(asyncio.get_running_loop())
    clock = Clock(time, start)
    store = Memory(CATALOGUE, clock=clock)
    settings = msgspec.structs.replace(settings, durations=_called(settings.durations))
    faulty = FaultyStore(store, faults) if faults is not None else None
    host = _host(time, seed)

    def port(seen: Store) -> EmbeddedOrchestrator:
        return EmbeddedOrchestrator("memory:", settings=settings, store=lambda: seen, host=host)

    worker = Worker(
        WorkerSettings(
            name="test",
            queues=queues,
            labels=labels,
            concurrency=concurrency,
            durations=settings.durations,
            supervised=False,
            log_level="error" if faults is not None else "warning",
        ),
        registry,
        lambda: port(faulty or store),
    )
    time.elsewhere = lambda: worker.elsewhere
    il = InMemory(port(store), clock, worker, store)
    il.faulty = faulty
    with time.in_place():
        async with il:
            keeping = asyncio.create_task(_keep(store, il), name="deadlines of a test")
            await worker.start()
            try:
                yield il
            finally:
                await worker.stop()
                keeping.cancel()
                await asyncio.wait([keeping])
        if not keeping.cancelled():
            keeping.result()  # whoever keeps the deadlines must not fail unnoticed


async def _keep(store: Memory, il: InMemory) -> None:
    """Whatever is due is done at its time: deadlines are dealt with, and who waits for work is called."""
    stirred = asyncio.Event()
    leave = store.subscribe(stirred.set)
    port = il._port  # noqa: SLF001 - this is its other half
    assert isinstance(port, EmbeddedOrchestrator)
    try:
        while True:
            stirred.clear()
            next_at = store.next_at()
            if next_at is not None and next_at <= il.clock.now:
                await port.recover()
                store.call_everybody()
                # What cannot be dealt with yet, such as word to somebody who is busy, is tried again.
                still = store.next_at()
                if still is not None and still <= il.clock.now:
                    await _set_within(stirred, _AGAIN_S)
                continue
            wait_s = None if next_at is None else (next_at - il.clock.now).total_seconds() + _SOON_S
            await _set_within(stirred, wait_s)
            store.call_everybody()
    finally:
        leave()


async def _set_within(event: asyncio.Event, seconds: float | None) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _called(durations: Durations) -> Durations:
    """The same, but nobody looks now and then: here everybody is called."""
    return msgspec.structs.replace(durations, sweep_every_s=_NEVER_S, backoff_cap_s=_NEVER_S)


def _host(time: VirtualTime, seed: int) -> Host:
    dice = random.Random(seed)
    return Host(
        monotonic=time.time,
        wall=time.time,
        ids=lambda: dice.randbytes(8).hex(),
        seeds=lambda: dice.randbytes(32),
        below=dice.randrange,
    )
