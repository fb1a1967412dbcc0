"""A plan is checked once, and runs that have it share its graph; the result equals that for each."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import pick
from tests.systems.runs.any_plans import DIAMOND, planned_jobs
from tests.systems.runs.site import plan, planned

from interlock.errors import PlanRefused
from interlock.store.memory import MemoryStore
from interlock.systems.runs.plan_validation import _is_flawless, check_plan, cycle_in, plan_faults
from interlock.systems.runs.plans import Plans, pieces_of, plan_graph
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.runs import PlannedApproval, PlannedJob


@settings(max_examples=pick(60, 300), deadline=None, derandomize=True)
@given(st.lists(planned_jobs(), min_size=1, max_size=3), st.data())
def test_a_graph_that_runs_share_is_the_graph_of_each(
    plans: list[tuple[PlannedJob, ...]], data: st.DataObject
) -> None:
    known = Plans(lambda: MemoryStore({}))
    for number in range(6):
        jobs = data.draw(st.sampled_from(plans))
        carried = data.draw(st.frozensets(st.integers(0, len(jobs) - 1), max_size=1))
        pieces = pieces_of(plan(*jobs), [f"j_{number}_{place}" for place in range(len(jobs))], carried)
        assert known.graph_of(pieces) == plan_graph(pieces)


def test_runs_of_one_plan_share_its_graph_but_for_the_ids() -> None:
    known = Plans(lambda: MemoryStore({}))
    ids = [[f"{letter}_{place}" for place in range(len(DIAMOND))] for letter in "jk"]
    first, second = (known.graph_of(pieces_of(plan(*DIAMOND), each)) for each in ids)
    assert first.ids != second.ids
    assert first.needs is second.needs


@pytest.mark.parametrize(
    "fault",
    [
        {"jobs": (planned("a"), planned("a"))},
        {"jobs": (planned("a"), planned("b", "c"))},
        {"jobs": (planned("a", input=msgspec.Raw(b"{")), planned("b"))},
        {"timeout_s": -1.0},
    ],
)
def test_a_plan_with_a_fault_is_refused_every_time_also_after_one_without(fault: dict[str, Any]) -> None:
    good = plan(planned("a"), planned("b"))
    check_plan(good, DEFAULT_SETTINGS)
    check_plan(good, DEFAULT_SETTINGS)
    for _ in range(2):
        with pytest.raises(PlanRefused):
            check_plan(msgspec.structs.replace(good, **fault), DEFAULT_SETTINGS)


def test_a_plan_that_other_settings_allow_is_checked_again() -> None:
    good = plan(planned("a", input=msgspec.Raw(b'"12345"')))
    check_plan(good, DEFAULT_SETTINGS)
    with pytest.raises(PlanRefused):
        check_plan(good, msgspec.structs.replace(DEFAULT_SETTINGS, max_input_bytes=3))


def test_a_plan_is_checked_once_while_it_stays_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [tuple(planned(name, task="once") for name in ("a", "b")) for _ in range(2)]
    check_plan(plan(*jobs[0]), DEFAULT_SETTINGS)
    monkeypatch.setattr("interlock.systems.runs.plan_validation.plan_faults", lambda *_: ["checked again"])
    check_plan(plan(*jobs[1]), DEFAULT_SETTINGS)


@settings(max_examples=pick(150, 600), deadline=None, derandomize=True)
@given(planned_jobs(), st.data())
def test_a_plan_that_is_accepted_at_once_has_no_fault_when_each_job_is_checked(
    jobs: tuple[PlannedJob, ...], data: st.DataObject
) -> None:
    faults: list[dict[str, Any]] = [
        {"task": ""},
        {"name": ""},
        {"name": "a\n"},
        {"timeout_s": -1.0},
        {"priority": 99},
        {"needs": ("a0", "nothing")},
        {"needs": ("a7",)},
        {"environment": "x" * 300},
        {"approval": PlannedApproval(question="", timeout_s=-1.0)},
        {"worker_count": 0},
        {},
    ]
    place = data.draw(st.integers(0, len(jobs) - 1))
    fields = {name: getattr(jobs[place], name) for name in PlannedJob.__struct_fields__}
    spoilt = PlannedJob(**{**fields, **data.draw(st.sampled_from(faults))})
    some = (*jobs[:place], spoilt, *jobs[place + 1 :])
    with pytest.MonkeyPatch.context() as slowly:
        slowly.setattr("interlock.systems.runs.plan_validation._is_flawless", lambda *_: False)
        found = list(plan_faults(plan(*some), DEFAULT_SETTINGS))
    assert list(plan_faults(plan(*some), DEFAULT_SETTINGS)) == found
    plain = all(each.approval is None and not each.environment for each in some)
    if not found and plain:
        assert _is_flawless(some, DEFAULT_SETTINGS), "it is checked the long way without a reason"


def test_jobs_that_wait_for_each_other_are_found_although_alike_jobs_are_checked_once() -> None:
    jobs = (planned("a", "c"), planned("b", "a"), planned("c", "b"))
    assert not _is_flawless(jobs, DEFAULT_SETTINGS)
    assert cycle_in({job.name: job.needs for job in jobs}) == ["a", "c", "b", "a"]
