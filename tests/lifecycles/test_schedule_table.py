"""The schedule's table, as it was meant (issue 25)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from interlock.lifecycles import SCHEDULE
from interlock.lifecycles.schedule import ACTIVE, ENDED, PAUSED, Due, Edit, Pause, Schedule
from interlock.machine import Moved, Refusal, Refused

TRANSITIONS: dict[tuple[str, str], set[str]] = {
    ("active", "due"): {"ended"},
    ("active", "pause"): {"paused"},
    ("active", "delete"): {"ended"},
    ("paused", "resume"): {"active", "ended"},
    ("paused", "delete"): {"ended"},
    ("ended", "edit"): {"active"},
}
MEANT: dict[str, Any] = {
    "initial": "active",
    "terminal": {"ended"},
    "transitions": TRANSITIONS,
    "stays": {
        ("active", "due"),
        ("active", "edit"),
        ("active", "run_now"),
        ("active", "backfill"),
        ("paused", "edit"),
        ("paused", "run_now"),
        ("paused", "backfill"),
    },
}
AT = datetime(2026, 1, 1, tzinfo=UTC)
LATER = AT + timedelta(hours=1)
WAITING = Schedule(next_at=LATER, due_at=LATER)


def test_the_schedule_table_matches_its_specification(differences: Callable[..., tuple[str, ...]]) -> None:
    assert differences("schedule", **MEANT) == ()


def test_a_due_timer_before_its_time_or_outside_the_active_state_is_refused() -> None:
    early = SCHEDULE.decide(ACTIVE, WAITING, Due(at=AT, next_at=LATER, due_at=LATER))
    assert isinstance(early, Refused)
    assert "it is not due yet" in early.sentence
    for state in (PAUSED, ENDED):
        answer = SCHEDULE.decide(state, Schedule(), Due(at=LATER, due_at=LATER))
        assert isinstance(answer, Refused)
        assert answer.kind is Refusal.IGNORED


def test_a_fire_is_counted_and_moves_the_schedule_on() -> None:
    next_at = LATER + timedelta(hours=1)
    fired = SCHEDULE.decide(
        ACTIVE,
        WAITING,
        Due(at=LATER, next_at=next_at, due_at=next_at, last_at=LATER, submitted=1, skipped=2, live=("j_1",)),
    )
    assert isinstance(fired, Moved)
    assert fired.data == Schedule(
        next_at=next_at, due_at=next_at, last_at=LATER, submitted=1, skipped=2, live=("j_1",)
    )


def test_a_pause_clears_the_next_fire_time_and_keeps_the_waiting_fires() -> None:
    paused = SCHEDULE.decide(ACTIVE, replace(WAITING, waiting=(AT,)), Pause(at=AT))
    assert isinstance(paused, Moved)
    assert paused.data == Schedule(waiting=(AT,))


def test_an_edit_without_a_fire_is_refused() -> None:
    assert isinstance(SCHEDULE.decide(ENDED, Schedule(), Edit(at=AT)), Refused)
