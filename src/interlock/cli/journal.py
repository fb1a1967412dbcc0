"""Steps of the journal, for display."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from interlock.cli.output import Sheet, iso, lasting, shown
from interlock.cli.sheets import HISTORY, columns_of_entries
from interlock.store.records import Entry


class JournalStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of one machine, or a refusal."""

    at: datetime
    job_id: str
    version: int
    machine: str
    entity: str = ""
    """The entity inside the job, such as the attempt 1.2; empty for the job itself."""
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
        """The machine and its entity."""
        return f"{self.machine} {self.entity}".rstrip()


def steps_in(entries: Iterable[Entry]) -> Iterator[JournalStep]:
    """Yield every step of these entries in order; a refusal is one step."""
    for entry in entries:
        note = entry.note
        if note.refusal:
            yield JournalStep(
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
            yield JournalStep(
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


def history_sheet(steps: Sequence[JournalStep], *, terminal: bool) -> Sheet:
    """Return the table of all steps, oldest first."""
    first = steps[0].at if steps else None
    rows = [(_clock_time(step.at, first) if terminal else iso(step.at), *_cells(step)) for step in steps]
    return Sheet("step", "", HISTORY, rows, spare=("owner", "actor", "from"))


def entries_sheet(
    title: str, entries: Iterable[Entry], now: datetime, *, terminal: bool, versions: bool, initial: str = ""
) -> Sheet:
    """Return the table of all entries of a record, oldest first.

    The record has one machine. `initial` is the state in which a record is created.
    """
    rows = [
        (
            shown(entry.at, now, terminal=terminal),
            *([str(entry.version)] if versions else ()),
            ", ".join(step.event for step in entry.note.steps) or entry.note.refusal or "created",
            entry.note.steps[-1].target if entry.note.steps else initial,
            entry.note.actor,
            entry.note.reason,
        )
        for entry in entries
    ]
    return Sheet("entry", title, columns_of_entries(versions=versions), rows)


def step_row(step: JournalStep) -> tuple[str, ...]:
    """Return a step of some job, for a pipe."""
    return (iso(step.at), step.job_id, *_cells(step))


def _cells(step: JournalStep) -> tuple[str, ...]:
    source, target = step.source if step.moves else "", "" if step.refused else step.target
    return (step.who, step.event, source, target, step.owner, step.actor, step.reason)


def _clock_time(at: datetime, first: datetime | None) -> str:
    since = (at - first).total_seconds() if first else 0.0
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}  +{lasting(since)}"
