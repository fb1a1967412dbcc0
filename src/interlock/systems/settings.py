"""The settings of all systems together.

A system depends only on its own settings; a process with all systems uses these.
"""

from __future__ import annotations

from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.quarantine import QuarantineSettings
from interlock.systems.runs.settings import RunSettings


class Settings(OrchestratorSettings, frozen=True, kw_only=True):
    """Settings of jobs and all other systems."""

    quarantine: QuarantineSettings = QuarantineSettings()
    """Limits of losses before a runner is quarantined."""
    runs: RunSettings = RunSettings()
    """Webhooks that start runs, and reporters of runs."""


DEFAULT_SETTINGS = Settings()
