"""Jobs of a run that a person has to approve before they start."""

from __future__ import annotations

from typing import Any

import pytest
from tests.systems.orchestrator.house import House, done
from tests.systems.orchestrator.signals import faults

from interlock.errors import NotAllowed, PlanRefused, TerminalState
from interlock.systems.runs.graph import run_graph
from interlock.systems.runs.workflows import PlanRequest
from interlock.systems.runs.workflows.git import WorkflowPlanner
from interlock.wire.access import Role
from interlock.wire.runs import Plan, PlannedApproval, PlannedJob, RunSpec, RunView

DEPLOY = PlannedApproval(question="Deploy?", timeout_s=3_600.0)


def plan(approval: PlannedApproval = DEPLOY, **deploy: Any) -> Plan:
    """A build, a deployment that a person has to approve, and what comes after it."""
    return Plan(
        jobs=(
            PlannedJob(name="build", task="t"),
            PlannedJob(name="deploy", task="t", needs=("build",), approval=approval, **deploy),
            PlannedJob(name="tell", task="t", needs=("deploy",)),
        )
    )


@pytest.fixture
async def house() -> Any:
    opened = await House().open()
    yield opened
    await opened.close()


async def keep(house: House) -> None:
    for _ in range(3):
        await house.port.services.runs.keep()
        await house.recover()


async def begun(house: House, spec: Plan) -> str:
    """A run whose build is done."""
    run_id = (await house.port.services.runs.submit(RunSpec(plan=spec))).id
    await keep(house)
    await house.heard(done(await house.grant()))
    await keep(house)
    return run_id


async def view(house: House, run_id: str) -> RunView:
    return await house.port.services.runs.view(run_id)


def states(shown: RunView) -> dict[str, str]:
    return {job.name: job.state for job in shown.jobs}


async def test_a_job_waits_visibly_until_a_person_approves(house: House) -> None:
    run_id = await begun(house, plan())
    shown = await view(house, run_id)
    assert states(shown) == {"build": "COMPLETED", "deploy": "PENDING", "tell": "WAITING"}
    assert await house.claim() == [], "it is given to nobody"
    waiting = shown.jobs[1].awaiting
    assert waiting is not None
    assert (waiting.question, waiting.id) == ("Deploy?", f"{shown.jobs[1].job_id}.gate.1")
    assert [node.awaits for node in run_graph(shown).nodes] == ["", "approval", ""]
    explained = await house.port.services.runs.explain(run_id)
    assert explained.todo == f"interlock approval approve {waiting.id}"
    assert "It waits for a person to approve or reject: 'Deploy?'." in [
        line.sentence.partition(" It holds")[0] for line in explained.lines
    ]
    ((listed,), _) = await house.port.services.waits.find()
    assert (listed.id, listed.run_id, listed.question) == (waiting.id, run_id, "Deploy?")
    await keep(house)
    await house.port.services.waits.approve(waiting.id, actor="anna", comment="go")
    for _ in range(2):
        await house.heard(done(await house.grant()))
        await keep(house)
    assert (await view(house, run_id)).outcome == "SUCCESS"
    assert await faults(house) == []


async def test_a_rejection_cancels_the_job_and_the_jobs_that_need_it(house: House) -> None:
    run_id = await begun(house, plan())
    waiting = (await view(house, run_id)).jobs[1]
    await house.port.services.waits.reject(waiting.job_id, actor="anna", comment="not on a Friday")
    await keep(house)
    shown = await view(house, run_id)
    assert states(shown) == {"build": "COMPLETED", "deploy": "CANCELED", "tell": "CANCELED"}
    assert (shown.outcome, shown.reason, shown.culprit) == ("FAILED", "job_canceled", "deploy")
    assert shown.jobs[1].reason == "rejected"
    assert (await house.view(waiting.job_id)).cancel_reason == "not on a Friday"
    assert await faults(house) == []


