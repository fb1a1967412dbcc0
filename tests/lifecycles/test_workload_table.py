"""The workload's table against S3-2 to S3-11 and resolutions 37 to 41."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.lifecycles import WORKLOAD, Owner
from interlock.lifecycles.workload import Status

TRANSITIONS: dict[tuple[str, str], set[str]] = {
    ("IDLE", "RPC_RECEIVED"): {"READY", "FAILED"},  # S3-7: valid, invalid
    ("READY", "START_TIME_REACHED"): {"RUNNING", "IDLE"},  # S3-7; decision 0227: IDLE when nobody told it
    ("READY", "ABORT_RECEIVED"): {"IDLE", "ABORTING"},  # S3-7; R39: ABORTING is in the table, never taken
    ("READY", "CONTROLLER_DISCONNECT"): {"IDLE"},  # S3-7
    ("RUNNING", "DURATION_ELAPSED"): {"IDLE"},  # S3-7
    ("RUNNING", "WORKLOAD_ERROR"): {"FAILED"},  # S3-7, R40
    ("RUNNING", "ABORT_RECEIVED"): {"ABORTING"},  # S3-7
    ("RUNNING", "CONTROLLER_DISCONNECT"): {"ABORTING"},  # S3-7
    ("ABORTING", "TASK_CANCELLED"): {"IDLE"},  # S3-7
    ("ABORTING", "TIMEOUT_15S"): {"IDLE"},  # S3-7, R38: killed for real
    ("FAILED", "ERROR_SENT"): {"IDLE"},  # S3-7: by itself, once ERROR was sent
}

DOCUMENTED: dict[str, Any] = {
    "initial": "IDLE",
    "terminal": set(),  # S3-1: idle again
    "transitions": TRANSITIONS,
    "stays": {
        ("ABORTING", "TIMEOUT_5S"),  # R38: warn and escalate, still ABORTING
        ("ABORTING", "TIMEOUT_15S"),  # R38: never IDLE while something lives
    },
}

# 003, "Transition Validation"
STATE_PAIRS = {
    ("IDLE", "READY"),
    ("IDLE", "FAILED"),
    ("READY", "RUNNING"),
    ("READY", "IDLE"),
    ("READY", "ABORTING"),
    ("RUNNING", "IDLE"),
    ("RUNNING", "FAILED"),
    ("RUNNING", "ABORTING"),
    ("ABORTING", "IDLE"),
    ("FAILED", "IDLE"),
}


def test_the_workload_table_matches_the_specification(
    differences: Callable[..., tuple[str, ...]],
) -> None:
    assert differences("workload", **DOCUMENTED) == ()


def test_a_workload_takes_only_documented_transitions(
    state_pairs: Callable[..., set[tuple[str, str]]],
) -> None:
    assert state_pairs("workload") == STATE_PAIRS


def test_no_change_of_the_workload_table_goes_unnoticed(unnoticed: Callable[..., tuple[str, ...]]) -> None:
    assert unnoticed("workload", **DOCUMENTED) == ()


def test_an_agent_is_at_home_only_when_it_is_idle() -> None:
    """S3-1"""
    assert {str(state) for state in WORKLOAD.resting} == {"IDLE"}


def test_only_the_agent_moves_its_workload() -> None:
    assert {s.owner for state in WORKLOAD.states for s in WORKLOAD.steps_at(state)} == {Owner.AGENT}


def test_the_wire_statuses_have_the_specified_numbers_and_5_for_aborted() -> None:
    """S3-11, R41"""
    assert {status.name: int(status) for status in Status} == {
        "READY": 1,
        "RUNNING": 2,
        "ERROR": 3,
        "COMPLETED": 4,
        "ABORTED": 5,
    }
