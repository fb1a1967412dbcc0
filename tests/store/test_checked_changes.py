"""A commit of many changes is checked like its changes in commits of their own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.effort import pick

from interlock.engine.outbox import MESSAGE
from interlock.errors import InterlockError
from interlock.store.catalogue import catalogue_of
from interlock.store.records import Change, Commit, Note
from interlock.store.validation import check_commits

CATALOGUE = catalogue_of((MESSAGE,))
AT = datetime(2026, 11, 18, 12, tzinfo=UTC)
COMMON = Change(
    kind=MESSAGE.name, id="", expected=0, state=str(MESSAGE.initial), body=b"{}", note=Note(actor="a")
)
DIFFERENCES: dict[str, list[Any]] = {
    "id": ["", "x\n", "x" * 65, "y", "z"],
    "kind": ["nothing"],
    "state": ["nowhere"],
    "expected": [-1, 1],
    "expected_at": [AT, AT.replace(tzinfo=None), AT.replace(year=1950)],
    "body": [b"{", b"[" + b"1," * 600 + b"1]", b"[]"],
    "given": [b"{", b"[]", b"[" + b"1," * 600 + b"1]"],
    "result": [b"{", b"1", b"[" + b"1," * 600 + b"1]"],
    "parent": ["", "p"],
    "queue": ["", "q"],
    "labels": [("b", "a"), ("a",)],
    "priority": [10**6, 1],
    "ready_at": [AT],
    "handler": ["h\n", "h"],
    "deadline_at": [AT, AT.replace(tzinfo=None)],
    "note": [Note(actor="\ud800"), Note(actor="b"), None],
}


def fault_in(commits: list[Commit]) -> str:
    """Return the error of the first invalid commit."""
    try:
        check_commits(CATALOGUE, commits, 1_000)
    except InterlockError as error:
        return f"{error.code} {error.sentence}"
    return ""


def assert_alike(changes: list[Change]) -> None:
    """Check that the fault of a commit is the first one of its changes."""
    alone = next(filter(None, [fault_in([Commit(changes=(change,))]) for change in changes]), "")
    if not alone and len({(change.kind, change.id) for change in changes}) < len(changes):
        alone = "invalid_record A commit changes each record once."
    assert fault_in([Commit(changes=tuple(changes))]) == alone


@pytest.mark.parametrize("field", sorted(DIFFERENCES))
def test_a_fault_that_only_the_second_of_two_changes_has_is_found(field: str) -> None:
    first, like = replace(COMMON, id="a0"), replace(COMMON, id="a1")
    for value in DIFFERENCES[field]:
        assert_alike([first, replace(like, **{field: value})])
    assert any(fault_in([Commit(changes=(replace(like, **{field: value}),))]) for value in DIFFERENCES[field])


@st.composite
def likened(draw: st.DrawFn) -> list[Change]:
    """Changes of which each differs from the one before it in little."""
    changes = [replace(COMMON, id="a0")]
    for place in range(1, draw(st.integers(2, 6))):
        fields = draw(st.lists(st.sampled_from(sorted(DIFFERENCES)), max_size=2))
        differences = {name: draw(st.sampled_from(DIFFERENCES[name])) for name in fields}
        changes.append(replace(changes[-1], **{"id": f"a{place}", **differences}))
    return changes


@settings(max_examples=pick(200, 3_000), deadline=None, derandomize=True)
@given(likened())
@example([replace(COMMON, id="a", result=b"1"), replace(COMMON, id="b", result=b"{")])
def test_changes_that_differ_by_themselves_are_checked_as_if_alone(changes: list[Change]) -> None:
    assert_alike(changes)
