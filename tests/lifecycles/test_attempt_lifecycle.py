"""What an attempt promises: walks that are journaled, losses that are no failures, cancels that stand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from interlock.lifecycles import ATTEMPT
from interlock.lifecycles.attempt import (
    CANCEL_REQUESTED,
    CANCELED,
    CREATED,
    ENDED,
    EXECUTING,
    FAILED,
    HELD,
    LEASED,
    QUEUED,
    RUNNING,
    STALE,
    STARTING,
    SUCCEEDED,
    TIMED_OUT,
    UNLEASED,
    UPLOADING,
    Attempt,
    AttemptState,
    Completed,
    acknowledged,
    cancel,
    cancel_acknowledged,
    force_cancel,
    grant,
    heartbeat,
    lease_expired,
    lease_revoked,
    publish,
    time_out,
    upload,
    withdraw,
)
from interlock.machine import Moved, Refusal, Refused, entries_of

AT = datetime(2026, 1, 1, tzinfo=UTC)
ASKED = Attempt(cancel_requested=True)
Follow = Callable[..., Moved[Any, Any]]
Refuse = Callable[..., Refused[Any]]


@pytest.mark.parametrize(("succeeded", "final"), [(True, SUCCEEDED), (False, FAILED)])
@pytest.mark.parametrize(
    ("state", "between"), [(STARTING, [RUNNING, UPLOADING]), (RUNNING, [UPLOADING]), (UPLOADING, [])]
)
def test_a_completion_walks_to_its_end_and_each_step_is_journaled(
    state: AttemptState, between: list[AttemptState], succeeded: bool, final: AttemptState, follow: Follow
) -> None:
    """R18"""
    done = follow(ATTEMPT, state, Attempt(), Completed(succeeded=succeeded))
    assert (done.state, done.data.accepted) == (final, succeeded)
    entries = entries_of(done, entity="a_1", at=AT)
    assert [entry.target for entry in entries] == [*between, final]
    assert [entry.source for entry in entries] == [state, *between]
    assert [entry.event for entry in entries][-1] == "completed"


def test_the_whole_life_of_an_attempt_that_succeeds(follow: Follow) -> None:
    """S2-16 to S2-21"""
    events = (publish, grant, acknowledged, heartbeat, upload, Completed(succeeded=True))
    assert follow(ATTEMPT, CREATED, Attempt(), *events).state is SUCCEEDED


@pytest.mark.parametrize("state", EXECUTING)
def test_starting_and_uploading_end_like_running(state: AttemptState, follow: Follow) -> None:
    """R19"""
    assert follow(ATTEMPT, state, Attempt(), lease_expired).state is STALE
    assert follow(ATTEMPT, state, Attempt(), time_out).state is TIMED_OUT
    assert follow(ATTEMPT, state, Attempt(), cancel).state is CANCEL_REQUESTED


@pytest.mark.parametrize("ended", ENDED)
def test_an_attempt_that_has_ended_never_moves(
    ended: AttemptState, each_event: Callable[[str], list[Any]], refusal: Refuse
) -> None:
    """R20, R21, S2-35: a retry is another attempt."""
    for occurrence in each_event("attempt"):
        refusal(ATTEMPT, ended, Attempt(), occurrence)


@pytest.mark.parametrize("lost", [lease_expired, lease_revoked])
@pytest.mark.parametrize("state", HELD)
def test_a_lost_attempt_is_stale_and_no_failure(state: AttemptState, lost: Any, follow: Follow) -> None:
    """R20, R13"""
    gone = follow(ATTEMPT, state, Attempt(), lost)
    assert (gone.state, gone.data.accepted) == (STALE, None)


def test_a_stale_attempt_refuses_a_late_completion_as_terminal(refusal: Refuse) -> None:
    """S2-31"""
    for succeeded in (True, False):
        assert refusal(ATTEMPT, STALE, Attempt(), Completed(succeeded=succeeded)).kind is Refusal.TERMINAL


@pytest.mark.parametrize("state", [*UNLEASED, *HELD])
def test_a_cancel_moves_an_attempt_to_cancel_requested_and_arms_the_cancel_deadline(
    state: AttemptState, follow: Follow
) -> None:
    """S2-32, R23"""
    canceling = follow(ATTEMPT, state, Attempt(), cancel)
    assert (canceling.state, canceling.data.cancel_requested) == (CANCEL_REQUESTED, True)
    assert [deadline.setting for deadline in canceling.steps[-1].arms] == ["cancel_deadline_s"]


@pytest.mark.parametrize("state", UNLEASED)
def test_an_attempt_without_a_lease_is_canceled_without_waiting_for_a_runner(
    state: AttemptState, follow: Follow
) -> None:
    """S2-32, R23"""
    assert follow(ATTEMPT, state, Attempt(), cancel, withdraw).state is CANCELED


def test_an_attempt_that_was_only_granted_is_canceled_when_its_lease_is_revoked(
    follow: Follow, refusal: Refuse
) -> None:
    """R24"""
    ended = follow(ATTEMPT, LEASED, Attempt(), cancel, lease_revoked)
    assert ended.state is CANCELED
    assert refusal(ATTEMPT, CANCELED, ended.data, acknowledged).kind is Refusal.TERMINAL


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_completion_under_cancel_ends_canceled_and_keeps_its_result(
    succeeded: bool, follow: Follow
) -> None:
    """R25"""
    ended = follow(ATTEMPT, CANCEL_REQUESTED, ASKED, Completed(succeeded=succeeded))
    assert (ended.state, ended.data.accepted) == (CANCELED, succeeded)


def test_a_lease_that_expires_under_cancel_is_no_loss(follow: Follow) -> None:
    """R26"""
    assert follow(ATTEMPT, CANCEL_REQUESTED, ASKED, lease_expired).state is CANCELED


@pytest.mark.parametrize("last", [cancel_acknowledged, force_cancel])
def test_a_cancel_is_finalized_by_an_answer_or_by_its_deadline(last: Any, follow: Follow) -> None:
    """S2-25"""
    assert follow(ATTEMPT, RUNNING, Attempt(), cancel, last).state is CANCELED


def test_a_forced_cancel_takes_no_late_completion(follow: Follow, refusal: Refuse) -> None:
    """S2-33"""
    forced = follow(ATTEMPT, RUNNING, Attempt(), cancel, force_cancel)
    assert refusal(ATTEMPT, CANCELED, forced.data, Completed(succeeded=True)).kind is Refusal.TERMINAL


@pytest.mark.parametrize("state", [*UNLEASED, *HELD])
def test_a_cancel_that_was_not_requested_cannot_be_finalized(state: AttemptState, refusal: Refuse) -> None:
    """S2-14, S2-32"""
    for final in (withdraw, cancel_acknowledged, force_cancel):
        refusal(ATTEMPT, state, Attempt(), final)


def test_asking_twice_moves_no_deadline(refusal: Refuse) -> None:
    assert refusal(ATTEMPT, CANCEL_REQUESTED, ASKED, cancel).kind is Refusal.IGNORED


def test_a_timeout_under_cancel_leaves_the_end_to_the_cancel(refusal: Refuse) -> None:
    assert refusal(ATTEMPT, CANCEL_REQUESTED, ASKED, time_out).kind is Refusal.IGNORED


@pytest.mark.parametrize("state", [*UNLEASED, LEASED])
def test_an_unacknowledged_attempt_accepts_no_report(state: AttemptState, refusal: Refuse) -> None:
    for report in (heartbeat, upload, Completed(succeeded=True)):
        assert refusal(ATTEMPT, state, Attempt(), report).kind is Refusal.NOT_ALLOWED


def test_only_a_queued_attempt_can_be_granted(refusal: Refuse) -> None:
    for state in AttemptState:
        if state is not QUEUED:
            refusal(ATTEMPT, state, Attempt(), grant)
