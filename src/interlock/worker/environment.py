"""The shared environment of a worker process: its identity, clocks, log, and observers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property

import msgspec

from interlock.processes import credentials
from interlock.processes.masks import Mask
from interlock.worker.host import MACHINE, AwakeTime, Threads, local_time, since_boot
from interlock.worker.port import OrchestratorPort
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import Registry
from interlock.worker.telemetry import Log, Metrics, Observer
from interlock.worker.tracing import AttemptSpans


class WorkerHost(msgspec.Struct, frozen=True, kw_only=True):
    """The host of a worker, which tests and simulated worlds replace."""

    monotonic: Callable[[], float] = since_boot
    local: Callable[[], datetime] = local_time
    threads: Threads = MACHINE
    also: Sequence[Callable[[], object]] = ()
    """Additional duties of the watchdog's thread, on each round."""


HERE = WorkerHost()


class Meters(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics and tracing of a worker."""

    metrics: Metrics | None = None
    tracing: AttemptSpans | None = None


NO_METERS = Meters()


class WorkerEnv(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The shared environment of a process and its components."""

    runner_id: str
    settings: WorkerSettings
    registry: Registry
    connect: Callable[[], OrchestratorPort]
    log: Log
    watch: Observer
    metrics: Metrics | None
    tracing: AttemptSpans | None
    now: Callable[[], datetime]
    awake: AwakeTime
    host: WorkerHost

    @property
    def monotonic(self) -> Callable[[], float]:
        """The clock for leases."""
        return self.host.monotonic

    @property
    def threads(self) -> Threads:
        """The factory of threads."""
        return self.host.threads

    @cached_property
    def mask(self) -> Mask:
        """Removes the credentials of this process from the output of handlers."""
        return Mask(credentials.held())
