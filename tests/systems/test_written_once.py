"""Records that are settled by one step: what stores and journals have of them, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.engine.aggregate import WriteOnce
from interlock.errors import TransitionRefused
from interlock.machine import Moved
from interlock.store.memory import MemoryStore
from interlock.store.records import Commit, Committed, Illegal, Note, Record, StepLine
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.orchestrator.attachments import ARTIFACT, CHILDREN, LOG, RESULT
from interlock.systems.orchestrator.body import TREE
from interlock.systems.runs.plans import PLAN

KEPT_BESIDE_A_JOB = ("open", "keep", "kept", "discard", "discarded")
STORED: list[tuple[WriteOnce[Any], tuple[str, ...]]] = [
    (LOG, KEPT_BESIDE_A_JOB),
    (RESULT, KEPT_BESIDE_A_JOB),
    (CHILDREN, KEPT_BESIDE_A_JOB),
    (ARTIFACT, KEPT_BESIDE_A_JOB),
    (PLAN, ("in_use", "settle", "kept", "discard", "discarded")),
    (TREE, ("open", "close", "closed", "drop", "dropped")),
]
"""Names that stores and journals have, so they stay as they are."""
ALL = pytest.mark.parametrize(("kind", "names"), [pytest.param(*each, id=each[0].name) for each in STORED])


async def wrote(store: MemoryStore, kind: WriteOnce[Any], name: str, **words: Any) -> Record:
    change = kind.change(name, b"{}", actor="worker", commit_id="m1", **words)
    [outcome] = await store.commit([Commit(changes=(change,))])
    assert isinstance(outcome, Committed)
    [record] = await store.load([change.key])
    assert record is not None
    return record


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore(CATALOGUE)
    await store.open()
    return store


@ALL
async def test_a_record_can_be_settled_when_it_is_created(
    store: MemoryStore, kind: WriteOnce[Any], names: tuple[str, ...]
) -> None:
    opened, settle, settled, _, _ = names
    record = await wrote(store, kind, "a", settle=True, parent="p")
    assert (record.kind, record.state, record.parent, record.version) == (kind.name, settled, "p", 1)
    [entry] = (await store.history(record.key)).entries
    line = StepLine(kind.name, "", settle, opened, settled, "orchestrator")
    assert entry.note == Note(steps=(line,), actor="worker", request_id="m1")


@ALL
async def test_a_record_that_was_created_open_is_settled_later_and_only_that_is_journalled(
    store: MemoryStore, kind: WriteOnce[Any], names: tuple[str, ...]
) -> None:
    opened, settle, settled, _, _ = names
    created = await wrote(store, kind, "a", settle=False, parent="p")
    written = await wrote(store, kind, "a", settle=False, before=created)
    assert (written.state, written.version, written.parent) == (opened, 2, "p")
    record = await wrote(store, kind, "a", settle=True, before=written)
    assert (record.state, record.version, record.parent) == (settled, 3, "p")
    entries = (await store.history(record.key)).entries
    assert [(entry.version, [step.event for step in entry.note.steps]) for entry in entries] == [
        (1, []),
        (3, [settle]),
    ]


@ALL
async def test_a_record_that_is_settled_is_neither_settled_again_nor_opened(
    store: MemoryStore, kind: WriteOnce[Any], names: tuple[str, ...]
) -> None:
    record = await wrote(store, kind, "a", settle=True)
    with pytest.raises(TransitionRefused):
        kind.change("a", b"{}", settle=True, before=record, actor="", commit_id="m2")
    reopened = kind.change("a", b"{}", settle=False, before=record, actor="", commit_id="m3")
    [outcome] = await store.commit([Commit(changes=(reopened,))])
    assert isinstance(outcome, Illegal)


@ALL
def test_an_operator_can_drop_an_open_write_once_record(kind: WriteOnce[Any], names: tuple[str, ...]) -> None:
    opened, _, _, drop, dropped = names
    decided = kind.decide(kind.state(opened), None, kind.event(drop)())
    assert isinstance(decided, Moved)
    assert [(step.target, step.owner) for step in decided.steps] == [(dropped, "operator")]
