"""The worker's table against S0-2 to S0-9, S0-29 and resolutions 1 and 5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from interlock.lifecycles import WORKER, Owner
from interlock.machine import Refused

TRANSITIONS: dict[tuple[str, str], set[str]] = {
    ("IDLE", "start_task"): {"RUNNING"},  # S0-3
    ("RUNNING", "pause"): {"PAUSED"},  # S0-4
    ("PAUSED", "resume"): {"RUNNING"},  # S0-5
    ("RUNNING", "complete_tasks"): {"COMPLETED"},  # S0-6
    ("RUNNING", "error_unrecoverable"): {"FAILED"},  # S0-7, S0-29
    ("RUNNING", "resources_exhausted"): {"PAUSED"},  # S0-29
    ("RUNNING", "error_transient"): {"FAILED"},  # ours, for S0-29: three retries, then it is not transient
    ("IDLE", "terminate"): {"TERMINATED"},  # S0-8
    ("RUNNING", "terminate"): {"TERMINATED"},  # S0-8
    ("PAUSED", "terminate"): {"TERMINATED"},  # S0-8
    ("COMPLETED", "terminate"): {"TERMINATED"},  # S0-8, R1
    ("FAILED", "terminate"): {"TERMINATED"},  # S0-8, R1
    ("IDLE", "supervisor_timeout"): {"TERMINATED"},  # S0-29
    ("RUNNING", "supervisor_timeout"): {"TERMINATED"},  # S0-29
    ("PAUSED", "supervisor_timeout"): {"TERMINATED"},  # S0-29
    # Ours: a process that was seen to die is not waited for.
    ("IDLE", "process_died"): {"TERMINATED"},
    ("RUNNING", "process_died"): {"TERMINATED"},
    ("PAUSED", "process_died"): {"TERMINATED"},
}

DOCUMENTED: dict[str, Any] = {
    "initial": "IDLE",
    "terminal": {"COMPLETED", "FAILED", "TERMINATED"},  # S0-2
    "transitions": TRANSITIONS,
    "stays": {
        ("RUNNING", "error_transient"),  # S0-29, R5: an audit event, no transition
        # Ours: heartbeats put off the supervisor's timeout.
        ("IDLE", "heartbeat"),
        ("RUNNING", "heartbeat"),
        ("PAUSED", "heartbeat"),
    },
}

# S0-9. Of TERMINATED the document says: to anything.
FORBIDDEN = [
    ("IDLE", "PAUSED"),
    ("IDLE", "COMPLETED"),
    ("COMPLETED", "RUNNING"),
    ("COMPLETED", "PAUSED"),
    ("FAILED", "RUNNING"),
    *(("TERMINATED", target) for target in ("IDLE", "RUNNING", "PAUSED", "COMPLETED", "FAILED")),
]


def test_the_worker_table_matches_the_specification(
    differences: Callable[..., tuple[str, ...]],
) -> None:
    assert differences("worker", **DOCUMENTED) == ()


def test_no_change_of_the_worker_table_goes_unnoticed(unnoticed: Callable[..., tuple[str, ...]]) -> None:
    assert unnoticed("worker", **DOCUMENTED) == ()


@pytest.mark.parametrize(("source", "target"), FORBIDDEN)
def test_a_forbidden_worker_transition_is_refused_with_status_409(source: str, target: str) -> None:
    refused = WORKER.toward(WORKER.state(source), WORKER.state(target))
    assert isinstance(refused, Refused)
    assert refused.error().status == 409


def test_only_the_supervisor_moves_a_worker() -> None:
    """S0-4, S0-5, S0-8"""
    assert {s.owner for state in WORKER.states for s in WORKER.steps_at(state)} == {Owner.SUPERVISOR}
    assert {WORKER.event(name).by for name in ("pause", "resume", "terminate")} == {Owner.SUPERVISOR}