async def test_a_rejected_optional_job_does_not_block_its_run(house: House) -> None:
    run_id = await begun(house, plan(required=False))
    waiting = (await view(house, run_id)).jobs[1]
    await house.port.services.waits.reject(waiting.job_id, actor="anna")
    await keep(house)
    await house.heard(done(await house.grant()))
    await keep(house)
    assert (await view(house, run_id)).outcome == "SUCCESS"


async def test_no_answer_in_time_cancels_the_job_but_not_the_run_before(house: House) -> None:
    long = PlannedApproval(question="Deploy?", timeout_s=30_000.0)
    run_id = await begun(house, plan(long))
    await house.later(29_000)
    assert (await view(house, run_id)).state == "RUNNING", "waiting does not count towards its timeout"
    await house.later(1_000)
    await keep(house)
    shown = await view(house, run_id)
    assert (shown.jobs[1].state, shown.jobs[1].reason, shown.outcome) == (
        "CANCELED",
        "not_approved",
        "FAILED",
    )


async def test_a_cancelled_run_refuses_approvals_and_leaves_none_open(house: House) -> None:
    run_id = await begun(house, plan())
    waiting = (await view(house, run_id)).jobs[1]
    assert waiting.awaiting is not None
    await house.port.services.runs.cancel(run_id)
    with pytest.raises(TerminalState):
        await house.port.services.waits.approve(waiting.awaiting.id, actor="anna")
    await keep(house)
    assert (await view(house, run_id)).outcome == "CANCELED"
    assert await house.port.services.waits.find() == ([], "")


async def test_a_root_job_waits_for_approval_by_a_listed_approver_with_the_required_role(
    house: House,
) -> None:
    guarded = PlannedApproval(question="Begin?", approvers=("anna",), role=Role.ADMIN)
    run_id = (
        await house.port.services.runs.submit(
            RunSpec(plan=Plan(jobs=(PlannedJob(name="a", task="t", approval=guarded),)))
        )
    ).id
    await keep(house)
    assert await house.claim() == []
    waiting = (await view(house, run_id)).jobs[0]
    with pytest.raises(NotAllowed, match="needs admin"):
        await house.port.services.waits.approve(waiting.job_id, actor="anna", roles=(Role.OPERATOR,))
    with pytest.raises(NotAllowed, match="is not an approver"):
        await house.port.services.waits.approve(waiting.job_id, actor="bert")
    await house.port.services.waits.approve(waiting.job_id, actor="anna")
    await house.heard(done(await house.grant()))
    await keep(house)
    assert (await view(house, run_id)).outcome == "SUCCESS"


async def test_a_plan_with_an_invalid_approval_is_refused_with_the_name_of_the_job(house: House) -> None:
    for wrong in (
        PlannedApproval(question=""),
        PlannedApproval(question="Go?", role=Role.VIEWER),
        PlannedApproval(question="Go?", timeout_s=-1.0),
    ):
        with pytest.raises(PlanRefused, match="deploy: "):
            await house.port.services.runs.submit(RunSpec(plan=plan(wrong)))


WORKFLOW = """
jobs:
  build: {steps: [{run: make}]}
  staging:
    needs: build
    approval: Deploy to staging?
    steps: [{run: make staging}]
  production:
    needs: staging
    approval: {question: "Deploy ${{ matrix.place }}?", approvers: anna, role: admin, timeout: 24h}
    matrix: {place: [berlin, paris]}
    steps: [{run: make production}]
"""


async def test_a_workflow_file_declares_the_approvals_that_its_jobs_need() -> None:
    spec = RunSpec(planner="workflow", definition=WORKFLOW)
    made = await WorkflowPlanner().plan(PlanRequest(run_id="r_1", spec=spec))
    approvals = {job.name: job.approval for job in made.jobs}
    assert approvals["build"] is None
    assert approvals["staging"] == PlannedApproval(question="Deploy to staging?")
    assert approvals["production (paris)"] == PlannedApproval(
        question="Deploy paris?", approvers=("anna",), role=Role.ADMIN, timeout_s=86_400.0
    )
