"""The run's table against S2-2 to S2-14 and resolutions 22, 23, 27 and 32.

The document names states and triggers but no events, so the events below are the table's; from where
to where is the document's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.lifecycles import RUN, Owner

TRANSITIONS: dict[tuple[str, str], set[str]] = {
    ("CREATED", "start_planning"): {"PLANNING"},  # S2-3
    ("PLANNING", "planned"): {"QUEUED"},  # S2-4
    ("PLANNING", "planning_failed"): {"PLAN_FAILED"},  # S2-5: an error
    ("PLANNING", "planner_timeout"): {"PLAN_FAILED"},  # S2-5, R22: a timeout
    ("PLAN_FAILED", "finalize"): {"FAILED"},  # S2-6
    ("QUEUED", "begin"): {"RUNNING"},  # S2-7
    ("RUNNING", "required_jobs_succeeded"): {"SUCCESS"},  # S2-8
    ("RUNNING", "required_job_failed"): {"FAILED"},  # S2-9, R32
    ("CREATED", "cancel"): {"CANCEL_REQUESTED"},  # R23
    ("PLANNING", "cancel"): {"CANCEL_REQUESTED"},  # R23
    ("QUEUED", "cancel"): {"CANCEL_REQUESTED"},  # S2-10
    ("RUNNING", "cancel"): {"CANCEL_REQUESTED"},  # S2-10
    ("CANCEL_REQUESTED", "all_stopped"): {"CANCELED"},  # S2-11: everything active has ended
    ("CANCEL_REQUESTED", "force_cancel"): {"CANCELED"},  # S2-11: or the deadline has passed
    ("QUEUED", "time_out"): {"TIMEOUT"},  # R22
    ("RUNNING", "time_out"): {"TIMEOUT"},  # S2-12
    ("SUCCESS", "reported"): {"REPORTED"},  # S2-13
    ("FAILED", "reported"): {"REPORTED"},  # S2-13
    ("CANCELED", "reported"): {"REPORTED"},  # S2-13
    ("TIMEOUT", "reported"): {"REPORTED"},  # S2-13
    # Ours, decision 290: forks and environments wait for an operator.
    ("CREATED", "hold"): {"AWAITING_APPROVAL"},
    ("PLANNING", "hold"): {"AWAITING_APPROVAL"},
    ("AWAITING_APPROVAL", "approve"): {"CREATED"},
    ("AWAITING_APPROVAL", "decline"): {"CANCEL_REQUESTED"},
    ("AWAITING_APPROVAL", "approval_timeout"): {"FAILED"},
    ("AWAITING_APPROVAL", "cancel"): {"CANCEL_REQUESTED"},
}

WALKS: dict[tuple[str, str], set[tuple[str, ...]]] = {
    # Ours: a plan without required work, and a job that ends before its first attempt, each leave
    # QUEUED by the document's own edges, in one decision.
    ("QUEUED", "required_jobs_succeeded"): {("RUNNING", "SUCCESS")},
    ("QUEUED", "required_job_failed"): {("RUNNING", "FAILED")},
}

DOCUMENTED: dict[str, Any] = {
    "initial": "CREATED",
    "terminal": {"REPORTED"},  # 002, transition 12
    "transitions": TRANSITIONS,
    "walks": WALKS,
    "stays": {("CREATED", "unattended")},  # ours: it asks to be planned again
}

STATE_PAIRS = {
    ("CREATED", "PLANNING"),  # S2-3
    ("PLANNING", "QUEUED"),  # S2-4
    ("PLANNING", "PLAN_FAILED"),  # S2-5
    ("PLAN_FAILED", "FAILED"),  # S2-6
    ("QUEUED", "RUNNING"),  # S2-7
    ("RUNNING", "SUCCESS"),  # S2-8
    ("RUNNING", "FAILED"),  # S2-9
    ("CREATED", "CANCEL_REQUESTED"),  # R23
    ("PLANNING", "CANCEL_REQUESTED"),  # R23
    ("QUEUED", "CANCEL_REQUESTED"),  # S2-10
    ("RUNNING", "CANCEL_REQUESTED"),  # S2-10
    ("CANCEL_REQUESTED", "CANCELED"),  # S2-11
    ("QUEUED", "TIMEOUT"),  # R22
    ("RUNNING", "TIMEOUT"),  # S2-12
    ("SUCCESS", "REPORTED"),  # S2-13
    ("FAILED", "REPORTED"),  # S2-13
    ("CANCELED", "REPORTED"),  # S2-13
    ("TIMEOUT", "REPORTED"),  # S2-13
    ("CREATED", "AWAITING_APPROVAL"),  # ours, decision 290, as are the next four
    ("PLANNING", "AWAITING_APPROVAL"),
    ("AWAITING_APPROVAL", "CREATED"),
    ("AWAITING_APPROVAL", "CANCEL_REQUESTED"),
    ("AWAITING_APPROVAL", "FAILED"),
}


def test_the_run_table_matches_the_specification(differences: Callable[..., tuple[str, ...]]) -> None:
    assert differences("run", **DOCUMENTED) == ()


def test_a_run_takes_only_documented_transitions(state_pairs: Callable[..., set[tuple[str, str]]]) -> None:
    assert state_pairs("run") == STATE_PAIRS


def test_no_change_of_the_run_table_goes_unnoticed(unnoticed: Callable[..., tuple[str, ...]]) -> None:
    assert unnoticed("run", **DOCUMENTED) == ()


def test_the_reporter_reports_and_the_orchestrator_does_everything_else() -> None:
    """S2-13"""
    for state in RUN.states:
        for step in RUN.steps_from(state):
            assert step.owner == (Owner.REPORTER if step.target == "REPORTED" else Owner.ORCHESTRATOR)
