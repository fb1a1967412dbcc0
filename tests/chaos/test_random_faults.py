"""Whatever goes wrong between the engine and a store, each step is done once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import pick

from interlock.testing.faults import ALL, Fault, Plan
from interlock_verification.chaos import random_faults
from interlock_verification.chaos.random_faults import try_plan
from interlock_verification.chaos.verdict import Setup

faults = st.builds(
    Fault,
    what=st.sampled_from(["request lost", "reply lost", "late", "done twice"]),
    of=st.lists(st.sampled_from(ALL), min_size=1, max_size=4, unique=True).map(tuple),
    chance=st.sampled_from([0.0, 0.05, 0.3, 0.7]),
    at=st.lists(st.integers(1, 30), max_size=5).map(tuple),
    delay_s=st.sampled_from([0.001, 0.1, 10.0]),
)


@given(plan=st.builds(Plan, faults=st.lists(faults, max_size=5).map(tuple), seed=st.integers(0, 1_000)))
@settings(max_examples=pick(15, 40), derandomize=True)
def test_no_plan_of_faults_loses_a_step_or_does_it_twice(plan: Plan) -> None:
    found, _ = try_plan(plan)
    assert found.sentences() == []
    assert found.acknowledged == random_faults.CLIENTS * random_faults.STEPS


def test_many_seeded_plans_lose_nothing_and_do_nothing_twice() -> None:
    plans = pick(30, 100)
    verdict = random_faults.run(Setup(store="memory", rounds=plans, seed=1))
    assert verdict.broken_promises == []
    assert verdict.counts["faults"] > 10 * plans


def test_clients_that_just_do_it_again_are_found_out() -> None:
    verdict = random_faults.run(Setup(store="memory", rounds=10, seed=1, broken=True))
    assert verdict.counts["doubled"] > 0
    assert verdict.broken_promises != []


@pytest.mark.parametrize("seed", [1, 3, 7, 24])
def test_the_same_seed_does_the_same_again(seed: int) -> None:
    """Random marks of decisions made the pauses after conflicts random, so that few seeds did."""
    plan = random_faults.plan_of(seed)
    assert [try_plan(plan) for _ in range(3)] == [try_plan(plan)] * 3
