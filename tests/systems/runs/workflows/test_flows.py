"""Flows: a Python function that says which jobs there are."""

from __future__ import annotations

import msgspec
import pytest

from interlock import Flow, JobSpec, flow, task
from interlock.errors import CannotLoad, InvalidArguments, PlanRefused
from interlock.systems.runs.workflows import PlanRequest
from interlock.systems.runs.workflows.flow import FlowPlanner
from interlock.wire.runs import RunSpec, Source


@task(queue="ci", retries=2, labels=["linux"], timeout_s=60)
def run_tests(python: str, *, quick: bool = False) -> None:
    """Nobody calls it here."""
    raise AssertionError(python, quick)


@flow
def ci(plan: Flow, *, pythons: str = "3.11 3.12", quick: bool = False, most: int = 9) -> None:
    """Tests for each Python, and a package of what was tested."""
    plan.timeout_s = 600
    tests = [
        plan.job(run_tests, version, quick=quick, name=f"test ({version})")
        for version in pythons.split()[:most]
    ]
    plan.shell("pack", "make", "make dist", env={"A": "1"}, needs=tests, queue="slow", required=False)
    if plan.changed("docs/**"):
        plan.shell("docs", "make docs", why=plan.why_changed("docs/**"))
    else:
        plan.skip("docs", "the pages have not changed")


def test_a_flow_makes_a_plan_and_does_none_of_the_work() -> None:
    plan = ci.plan(Source(changed_paths=("docs/a.md",)), quick=True)
    first, second, pack, docs = plan.jobs
    assert [job.name for job in plan.jobs] == ["test (3.11)", "test (3.12)", "pack", "docs"]
    assert (first.task, first.queue, first.retries) == (run_tests.name, "ci", 2)
    assert (first.labels, first.timeout_s) == (("linux",), 60)
    assert msgspec.json.decode(second.input) == {"python": "3.12", "quick": True}
    assert (pack.needs, pack.required, pack.queue) == (("test (3.11)", "test (3.12)"), False, "slow")
    assert msgspec.json.decode(pack.input) == {
        "steps": [{"run": "make"}, {"run": "make dist"}],
        "env": {"A": "1"},
    }
    assert docs.why == "docs/a.md has changed, which matches docs/**"
    assert plan.timeout_s == 600


def test_a_job_that_a_flow_leaves_out_is_in_the_plan_with_a_reason() -> None:
    plan = ci.plan(Source(changed_paths=("src/a.py",)))
    assert [(job.name, job.why) for job in plan.skipped] == [("docs", "the pages have not changed")]


def test_a_flow_becomes_a_run_that_has_its_plan_already() -> None:
    spec = ci.spec(Source(ref="refs/heads/main"), pythons="3.13")
    assert (spec.workflow, spec.planner, spec.inputs) == ("ci", "plan", {"pythons": "3.13"})
    assert spec.plan is not None
    assert [job.name for job in spec.plan.jobs] == ["test (3.13)", "pack", "docs"]


def test_a_flow_can_be_a_part_of_another() -> None:
    @flow(name="everything")
    def both(plan: Flow) -> None:
        ci(plan, pythons="3.11")
        plan.shell("lint", "make lint")

    assert both.name == "everything"
    assert [job.name for job in both.plan().jobs] == ["test (3.11)", "pack", "docs", "lint"]


def test_inputs_are_converted_from_text_to_the_parameter_types_of_the_flow() -> None:
    plan = ci.plan(Source(), quick="true", most="1")
    assert msgspec.json.decode(plan.jobs[0].input) == {"python": "3.11", "quick": True}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"python": "3"}, "has no input 'python'. Did you mean pythons?"),
        ({"most": "many"}, "The input most of the flow ci does not fit"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: dict[str, str], message: str) -> None:
    with pytest.raises(PlanRefused, match=message.replace("?", r"\?")):
        ci.plan(Source(), **inputs)


def test_planning_a_flow_without_a_required_input_is_refused_with_its_name() -> None:
    @flow
    def needy(plan: Flow, where: str) -> None:
        plan.shell("a", where)

    with pytest.raises(PlanRefused, match="needs where"):
        needy.plan()


def test_a_flow_cannot_be_wrong_about_its_jobs() -> None:
    plan = Flow(Source())
    known = plan.job(JobSpec(task="shop.pack"))
    with pytest.raises(PlanRefused, match="Two jobs of the flow are called pack"):
        plan.job(JobSpec(task="shop.pack"))
    other = Flow(Source()).shell("elsewhere", "make")
    with pytest.raises(PlanRefused, match="not a job of this flow"):
        plan.shell("a", "make", needs=[known, other])
    with pytest.raises(PlanRefused, match="has no delay_s"):
        plan.job(JobSpec(task="x", delay_s=3))
    with pytest.raises(InvalidArguments, match="has its arguments already"):
        plan.job(JobSpec(task="x"), 3)


def test_a_job_of_a_flow_names_its_secrets() -> None:
    plan = Flow(Source())
    plan.shell("a", "make", secrets=["TOKEN"])
    assert plan.made().jobs[0].secrets == ("TOKEN",)


def test_only_a_function_that_takes_the_plan_is_a_flow() -> None:
    with pytest.raises(CannotLoad, match="a plain function that takes the plan"):
        flow(lambda: None)


def asked(address: str, **inputs: str) -> PlanRequest:
    return PlanRequest(run_id="r_1", spec=RunSpec(planner="flow", definition=address, inputs=inputs))


async def test_the_planner_finds_a_flow_that_is_loaded() -> None:
    plan = await FlowPlanner().plan(asked(ci.address, pythons="3.14"))
    assert plan.jobs[0].name == "test (3.14)"


async def test_the_planner_imports_nothing() -> None:
    with pytest.raises(PlanRefused, match=r"There is no flow 'os:system' here\."):
        await FlowPlanner().plan(asked("os:system"))


async def test_an_exception_in_a_flow_is_reported_with_its_type_and_message() -> None:
    @flow
    def broken(plan: Flow) -> None:
        raise ValueError("no such version")

    with pytest.raises(PlanRefused, match="broken raised ValueError: no such version"):
        await FlowPlanner().plan(asked(broken.address))
