"""The lease's table against S2-29 to S2-33 and resolutions 13, 24, 30 and 31.

The document names runner messages and triggers; the events below are the table's words for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.lifecycles import LEASE, Owner

TRANSITIONS: dict[tuple[str, str], set[str]] = {
    ("GRANTED", "ack"): {"ACTIVE"},  # S2-30: AckLease
    ("GRANTED", "expire"): {"EXPIRED"},  # S2-30: TTL
    ("ACTIVE", "expire"): {"EXPIRED"},  # S2-30: TTL
    ("ACTIVE", "complete"): {"COMPLETED"},  # S2-30: Complete
    ("ACTIVE", "cancel_ack"): {"CANCELED"},  # S2-30: CancelAck
    ("GRANTED", "revoke"): {"REVOKED"},  # S2-30, R24
    ("ACTIVE", "revoke"): {"REVOKED"},  # S2-30, R21
    ("GRANTED", "holder_lost"): {"EXPIRED"},  # ours, for R20: a dead runner is a loss before its TTL says so
    ("ACTIVE", "holder_lost"): {"EXPIRED"},  # ours, for R20
    ("GRANTED", "release"): {"REVOKED"},  # ours, for R13: a runner that shuts down gives it back
    ("ACTIVE", "release"): {"REVOKED"},  # ours, for R13
}

DOCUMENTED: dict[str, Any] = {
    "initial": "GRANTED",
    "terminal": {"EXPIRED", "REVOKED", "COMPLETED", "CANCELED"},  # S2-31
    "transitions": TRANSITIONS,
    "stays": {
        ("ACTIVE", "heartbeat"),  # S2-38
        ("ACTIVE", "request_cancel"),  # S2-32: the first of the two phases
    },
}

STATE_PAIRS = {
    ("GRANTED", "ACTIVE"),
    ("GRANTED", "EXPIRED"),
    ("ACTIVE", "EXPIRED"),
    ("ACTIVE", "COMPLETED"),
    ("ACTIVE", "CANCELED"),
    ("GRANTED", "REVOKED"),
    ("ACTIVE", "REVOKED"),
}  # S2-30, all of it


def test_the_lease_table_matches_the_specification(
    differences: Callable[..., tuple[str, ...]],
) -> None:
    assert differences("lease", **DOCUMENTED) == ()


def test_a_lease_takes_only_documented_transitions(
    state_pairs: Callable[..., set[tuple[str, str]]],
) -> None:
    assert state_pairs("lease") == STATE_PAIRS


def test_no_change_of_the_lease_table_goes_unnoticed(unnoticed: Callable[..., tuple[str, ...]]) -> None:
    assert unnoticed("lease", **DOCUMENTED) == ()


def test_the_runner_sends_messages_and_only_the_orchestrator_moves_the_lease() -> None:
    """S2-1"""
    assert {s.owner for state in LEASE.states for s in LEASE.steps_at(state)} == {Owner.ORCHESTRATOR}
    messages = ("ack", "heartbeat", "complete", "cancel_ack", "release")
    assert {LEASE.event(name).by for name in messages} == {Owner.RUNNER}
