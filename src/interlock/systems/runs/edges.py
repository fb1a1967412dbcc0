"""What comes in and what goes out, as it is configured: who may start runs, and who is told about them."""

from __future__ import annotations

import msgspec

from interlock.systems.runs.reporting.settings import ReportingSettings
from interlock.systems.runs.triggers.rules import TriggerSettings


class Edges(msgspec.Struct, frozen=True, kw_only=True):
    """Where runs meet the outside."""

    triggers: TriggerSettings = TriggerSettings()
    reporting: ReportingSettings = ReportingSettings()
    lacking: tuple[str, ...] = ()
    """What is configured but has no secret in this process, in words; it is left to others, or refused."""
