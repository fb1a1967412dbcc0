"""Keeps the workers of one host alive: starts them, replaces the dead, passes signals on.

A worker is a process of its own, started as somebody would start it by hand. One that dies is
replaced, after a pause that grows when that keeps happening. New code comes by replacing one after
the other: the new one is started first, and only when it has loaded its tasks is the old one asked to
go; new code that cannot start changes nothing. Whoever asks the pool to go asks all of them, and
what does not end in time is killed with everything it has started. The store hears of every worker that
has not ended well, so that nobody waits for its leases.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine

from interlock.worker.logs import Log
from interlock.worker.orphans import Orphans
from interlock.worker.pool.child import Child, Start
from interlock.worker.pool.size import Luck, PoolSettings, Size
from interlock.worker.signals import Shutdown
from interlock.worker.wakeups import set_within

CANNOT_BEGIN = 2
"""How a worker ends that could not even begin; another one could not, either."""
BEGINS_S = 120.0
"""Who has not loaded its tasks after so long never will."""

Unfinished = Callable[[], Awaitable[int | None]]
"""How many jobs in the queues of the pool have not ended; None when nobody knows."""

Report = Callable[[str, str, str], Coroutine[None, None, None]]
"""Says that the worker of a name and an incarnation has died, and of what; tries until it is heard."""
REPORTED_S = 10.0
"""How long a pool that ends tries to report the last deaths."""


async def _to_nobody(name: str, incarnation: str, reason: str) -> None:
    """For a pool whose workers nobody knows."""


class Keeper:
    """One place in the pool, and whoever has it."""

    def __init__(self, name: str, settings: PoolSettings) -> None:
        self.name = name
        self.luck = Luck(settings)
        self.child: Child | None = None
        self.started_at = 0.0
        self.start_at = 0.0
        self.leaving: list[Child] = []
        """Who had it before, and was asked to go."""

    @property
    def lives(self) -> bool:
        """Whether somebody has it."""
        return self.child is not None and self.child.exit_code is None


class Pool:
    """The workers of one host."""

    def __init__(
        self,
        settings: PoolSettings,
        start: Start,
        unfinished: Unfinished,
        *,
        log: Log,
        shutdown: Shutdown,
        report: Report = _to_nobody,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report = report
        self._reporting: set[asyncio.Task[None]] = set()
        self._watched: dict[Child, str] = {}
        """Every child whose end was not seen yet, and the name that it was started under."""
        self._settings = settings
        self._start = start
        self._unfinished = unfinished
        self._log = log
        self._shutdown = shutdown
        self._monotonic = monotonic
        self._size = Size(settings)
        self._places: list[Keeper] = []
        self._begun = False
        self._renew: list[Keeper] = []
        self._orphans = Orphans()
        self._stir = asyncio.Event()
        self._looked_at = float("-inf")
        self._going: list[Child] = []
        """Who was sent home, because there is less to do."""

    async def run(self) -> int:
        """Until somebody asks it to go; 0 when every worker has ended well, 1 when one was killed, and
        what the worker said when not one could begin."""
        loop = asyncio.get_running_loop()
        stop = self._shutdown.subscribe(lambda: _soon(loop, self._stir))
        try:
            while not self._shutdown.requested:
                refused = await self._look()
                if refused:
                    await self._end()
                    return refused
                await set_within(self._stir, self._next_s())
                self._stir.clear()
            return await self._end()
        finally:
            stop()

    def renew(self) -> None:
        """There is new code: replace one after the other."""
        self._renew = [place for place in self._places if place.lives]
        self._log.info("pool_renewed", workers=len(self._renew))
        self._stir.set()

    # One look

    async def _look(self) -> int:
        """Bury the dead, start who is missing, send home who is too much; answers why to give up."""
        self._orphans.fetch()
        self._report_deaths()
        now = self._monotonic()
        for place in self._places:
            if (code := self._bury(place, now)) == CANNOT_BEGIN and not self._begun:
                return code
        if now - self._looked_at >= self._settings.look_every_s:
            self._looked_at = now
            self._resize(self._size.look(await self._unfinished(), now))
        for place in self._places:
            if place.child is None and now >= place.start_at:
                await self._fill(place)
        await self._replace_one(now)
        return 0

    def _bury(self, place: Keeper, now: float) -> int | None:
        place.leaving = [child for child in place.leaving if child.exit_code is None]
        child = place.child
        if child is None:
            return None
        self._begun = self._begun or child.begun
        if child.exit_code is None:
            return None
        lived_s = now - place.started_at
        pause_s = place.luck.died(lived_s)
        place.child, place.start_at = None, now + pause_s
        self._log.warning(
            "worker_died",
            worker=place.name,
            exit_code=child.exit_code,
            lived_s=round(lived_s, 3),
            again_in_s=round(pause_s, 3),
        )
        return child.exit_code

    def _resize(self, wanted: int) -> None:
        if wanted != len(self._places):
            self._log.info("pool_resized", workers=wanted, before=len(self._places))
        while len(self._places) < wanted:
            name = f"{self._settings.name}-{len(self._places) + 1}"
            self._places.append(Keeper(name, self._settings))
        for place in self._places[wanted:]:
            self._going += [child for child in (place.child, *place.leaving) if child is not None]
        del self._places[wanted:]
        self._going = [child for child in self._going if child.exit_code is None]
        for child in self._going:
            child.ask_to_go()

    async def _fill(self, place: Keeper) -> None:
        place.child = await self._begin(place.name)
        place.started_at = self._monotonic()
        self._log.info("worker_spawned", worker=place.name, worker_pid=place.child.pid)

    async def _replace_one(self, now: float) -> None:
        """One at a time: the next is replaced when the last has begun and its predecessor has gone."""
        if not self._renew or any(place.leaving for place in self._places):
            return
        place = self._renew.pop(0)
        old = place.child
        if place not in self._places or old is None or old.exit_code is not None:
            return  # whoever comes there next has the new code anyway
        new = await self._begin(place.name)
        if await new.begins(BEGINS_S):
            place.child, place.started_at, place.leaving = new, now, [old]
            old.ask_to_go()
            self._log.info("worker_replaced", worker=place.name, worker_pid=new.pid)
            return
        new.kill()
        await new.gone()
        self._renew.clear()
        self._log.error("new_code_cannot_start", worker=place.name, exit_code=new.exit_code)

    async def _begin(self, name: str) -> Child:
        child = await self._start(name, self._stir.set)
        self._watched[child] = name
        return child

    def _report_deaths(self) -> None:
        """Who has ended well has given back what it had, and has said goodbye."""
        for child, name in [each for each in self._watched.items() if each[0].exit_code is not None]:
            del self._watched[child]
            if child.exit_code and child.incarnation:
                reason = how_it_ended(child.exit_code)
                report = asyncio.create_task(self._report(name, child.incarnation, reason))
                self._reporting.add(report)
                report.add_done_callback(self._reporting.discard)

    def _next_s(self) -> float:
        waiting = [place.start_at - self._monotonic() for place in self._places if place.child is None]
        return max(0.0, min([self._settings.look_every_s, *waiting]))

    # The end

    async def _end(self) -> int:
        """Ask everybody to go, wait, and kill who does not."""
        of_places = [each for place in self._places for each in (place.child, *place.leaving)]
        everybody = [
            each for each in (*of_places, *self._going) if each is not None and each.exit_code is None
        ]
        for child in everybody:
            child.ask_to_go()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.end_s):
                for child in everybody:
                    await child.gone()
        late = [child for child in everybody if child.exit_code is None]
        for child in late:
            child.kill()
            await child.gone()
        if late:
            self._log.error("workers_killed", workers=len(late))
        self._report_deaths()
        if self._reporting:
            _, unheard = await asyncio.wait(self._reporting, timeout=REPORTED_S)
            for report in unheard:
                report.cancel()
        well = (0, -signal.SIGTERM)  # who was not even up yet did as it was told, too
        return int(any(child.exit_code not in well for child in everybody))


def how_it_ended(exit_code: int) -> str:
    """The end of a process in words."""
    if exit_code >= 0:
        return f"its process ended with exit code {exit_code}"
    with contextlib.suppress(ValueError):
        return f"its process was killed by {signal.Signals(-exit_code).name}"
    return f"its process was killed by signal {-exit_code}"


def _soon(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(event.set)
