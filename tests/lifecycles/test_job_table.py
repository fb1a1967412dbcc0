"""The job's table against S0-13 to S0-21, S0-30 and resolutions 2 and 6."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from interlock.lifecycles import JOB, Owner
from interlock.machine import Refused

TRANSITIONS: dict[tuple[str, str], set[str]] = {
    ("SUBMITTED", "validate"): {"PENDING"},  # S0-14
    ("SUBMITTED", "reject"): {"FAILED"},  # S0-30, R2: accepted, and found to be impossible
    ("SUBMITTED", "cancel"): {"CANCELED"},  # S0-20
    ("PENDING", "allocate_resources"): {"RUNNING"},  # S0-15
    ("PENDING", "cancel"): {"CANCELED"},  # S0-16
    ("PENDING", "expire"): {"FAILED"},  # decision 0404
    ("RUNNING", "success"): {"COMPLETED"},  # S0-17
    ("RUNNING", "error"): {"FAILED"},  # S0-18
    ("RUNNING", "cancel"): {"CANCELED"},  # S0-19
    ("RUNNING", "timeout"): {"CANCELED"},  # S0-30, R6
}

DOCUMENTED: dict[str, Any] = {
    "initial": "SUBMITTED",
    "terminal": {"COMPLETED", "FAILED", "CANCELED"},  # S0-13
    "transitions": TRANSITIONS,
    "stays": {
        ("RUNNING", "cancel"),  # S0-19, S2-32: what is active is stopped first
        ("RUNNING", "timeout"),  # R6, S2-32: likewise
    },
}

# S0-21. Of COMPLETED the document says: to anything.
REFUSED = [
    ("SUBMITTED", "RUNNING"),
    *(("COMPLETED", target) for target in ("SUBMITTED", "PENDING", "RUNNING", "FAILED", "CANCELED")),
    ("FAILED", "RUNNING"),
    ("CANCELED", "RUNNING"),
]


def test_the_job_table_matches_the_specification(differences: Callable[..., tuple[str, ...]]) -> None:
    assert differences("job", **DOCUMENTED) == ()


def test_no_change_of_the_job_table_goes_unnoticed(unnoticed: Callable[..., tuple[str, ...]]) -> None:
    assert unnoticed("job", **DOCUMENTED) == ()


@pytest.mark.parametrize(("source", "target"), REFUSED)
def test_a_forbidden_job_transition_is_refused_with_status_409(source: str, target: str) -> None:
    refused = JOB.toward(JOB.state(source), JOB.state(target))
    assert isinstance(refused, Refused)
    assert refused.error().status == 409


def test_a_retry_of_an_ended_job_is_refused_with_the_advice_to_create_a_new_one() -> None:
    """S0-21"""
    for source in ("FAILED", "CANCELED"):
        refused = JOB.toward(JOB.state(source), JOB.state("RUNNING"))
        assert isinstance(refused, Refused)
        assert "create a new one" in refused.error().todo


def test_only_the_orchestrator_moves_a_job() -> None:
    """S2-1"""
    assert {s.owner for state in JOB.states for s in JOB.steps_at(state)} == {Owner.ORCHESTRATOR}
