"""Settings of schedules: when a waiting fire is looked at again, and what limits its job."""

from __future__ import annotations

import msgspec

from interlock.lifecycles.durations import DEFAULTS
from interlock.systems.orchestrator.settings import DEFAULT_SETTINGS as DEFAULT_JOB_SETTINGS
from interlock.systems.orchestrator.settings import OrchestratorSettings


class ScheduleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The interval of checks of waiting fires, and the settings of jobs."""

    schedule_look_s: float = DEFAULTS.schedule_look_s
    jobs: OrchestratorSettings = DEFAULT_JOB_SETTINGS
    """Settings of the jobs that schedules submit and cancel."""
