"""The process's table against S1-2 to S1-7 and resolutions 12 to 14."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.lifecycles import PROCESS

TRANSITIONS: dict[tuple[str, str], set[str]] = {
    ("starting", "initialized"): {"connecting"},  # S1-4
    ("connecting", "connected"): {"recovering"},  # S1-4
    ("connecting", "connection_failed"): {"connecting"},  # S1-4
    ("recovering", "recovery_complete"): {"running"},  # S1-4
    ("running", "no_tasks_available"): {"backing_off"},  # S1-4
    ("running", "poll_cycle_complete"): {"running"},  # S1-4
    ("backing_off", "backoff_complete"): {"recovering"},  # S1-4
    ("running", "error"): {"connecting"},  # S1-4, R14
    ("recovering", "error"): {"connecting"},  # S1-4, R14
    ("starting", "shutdown_requested"): {"shutting_down"},  # R12
    ("connecting", "shutdown_requested"): {"shutting_down"},  # S1-4
    ("recovering", "shutdown_requested"): {"shutting_down"},  # S1-4
    ("running", "shutdown_requested"): {"shutting_down"},  # S1-4
    ("backing_off", "shutdown_requested"): {"shutting_down"},  # S1-4
    ("shutting_down", "shutdown_complete"): {"stopped"},  # S1-4
    ("shutting_down", "shutdown_deadline"): {"stopped"},  # ours, for S1-7: 30 s, then forced
}

DOCUMENTED: dict[str, Any] = {
    "initial": "starting",
    "terminal": {"stopped"},  # S1-2
    "transitions": TRANSITIONS,
    "stays": {
        ("shutting_down", "soft_deadline"),  # R13: then its tasks are told
        ("shutting_down", "saving_deadline"),  # ours, for S1-7: then their handlers are killed
        # Ours, for S1-6 and S1-21: active tasks, and what became of them, are counted.
        ("connecting", "task_ended"),
        ("recovering", "task_ended"),
        ("running", "task_ended"),
        ("backing_off", "task_ended"),
        ("shutting_down", "task_ended"),
    },
}

# S1-3
NAMED_EVENTS = {
    "initialized",
    "connected",
    "connection_failed",
    "recovery_complete",
    "poll_cycle_complete",
    "no_tasks_available",
    "backoff_complete",
    "shutdown_requested",
    "shutdown_complete",
    "error",
}


def test_the_process_table_matches_the_specification(
    differences: Callable[..., tuple[str, ...]],
) -> None:
    assert differences("process", **DOCUMENTED) == ()


def test_no_change_of_the_process_table_goes_unnoticed(unnoticed: Callable[..., tuple[str, ...]]) -> None:
    assert unnoticed("process", **DOCUMENTED) == ()


def test_the_process_table_has_every_event_that_the_specification_names() -> None:
    ours = {"soft_deadline", "saving_deadline", "shutdown_deadline", "task_ended"}  # R13, S1-7, S1-21
    assert {event.name for event in PROCESS.events} == NAMED_EVENTS | ours
