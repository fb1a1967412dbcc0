"""The model checker explores the code that runs in production: whatever is broken in it is noticed.

Each test takes one line out of what decides about runs, or does it wrongly, and names the claim that
breaks. The tables are left alone; they have mutants of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.rerouting import reroute

from interlock.lifecycles.couplings import Recipient
from interlock.machine.cascade import order
from interlock.systems.orchestrator import cancellation as job_stopping
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.notifications import JobChanged
from interlock.systems.orchestrator.submission import release
from interlock.systems.runs import body as letters
from interlock.systems.runs import preparation
from interlock.systems.runs.aggregate import RunAggregate, RunFacts
from interlock.systems.runs.new_jobs import JobOrder
from interlock.systems.runs.orders import (
    decide_order,
)
from interlock.testing.model_checker import check
from interlock_verification.environments import REDUCED, model_of
from interlock_verification.models import job_decisions
from interlock_verification.models.plan import JobPlan, RunPlan

WORDS_TWICE = RunPlan(
    name="words-twice",
    doc="Two required jobs, and any one word comes twice.",
    jobs=(JobPlan(losses=0), JobPlan(losses=0, job_timeout=80_000)),
    required=(True, True),
    heartbeats=0,
    fails=False,
    acknowledge=True,
    repeats=1,
    states=20_000,
)


def first_broken_claim(plan: str | RunPlan) -> str:
    (found,) = (each for each in (*REDUCED, WORDS_TWICE) if plan in (each, each.name))
    violations = check(model_of(found), most=10 * (found.states or 0)).violations
    assert violations, f"nothing was noticed in {found.name}"
    return violations[0].claim


def test_a_stopped_run_that_sends_no_orders_to_its_jobs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for receiver in (Recipient.UNFINISHED_JOBS, Recipient.ITS_JOBS):
        reroute(monkeypatch, RunAggregate.wiring, receiver, order(lambda *_: None))
    assert (
        first_broken_claim("mutant-run-is-stopped") == "the remaining jobs of a stopped run are being stopped"
    )


@pytest.mark.long
def test_a_run_that_counts_a_job_twice_when_its_message_is_repeated_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = RunAggregate._apply_step

    def forgetful(self: RunAggregate, word: JobChanged, places: Sequence[int]) -> list[int]:
        for place in places:
            if self._state_of(place) in letters.ENDED:
                self._states[place] = ord(letters.RUNNING)
        return honest(self, word, places)

    assert check(model_of(WORDS_TWICE)).ok
    monkeypatch.setattr(RunAggregate, "_apply_step", forgetful)
    assert first_broken_claim(WORDS_TWICE) == "a run succeeds only when every required job has completed"


def test_a_run_that_takes_every_job_for_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunFacts, "required", property(lambda _: True))
    assert first_broken_claim("mutant-run-of-two") == "a run fails only for its plan or for a required job"


def test_a_run_that_succeeds_when_nothing_is_left_however_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def any_end_will_do(self: RunAggregate, ended: list[int], _: str, *, unconfirmed: bool) -> None:
        self.body.left -= len(ended)
        self.body.required_left -= len(ended)

    monkeypatch.setattr(RunAggregate, "_count", any_end_will_do)
    monkeypatch.setattr(RunFacts, "required", property(lambda _: False))
    claim = first_broken_claim("mutant-run-of-two")
    assert claim == "a run succeeds only when every required job has completed"


def test_an_order_to_stop_that_makes_the_job_and_lets_runners_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forgetful(order: JobOrder, job: JobAggregate) -> None:
        if job.record is None:
            release(job)
        else:
            decide_order(order, job)

    monkeypatch.setattr(job_decisions, "decide_order", forgetful)
    assert (
        first_broken_claim("mutant-run-is-stopped") == "the remaining jobs of a stopped run are being stopped"
    )


def test_a_job_that_does_not_notify_its_run_of_its_end_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_stopping, "notifications_for", lambda *_: ())
    claim = first_broken_claim("mutant-run-is-stopped")
    assert claim == "every run is reported, and all of its jobs end"


def test_a_deadline_that_is_passed_over_when_something_else_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunAggregate, "fire_due", lambda _: None)
    assert first_broken_claim("mutant-run") == "a run times out"


@pytest.mark.long  # make test notices other broken rules of these worlds
def test_a_run_of_a_fork_that_is_planned_before_its_approval_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preparation, "awaited_first", lambda _: None)
    claim = first_broken_claim("mutant-run-of-a-fork")
    assert claim == "a run that has to be approved has jobs only once it is"
