"""The worlds that are explored with the tests: every claim holds, and the states are counted.

A count that has changed is no fault by itself. It means that a table, a coupling, a decider or the
model does something else than before: look at why, then write the new number down.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from interlock.errors import UnknownName
from interlock.lifecycles import machine_named
from interlock.testing.lifecycles import check_lifecycle
from interlock.testing.model_checker import Mode, check
from interlock_verification.environments import ENVIRONMENTS, LONG, QUICK, REDUCED, model_of, plan_named
from interlock_verification.models.job_world import JobWorld
from interlock_verification.models.plan import JobPlan, ModelPlan, RunPlan
from interlock_verification.single_machines import ALONE

IN_MINUTES = ("first-job", "cancel")
"""What `make test` explores; of the other plans it explores the reduced ones."""


def unless_long(plans: Sequence[ModelPlan | RunPlan], long: Collection[str]) -> list[ParameterSet]:
    return [
        pytest.param(plan, marks=[pytest.mark.long] if plan.name in long else [], id=plan.name)
        for plan in plans
    ]


@pytest.mark.parametrize("plan", unless_long(QUICK, {plan.name for plan in QUICK} - {*IN_MINUTES}))
def test_every_claim_holds_in_every_state(plan: ModelPlan) -> None:
    report = check(model_of(plan))
    assert report.complete
    assert [violation.claim for violation in report.violations] == []
    assert report.states == plan.states


@pytest.mark.parametrize(
    "plan", unless_long(REDUCED, {"mutant-run-is-stopped", "mutant-run", "mutant-shards"})
)
def test_the_worlds_in_which_mutants_are_tried_are_sound_themselves(plan: ModelPlan) -> None:
    report = check(model_of(plan))
    assert (report.complete, report.ok, report.states) == (True, True, plan.states)


@pytest.mark.parametrize("name", list(ALONE))
def test_the_tables_keep_their_promises_for_every_caller(name: str) -> None:
    check_lifecycle(machine_named(name), ALONE[name])


def test_at_least_three_hundred_thousand_states_are_explored_with_all_tests() -> None:
    assert sum(plan.states or 0 for plan in QUICK) >= 300_000


def test_at_least_five_million_states_are_explored_in_the_long_run() -> None:
    assert sum(plan.states or 0 for plan in (*QUICK, *LONG)) >= 5_000_000


def test_every_environment_has_a_description_a_state_count_and_required_sights() -> None:
    assert len(ENVIRONMENTS) == len(QUICK) + len(LONG)
    for plan in ENVIRONMENTS.values():
        claims = model_of(plan).claims
        assert plan.doc.endswith(".")
        assert [claim.claim for claim in claims if claim.mode is Mode.SOMETIMES] == list(plan.shows)
        assert plan.shows
        assert plan.states is not None


def test_an_unknown_environment_name_is_refused_with_a_list_of_the_known_names() -> None:
    with pytest.raises(UnknownName, match="shards") as refused:
        plan_named("shard")
    assert "race" in refused.value.allowed


class Watched:
    """A model that notes which states are met, whatever the names; with or without putting names in order."""

    def __init__(self, model: JobWorld, *, folds: bool) -> None:
        self.model, self.folds = model, folds
        self.name, self.claims = model.name, model.claims
        self.initial, self.steps, self.tell = model.initial, model.steps, model.tell
        self.kinds: set[Any] = set()

    def canonical(self, state: Any) -> Any:
        return self.model.canonical(state) if self.folds else state

    def look(self, state: Any) -> int:
        self.kinds.add(min(self.under_any_names(state)))
        return self.model.look(state)

    def under_any_names(self, state: Any) -> Iterator[Any]:
        names = self.model.names
        same = [names._forget(state)]
        same += [names._swap_workers(one) for one in same]
        same += [names._swap_jobs(one) for one in same] if len(state[0]) == 2 else []
        for jobs, hands, net, orch, spare in same:
            yield jobs, hands, net, tuple(sorted(one or () for one in orch)), spare


@pytest.mark.parametrize(
    "plan",
    unless_long(
        [
            ModelPlan(name="workers", doc="Two workers.", workers=2, duplicates=1),
            ModelPlan(
                name="jobs", doc="Two.", jobs=(JobPlan(losses=0),) * 2, workers=2, cancels=1, heartbeats=0
            ),
            ModelPlan(name="race", doc="Two of each.", workers=2, orchestrators=2, heartbeats=0, fails=False),
        ],
        {"jobs"},
    ),
)
def test_one_state_stands_for_all_that_differ_in_names_only(plan: ModelPlan) -> None:
    """Exploring one of each kind meets exactly the kinds that exploring all of them meets."""
    model = JobWorld(plan)
    folded, named = Watched(model, folds=True), Watched(model, folds=False)
    few, all_of_them = check(folded), check(named)
    assert few.ok
    assert all_of_them.ok
    assert folded.kinds == named.kinds
    assert len(named.kinds) <= few.states < 0.6 * all_of_them.states
