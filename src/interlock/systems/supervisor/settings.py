"""Settings of registered workers: their heartbeat, and the silence that ends them."""

from __future__ import annotations

import msgspec

from interlock.lifecycles.durations import DEFAULTS
from interlock.systems.orchestrator.settings import DEFAULT_SETTINGS as DEFAULT_JOB_SETTINGS
from interlock.systems.orchestrator.settings import OrchestratorSettings


class SupervisorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Timers of registered workers, and the settings of the jobs that they hold."""

    worker_beat_every_s: float = DEFAULTS.worker_beat_every_s
    worker_silence_s: float = DEFAULTS.worker_silence_s
    jobs: OrchestratorSettings = DEFAULT_JOB_SETTINGS
    """Settings of the jobs whose leases end with a worker."""


DEFAULT_SETTINGS = SupervisorSettings()
