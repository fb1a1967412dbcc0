"""The simulation's table against S4-2 to S4-9 and resolutions 44 to 48.

The document lists which status may follow which and no events, so the events below are the table's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.lifecycles import SIMULATION, Owner

TRANSITIONS: dict[tuple[str, str], set[str]] = {
    ("pending", "start"): {"running"},  # S4-2, S4-7
    ("pending", "cancel"): {"cancelled"},  # S4-2
    ("running", "pause"): {"paused"},  # S4-2, S4-9
    ("running", "complete"): {"completed"},  # S4-2, S4-7
    ("running", "fail"): {"failed"},  # S4-2, S4-7
    ("running", "heartbeat_lost"): {"interrupted"},  # S4-2, R46
    ("running", "interrupt"): {"interrupted"},  # S4-2, R45: its worker is known to be dead
    ("paused", "resume"): {"running"},  # S4-2
    ("paused", "cancel"): {"cancelled"},  # S4-2
    ("paused", "interrupt"): {"interrupted"},  # S4-2
    ("interrupted", "resume"): {"running"},  # S4-2
    ("interrupted", "cancel"): {"cancelled"},  # R44
}

DOCUMENTED: dict[str, Any] = {
    "initial": "pending",
    "terminal": {"completed", "failed", "cancelled"},  # S4-2
    "transitions": TRANSITIONS,
    "stays": {
        ("running", "heartbeat"),  # S4-5, R47
        ("running", "request_pause"),  # S4-9, R48: a flag; the worker makes the transition
        ("running", "cancel"),  # R45: a command; the worker stops at the next step
    },
}

STATE_PAIRS = {
    *(("pending", target) for target in ("running", "cancelled")),
    *(("running", target) for target in ("paused", "completed", "failed", "interrupted")),
    *(("paused", target) for target in ("running", "cancelled", "interrupted")),
    ("interrupted", "running"),
    ("interrupted", "cancelled"),  # R44; all others S4-2
}


def test_the_simulation_table_matches_the_specification(
    differences: Callable[..., tuple[str, ...]],
) -> None:
    assert differences("simulation", **DOCUMENTED) == ()


def test_a_simulation_takes_only_documented_transitions(
    state_pairs: Callable[..., set[tuple[str, str]]],
) -> None:
    assert state_pairs("simulation") == STATE_PAIRS


def test_no_change_of_the_simulation_table_goes_unnoticed(unnoticed: Callable[..., tuple[str, ...]]) -> None:
    assert unnoticed("simulation", **DOCUMENTED) == ()


def test_the_events_that_advance_a_simulation_are_sent_by_its_worker() -> None:
    """S4-7, S4-9"""
    brought = ("start", "resume", "heartbeat", "pause", "complete", "fail")
    assert {SIMULATION.event(name).by for name in brought} == {Owner.WORKER}
