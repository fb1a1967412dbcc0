"""Unique keys in a world: no job is created while another one with its key counts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from interlock.store.records import Record
from interlock.systems.orchestrator.body import given_of
from interlock.systems.orchestrator.uniqueness import counting
from interlock_verification.claims import DecodedJob
from interlock_verification.worlds.network import ClaimWatcher

ONE = "at most one job with a unique key counts"


class KeyJudge:
    """Reads along with the store, and asks every claim about unique keys."""

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
        for other in others:
            look = self._look_of(other)
            if look is None or {other, record.id} & self._forgotten:
                continue
            if rule.counts(_record(look), now):
                self._watcher.broke(ONE, f"{record.id} is created, and {other} is {look.state}", record.id)
        if others:
            self._watcher.saw("a unique key is taken again")
        others.append(record.id)

    def refused(self) -> None:
        """Check a submission that was refused because another job has its key."""
        self._watcher.saw("another job has the unique key")


def _record(look: DecodedJob) -> Record:
    value = look.value
    return value if isinstance(value, Record) else value.record()
