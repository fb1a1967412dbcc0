"""The one entry point: `run_worker` is what the command line, a container and tests call.

It must be called in the main thread of a process, which it takes over: signals, logging, the event
loop, and the end. Exit code 0: every task ended or was given back. 1: the shutdown had to be forced.
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
from interlock.processes import credentials, sandbox
from interlock.processes.groups import Orphans, descendants
from interlock.worker.captured_output import capturing
from interlock.worker.environment import Meters, WorkerHost
from interlock.worker.host import HURRY_S, Shutdown, done_within, heeding_signals
from interlock.worker.pool import pool_of_this_process, say_ready
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
"""How long tasks of the event loop have to end when they are cancelled."""


def run_worker(
    settings: WorkerSettings,
    registry: Registry,
    connect: Callable[[], OrchestratorPort],
    shutdown: Shutdown | None = None,
) -> int:
    """Run a worker under its instance name until somebody asks it to go; gives the exit code.

    Whoever heeds signals already, because loading the tasks takes long, hands over what was asked.
    """
    shutdown = shutdown or Shutdown()
    credentials.take()
    credentials.make_private()
    sandbox.check(settings.sandbox)
    incarnation = secrets.token_hex(4)
    say_ready(incarnation)
    log = make_log(settings.log_level, settings.log_format)
    if os.geteuid() == 0 and not sandbox.Sandbox(settings.sandbox).isolates:
        log.warning("steps_run_as_root", todo="Start the worker as another user, or with --isolate user.")
    libraries = libraries_logging("warning", settings.log_format)
    captured = capturing(settings.job_log_level)
    with heeding_signals(shutdown), libraries, captured, _metrics(settings, log) as metrics:
        process = WorkerProcess(
            settings,
            registry,
            connect,
            incarnation=incarnation,
            log=log,
            shutdown=shutdown,
            meters=Meters(metrics=metrics, tracing=tracing_if_configured()),
            host=WorkerHost(also=_duties(settings, shutdown, log)),
        )
        return _run(process)


def calm_collector() -> None:
    """Have the garbage collector look less often, and never again at what is there for good.

    What a job leaves behind is freed without it. With the defaults of Python it would look through every
    module a few times a second, which was a tenth of the work of a busy worker, in pauses of 30 ms. Whoever
    has chosen thresholds of their own keeps them.
    """
    if gc.get_threshold() == _DEFAULT_THRESHOLDS:
        gc.set_threshold(*_CALM_THRESHOLDS)
    gc.collect()
    gc.freeze()


def _run(process: WorkerProcess) -> int:
    """Run it in a loop of its own, which does not wait for handlers that nobody could stop."""
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
    """What the supervisor's thread sees to, besides the loops."""
    hard_s = settings.durations.shutdown_deadline_s - min(
        _BEFORE_DEADLINE_S, settings.durations.shutdown_deadline_s / 40
    )

    def leave_if_overdue() -> None:
        """A handler that blocks the event loop must not keep the process from ending."""
        asked_at = shutdown.requested_at
        limit_s = min(hard_s, HURRY_S) if shutdown.hurried else hard_s
        if asked_at is not None and shutdown.awake() >= asked_at + limit_s:
            log.error("shutdown_forced", reason="the event loop did not answer in time")
            _leave(FORCED)

    pool = pool_of_this_process()

    def go_with_the_pool() -> None:
        """A pool that was killed is started again with workers of its own."""
        if not shutdown.requested and str(os.getppid()) != pool:
            log.warning("pool_gone", pool_pid=pool)
            shutdown.request()

    reaps = os.getpid() == 1 if settings.reap_orphans is None else settings.reap_orphans
    duties: list[Callable[[], object]] = [leave_if_overdue]
    duties += [go_with_the_pool] if pool else []
    return duties + ([Orphans().fetch] if reaps else [])


def _leave(code: int) -> None:
    """End this process now, and everything that it has started."""
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    os._exit(code)
