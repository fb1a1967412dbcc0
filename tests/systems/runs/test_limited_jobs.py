"""Jobs of a run that count against limits."""

from __future__ import annotations

import pytest
from tests.systems.runs.site import Site, plan, planned

from interlock.errors import PlanRefused
from interlock.systems.runs.workflows import PlanRequest
from interlock.systems.runs.workflows.flow import Flow, FlowFunction
from interlock.systems.runs.workflows.git import WorkflowPlanner
from interlock.wire.jobs import JobSpec
from interlock.wire.limits import LimitSpec
from interlock.wire.runs import RunSpec, Source

WORKFLOW = """
name: deploy
defaults: {limits: cluster}
jobs:
  build:
    limits: []
    steps: [{run: make}]
  test:
    steps: [{run: make test}]
  deploy:
    matrix: {city: [paris, rome]}
    limits: [cluster, "city-${{ matrix.city }}"]
    weight: 2
    steps: [{run: make deploy}]
"""


async def test_jobs_of_a_run_wait_for_a_slot_of_their_limit(site: Site) -> None:
    await site.port.services.limits.set("cluster", LimitSpec(max=1))
    run_id = await site.begin(
        planned("build"), *(planned(name, "build", limits=("cluster",)) for name in ("a", "b"))
    )
    assert await site.finish(run_id) == ["build"]
    await site.recover()
    (first,) = await site.finish(run_id)
    await site.recover()
    assert {first, *await site.finish(run_id)} == {"a", "b"}
    assert (await site.look(run_id)).outcome == "SUCCESS"
    assert await site.all_faults() == []


async def test_explain_shows_that_a_job_of_a_run_waits_for_a_slot_of_its_limit(site: Site) -> None:
    await site.port.services.limits.set("cluster", LimitSpec(max=1))
    run_id = await site.begin(*(planned(name, limits=("cluster",)) for name in ("a", "b")))
    await site.recover()
    assert len(await site.offered(run_id)) == 1
    sentences = [line.sentence for line in (await site.runs.explain(run_id)).lines]
    assert any("It waits for the limit cluster: 1 of 1 in use" in sentence for sentence in sentences)


async def test_a_plan_with_a_limit_that_is_not_declared_is_refused(site: Site) -> None:
    await site.port.services.limits.set("cluster", LimitSpec(max=1))
    made = plan(planned("a", limits=("clutser",), line=7), planned("b", limits=("cluster",), weight=2))
    with pytest.raises(PlanRefused) as refused:
        await site.runs.submit(RunSpec(plan=made))
    assert refused.value.facts["faults"] == [
        "a (line 7): There is no limit clutser. Did you mean cluster?",
        "b: The limit cluster has 1 slots, and the job wants 2",
    ]
    assert "interlock limit set clutser" in refused.value.todo


async def test_a_workflow_names_limits_of_its_jobs() -> None:
    spec = RunSpec(planner="workflow", definition=WORKFLOW)
    made = await WorkflowPlanner().plan(PlanRequest(run_id="r_1", spec=spec))
    assert {job.name: (job.limits, job.weight) for job in made.jobs} == {
        "build": ((), 1),
        "test": (("cluster",), 1),
        "deploy (paris)": (("cluster", "city-paris"), 2),
        "deploy (rome)": (("cluster", "city-rome"), 2),
    }


async def test_a_run_whose_workflow_names_an_unknown_limit_fails_with_the_job_and_its_line(
    site: Site,
) -> None:
    site.runs.preparation.planners["workflow"] = WorkflowPlanner()
    view = await site.runs.submit(RunSpec(planner="workflow", definition=WORKFLOW))
    await site.recover()
    shown = await site.look(view.id)
    assert (shown.outcome, shown.reason) == ("FAILED", "plan_failed")
    assert "test (line 9): There is no limit cluster" in shown.error


def test_a_spec_of_a_flow_keeps_its_limits() -> None:
    def build(plan: Flow) -> None:
        plan.job(JobSpec(task="shop.build", limits=("cluster",), weight=2))

    (job,) = FlowFunction(build).plan(Source()).jobs
    assert (job.limits, job.weight) == (("cluster",), 2)
