"""The worlds that are explored whenever the tests run: every claim holds, and the states are counted.

A count that has changed is no fault by itself. It means that a table, a coupling, a decider or the
model does something else than before: look at why, then write the new number down.
"""

from __future__ import annotations

import pytest

from interlock.errors import UnknownName
from interlock.lifecycles import machine_named
from interlock.verify.checking import check
from interlock.verify.claims import Mode
from interlock.verify.environments import ENVIRONMENTS, LONG, QUICK, model_of, plan_named
from interlock.verify.environments.alone import ALONE
from interlock.verify.environments.reduced import REDUCED
from interlock.verify.jobs.plan import Plan
from interlock.verify.lifecycles import check_lifecycle


@pytest.mark.parametrize("plan", QUICK, ids=lambda plan: plan.name)
def test_every_claim_holds_in_every_state(plan: Plan) -> None:
    report = check(model_of(plan))
    assert report.complete
    assert [violation.claim for violation in report.violations] == []
    assert report.states == plan.states


@pytest.mark.parametrize("plan", REDUCED, ids=lambda plan: plan.name)
def test_the_worlds_in_which_mutants_are_tried_are_sound_themselves(plan: Plan) -> None:
    report = check(model_of(plan))
    assert (report.complete, report.ok, report.states) == (True, True, plan.states)


@pytest.mark.parametrize("name", list(ALONE))
def test_the_tables_keep_their_promises_whoever_asks(name: str) -> None:
    check_lifecycle(machine_named(name), ALONE[name])


def test_at_least_three_hundred_thousand_states_are_explored_with_the_tests() -> None:
    assert sum(plan.states or 0 for plan in QUICK) >= 300_000


def test_at_least_five_million_states_are_explored_in_the_long_run() -> None:
    assert sum(plan.states or 0 for plan in (*QUICK, *LONG)) >= 5_000_000


def test_every_environment_says_what_it_is_and_what_has_to_be_seen_in_it() -> None:
    assert len(ENVIRONMENTS) == len(QUICK) + len(LONG)
    for plan in ENVIRONMENTS.values():
        claims = model_of(plan).claims
        assert plan.doc.endswith(".")
        assert [claim.claim for claim in claims if claim.mode is Mode.SOMETIMES] == list(plan.shows)
        assert plan.shows
        assert plan.states is not None


def test_an_environment_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(UnknownName, match="shards") as refused:
        plan_named("shard")
    assert "race" in refused.value.allowed


def test_states_that_are_the_same_but_for_names_are_explored_once() -> None:
    """With two workers that are alike there are fewer states than with two that are told apart."""
    plan = Plan(name="pair", doc="Two workers.", workers=2, heartbeats=0)
    folded = check(model_of(plan))

    class Named:
        def __init__(self) -> None:
            self.model = model_of(plan)

        def __getattr__(self, name: str) -> object:
            return getattr(self.model, name)

        def canonical(self, state: object) -> object:
            return state

    named = check(Named())  # type: ignore[arg-type]
    assert folded.ok
    assert named.ok
    assert folded.states < 0.6 * named.states
