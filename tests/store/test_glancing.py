"""A glance at a batch is only a shorter way: it lets nothing through that a close look would refuse."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from interlock.errors import InterlockError
from interlock.store import checking
from interlock.store.checking import check_commits
from interlock.store.glancing import FEWEST, plainly_fine
from interlock.store.records import Change, Commit, Note
from interlock.testing.store_contract import CATALOGUE
from interlock.testing.store_contract.builders import creation

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
MOST = 1_000

ODD: dict[str, list[Any]] = {
    "kind": ["parcel", "letter", "nobody", ""],
    "id": ["a", "", "x" * 64, "x" * 65, "a\nb", "\x1e", "ü"],
    "expected": [0, 1, -1, 2**53, 2**53 + 1],
    "state": ["packed", "sent", "written", "posted by hand", ""],
    "body": [b"{}", b"", b"{", b'"\xff"', b"1 2", b'"' + b"x" * 998 + b'"', b'"' + b"x" * 999 + b'"'],
    "parent": [None, "p", "", "p" * 65],
    "queue": [None, "post", "", "a\x00b"],
    "labels": [(), ("a",), ("b", "a"), ("",)],
    "priority": [0, 100, 101, -101],
    "ready_at": [None, NOW, NOW.replace(tzinfo=None), NOW.replace(year=1969), NOW.replace(year=2200)],
    "deadline_at": [None, NOW, NOW.replace(tzinfo=None), NOW.replace(year=9999)],
    "note": [None, Note(), Note(actor="ü"), Note(reason="\ud800"), Note(cause="\udfff")],
}


def refused(check: Callable[[], None]) -> str | None:
    try:
        check()
    except InterlockError as error:
        return error.sentence
    return None


def batch(*odd: Change, not_after: datetime | None = None) -> list[Commit]:
    """So many that a glance is worth it, all of them fine but for these."""
    fine = [creation(f"fine {number}", queue="post", ready_at=NOW) for number in range(FEWEST)]
    return [Commit(changes=(change,), not_after=not_after) for change in (*fine, *odd)]


def closely(commits: list[Commit], monkeypatch: pytest.MonkeyPatch) -> str | None:
    with monkeypatch.context() as without:
        without.setattr(checking, "plainly_fine", lambda *_: False)
        return refused(lambda: check_commits(CATALOGUE, commits, MOST))


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in ODD.items() for value in values]
)
def test_whatever_is_odd_about_one_change_is_told_in_the_same_words(
    field: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = batch(msgspec.structs.replace(creation("odd"), **{field: value}))
    sentence = closely(commits, monkeypatch)
    assert refused(lambda: check_commits(CATALOGUE, commits, MOST)) == sentence
    assert sentence is None or not plainly_fine(CATALOGUE, commits, MOST, frozenset())


@given(some.data())
def test_nothing_odd_in_any_combination_passes_at_a_glance(data: some.DataObject) -> None:
    values = {field: data.draw(some.sampled_from(values), label=field) for field, values in ODD.items()}
    commits = batch(Change(**values), not_after=data.draw(some.sampled_from(ODD["ready_at"])))
    if plainly_fine(CATALOGUE, commits, MOST, frozenset()):
        with pytest.MonkeyPatch.context() as patch:
            assert closely(commits, patch) is None


def test_a_batch_of_what_most_commits_are_takes_no_closer_look() -> None:
    assert plainly_fine(CATALOGUE, batch(not_after=NOW), MOST, frozenset())


def test_a_body_is_believed_only_when_it_is_the_very_one_that_was_read() -> None:
    broken = b'{"half'
    commits = batch(msgspec.structs.replace(creation("odd", queue="post"), body=broken))
    assert plainly_fine(CATALOGUE, commits, MOST, frozenset({id(broken)}))
    assert not plainly_fine(CATALOGUE, commits, MOST, frozenset({id(bytes(bytearray(broken)))}))


def test_a_request_or_a_refusal_takes_a_closer_look() -> None:
    assert not plainly_fine(CATALOGUE, [*batch(), Commit()], MOST, frozenset())
