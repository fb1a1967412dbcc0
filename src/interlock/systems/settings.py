"""The settings of all systems together, and the share of each.

A system depends only on its own settings; a process with all systems uses these.
"""

from __future__ import annotations

from interlock.systems.fleet.settings import FleetSettings
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.quarantine import QuarantineSettings
from interlock.systems.runs.settings import RunSettings
from interlock.systems.schedules.settings import ScheduleSettings
from interlock.systems.simulations.settings import SimulationSettings
from interlock.systems.supervisor.settings import SupervisorSettings


class Settings(OrchestratorSettings, frozen=True, kw_only=True):
    """Settings of jobs and all other systems."""

    quarantine: QuarantineSettings = QuarantineSettings()
    """Limits of losses before a runner is quarantined."""
    runs: RunSettings = RunSettings()
    """Webhooks that start runs, and reporters of runs."""

    @property
    def fleet(self) -> FleetSettings:
        """The settings of workloads."""
        return FleetSettings(
            abort_kill_s=self.durations.abort_kill_s,
            workload_silence_s=self.durations.workload_silence_s,
        )

    @property
    def schedules(self) -> ScheduleSettings:
        """The settings of schedules."""
        return ScheduleSettings(schedule_look_s=self.durations.schedule_look_s, jobs=self)

    @property
    def simulations(self) -> SimulationSettings:
        """The settings of simulations."""
        return SimulationSettings(
            simulation_stale_s=self.durations.simulation_stale_s,
            simulation_silence_s=self.durations.simulation_silence_s,
            jobs=self,
        )

    @property
    def supervisor(self) -> SupervisorSettings:
        """The settings of registered workers."""
        return SupervisorSettings(
            worker_beat_every_s=self.durations.worker_beat_every_s,
            worker_silence_s=self.durations.worker_silence_s,
            jobs=self,
        )


DEFAULT_SETTINGS = Settings()
