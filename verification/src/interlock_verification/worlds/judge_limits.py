"""The judge of limits: it counts the leased slots of each key."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from interlock.lifecycles import lease
from interlock.store.records import Change
from interlock.systems.orchestrator.limits import DEFINITIONS, LimitBody
from interlock.wire.limits import LimitSpec, definition_of
from interlock_verification.claims import DecodedJob
from interlock_verification.worlds.claims.limits import LeasedSlots
from interlock_verification.worlds.network import ClaimWatcher

FULL = "all slots of a limit are leased"


def limit_changes(limits: Iterable[tuple[str, int]], now: datetime) -> list[Change]:
    """Return the changes that declare these limits."""
    return [
        DEFINITIONS.new(name, LimitBody(spec=LimitSpec(max=most)), now).change(commit_id=f"limit {name}")
        for name, most in limits
    ]


class LimitJudge:
    """Observes jobs, and reports the leased slots of their keys."""

    def __init__(self, watcher: ClaimWatcher) -> None:
        self._watcher = watcher
        self._limits: dict[str, LimitSpec] = {}
        self._leased: dict[str, dict[str, int]] = {}
        """Leased slots by key and job."""
        self._with_lost_writes: set[str] = set()
        """Keys of jobs with writes lost in a fail-over."""

    def declare(self, limits: Iterable[tuple[str, int]]) -> None:
        """Know the limits of a world."""
        self._limits = {name: LimitSpec(max=most) for name, most in limits}

    def job_written(self, job_id: str, look: DecodedJob) -> None:
        """Handle a changed job."""
        limits = look.body.limits
        assert limits is not None
        live = sum(one.lease is not None and one.lease.state in lease.LIVE for one in look.body.attempts)
        for key in limits.keys:
            holders = self._leased.setdefault(key, {})
            holders.pop(job_id, None)
            if live:
                holders[job_id] = limits.weight * live
            self._check(key, job_id)

    def lost(self, job_id: str, look: DecodedJob) -> None:
        """Handle a job with writes lost in a fail-over."""
        assert look.body.limits is not None
        for key in look.body.limits.keys:
            self._leased.get(key, {}).pop(job_id, None)
            self._with_lost_writes.add(key)

    def _check(self, key: str, job_id: str) -> None:
        name = definition_of(key, self._limits)
        most = self._limits[name].max if name is not None else None
        if most is None:
            return
        slots = LeasedSlots(key, sum(self._leased[key].values()), most)
        if slots.leased == most:
            self._watcher.saw(FULL)
        if key not in self._with_lost_writes:
            self._watcher.check(slots, job_id)
