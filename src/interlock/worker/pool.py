"""Several worker processes on one host, kept alive: started, replaced when they die, stopped together.

A worker is a separate process, started as by hand. One that dies is replaced, after a backoff that grows with
repeated deaths. New code is rolled out one worker after the other: the new one is started first, and only
when it has loaded its tasks is the old one told to exit; new code that cannot start changes nothing. A pool
that shuts down tells all of its workers to, and kills those that do not end in time, with all their child
processes. Every crashed worker is reported to the store, so that its leases end at once.

Starting takes as long as importing the tasks, so a worker reports that it is ready: its end of a pipe is
named in its environment, and it writes its incarnation there once its tasks are loaded. A pipe that closes
without that belongs to a worker that never started.

Why: decisions 0138 and 0431.
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

from interlock.backoff import nth_pause_s
from interlock.errors import InvalidSettings
from interlock.processes import credentials
from interlock.processes.groups import Orphans, descendants
from interlock.worker.host import Shutdown, call_in_loop, set_within
from interlock.worker.telemetry import Log

MAX_WORKERS = 1_000


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a pool."""

    name: str
    """Its workers have this name, and a number."""
    least: int = 1
    """Minimum number of workers."""
    most: int = 1
    """Maximum number of workers, under load."""
    slots: int = 10
    """Concurrent tasks of one worker."""
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    lived_s: float = 60.0
    """A worker that lived this long did not fail at its start."""
    shrink_after_s: float = 30.0
    """Time for which the load must be lower before a worker is stopped."""
    look_every_s: float = 1.0
    end_s: float = 35.0
    """Time for workers to shut down."""

    def __post_init__(self) -> None:
        if faults := list(self._faults()):
            raise InvalidSettings(
                "The pool cannot be started: " + "; ".join(faults) + ".",
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
    """The target number of workers: it rises at once with the load, and falls only after a while."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self.wanted: int = settings.least
        self._less_since: float | None = None

    def look(self, unfinished: int | None, now: float) -> int:
        """Return the target for this many unfinished jobs; None keeps it."""
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


class RestartBackoff:
    """The backoff of one place in the pool: repeated early deaths delay its restart."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self.deaths: int = 0

    def died(self, lived_s: float) -> float:
        """Record a death; return the pause before the restart."""
        settings = self._settings
        self.deaths = 1 if lived_s >= settings.lived_s else self.deaths + 1
        return nth_pause_s(self.deaths, settings.first_pause_s, settings.longest_pause_s)


URL = "INTERLOCK_URL"
POOL = "INTERLOCK_POOL"
"""Environment variable of a worker in a pool: the process id of the pool."""
ABOUT = "INTERLOCK_POOL_ABOUT"
"""Environment variable with a JSON object about the pool, for the worker's registration."""
READY = "INTERLOCK_POOL_READY"
"""Environment variable with the descriptor for the ready message."""


class PoolWorker:
    """A worker process."""

    def __init__(self, process: Process, ready: int, changed: Callable[[], None]) -> None:
        self.process = process
        self.begun: bool = False
        """Whether it has loaded its tasks."""
        self.incarnation: str = ""
        """Its incarnation, which identifies its leases; empty before it is reported."""
        self._ready = ready
        self._changed = changed
        self._settled = asyncio.Event()
        asyncio.get_running_loop().add_reader(ready, self._read_ready)
        self._waiting = asyncio.create_task(self._wait())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it lives."""
        return self.process.returncode

    async def begins(self, within_s: float) -> bool:
        """Wait until it has started, or failed to; a timeout counts as failed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._settled.wait()
        return self.begun and self.exit_code is None

    def request_stop(self) -> None:
        """Send SIGTERM."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it with all its child processes, unless it has ended.

        The id of an ended process may name another one.
        """
        if self.exit_code is not None:
            return
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

    def _read_ready(self) -> None:
        answer = os.read(self._ready, 64)
        self.begun = bool(answer)
        self.incarnation = answer.decode("ascii", "replace") if len(answer) > 1 else ""
        self._close()
        self._changed()

    def _close(self) -> None:
        self._settled.set()
        ready, self._ready = self._ready, -1
        if ready >= 0:
            asyncio.get_running_loop().remove_reader(ready)
            os.close(ready)


StartWorker: TypeAlias = Callable[[str, Callable[[], None]], Awaitable[PoolWorker]]
"""Starts a worker under a name; the callback is called when its state changes."""


def started_with(command: Sequence[str], url: str, about: Mapping[str, str] | None = None) -> StartWorker:
    """Return a function that starts workers with this command and a name.

    `about` describes their pool. The URL of the store or server is not on their command line, which every
    process can read.
    """

    extra = {ABOUT: msgspec.json.encode(about).decode()} if about else {}

    async def start(name: str, changed: Callable[[], None]) -> PoolWorker:
        ours, theirs = os.pipe()
        try:
            with credentials.handed_over({URL: url}) as (environment, pipe):
                # A separate process group: Ctrl-C is for the pool, which forwards it once.
                process = await asyncio.create_subprocess_exec(
                    *(*command, "--name", name),
                    process_group=0,
                    env={**environment, **extra, POOL: str(os.getpid()), READY: str(theirs)},
                    pass_fds=(theirs, pipe),
                )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return PoolWorker(process, ours, changed)

    return start


def report_ready(incarnation: str) -> None:
    """Report to the pool that the tasks are loaded; called in a worker."""
    named = os.environ.pop(READY, "")
    if named.isdigit():
        with contextlib.suppress(OSError):
            os.write(int(named), incarnation.encode())
            os.close(int(named))


def about_pool() -> dict[str, str]:
    """Return the description of the pool; empty outside of a pool.

    It is part of the worker's registration.
    """
    with contextlib.suppress(msgspec.MsgspecError):
        return msgspec.json.decode(os.environ.get(ABOUT, "{}"), type=dict[str, str])
    return {}


def pool_of_this_process() -> str:
    """Return the process id of this worker's pool; empty without one."""
    return os.environ.get(POOL, "")


CANNOT_BEGIN = 2
"""Exit code of a worker that could not start; another one could not, either."""
BEGINS_S = 120.0
"""Deadline for a worker to load its tasks."""

Unfinished = Callable[[], Awaitable[int | None]]
"""Returns the number of unfinished jobs in the queues of the pool; None if unknown."""

ReportEvent = Callable[[str, str, str], Coroutine[None, None, None]]
"""Reports that a worker has died, and why; retries until acknowledged."""
REPORTED_S = 10.0
"""Deadline for a stopping pool to report the last deaths."""


async def _do_nothing(name: str, incarnation: str, reason: str) -> None:
    """Do nothing: the workers are not registered."""


class PoolPlace:
    """One place in the pool, and its worker."""

    def __init__(self, name: str, settings: PoolSettings) -> None:
        self.name = name
        self.backoff: RestartBackoff = RestartBackoff(settings)
        self.child: PoolWorker | None = None
        self.started_at: float = 0.0
        self.start_at: float = 0.0
        self.leaving: list[PoolWorker] = []
        """Previous workers of this place that are shutting down."""

    @property
    def lives(self) -> bool:
        """Whether it has a live worker."""
        return self.child is not None and self.child.exit_code is None


class Pool:
    """The workers of one host."""

    def __init__(
        self,
        settings: PoolSettings,
        start: StartWorker,
        unfinished: Unfinished,
        *,
        log: Log,
        shutdown: Shutdown,
        report: ReportEvent = _do_nothing,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report = report
        self._reporting: set[asyncio.Task[None]] = set()
        self._watched: dict[PoolWorker, str] = {}
        """Every worker whose end was not handled yet, and its name."""
        self._settings = settings
        self._start = start
        self._unfinished = unfinished
        self._log = log
        self._shutdown = shutdown
        self._monotonic = monotonic
        self._size = Size(settings)
        self._places: list[PoolPlace] = []
        self._begun = False
        self._renew: list[PoolPlace] = []
        self._orphans = Orphans()
        self._wakeup = asyncio.Event()
        self._looked_at = float("-inf")
        self._surplus: list[PoolWorker] = []
        """Workers that are stopped because of a lower load."""

    async def run(self) -> int:
        """Run until a shutdown is requested; return the exit code.

        It is 0 if every worker has ended well, 1 if one was killed, and the exit code of the worker if not
        one could start.
        """
        loop = asyncio.get_running_loop()
        stop = self._shutdown.subscribe(lambda: call_in_loop(loop, self._wakeup.set))
        try:
            while not self._shutdown.requested:
                refused = await self._look()
                if refused:
                    await self._end()
                    return refused
                await set_within(self._wakeup, self._next_s())
                self._wakeup.clear()
            return await self._end()
        finally:
            stop()

    def renew(self) -> None:
        """Replace all workers one after the other, for new code."""
        self._renew = [place for place in self._places if place.lives]
        self._log.info("pool_renewed", workers=len(self._renew))
        self._wakeup.set()

    # One round

    async def _look(self) -> int:
        """Handle deaths, start missing workers and stop surplus ones.

        Return the exit code to give up with, else 0.
        """
        self._orphans.fetch()
        self._report_deaths()
        now = self._monotonic()
        for place in self._places:
            if (code := self._reap(place, now)) == CANNOT_BEGIN and not self._begun:
                return code
        if now - self._looked_at >= self._settings.look_every_s:
            self._looked_at = now
            self._resize(self._size.look(await self._unfinished(), now))
        for place in self._places:
            if place.child is None and now >= place.start_at:
                await self._fill(place)
        await self._replace_one(now)
        return 0

    def _reap(self, place: PoolPlace, now: float) -> int | None:
        place.leaving = [child for child in place.leaving if child.exit_code is None]
        child = place.child
        if child is None:
            return None
        self._begun = self._begun or child.begun
        if child.exit_code is None:
            return None
        lived_s = now - place.started_at
        pause_s = place.backoff.died(lived_s)
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
            self._places.append(PoolPlace(name, self._settings))
        for place in self._places[wanted:]:
            self._surplus += [child for child in (place.child, *place.leaving) if child is not None]
        del self._places[wanted:]
        self._surplus = [child for child in self._surplus if child.exit_code is None]
        for child in self._surplus:
            child.request_stop()

    async def _fill(self, place: PoolPlace) -> None:
        place.child = await self._begin(place.name)
        place.started_at = self._monotonic()
        self._log.info("worker_spawned", worker=place.name, worker_pid=place.child.pid)

    async def _replace_one(self, now: float) -> None:
        """Replace one worker for new code.

        The next one follows when this one has started and its predecessor has ended.
        """
        if not self._renew or any(place.leaving for place in self._places):
            return
        place = self._renew.pop(0)
        old = place.child
        if place not in self._places or old is None or old.exit_code is not None:
            return  # its successor has the new code anyway
        new = await self._begin(place.name)
        if await new.begins(BEGINS_S):
            place.child, place.started_at, place.leaving = new, now, [old]
            old.request_stop()
            self._log.info("worker_replaced", worker=place.name, worker_pid=new.pid)
            return
        new.kill()
        await new.gone()
        self._renew.clear()
        self._log.error("new_code_cannot_start", worker=place.name, exit_code=new.exit_code)

    async def _begin(self, name: str) -> PoolWorker:
        child = await self._start(name, self._wakeup.set)
        self._watched[child] = name
        return child

    def _report_deaths(self) -> None:
        """Report workers that died without releasing their jobs."""
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

    # Shutdown

    async def _end(self) -> int:
        """Tell all workers to shut down, wait, and kill the rest."""
        of_places = [each for place in self._places for each in (place.child, *place.leaving)]
        workers = [
            each for each in (*of_places, *self._surplus) if each is not None and each.exit_code is None
        ]
        for child in workers:
            child.request_stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.end_s):
                for child in workers:
                    await child.gone()
        late = [child for child in workers if child.exit_code is None]
        for child in late:
            child.kill()
            await child.gone()
        if late:
            self._log.error("workers_killed", workers=len(late))
        self._report_deaths()
        if self._reporting:
            _, unreported = await asyncio.wait(self._reporting, timeout=REPORTED_S)
            for report in unreported:
                report.cancel()
        well = (0, -signal.SIGTERM)  # a worker that was still starting has obeyed, too
        return int(any(child.exit_code not in well for child in workers))


def how_it_ended(exit_code: int) -> str:
    """Return the end of a process in words."""
    if exit_code >= 0:
        return f"its process ended with exit code {exit_code}"
    with contextlib.suppress(ValueError):
        return f"its process was killed by {signal.Signals(-exit_code).name}"
    return f"its process was killed by signal {-exit_code}"
