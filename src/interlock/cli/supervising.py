"""What `interlock supervisor` does: a pool of workers, sized by what there is to do."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator

from interlock.cli import project
from interlock.cli.connecting import connected
from interlock.cli.working import Asked, settings_for
from interlock.errors import InvalidSettings, StoreUnavailable
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB
from interlock.processes.credentials import hide_password, make_private
from interlock.remote.offering import Reach
from interlock.store.records import Query
from interlock.worker.logs import make_log
from interlock.worker.pool import Pool, PoolSettings
from interlock.worker.pool.child import started_with
from interlock.worker.settings import WorkerSettings
from interlock.worker.signals import Shutdown, heeding_signals

MAX_COUNT = 10_000


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
    command = [sys.executable, "-m", "interlock.cli.main", "worker", "start", *words]
    depth = Depth(here, settings.queues) if pool.most > pool.least else None

    async def unfinished() -> int | None:
        return await depth.look() if depth else None

    keeping = Pool(pool, started_with(command, here.url), unfinished, log=log, shutdown=shutdown)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, keeping.renew)
    try:
        return await keeping.run()
    finally:
        if depth:
            await depth.close()


class Depth:
    """How much there is to do in some queues, asked over one connection for as long as it holds."""

    def __init__(self, here: project.Project, queues: tuple[str, ...]) -> None:
        self._here = here
        self._queues = queues
        self._connection = connected(here)
        self._port: Reach | None = None

    async def look(self) -> int | None:
        """How many jobs have not ended; None when nobody can be asked."""
        try:
            if self._port is None:
                self._port = await self._connection.__aenter__()
            states = tuple(str(state) for state in job.JobState if state not in job.ENDED)
            counts = [
                await self._port.here.jobs.count(
                    Query(kind=JOB.name, queue=queue, states=states), cap=MAX_COUNT
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
