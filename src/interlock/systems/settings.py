"""The settings of all systems together.

A system depends on its own settings only; whoever runs all of them has these.
"""

from __future__ import annotations

from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.quarantine import QuarantineSettings
from interlock.systems.runs.settings import RunSettings


class Settings(OrchestratorSettings, frozen=True, kw_only=True):
    """Settings of jobs, and of what else there is besides them."""

    quarantine: QuarantineSettings = QuarantineSettings()
    """When a runner that keeps losing work is given no more."""
    runs: RunSettings = RunSettings()
    """Webhooks that start runs, and who is notified about runs."""


DEFAULT_SETTINGS = Settings()
