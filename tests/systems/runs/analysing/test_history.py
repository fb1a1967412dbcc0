"""A job is flaky when it has passed and failed on one commit, and not for ever."""

from __future__ import annotations

from datetime import UTC, datetime

from interlock.store.records import Record, record_after
from interlock.systems.runs.job_history import (
    COMMITS,
    FLAKY,
    FORGOTTEN,
    OUTCOMES,
    STEADY,
    JobIdentity,
    JobOutcome,
    body_of,
    forget_history,
    labels_of,
    with_outcome,
)

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
HERE = JobIdentity("acme/shop", "ci", "test (3.12)")


def after(*ended: tuple[str, bool, bool], record: Record | None = None) -> Record | None:
    """The history once these outcomes were learnt."""
    for number, (sha, passed, failed) in enumerate(ended):
        seen = len(body_of(record).ended) if record else 0
        change = with_outcome(record, HERE, JobOutcome(sha, f"j_{seen}_{number}", passed, failed), NOW)
        assert change is not None
        record = record_after(change, record, NOW)
    return record


def state(*ended: tuple[str, bool, bool]) -> str:
    record = after(*ended)
    assert record is not None
    return record.state


def test_passing_and_failing_on_one_commit_is_flaky_in_either_order() -> None:
    assert state(("a", True, False), ("a", False, True)) == FLAKY
    assert state(("a", False, True), ("b", True, False), ("a", True, False)) == FLAKY
    assert state(("a", True, True)) == FLAKY


def test_a_job_that_passes_on_one_commit_and_fails_on_another_is_not_flaky() -> None:
    assert state(("a", True, False), ("b", False, True), ("c", True, False)) == STEADY
    assert state(("a", False, True), ("a", False, True)) == STEADY


def test_a_flaky_job_is_steady_again_after_20_newer_commits_that_passed() -> None:
    record = after(("a", True, True))
    for number in range(COMMITS - 1):
        record = after((f"b{number}", True, False), record=record)
        assert record is not None
        assert record.state == FLAKY
    record = after(("last", True, False), record=record)
    assert record is not None
    assert record.state == STEADY


def test_an_outcome_is_learnt_once_and_only_so_many_are_kept() -> None:
    record = after(*[(f"c{n}", True, False) for n in range(OUTCOMES + 10)])
    assert record is not None
    kept = body_of(record).ended
    assert len(kept) == OUTCOMES
    assert with_outcome(record, HERE, kept[-1], NOW) is None
    assert len(record.body) < 8_000


def test_an_outcome_that_does_not_change_the_state_of_a_job_history_is_not_journalled() -> None:
    record = after(("a", True, False))
    quiet = with_outcome(record, HERE, JobOutcome("b", "j_x", True, False), NOW)
    loud = with_outcome(record, HERE, JobOutcome("a", "j_y", False, True), NOW)
    assert quiet is not None
    assert loud is not None
    assert quiet.note is None
    assert loud.note is not None


def test_a_forgotten_job_history_records_no_new_outcome() -> None:
    record = after(("a", True, True))
    assert record is not None
    gone = record_after(forget_history(record, NOW), record, NOW)
    assert gone.state == FORGOTTEN
    assert with_outcome(gone, HERE, JobOutcome("b", "j_x", True, False), NOW) is None


def test_names_are_distinguished_and_fit_the_store() -> None:
    names = [
        HERE,
        JobIdentity("acme/shop", "ci", "test (3.13)"),
        JobIdentity("acme/shop", "nightly", "test (3.12)"),
        JobIdentity("x" * 200, "y" * 200, "z" * 2_000),
    ]
    assert len({name.id for name in names}) == len(names)
    assert JobIdentity("ACME/Shop", "ci", "test (3.12)").id == HERE.id
    for name in names:
        assert len(name.id) <= 64
        assert all(len(label) <= 64 for label in name.labels)
    assert set(labels_of("acme/shop")) < set(HERE.labels)
