"""Worlds with limits: a gate that lets too many in is noticed, and a slot that is never given back."""

from __future__ import annotations

import pytest

from interlock.systems.orchestrator import cancellation, gates
from interlock.systems.orchestrator.admissions import Admissions
from interlock_verification.worlds.episode import play
from interlock_verification.worlds.faults import faults_named
from interlock_verification.worlds.worlds import world_named


@pytest.mark.long  # make test notices other broken rules of these worlds
def test_a_gate_that_admits_jobs_beyond_its_limit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates._Gate, "has_room_for", lambda *_: True)
    monkeypatch.setattr(gates._Gate, "room", True)
    monkeypatch.setattr(Admissions, "_room", lambda *_: 100)
    played = play(world_named("vendors"), faults_named("none"), seed=2, hours=0.5)
    assert played.broken is not None
    assert played.broken.name == "limit.slots"


@pytest.mark.long
def test_a_retry_that_does_not_line_up_again_and_a_slot_that_is_not_given_back_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cancellation, "limit_messages_of", lambda _: ())
    played = play(world_named("vendors"), faults_named("deaths"), seed=2, hours=0.2)
    assert played.broken is not None
