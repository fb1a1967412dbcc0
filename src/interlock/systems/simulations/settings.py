"""Settings of simulations: when one counts as stale or silent, and the limits of its job."""

from __future__ import annotations

import msgspec

from interlock.lifecycles.durations import DEFAULTS
from interlock.systems.orchestrator.settings import DEFAULT_SETTINGS as DEFAULT_JOB_SETTINGS
from interlock.systems.orchestrator.settings import OrchestratorSettings


class SimulationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Timers of simulations, and the settings of the jobs that execute them."""

    simulation_stale_s: float = DEFAULTS.simulation_stale_s
    simulation_silence_s: float = DEFAULTS.simulation_silence_s
    jobs: OrchestratorSettings = DEFAULT_JOB_SETTINGS
    """Settings of the jobs that execute simulations; their limits hold for checkpoints and results too."""


DEFAULT_SETTINGS = SimulationSettings()
