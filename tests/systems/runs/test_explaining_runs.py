"""Nothing waits in silence: for everything that has not ended, what it waits for, whose turn, until when."""

from __future__ import annotations

from tests.systems.orchestrator.house import beat, done
from tests.systems.runs.site import Site, plan, planned

from interlock.wire.runs import RunSpec

JOBS = (planned("a"), planned("b", "a"), planned("c", "a", "b"))


async def test_explain_reports_the_reason_why_each_job_of_a_run_waits(site: Site) -> None:
    run_id = await site.begin(*JOBS, timeout_s=500.0)
    explanation = await site.runs.explain(run_id)
    assert explanation.sentence == "None of its 3 jobs has begun; they wait for runners: a, b, c."
    lines = {line.entity: line for line in explanation.lines}
    assert (lines[f"run {run_id}"].turn, lines[f"run {run_id}"].deadline_event) == (
        "orchestrator",
        "time_out",
    )
    assert lines["a"].sentence == (
        "It waits for a worker of the queue default. No live worker takes the queue default."
    )
    assert explanation.todo.startswith("interlock worker start ")
    assert lines["b"].sentence == "It waits for a (PENDING)."
    assert lines["c"].sentence == "It waits for a (PENDING), b (WAITING)."
    assert (await site.jobs.explain(lines["b"].job_id)).sentence == (
        f"It waits for its needs in the run {run_id}."
    )
    grant = (await site.offered(run_id))["a"]
    await site.heard(beat(grant))
    await site.recover()
    explanation = await site.runs.explain(run_id)
    assert explanation.sentence == "0 of 3 jobs ended; it waits for a, b, c."
    assert explanation.lines[1].sentence == "Runner runner#1 executes it."
    assert explanation.next_deadline_at is not None
    await site.heard(done(grant))
    explanation = await site.runs.explain(run_id)
    assert "the run has not been notified of that yet" in explanation.lines[1].sentence


async def test_explain_describes_a_run_that_is_unplanned_being_canceled_or_reported(site: Site) -> None:
    view = await site.runs.submit(RunSpec(plan=plan(planned("a"))))
    assert (await site.runs.explain(view.id)).sentence == "It waits to be planned."
    await site.recover()
    grant = (await site.offered(view.id))["a"]
    await site.heard(beat(grant))
    await site.runs.cancel(view.id)
    explanation = await site.runs.explain(view.id)
    assert explanation.sentence == "It is being stopped (cancel); it waits for a."
    assert explanation.lines[1].state == "STOPPING"
    await site.later(30)
    explanation = await site.runs.explain(view.id)
    assert explanation.sentence == "It ended as CANCELED, and was reported: a user cancelled it."
    assert explanation.todo == f"interlock run rerun {view.id} --failed"


async def test_a_run_of_many_jobs_names_the_first_and_counts_the_rest(site: Site) -> None:
    run_id = await site.begin(*(planned(str(number)) for number in range(130)))
    explanation = await site.runs.explain(run_id)
    assert explanation.sentence.endswith("0, 1, 2, 3, 4 and 125 more.")
    assert (len(explanation.lines), explanation.more) == (101, 30)
