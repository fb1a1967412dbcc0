"""The audit: a journal that agrees passes, and every way in which it can disagree is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from interlock.engine.audit import audit, faults_of
from interlock.store.memory import MemoryStore
from interlock.store.records import (
    Change,
    Commit,
    Entry,
    Feed,
    JournalledRefusal,
    Key,
    Note,
    Record,
    StepLine,
)

MakeChange = Callable[..., Change]
P = Key("parcel", "p")


async def a_life(store: MemoryStore, make_change: MakeChange) -> tuple[Record, list[Entry]]:
    """Pack, send and deliver a parcel, with a refusal in between."""
    for expected, state in enumerate(("packed", "sent", "delivered")):
        change = make_change("p", expected, state, actor="me")
        refusals = (
            (JournalledRefusal(kind="parcel", id="p", note=Note(refusal="too late")),)
            if expected == 1
            else ()
        )
        await store.commit([Commit(changes=(change,), refusals=refusals)])
    (record,) = await store.load([P])
    assert record is not None
    return record, list((await store.history(P)).entries)


def sentences(record: Record, entries: list[Entry], parcel: Any) -> list[str]:
    return [fault.sentence for fault in faults_of(record, entries, {"parcel": parcel})]


async def test_a_journal_that_agrees_has_no_faults(
    store: MemoryStore, make_change: MakeChange, parcel: Any
) -> None:
    await a_life(store, make_change)
    found = await audit(store, {"parcel": parcel}, ["parcel"])
    assert (found.records, found.entries, found.steps, found.refusals, found.faults) == (1, 4, 2, 1, [])


def rewritten(entry: Entry, **step: str) -> Entry:
    (line,) = entry.note.steps
    steps = (msgspec.structs.replace(line, **step),)
    return msgspec.structs.replace(entry, note=msgspec.structs.replace(entry.note, steps=steps))


async def test_an_entry_that_was_removed_is_missed(
    store: MemoryStore, make_change: MakeChange, parcel: Any
) -> None:
    record, entries = await a_life(store, make_change)
    for gone in (1, 3):
        left = [entry for place, entry in enumerate(entries) if place != gone]
        assert sentences(record, left, parcel) != []


async def test_a_step_that_the_table_does_not_have_is_found(
    store: MemoryStore, make_change: MakeChange, parcel: Any
) -> None:
    record, entries = await a_life(store, make_change)
    entries[1] = rewritten(entries[1], event="teleport")
    assert any("not in the table" in sentence for sentence in sentences(record, entries, parcel))


async def test_a_step_that_starts_elsewhere_is_found(
    store: MemoryStore, make_change: MakeChange, parcel: Any
) -> None:
    record, entries = await a_life(store, make_change)
    entries[-1] = rewritten(entries[-1], source="packed")
    found = sentences(record, entries, parcel)
    assert any("but it was sent" in sentence for sentence in found)


async def test_the_audit_finds_a_record_whose_state_differs_from_its_journal(
    store: MemoryStore, make_change: MakeChange, parcel: Any
) -> None:
    record, entries = await a_life(store, make_change)
    forged = msgspec.structs.replace(record, state="sent")
    assert "replaying ends in delivered, but the record is sent" in sentences(forged, entries, parcel)


async def test_a_record_without_a_journal_is_found(
    store: MemoryStore, make_change: MakeChange, parcel: Any
) -> None:
    record, _ = await a_life(store, make_change)
    assert "the journal has no entry of it" in sentences(record, [], parcel)


async def test_a_journal_that_is_ahead_of_its_record_or_runs_backwards_is_found(
    store: MemoryStore, make_change: MakeChange, parcel: Any
) -> None:
    record, entries = await a_life(store, make_change)
    behind = msgspec.structs.replace(record, version=2)
    assert any("ahead of the record" in sentence for sentence in sentences(behind, entries, parcel))
    backwards = [entries[0], entries[3], entries[1]]
    assert any("does not follow" in sentence for sentence in sentences(record, backwards, parcel))


@pytest.mark.parametrize("machine", ["lorry", "parcel"])
async def test_machines_inside_a_record_are_replayed_beside_it(
    store: MemoryStore, make_change: MakeChange, parcel: Any, machine: str
) -> None:
    record, entries = await a_life(store, make_change)
    inner = StepLine(machine, "another", "deliver", "sent", "delivered", "carrier")
    note = msgspec.structs.replace(entries[1].note, steps=(*entries[1].note.steps, inner))
    entries[1] = msgspec.structs.replace(entries[1], note=note)
    found = sentences(record, entries, parcel)
    expected = "unknown machine 'lorry'" if machine == "lorry" else "starts in sent, but it was packed"
    assert any(expected in sentence for sentence in found)


async def test_a_record_that_changes_while_it_is_audited_is_not_accused(
    store: MemoryStore, make_change: MakeChange, parcel: Any
) -> None:
    """The page that has the record is read before its journal."""
    await store.commit([Commit(changes=(make_change("p", 0, "packed"),))])

    class AtWork(MemoryStore):
        moved = False

        async def history(self, key: Key, *, after_version: int = 0, limit: int = 1_000) -> Feed:
            if not self.moved:
                self.moved = True
                await store.commit([Commit(changes=(make_change("p", 1, "sent"),))])
            return await super().history(key, after_version=after_version, limit=limit)

    at_work = AtWork(store._catalogue)
    at_work.__dict__.update(store.__dict__)
    found = await audit(at_work, {"parcel": parcel}, ["parcel"])
    assert (at_work.moved, found.faults) == (True, [])
