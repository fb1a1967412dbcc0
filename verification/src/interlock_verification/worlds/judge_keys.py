"""The judge of unique keys: it knows the jobs that were created with each key."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from interlock.store.records import Record
from interlock.systems.orchestrator.body import given_of
from interlock.systems.orchestrator.uniqueness import counting
from interlock_verification.claims import DecodedJob
from interlock_verification.worlds.claims.keys import CreatedUniqueJob
from interlock_verification.worlds.network import ClaimWatcher


class KeyJudge:
    """Observes created jobs, and reports those with a unique key."""

    def __init__(
        self, watcher: ClaimWatcher, look_of: Callable[[str], DecodedJob | None], forgotten: set[str]
    ) -> None:
        self._watcher = watcher
        self._look_of = look_of
        self._forgotten = forgotten
        self._jobs: dict[str, list[str]] = {}
        """Of each key, the jobs that were created with it."""

    def created(self, record: Record, now: datetime) -> None:
        """Check a created job against the others with its key."""
        unique = given_of(record).unique
        if unique is None:
            return
        rule, others = counting(unique.rule), self._jobs.setdefault(unique.id, [])
        known = [] if record.id in self._forgotten else [one for one in others if one not in self._forgotten]
        looks = {other: look for other in known if (look := self._look_of(other)) is not None}
        taken = {other: look.state for other, look in looks.items() if rule.counts(_record(look), now)}
        self._watcher.check(CreatedUniqueJob(record.id, taken), record.id)
        if others:
            self._watcher.saw("a unique key is taken again")
        others.append(record.id)

    def refused(self) -> None:
        """Check a submission that was refused because another job has its key."""
        self._watcher.saw("another job has the unique key")


def _record(look: DecodedJob) -> Record:
    value = look.value
    return value if isinstance(value, Record) else value.record()
