"""Check that the journal and the records agree.

The journal is replayed, record by record: every step has to start where the previous one ended and be
allowed by the table, and the last one has to end in the state of the record. Machines inside a record (the
attempts and leases of a job) are replayed beside it.

Why: decision 0053.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from interlock.engine.loader import every_entry, every_record
from interlock.machine import Machine
from interlock.store.contract import Store
from interlock.store.records import Entry, Record, StepLine

_LOOKS = 5
"""Number of reads of a constantly changing record before a fault is reported."""


class AuditFault(msgspec.Struct, frozen=True):
    """A disagreement between journal and records."""

    kind: str
    id: str
    version: int
    sentence: str


class Audit(msgspec.Struct):
    """The counts and faults of an audit."""

    records: int = 0
    entries: int = 0
    steps: int = 0
    refusals: int = 0
    faults: list[AuditFault] = msgspec.field(default_factory=list)


async def audit(store: Store, machines: Mapping[str, Machine[Any, Any]], kinds: Sequence[str]) -> Audit:
    """Replay the journal of every record of these kinds."""
    found = Audit()
    for kind in kinds:
        async for record in every_record(store, kind):
            entries = [entry async for entry in every_entry(store, record.key)]
            found.records += 1
            found.entries += len(entries)
            found.steps += sum(len(entry.note.steps) for entry in entries)
            found.refusals += sum(bool(entry.note.refusal) for entry in entries)
            if faults := faults_of(record, entries, machines):
                faults = await _looked_again(store, record, faults, machines)
            found.faults += faults
    return found


async def _looked_again(
    store: Store, record: Record, faults: list[AuditFault], machines: Mapping[str, Machine[Any, Any]]
) -> list[AuditFault]:
    """Return the faults that remain without a change in between.

    The record and the journal are read again. The record was read in a page, and its journal later: on an
    active store these are not consistent.
    """
    for _ in range(_LOOKS):
        [before] = await store.load([record.key])
        entries = [entry async for entry in every_entry(store, record.key)]
        [after] = await store.load([record.key])
        if before is None or after is None:
            return []  # it was pruned
        faults = faults_of(before, entries, machines)
        if not faults or before.version == after.version:
            break
    return faults


def faults_of(
    record: Record, entries: Sequence[Entry], machines: Mapping[str, Machine[Any, Any]]
) -> list[AuditFault]:
    """Return all faults in the journal of one record."""
    sentences = [*_misnumbered(record, entries), *_misplaced(record, entries, machines)]
    return [AuditFault(record.kind, record.id, version, sentence) for version, sentence in sentences]


def _misnumbered(record: Record, entries: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    before = 0
    for entry in entries:
        if not entry.note.refusal and entry.version <= before:
            yield entry.version, f"its version does not follow {before}"
        before = max(before, entry.version)
    if before > record.version:
        yield before, f"the journal is ahead of the record, which is in version {record.version}"
    if not entries:
        yield record.version, "the journal has no entry of it"


def _misplaced(
    record: Record, entries: Sequence[Entry], machines: Mapping[str, Machine[Any, Any]]
) -> Iterator[tuple[int, str]]:
    """Replay every machine in the journal, each from its initial state."""
    states: dict[tuple[str, str], str] = {}
    if record.kind in machines:
        states[record.kind, record.id] = str(machines[record.kind].initial)
    for entry in entries:
        for step in entry.note.steps:
            who = (step.machine, step.entity or record.id)  # without a name it is the record itself
            if step.machine not in machines:
                yield entry.version, f"it names the unknown machine {step.machine!r}"
                continue
            here = states.setdefault(who, str(machines[step.machine].initial))
            if step.source != here:
                yield entry.version, f"{_step_text(step)} starts in {step.source}, but it was {here}"
            if not _legal(machines[step.machine], step):
                yield entry.version, f"{_step_text(step)} is not in the table"
            states[who] = step.target
    last = states.get((record.kind, record.id), record.state)
    if last != record.state:
        yield record.version, f"replaying ends in {last}, but the record is {record.state}"


def _legal(machine: Machine[Any, Any], step: StepLine) -> bool:
    if step.source not in machine.states:
        return False
    return any(
        (known.event, known.target, known.moves) == (step.event, step.target, step.moves)
        for known in machine.steps_at(machine.state(step.source))
    )


def _step_text(step: StepLine) -> str:
    return f"{step.machine} {step.entity}: {step.event} from {step.source} to {step.target}"
