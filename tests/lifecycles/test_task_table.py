"""The task's table against S1-8 to S1-14 and resolutions 10, 11 and 13."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.lifecycles import TASK

TRANSITIONS: dict[tuple[str, str], set[str]] = {
    ("pending", "claim_requested"): {"claiming"},  # S1-10
    ("claiming", "claim_succeeded"): {"processing"},  # S1-10
    ("claiming", "claim_failed"): {"failed"},  # S1-10, R10
    ("processing", "processing_succeeded"): {"reporting"},  # S1-10
    ("processing", "processing_failed"): {"reporting"},  # S1-10
    # S1-10 knows only completed; R11 adds what was reported: a failure, or an interruption.
    ("reporting", "report_succeeded"): {"completed", "failed", "abandoned"},
    ("reporting", "report_failed"): {"failed"},  # S1-10
    ("processing", "lease_expired"): {"abandoned"},  # S1-10, S1-14
    ("processing", "shutdown_requested"): {"reporting"},  # S1-10, R13
    ("processing", "processing_yielded"): {"reporting"},  # ours: a parent waits without a slot
    ("claiming", "shutdown_requested"): {"abandoned"},  # S1-10
    ("pending", "shutdown_requested"): {"abandoned"},  # ours: what was never claimed needs an end, too
}

DOCUMENTED: dict[str, Any] = {
    "initial": "pending",
    "terminal": {"completed", "failed", "abandoned"},  # S1-8
    "transitions": TRANSITIONS,
    "stays": {("processing", "lease_renewed")},  # S1-14
}

# S1-9
NAMED_EVENTS = {
    "claim_requested",
    "claim_succeeded",
    "claim_failed",
    "processing_succeeded",
    "processing_failed",
    "report_succeeded",
    "report_failed",
    "lease_expired",
    "shutdown_requested",
}


def test_the_task_table_matches_the_specification(differences: Callable[..., tuple[str, ...]]) -> None:
    assert differences("task", **DOCUMENTED) == ()


def test_no_change_of_the_task_table_goes_unnoticed(unnoticed: Callable[..., tuple[str, ...]]) -> None:
    assert unnoticed("task", **DOCUMENTED) == ()


def test_the_task_table_has_every_event_that_the_specification_names() -> None:
    ours = {"lease_renewed", "processing_yielded"}  # S1-14, and waiting for children
    assert {event.name for event in TASK.events} == NAMED_EVENTS | ours
