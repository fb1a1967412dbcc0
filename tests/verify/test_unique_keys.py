"""Unique keys and times to start, in worlds and in the model: each rule is taken away, which is noticed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.effort import pick
from tests.rerouting import reroute

from interlock.lifecycles.couplings import Recipient
from interlock.machine import cascade
from interlock.systems.orchestrator import aggregate, grants
from interlock.systems.orchestrator.uniqueness import KeyedSubmission
from interlock.testing.model_checker import check
from interlock_verification.models.job_world import JobWorld
from interlock_verification.models.plan import JobPlan, ModelPlan
from interlock_verification.worlds.episode import EpisodeResult, play
from interlock_verification.worlds.faults import faults_named
from interlock_verification.worlds.worlds import world_named

IN_TIME = ModelPlan(
    name="in time", doc="", jobs=(JobPlan(start_within=1),), releases=1, snooze=1, heartbeats=0, fails=False
)


def played(faults: str, seed: int, hours: float = 0.5) -> EpisodeResult:
    """An episode of the world with unique keys."""
    return play(world_named("keys"), faults_named(faults), seed=seed, hours=hours)


@pytest.mark.parametrize(
    "faults", pick(["everything"], ["none", "network", "deaths", "store", "lossy", "everything"])
)
def test_unique_keys_stay_unique_under_injected_faults(faults: str) -> None:
    episode = played(faults, seed=1)
    assert episode.broken is None
    assert episode.seen["another job has the unique key"] > 10
    assert episode.seen["a unique key is taken again"] > 5


def test_a_submission_that_does_not_look_at_the_jobs_of_its_key_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(KeyedSubmission, "_counting", lambda *_: None)
    episode = played("none", seed=1)
    assert episode.broken is not None
    assert episode.broken.name == "key.unique"


def broken_claims(plan: ModelPlan) -> set[str]:
    """What the model checker finds."""
    return {violation.claim for violation in check(JobWorld(plan), most=200_000).violations}


def test_nothing_breaks_while_the_rules_are_there() -> None:
    assert broken_claims(IN_TIME) == set()


def test_a_job_that_is_given_out_after_its_time_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "has_expired", lambda *_: False)
    assert "no job is started after its deadline" in broken_claims(IN_TIME)


@pytest.mark.parametrize("world", ["keys", "factory"])
def test_jobs_that_snooze_complete_in_a_world_one_by_one_and_in_cohorts(world: str) -> None:
    """No handler of a world snoozed, so what had to be seen in a long campaign was never there."""
    episode = play(world_named(world), faults_named("deaths"), seed=1, hours=0.3)
    assert episode.broken is None
    assert episode.seen["a snoozed job completes"]


@pytest.mark.long  # make test notices other broken rules of these worlds
def test_a_snoozed_job_that_becomes_ready_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    create = aggregate.JobAggregate.create_next_attempt

    def hasty(self: Any, owner: Any) -> None:
        create(self, owner)
        if owner.snoozed_until is not None:
            self.body.attempts[-1].ready_at = self.now

    reroute(monkeypatch, aggregate.WIRING, Recipient.NEXT_ATTEMPT, cascade.create(hasty))
    assert "a snoozed job waits, which costs no try" in broken_claims(IN_TIME)
    episode = played("none", seed=1)
    assert episode.broken is not None
    assert episode.broken.name == "step.snoozes"
