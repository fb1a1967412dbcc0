"""Retention of ended jobs by outcome, and of the records that belong to them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec

from interlock.engine.retention import Retention
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB
from interlock.systems.orchestrator.attachments import ARTIFACT, CHILDREN, LOG, RESULT
from interlock.systems.orchestrator.body import TREE
from interlock.systems.orchestrator.dead_letters import DEAD_LETTER
from interlock.systems.orchestrator.wait_records import JOB_WAIT
from interlock.text import read_duration

LEAST = timedelta(hours=1)
"""A parent has to find the results of its children, and a waiting client that of its job."""
BESIDE = (LOG.name, RESULT.name, CHILDREN.name, ARTIFACT.name, TREE.name, JOB_WAIT.name)
"""Records beside a job, which do not know how it has ended: kept for as long as any job is."""
_OUTCOMES = {"completed": job.COMPLETED, "failed": job.FAILED, "canceled": job.CANCELED}


class QueueRetention(msgspec.Struct, frozen=True, kw_only=True):
    """Retention of the jobs of one queue by outcome; empty is as for all queues."""

    completed: str = ""
    failed: str = ""
    canceled: str = ""

    def ages(self) -> dict[str, timedelta]:
        """Return the retention that is set, by final state."""
        texts: dict[str, str] = msgspec.structs.asdict(self)
        return {str(_OUTCOMES[name]): read_duration(text) for name, text in texts.items() if text}


class RetentionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Retention of jobs by outcome and of everything else: `12h`, `7d`; empty keeps the default."""

    completed: str = ""
    failed: str = ""
    canceled: str = ""
    other: str = ""
    queues: dict[str, QueueRetention] = msgspec.field(default_factory=dict)
    """Retention of the jobs of single queues, by name."""

    def faults(self) -> Iterator[str]:
        """Yield what cannot be used."""
        yield from _bad_ages("retention", self._texts())
        for queue, ages in self.queues.items():
            if not queue:
                yield "retention.queues has a queue without a name"
            yield from _bad_ages(f"retention.queues.{queue}", msgspec.structs.asdict(ages))

    def over(self, base: Retention) -> Retention:
        """Return the retention with these settings."""
        ages = {name: read_duration(text) for name, text in self._texts().items() if text}
        queues = {name: own for name, one in self.queues.items() if (own := one.ages())}
        if not ages and not queues:
            return base
        general = Retention(ages.get("other", base.default), base.by_kind)
        of_jobs = {str(state): ages.get(name, general.of(JOB.name)) for name, state in _OUTCOMES.items()}
        kept = Retention(general.default, base.by_kind, {JOB.name: of_jobs}, {JOB.name: queues})
        last = kept.longest().by_state[JOB.name]
        beside = {name: max(*last.values(), general.of(name)) for name in BESIDE}
        # What was done about a dead letter, for as long as the job: else it would be one again.
        letters = {DEAD_LETTER.name: max(last[job.FAILED], general.of(DEAD_LETTER.name))}
        return msgspec.structs.replace(kept, by_kind={**base.by_kind, **beside, **letters})

    def _texts(self) -> dict[str, str]:
        return {name: text for name, text in msgspec.structs.asdict(self).items() if name != "queues"}


def _bad_ages(section: str, texts: dict[str, str]) -> Iterator[str]:
    for name, text in texts.items():
        try:
            if text and read_duration(text) < LEAST:
                yield f"{section}.{name} is {text} and must be at least 1h"
        except ValueError as error:
            yield f"{section}.{name}: {error}"
