"""Runs with real workers and real steps, through a store and through a server: nobody can tell which."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.journeys.crew import Crew
from tests.journeys_http.serving import Served
from tests.waiting import PROGRAM_S, until

from interlock import Flow, Interlock, flow, sync
from interlock.client_resources import RunHandle
from interlock.errors import ResultNotReady, UnknownRun
from interlock.wire.runs import Plan, PlannedJob, Source


@flow
def ci(plan: Flow, *, word: str = "fine") -> None:
    """Two jobs that need a third; one of them fails when it is told so."""
    first = plan.shell("first", "echo begun")
    plan.shell("second", f"echo {word}; test {word} = fine", needs=[first])
    plan.shell("third", "echo done", needs=[first], required=False)


async def test_a_flow_runs_from_end_to_end(crew: Crew, client: Interlock) -> None:
    await crew.start("anna")
    run = await client.runs.submit(ci)
    view = await run.wait(timeout_s=PROGRAM_S)
    required = {job.name: job.state for job in view.jobs if job.required}
    assert (view.outcome, required) == ("SUCCESS", {"first": "COMPLETED", "second": "COMPLETED"})
    found, cursor = await client.runs.find("outcome:success workflow:ci")
    assert ([each.id for each in found], cursor) == ([run.id], "")
    assert (await client.runs.history(run.id))[0].note.actor == "somebody"
    assert [job.name for job in await client.runs.jobs(run.id, first=1)] == ["second", "third"]
    assert (await client.runs.explain(run.id)).run_id == run.id


@pytest.mark.long
async def test_a_workflow_file_that_fails_is_done_again_from_where_it_failed(
    crew: Crew, client: Interlock, tmp_path: Path
) -> None:
    await crew.start("anna")
    marker = tmp_path / "marker"
    path = tmp_path / "flaky.yml"
    path.write_text(
        "jobs:\n"
        "  build: {steps: [{run: echo built}]}\n"
        f"  test: {{needs: build, steps: [{{run: 'test -e {marker}'}}]}}\n"
    )
    failed = await (await client.runs.submit(path)).wait(timeout_s=PROGRAM_S)
    assert (failed.outcome, failed.workflow, failed.culprit) == ("FAILED", "flaky", "test")
    marker.touch()
    again = await client.runs.rerun(failed.id, "failed")
    view = await again.wait(timeout_s=PROGRAM_S)
    assert (view.outcome, view.origin_run_id) == ("SUCCESS", failed.id)


async def test_a_run_that_no_worker_can_execute_is_canceled(crew: Crew, client: Interlock) -> None:
    run = await client.runs.submit(Plan(jobs=(PlannedJob(name="a", task="nobody.knows"),)), workflow="stuck")
    with pytest.raises(ResultNotReady, match="has not ended within"):
        await run.wait(timeout_s=0.2)
    await run.cancel(reason="enough")
    assert (await run.wait(timeout_s=PROGRAM_S)).outcome == "CANCELED"
    with pytest.raises(UnknownRun):
        await client.runs.view("r_000000000000")


async def test_the_synchronous_face_does_the_same(crew: Crew, tmp_path: Path) -> None:
    import asyncio

    await crew.start("anna")
    token = crew.tokens["somebody"] if isinstance(crew, Served) else None
    url = crew.server.url if isinstance(crew, Served) else crew.url

    def use() -> str | None:
        with sync.Interlock(url, token=token) as il:
            run_id = il.runs.submit(ci, word="broken")
            view = il.runs.wait(run_id, timeout_s=PROGRAM_S)
            assert il.runs.find("outcome:failed")[0][0].id == run_id
            assert il.runs.view(il.runs.rerun(run_id)).origin_run_id == run_id
            return view.outcome

    assert await asyncio.to_thread(use) == "FAILED"


async def test_a_change_from_a_fork_is_approved_or_declined(crew: Crew, client: Interlock) -> None:
    plan = Plan(jobs=(PlannedJob(name="a", task="interlock.shell"),))
    fork = Source(repository="acme/shop", ref="refs/pull/7/head", sha="5f" * 20, from_fork=True)
    for decision, outcome in (("decline", "CANCELED"), ("approve", None)):
        run = await client.runs.submit(plan, source=fork, workflow=decision)

        async def waits(run: RunHandle = run) -> bool:
            return (await run.view()).state == "AWAITING_APPROVAL"

        await until(waits, "the run waits for an approval")
        doing = client.runs.approve if decision == "approve" else client.runs.decline
        view = await doing(run.id)
        assert view.outcome == outcome
        assert bool(view.approvals) is (decision == "approve")
