"""Steps of the journal as they are shown, in a history and while watching."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from interlock.store.records import Entry


class StepShown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of one machine, or something that was refused."""

    at: datetime
    job_id: str
    version: int
    machine: str
    entity: str = ""
    """Which one of those inside the job, such as the attempt 1.2; empty for the job itself."""
    event: str
    source: str = ""
    target: str = ""
    owner: str = ""
    moves: bool = True
    actor: str = ""
    reason: str = ""
    refused: bool = False

    @property
    def who(self) -> str:
        """The machine, and which one."""
        return f"{self.machine} {self.entity}".rstrip()


def steps_in(entries: Iterable[Entry]) -> Iterator[StepShown]:
    """Every step of these entries, in order; a refusal is a line of its own."""
    for entry in entries:
        note = entry.note
        if note.refusal:
            yield StepShown(
                at=entry.at,
                job_id=entry.id,
                version=entry.version,
                machine=entry.kind,
                event="refused",
                moves=False,
                actor=note.actor,
                reason=note.refusal,
                refused=True,
            )
        for step in note.steps:
            yield StepShown(
                at=entry.at,
                job_id=entry.id,
                version=entry.version,
                machine=step.machine,
                entity=step.entity,
                event=step.event,
                source=step.source,
                target=step.target,
                owner=step.owner,
                moves=step.moves,
                actor=note.actor,
                reason=note.reason,
            )
