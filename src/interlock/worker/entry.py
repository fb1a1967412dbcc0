"""The entry point of a worker: the command line, containers and tests call `run_worker`.

It must be called in the main thread of a process, which it takes over: signals, logging, the event loop, and
the exit. Exit code 0: every task ended or was released. 1: the shutdown was forced.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import secrets
import signal
from collections.abc import Callable, Iterator

from interlock.errors import InvalidSettings
from interlock.lifecycles.durations import HURRY_S
from interlock.processes import credentials, sandbox
from interlock.processes.groups import Orphans, descendants
from interlock.worker.captured_output import capturing
from interlock.worker.environment import Meters, WorkerHost
from interlock.worker.host import Shutdown, done_within, handling_signals
from interlock.worker.pool import pool_of_this_process, report_ready
from interlock.worker.port import OrchestratorPort
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import Registry
from interlock.worker.telemetry import Log, Metrics, libraries_logging, make_log
from interlock.worker.tracing import tracing_if_configured

FORCED = 1
_DEFAULT_THRESHOLDS, _CALM_THRESHOLDS = (700, 10, 10), (10_000, 20, 20)
_BEFORE_DEADLINE_S = 0.25
_LAST_TURNS_S = 0.4
"""Deadline for cancelled tasks of the event loop."""


def run_worker(
    settings: WorkerSettings,
    registry: Registry,
    connect: Callable[[], OrchestratorPort],
    shutdown: Shutdown | None = None,
) -> int:
    """Run a worker until it has to shut down; return the exit code.

    A caller that handles signals already, because loading the tasks takes long, passes its `shutdown`.
    """
    shutdown = shutdown or Shutdown()
    credentials.take()
    credentials.make_private()
    sandbox.check(settings.sandbox)
    incarnation = secrets.token_hex(4)
    report_ready(incarnation)
    log = make_log(settings.log_level, settings.log_format)
    if os.geteuid() == 0 and not sandbox.Sandbox(settings.sandbox).isolates:
        log.warning("steps_run_as_root", todo="Start the worker as another user, or with --isolate user.")
    libraries = libraries_logging("warning", settings.log_format)
    captured = capturing(settings.job_log_level)
    with handling_signals(shutdown), libraries, captured, _metrics(settings, log) as metrics:
        process = WorkerProcess(
            settings,
            registry,
            connect,
            incarnation=incarnation,
            log=log,
            shutdown=shutdown,
            meters=Meters(metrics=metrics, tracing=tracing_if_configured(log=log)),
            host=WorkerHost(also=_duties(settings, shutdown, log)),
        )
        return _run(process)


def calm_collector() -> None:
    """Make the garbage collector run less often, and freeze existing objects.

    Objects of a job are freed by reference counting. With Python's defaults the collector would traverse
    every module a few times a second, which was a tenth of the work of a busy worker, in pauses of 30 ms.
    Thresholds set by the program are kept.
    """
    if gc.get_threshold() == _DEFAULT_THRESHOLDS:
        gc.set_threshold(*_CALM_THRESHOLDS)
    gc.collect()
    gc.freeze()


def _run(process: WorkerProcess) -> int:
    """Run the process in a new event loop; return the exit code.

    The loop does not wait for handlers that cannot be stopped.
    """
    calm_collector()
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(process.run())
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(done_within(asyncio.gather(*left, return_exceptions=True), _LAST_TURNS_S))
        if any(not task.done() for task in left):
            _leave(FORCED)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@contextlib.contextmanager
def _metrics(settings: WorkerSettings, log: Log) -> Iterator[Metrics | None]:
    if settings.metrics_port is None:
        yield None
        return
    metrics = Metrics(settings.name)
    try:
        port, stop = metrics.serve(settings.metrics_port)
    except OSError as error:
        raise InvalidSettings(
            f"Metrics cannot be served on port {settings.metrics_port}: {error.strerror}.",
            todo="Give another port, or 0 for any that is free.",
            facts={"metrics_port": settings.metrics_port},
        ) from error
    log.info("metrics_served", port=port)
    try:
        yield metrics
    finally:
        stop()


def _duties(settings: WorkerSettings, shutdown: Shutdown, log: Log) -> list[Callable[[], object]]:
    """Return the additional duties of the watchdog's thread."""
    hard_s = settings.durations.shutdown_deadline_s - min(
        _BEFORE_DEADLINE_S, settings.durations.shutdown_deadline_s / 40
    )

    def leave_if_overdue() -> None:
        """Exit after the deadline, even if a handler blocks the event loop."""
        requested_at = shutdown.requested_at
        limit_s = min(hard_s, HURRY_S) if shutdown.hurried else hard_s
        if requested_at is not None and shutdown.awake() >= requested_at + limit_s:
            log.error("shutdown_forced", reason="the event loop did not answer in time")
            _leave(FORCED)

    pool = pool_of_this_process()

    def shut_down_with_pool() -> None:
        """Shut down when the pool was killed: it is restarted with new workers."""
        if not shutdown.requested and str(os.getppid()) != pool:
            log.warning("pool_gone", pool_pid=pool)
            shutdown.request()

    reaps = os.getpid() == 1 if settings.reap_orphans is None else settings.reap_orphans
    duties: list[Callable[[], object]] = [leave_if_overdue]
    duties += [shut_down_with_pool] if pool else []
    return duties + ([Orphans().fetch] if reaps else [])


def _leave(code: int) -> None:
    """Exit now, and kill all child processes."""
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    os._exit(code)
