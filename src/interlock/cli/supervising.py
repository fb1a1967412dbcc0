"""What `interlock supervisor` does: a pool of workers, sized by what there is to do."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

from interlock.cli import project
from interlock.cli.connecting import connected, token
from interlock.cli.working import Asked, port_for, settings_for
from interlock.errors import InterlockError, InvalidSettings, StoreUnavailable
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB
from interlock.processes.credentials import hide_password, make_private
from interlock.remote.interfaces import Reach
from interlock.store.records import Query
from interlock.wire.workers import POOL, POOL_LEAST, POOL_MOST, POOL_PID
from interlock.worker.logs import Log, make_log
from interlock.worker.pool import Pool, PoolSettings
from interlock.worker.pool.child import started_with
from interlock.worker.port import DeathBook, OrchestratorPort
from interlock.worker.settings import WorkerSettings
from interlock.worker.signals import Shutdown, heeding_signals

MAX_COUNT = 10_000
UNFINISHED = tuple(str(state) for state in job.JobState if state not in job.ENDED)
RUNNING = (str(job.RUNNING),)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
"""Between two tries to report a death."""


def supervise(store: str | None, asked: Asked, *, least: int, most: int) -> int:
    """Keep workers alive until somebody asks this process to go; the answer is the exit code."""
    here = project.load(store)
    module = asked.module or here.worker.module
    if module is None:
        raise InvalidSettings(
            "Nobody says where the tasks are.",
            todo=f'Name a module, or write module = "shop.tasks" below [worker] in {project.FILE}.',
        )
    settings = settings_for(here, asked)
    end_s = settings.durations.shutdown_deadline_s + 5.0
    pool = PoolSettings(name=settings.name, least=least, most=most, slots=settings.concurrency, end_s=end_s)
    shutdown = Shutdown()
    with heeding_signals(shutdown):
        return asyncio.run(_run(here, pool, settings, [module, *_words(asked)], shutdown))


async def _run(
    here: project.Project, pool: PoolSettings, settings: WorkerSettings, words: list[str], shutdown: Shutdown
) -> int:
    make_private()
    hide_password(here.url)
    log = make_log(settings.log_level, settings.log_format)
    command = [sys.executable, "-m", "interlock", "worker", "start", *words]
    depth = Depth(here, settings.queues) if pool.most > pool.least else None

    async def unfinished() -> int | None:
        return await depth.look() if depth else None

    deaths = Deaths(lambda: port_for(here, Asked(), token()), settings.durations.lease_ttl_s, log)
    keeping = Pool(
        pool,
        started_with(command, here.url, _about(pool)),
        unfinished,
        log=log,
        shutdown=shutdown,
        report=deaths.report,
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, keeping.renew)
    try:
        return await keeping.run()
    finally:
        if depth:
            await depth.close()


def _about(pool: PoolSettings) -> dict[str, str]:
    """Return what the workers say of their pool."""
    return {
        POOL: pool.name,
        POOL_PID: str(os.getpid()),
        POOL_LEAST: str(pool.least),
        POOL_MOST: str(pool.most),
    }


class Deaths:
    """Reports workers that have died, over a connection that is opened for it."""

    def __init__(self, connect: Callable[[], OrchestratorPort], for_s: float, log: Log) -> None:
        self._connect = connect
        self._for_s = for_s
        """After that the leases of the dead have ended by themselves."""
        self._log = log

    async def report(self, name: str, incarnation: str, reason: str) -> None:
        """Say it until it is heard, or is of no use any more."""
        until, pause_s = time.monotonic() + self._for_s, FIRST_PAUSE_S
        while time.monotonic() < until:
            try:
                await self._say(name, incarnation, reason)
            except StoreUnavailable as error:
                self._log.warning("death_not_reported", worker=name, error=error.sentence)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            except InterlockError as error:  # also one that nobody knows: it had not registered yet
                self._log.warning("death_not_reported", worker=name, code=error.code, error=error.sentence)
                return
            else:
                self._log.info("death_reported", worker=name, incarnation=incarnation, reason=reason)
                return

    async def _say(self, name: str, incarnation: str, reason: str) -> None:
        port = self._connect()
        try:
            await port.connect()
            if isinstance(port, DeathBook):
                await port.died(name, incarnation, reason)
        finally:
            await port.disconnect()


class Depth:
    """How much there is to do in some queues, asked over one connection for as long as it holds."""

    def __init__(self, here: project.Project, queues: tuple[str, ...]) -> None:
        self._here = here
        self._queues = queues
        self._connection = connected(here)
        self._port: Reach | None = None

    async def look(self) -> int | None:
        """Return how many jobs wait for a worker or have one; None while the store is unavailable.

        Jobs that wait in a paused queue are not given out, so more workers would have nothing to do.
        """
        try:
            if self._port is None:
                self._port = await self._connection.__aenter__()
            here = self._port.here
            paused = {hold.name for hold in await here.queues.paused()}
            counts = [
                await here.jobs.count(
                    Query(kind=JOB.name, queue=queue, states=RUNNING if queue in paused else UNFINISHED),
                    cap=MAX_COUNT,
                )
                for queue in self._queues
            ]
        except StoreUnavailable:
            await self.close()
            self._connection = connected(self._here)
            return None
        return sum(count.number for count in counts)

    async def close(self) -> None:
        """Let go."""
        port, self._port = self._port, None
        if port is not None:
            await self._connection.__aexit__(None, None, None)


def _words(asked: Asked) -> Iterator[str]:
    """How a worker is told the same on its command line."""
    for queue in asked.queues:
        yield from ("--queue", queue)
    for label in asked.labels:
        yield from ("--label", label)
    if asked.slots is not None:
        yield from ("--slots", str(asked.slots))
    for mount in asked.mounts:
        yield from ("--mount", mount)
    if asked.isolate is not None:
        yield from ("--isolate", asked.isolate)
    if asked.network is False:
        yield "--no-network"
    options = {
        "--log-level": asked.log_level,
        "--log-format": asked.log_format,
        "--job-log-level": asked.job_log_level,
        "--memory-limit-mb": asked.memory_limit_mb,
    }
    for option, value in options.items():
        if value is not None:
            yield from (option, str(value))
