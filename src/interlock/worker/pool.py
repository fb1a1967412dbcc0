"""Several worker processes on one host, kept alive: started, replaced when they die, stopped together.

A worker is a process of its own, started as by hand. One that dies is replaced, after a backoff that grows
when that keeps happening. New code is rolled out one worker after the other: the new one is started first,
and only when it has loaded its tasks is the old one asked to exit; new code that cannot start changes
nothing. A pool that is asked to exit asks all of its workers, and what does not end in time is killed with
everything it has started. The store is told of every worker that has crashed, so that its leases end at once.

Starting takes as long as importing the tasks takes, so a worker reports itself that it is ready: its end of a
pipe is named in its environment, and it writes its incarnation there once its tasks are loaded. A pipe that
closes without that belongs to a worker that never started.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from interlock.errors import InvalidSettings
from interlock.processes import credentials
from interlock.processes.groups import Orphans, descendants
from interlock.worker.host import Shutdown, set_within
from interlock.worker.telemetry import Log

MAX_WORKERS = 1_000


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A pool; each setting with the default that we run with."""

    name: str
    """Its workers are called this, and a number."""
    least: int = 1
    """So many are always kept."""
    most: int = 1
    """So many at most, when there is much to do."""
    slots: int = 10
    """How many tasks one worker executes at once."""
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    lived_s: float = 60.0
    """Who has lived for so long has not died of its start."""
    shrink_after_s: float = 30.0
    """How long there has to be less to do before somebody is sent home."""
    look_every_s: float = 1.0
    end_s: float = 35.0
    """How long workers may take to end, once asked."""

    def __post_init__(self) -> None:
        if faults := list(self._faults()):
            raise InvalidSettings(
                "The pool cannot be made like this: " + "; ".join(faults) + ".",
                todo="Change the numbers so that each of these holds.",
                facts={"faults": faults},
            )

    def _faults(self) -> Iterator[str]:
        if not 1 <= self.least <= MAX_WORKERS:
            yield f"there are {self.least} workers and must be 1 to {MAX_WORKERS}"
        if not self.least <= self.most <= MAX_WORKERS:
            yield f"there are {self.most} at most and must be {self.least} to {MAX_WORKERS}"
        if not self.name or "#" in self.name:
            yield f"name is {self.name!r} and must be a word without '#'"
        if self.slots < 1:
            yield f"slots is {self.slots} and must be at least 1"


class Size:
    """How many there shall be: as many as the work needs, at once; fewer only after a while."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self.wanted = settings.least
        self._less_since: float | None = None

    def look(self, unfinished: int | None, now: float) -> int:
        """The number for so many jobs that have not ended; None when nobody knows how many there are."""
        if unfinished is None:
            return self.wanted
        settings = self._settings
        needed = min(max(math.ceil(unfinished / settings.slots), settings.least), settings.most)
        if needed >= self.wanted:
            self.wanted, self._less_since = needed, None
        elif self._less_since is None:
            self._less_since = now
        elif now - self._less_since >= settings.shrink_after_s:
            self.wanted, self._less_since = needed, None
        return self.wanted


class Luck:
    """How one place in the pool fares: who dies young again and again is started more seldom."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self.deaths = 0

    def died(self, lived_s: float) -> float:
        """One has died after so long; how long to wait before the next is started."""
        settings = self._settings
        self.deaths = 1 if lived_s >= settings.lived_s else self.deaths + 1
        doublings = min(self.deaths - 1, 20)
        return min(settings.first_pause_s * 2.0**doublings, settings.longest_pause_s)


URL = "INTERLOCK_URL"
POOL = "INTERLOCK_POOL"
"""In the environment of a worker in a pool: the process of the pool."""
ABOUT = "INTERLOCK_POOL_ABOUT"
"""What the worker says of its pool when it registers: a JSON object of texts."""
READY = "INTERLOCK_POOL_READY"
"""The descriptor on which it says that it has begun."""


class PoolWorker:
    """A worker process."""

    def __init__(self, process: Process, ready: int, changed: Callable[[], None]) -> None:
        self.process = process
        self.begun = False
        """It has loaded its tasks."""
        self.incarnation = ""
        """How its leases tell it from others under its name; empty while it has not said so."""
        self._ready = ready
        self._changed = changed
        self._settled = asyncio.Event()
        asyncio.get_running_loop().add_reader(ready, self._heard)
        self._waiting = asyncio.create_task(self._wait())

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it lives."""
        return self.process.returncode

    async def begins(self, within_s: float) -> bool:
        """Wait until it has begun, or is known not to; who takes too long has not."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._settled.wait()
        return self.begun and self.exit_code is None

    def ask_to_go(self) -> None:
        """As a person would."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """With everything that it has started."""
        for pid in (*descendants(self.pid), self.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    async def gone(self) -> None:
        """Wait for its end."""
        await asyncio.wait([self._waiting])

    async def _wait(self) -> None:
        await self.process.wait()
        self._close()
        self._changed()

    def _heard(self) -> None:
        said = os.read(self._ready, 64)
        self.begun = bool(said)
        self.incarnation = said.decode("ascii", "replace") if len(said) > 1 else ""
        self._close()
        self._changed()

    def _close(self) -> None:
        self._settled.set()
        ready, self._ready = self._ready, -1
        if ready >= 0:
            asyncio.get_running_loop().remove_reader(ready)
            os.close(ready)


Start: TypeAlias = Callable[[str, Callable[[], None]], Awaitable[PoolWorker]]
"""Starts a worker under a name; the other is called when something has become of it."""


def started_with(command: Sequence[str], url: str, about: Mapping[str, str] | None = None) -> Start:
    """Workers that are started like this, with their name behind it; `about` is what they say of their pool.

    They are not told the URL of the store or server on their command line: every process can read that.
    """

    told = {ABOUT: msgspec.json.encode(about).decode()} if about else {}

    async def start(name: str, changed: Callable[[], None]) -> PoolWorker:
        ours, theirs = os.pipe()
        try:
            with credentials.handed_over({URL: url}) as (environment, pipe):
                # A group of its own: Ctrl-C is for the pool, which passes it on once.
                process = await asyncio.create_subprocess_exec(
                    *(*command, "--name", name),
                    process_group=0,
                    env={**environment, **told, POOL: str(os.getpid()), READY: str(theirs)},
                    pass_fds=(theirs, pipe),
                )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return PoolWorker(process, ours, changed)

    return start


def say_ready(incarnation: str) -> None:
    """Called in a worker that has loaded its tasks: its pool, if it has one, learns who it is."""
    named = os.environ.pop(READY, "")
    if named.isdigit():
        with contextlib.suppress(OSError):
            os.write(int(named), incarnation.encode())
            os.close(int(named))


def about_pool() -> dict[str, str]:
    """Return what this worker says of its pool; nothing where it is in none."""
    with contextlib.suppress(msgspec.MsgspecError):
        return msgspec.json.decode(os.environ.get(ABOUT, "{}"), type=dict[str, str])
    return {}


def pool_of_this_process() -> str:
    """The process of the pool that has started this worker; empty when there is none."""
    return os.environ.get(POOL, "")


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
        self.child: PoolWorker | None = None
        self.started_at = 0.0
        self.start_at = 0.0
        self.leaving: list[PoolWorker] = []
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
        self._watched: dict[PoolWorker, str] = {}
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
        self._going: list[PoolWorker] = []
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

    async def _begin(self, name: str) -> PoolWorker:
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
