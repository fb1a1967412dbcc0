"""Settings of workloads: the timers of their records."""

from __future__ import annotations

import msgspec

from interlock.lifecycles.durations import DEFAULTS


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Timers of the record of a workload; those of its table are run by the agent."""

    abort_kill_s: float = DEFAULTS.abort_kill_s
    workload_silence_s: float = DEFAULTS.workload_silence_s


DEFAULT_SETTINGS = FleetSettings()
