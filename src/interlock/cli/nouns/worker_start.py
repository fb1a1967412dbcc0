"""Start a worker in this process, or supervise a pool of worker processes."""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from interlock.backoff import Backoff
from interlock.cli import connection, project
from interlock.cli.connection import connected, token
from interlock.cli.machine_names import load_kinds
from interlock.errors import InterlockError, InvalidSettings, StoreUnavailable
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB
from interlock.processes import credentials
from interlock.processes.credentials import hide_password, make_private
from interlock.processes.sandbox import SandboxSettings
from interlock.remote import is_server
from interlock.remote.service_connection import ServiceConnection
from interlock.store.records import Query
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.orchestrator.vault import FILE as SECRETS_FILE
from interlock.wire.workers import POOL, POOL_LEAST, POOL_MOST, POOL_PID
from interlock.worker.entry import run_worker
from interlock.worker.host import Shutdown, handling_signals
from interlock.worker.middleware import load_middleware
from interlock.worker.pool import Pool, PoolSettings, started_with
from interlock.worker.port import DeadWorkerPort, OrchestratorPort
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import Registry, load_tasks
from interlock.worker.telemetry import Log, make_log

MEGABYTE = 1024 * 1024


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a worker; the project file supplies defaults."""

    module: str | None = None
    shell: bool = False
    """Run only shell steps, without tasks."""
    name: str | None = None
    queues: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    slots: int | None = None
    threads: int | None = None
    processes: int | None = None
    executor: str | None = None
    prefetch: int | None = None
    metrics_port: int | None = None
    log_level: str | None = None
    log_format: str | None = None
    job_log_level: str | None = None
    memory_limit_mb: int | None = None
    burst: bool = False
    isolate: str | None = None
    network: bool | None = None
    mounts: tuple[str, ...] = ()
    token: str | None = None
    """Access token of the server."""
    token_file: str | None = None
    ca: str | None = None
    """CA certificates for the server."""


def start_worker(store: str | None, options: WorkerOptions) -> int:
    """Run a worker of this project; return the exit code."""
    here = project.load(store)
    module = options.module or here.worker.module
    if module is None and not options.shell:
        raise InvalidSettings(
            "No task module given.",
            todo='Name one: interlock worker start shop.tasks, or write module = "shop.tasks" '
            f"below [worker] in {project.FILE}; or with --shell, for steps of workflows alone.",
        )
    settings = settings_for(here, options)
    token = _token(options)
    if token is not None:
        credentials.hold(credentials.TOKEN, token)
    credentials.hide_password(here.url)

    shutdown = Shutdown()
    with handling_signals(shutdown):  # importing may take long, and a signal must not be lost meanwhile
        tasks = Registry() if module is None or options.shell else load_tasks(module)
        tasks.schedules.update(here.schedules)
        tasks.surround(load_middleware(here.middleware))
        tasks.limits.update(here.limits)
        return run_worker(settings, tasks, lambda: port_for(here, options, token), shutdown)


def port_for(here: project.Project, options: WorkerOptions, token: str | None) -> OrchestratorPort:
    """Return the port to a server or to a store."""
    return _server_port(here.url, token, options) if is_server(here.url) else _store_port(here, options)


def _store_port(here: project.Project, options: WorkerOptions) -> OrchestratorPort:
    if not options.burst:
        return EmbeddedOrchestrator(here.url, settings=here.settings, kinds=load_kinds(here.kinds))
    from interlock.cli.nouns.worker_start_burst import BurstOnStore

    return BurstOnStore(
        here.url, stop=_stop_this_process, settings=here.settings, kinds=load_kinds(here.kinds)
    )


def _server_port(url: str, token: str | None, options: WorkerOptions) -> OrchestratorPort:
    from interlock.worker.http import HttpOrchestrator

    how: dict[str, Any] = {
        "names": lambda: secrets.token_hex(16),
        "token": token,
        "ca": options.ca or connection.ca(),
    }
    if not options.burst:
        return HttpOrchestrator(url, **how)
    from interlock.cli.nouns.worker_start_burst import BurstThroughServer

    return BurstThroughServer(url, stop=_stop_this_process, **how)


def _token(options: WorkerOptions) -> str | None:
    """Return the access token; a file takes precedence over the environment."""
    if options.token_file is None:
        return options.token or connection.token()
    return connection.token_in(options.token_file) or None


def settings_for(here: project.Project, chosen: WorkerOptions) -> WorkerSettings:
    """Return the settings of a worker.

    The command line takes precedence over the project file, and that over the defaults.
    """
    values = msgspec.structs.asdict(here.worker)
    values |= {
        name: value for name, value in msgspec.structs.asdict(chosen).items() if value not in (None, ())
    }
    options = {
        "name": values["name"] or socket.gethostname(),
        "queues": values["queues"],
        "labels": values["labels"],
        "concurrency": values["slots"],
        "threads": values.get("threads"),
        "processes": values.get("processes"),
        "executor": values["executor"],
        "prefetch": values["prefetch"],
        "metrics_port": values["metrics_port"],
        "log_level": values["log_level"],
        "log_format": values.get("log_format"),
        "job_log_level": values["job_log_level"],
        "memory_limit_bytes": None
        if values["memory_limit_mb"] is None
        else values["memory_limit_mb"] * MEGABYTE,
        "max_result_bytes": here.settings.max_result_bytes,
        "durations": here.settings.durations,
        "sandbox": _sandbox(values, chosen),
    }
    return WorkerSettings(**{name: value for name, value in options.items() if value not in (None, ())})


def _sandbox(values: Mapping[str, Any], options: WorkerOptions) -> SandboxSettings:
    """Return the sandbox; files with credentials are always hidden from steps."""
    hidden = (options.token_file, os.environ.get(SECRETS_FILE))
    return SandboxSettings(
        kind=values["isolate"] or "none",
        network=values["network"] is not False,
        mounts=tuple(values["mounts"]),
        hidden=tuple(filter(None, hidden)),
    )


def _stop_this_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


MAX_COUNT = 10_000
RUNNING = (str(job.RUNNING),)
WAITING = tuple(str(state) for state in job.WAITING)
PAGE, PAGES = 500, 4
"""Number of waiting jobs to look at in one request, and of requests, to see which of them can start."""
BELIEVED_S = 15.0
"""Time for which the result of looking at so many is used again."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
"""Backoff between two attempts to report a death."""


