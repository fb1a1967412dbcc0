"""What the parts of a worker process share: who the worker is, its clocks, its log, and what watches it."""

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
from interlock.worker.tracing import Tracing


class WorkerHost(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that a worker runs on, as far as it can be another one in tests and in simulated worlds."""

    monotonic: Callable[[], float] = since_boot
    local: Callable[[], datetime] = local_time
    threads: Threads = MACHINE
    also: Sequence[Callable[[], object]] = ()
    """What the watchdog's thread does besides, each time that it looks."""


HERE = WorkerHost()


class Meters(msgspec.Struct, frozen=True, kw_only=True):
    """Where a worker's figures and traces go, beside its log."""

    metrics: Metrics | None = None
    tracing: Tracing | None = None


NO_METERS = Meters()


class WorkerEnv(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What a process shares with its crew."""

    runner_id: str
    settings: WorkerSettings
    registry: Registry
    connect: Callable[[], OrchestratorPort]
    log: Log
    watch: Observer
    metrics: Metrics | None
    tracing: Tracing | None
    now: Callable[[], datetime]
    awake: AwakeTime
    host: WorkerHost

    @property
    def monotonic(self) -> Callable[[], float]:
        """The clock that leases are watched by."""
        return self.host.monotonic

    @property
    def threads(self) -> Threads:
        """Where threads come from."""
        return self.host.threads

    @cached_property
    def mask(self) -> Mask:
        """Takes what this process holds as credentials out of whatever handlers say."""
        return Mask(credentials.held())
