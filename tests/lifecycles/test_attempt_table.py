"""The attempt's table against S2-15 to S2-26 and resolutions 13, 18 to 21 and 23 to 26.

The document names states and triggers but no events, so the events below are the table's; from where
to where is the document's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.lifecycles import ATTEMPT, Owner

TRANSITIONS: dict[tuple[str, str], set[str]] = {
    ("CREATED", "publish"): {"QUEUED"},  # S2-16
    ("QUEUED", "grant"): {"LEASED"},  # S2-17
    ("LEASED", "acknowledged"): {"STARTING"},  # S2-18
    ("STARTING", "heartbeat"): {"RUNNING"},  # S2-19
    ("RUNNING", "upload"): {"UPLOADING"},  # S2-20
    ("UPLOADING", "completed"): {"SUCCEEDED", "FAILED"},  # S2-21
    ("LEASED", "lease_expired"): {"STALE"},  # S2-22, R20
    ("STARTING", "lease_expired"): {"STALE"},  # S2-22, R20
    ("RUNNING", "lease_expired"): {"STALE"},  # S2-22, R20
    ("UPLOADING", "lease_expired"): {"STALE"},  # R19
    # Ours, for R13: the lease is given back, the attempt is over and another one queues for it.
    ("LEASED", "lease_revoked"): {"STALE"},
    ("STARTING", "lease_revoked"): {"STALE"},
    ("RUNNING", "lease_revoked"): {"STALE"},
    ("UPLOADING", "lease_revoked"): {"STALE"},
    ("STARTING", "time_out"): {"TIMED_OUT"},  # R19
    ("RUNNING", "time_out"): {"TIMED_OUT"},  # S2-23, R21
    ("UPLOADING", "time_out"): {"TIMED_OUT"},  # R19
    ("CREATED", "cancel"): {"CANCEL_REQUESTED"},  # R23
    ("QUEUED", "cancel"): {"CANCEL_REQUESTED"},  # S2-24
    ("LEASED", "cancel"): {"CANCEL_REQUESTED"},  # S2-24
    ("STARTING", "cancel"): {"CANCEL_REQUESTED"},  # S2-24
    ("RUNNING", "cancel"): {"CANCEL_REQUESTED"},  # S2-24
    ("UPLOADING", "cancel"): {"CANCEL_REQUESTED"},  # R19
    ("CANCEL_REQUESTED", "cancel_acknowledged"): {"CANCELED"},  # S2-25: CancelAck
    ("CANCEL_REQUESTED", "force_cancel"): {"CANCELED"},  # S2-25: the deadline
    ("CANCEL_REQUESTED", "withdraw"): {"CANCELED"},  # S2-32, R23: nobody holds a lease
    ("CANCEL_REQUESTED", "lease_revoked"): {"CANCELED"},  # R24: the lease was only granted
    ("CANCEL_REQUESTED", "completed"): {"CANCELED"},  # R25
    ("CANCEL_REQUESTED", "lease_expired"): {"CANCELED"},  # R26
}

WALKS: dict[tuple[str, str], set[tuple[str, ...]]] = {
    ("RUNNING", "completed"): {("UPLOADING", "SUCCEEDED"), ("UPLOADING", "FAILED")},  # R18
    ("STARTING", "completed"): {
        ("RUNNING", "UPLOADING", "SUCCEEDED"),  # R18
        ("RUNNING", "UPLOADING", "FAILED"),  # R18
    },
    ("STARTING", "upload"): {("RUNNING", "UPLOADING")},  # ours, as R18: whoever uploads has been running
}

DOCUMENTED: dict[str, Any] = {
    "initial": "CREATED",
    "terminal": {"SUCCEEDED", "FAILED", "CANCELED", "TIMED_OUT", "STALE"},  # R20, R21
    "transitions": TRANSITIONS,
    "walks": WALKS,
    "stays": {
        # S2-38: a heartbeat is answered, with the cancel if there is one.
        ("RUNNING", "heartbeat"),
        ("UPLOADING", "heartbeat"),
        ("CANCEL_REQUESTED", "heartbeat"),
    },
}

STATE_PAIRS = {
    ("CREATED", "QUEUED"),  # S2-16
    ("QUEUED", "LEASED"),  # S2-17
    ("LEASED", "STARTING"),  # S2-18
    ("STARTING", "RUNNING"),  # S2-19
    ("RUNNING", "UPLOADING"),  # S2-20
    ("UPLOADING", "SUCCEEDED"),  # S2-21
    ("UPLOADING", "FAILED"),  # S2-21
    *((held, "STALE") for held in ("LEASED", "STARTING", "RUNNING", "UPLOADING")),  # S2-22, R19, R20
    *((busy, "TIMED_OUT") for busy in ("STARTING", "RUNNING", "UPLOADING")),  # S2-23, R19
    *((held, "CANCEL_REQUESTED") for held in ("QUEUED", "LEASED", "STARTING", "RUNNING")),  # S2-24
    ("CREATED", "CANCEL_REQUESTED"),  # R23
    ("UPLOADING", "CANCEL_REQUESTED"),  # R19
    ("CANCEL_REQUESTED", "CANCELED"),  # S2-25
}


def test_the_attempt_table_matches_the_specification(
    differences: Callable[..., tuple[str, ...]],
) -> None:
    assert differences("attempt", **DOCUMENTED) == ()


def test_an_attempt_takes_only_documented_transitions(
    state_pairs: Callable[..., set[tuple[str, str]]],
) -> None:
    assert state_pairs("attempt") == STATE_PAIRS


def test_no_change_of_the_attempt_table_goes_unnoticed(unnoticed: Callable[..., tuple[str, ...]]) -> None:
    assert unnoticed("attempt", **DOCUMENTED) == ()


def test_the_runner_owns_the_step_to_uploading_and_the_orchestrator_all_other_steps() -> None:
    """S2-16 to S2-25; S2-20"""
    for state in ATTEMPT.states:
        for step in ATTEMPT.steps_from(state):
            assert step.owner == (Owner.RUNNER if step.target == "UPLOADING" else Owner.ORCHESTRATOR)