def supervise(store: str | None, options: WorkerOptions, *, least: int, most: int) -> int:
    """Keep workers running until stopped; return the exit code."""
    here = project.load(store)
    module = options.module or here.worker.module
    if module is None:
        raise InvalidSettings(
            "No task module given.",
            todo='Name one: interlock supervisor shop.tasks, or write module = "shop.tasks" below [worker] '
            f"in {project.FILE}.",
        )
    settings = settings_for(here, options)
    end_s = settings.durations.shutdown_deadline_s + 5.0
    pool = PoolSettings(name=settings.name, least=least, most=most, slots=settings.concurrency, end_s=end_s)
    shutdown = Shutdown()
    with handling_signals(shutdown):
        return asyncio.run(_supervise(here, pool, settings, [module, *_words(options)], shutdown))


async def _supervise(
    here: project.Project, pool: PoolSettings, settings: WorkerSettings, words: list[str], shutdown: Shutdown
) -> int:
    make_private()
    hide_password(here.url)
    log = make_log(settings.log_level, settings.log_format)
    command = [sys.executable, "-m", "interlock", "worker", "start", *words]
    sizes = (pool.least * pool.slots, pool.most * pool.slots)
    depth = Depth(here, settings.queues, sizes) if pool.most > pool.least else None

    async def unfinished() -> int | None:
        return await depth.look() if depth else None

    deaths = Deaths(lambda: port_for(here, WorkerOptions(), token()), settings.durations.lease_ttl_s, log)
    keeping = Pool(
        pool,
        started_with(command, here.url, _pool_variables(pool)),
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


def _pool_variables(pool: PoolSettings) -> dict[str, str]:
    """Return the environment variables with which workers report their pool."""
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
        """After this time the leases of the dead worker have expired."""
        self._log = log

    async def report(self, name: str, incarnation: str, reason: str) -> None:
        """Report it until the store has accepted it, or the leases have expired."""
        until, backoff = time.monotonic() + self._for_s, Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while time.monotonic() < until:
            try:
                await self._report(name, incarnation, reason)
            except StoreUnavailable as error:
                self._log.warning("death_not_reported", worker=name, error=error.sentence)
                await asyncio.sleep(backoff.next_s())
            except InterlockError as error:  # also for an unknown worker: it had not registered yet
                self._log.warning("death_not_reported", worker=name, code=error.code, error=error.sentence)
                return
            else:
                self._log.info("death_reported", worker=name, incarnation=incarnation, reason=reason)
                return

    async def _report(self, name: str, incarnation: str, reason: str) -> None:
        port = self._connect()
        try:
            await port.connect()
            if isinstance(port, DeadWorkerPort):
                await port.died(name, incarnation, reason)
        finally:
            await port.disconnect()


class Depth:
    """The number of jobs in some queues that run or can start, read over one connection.

    `sizes` are the numbers of jobs that the smallest and the largest pool can execute at once: below the
    first all are counted, and none are looked at beyond the second.
    """

    def __init__(
        self, here: project.Project, queues: tuple[str, ...], sizes: tuple[int, int] = (0, MAX_COUNT)
    ) -> None:
        self._here = here
        self._queues = queues
        self._least, self._most = sizes
        self._connection = connected(here)
        self._port: ServiceConnection | None = None
        self._shares: dict[str, tuple[float, float]] = {}
        """The share of waiting jobs that can start by queue, and until when it is believed."""

    async def look(self) -> int | None:
        """Return the number of jobs that run or can start.

        It is None while the store is unavailable. Jobs that wait in a paused queue, for a slot of a limit,
        for other jobs or for their time are not claimed, so more workers would stay idle.
        """
        try:
            if self._port is None:
                self._port = await self._connection.__aenter__()
            return await self._count(self._port)
        except StoreUnavailable:
            await self.close()
            self._connection = connected(self._here)
            return None

    async def _count(self, port: ServiceConnection) -> int:
        paused = {hold.name for hold in await port.services.queues.paused()}
        running = [await self._number(port, queue, RUNNING) for queue in self._queues]
        waiting = {
            queue: await self._number(port, queue, WAITING) for queue in self._queues if queue not in paused
        }
        all_ = sum(running) + sum(waiting.values())
        if all_ <= self._least:
            return all_
        return sum(running) + sum([await self._startable(port, queue, waiting[queue]) for queue in waiting])

    async def _number(self, port: ServiceConnection, queue: str, states: tuple[str, ...]) -> int:
        query = Query(kind=JOB.name, queue=queue, states=states)
        return (await port.services.jobs.count(query, cap=MAX_COUNT)).number

    async def _startable(self, port: ServiceConnection, queue: str, waiting: int) -> int:
        """Return about how many waiting jobs can start, by the newest ones."""
        share, until = self._shares.get(queue, (1.0, 0.0))
        if not waiting or time.monotonic() < until:
            return math.ceil(waiting * share)
        ready = looked_at = 0
        now = await port.now()
        query = Query(kind=JOB.name, queue=queue, states=WAITING, limit=PAGE, within=PAGES * PAGE)
        for _ in range(PAGES):
            views, cursor = await port.services.jobs.find(query)
            looked_at += len(views)
            ready += sum(view.ready_at is not None and view.ready_at <= now for view in views)
            if not cursor:
                return ready
            if ready >= self._most:
                break
            query = msgspec.structs.replace(query, cursor=cursor)
        else:  # that was expensive
            share = ready / looked_at if looked_at else 1.0
            self._shares[queue] = share, time.monotonic() + BELIEVED_S
        return max(ready, math.ceil(waiting * share))

    async def close(self) -> None:
        """Close the connection."""
        port, self._port = self._port, None
        if port is not None:
            await self._connection.__aexit__(None, None, None)


def _words(chosen: WorkerOptions) -> Iterator[str]:
    """Yield the command line of a worker with the same options."""
    for queue in chosen.queues:
        yield from ("--queue", queue)
    for label in chosen.labels:
        yield from ("--label", label)
    if chosen.slots is not None:
        yield from ("--slots", str(chosen.slots))
    for mount in chosen.mounts:
        yield from ("--mount", mount)
    if chosen.isolate is not None:
        yield from ("--isolate", chosen.isolate)
    if chosen.network is False:
        yield "--no-network"
    options = {
        "--log-level": chosen.log_level,
        "--log-format": chosen.log_format,
        "--job-log-level": chosen.job_log_level,
        "--memory-limit-mb": chosen.memory_limit_mb,
    }
    for option, value in options.items():
        if value is not None:
            yield from (option, str(value))
