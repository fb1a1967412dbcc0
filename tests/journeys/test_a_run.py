"""A run on real workers: one of them is killed in the middle, and the run is reported all the same."""

from __future__ import annotations

import msgspec
from tests.journeys import errands
from tests.journeys.crew import Crew, stores

from interlock.wire.runs import Plan, PlannedJob, RunSpec, RunView


def planned(job: str, *needs: str, task: str = errands.jot.name, **given: object) -> PlannedJob:
    """One job of a plan."""
    return PlannedJob(name=job, task=task, needs=needs, input=msgspec.Raw(msgspec.json.encode(given)))


async def reported(crew: Crew, run_id: str) -> RunView:
    """The run, once it was reported."""

    async def look() -> bool:
        return (await crew.il.services.runs.view(run_id)).state == "REPORTED"

    await crew.until(look, "the run is reported")
    return await crew.il.services.runs.view(run_id)


@stores("sqlite")
async def test_a_run_succeeds_after_the_worker_that_processed_it_is_killed(crew: Crew) -> None:
    runs = crew.il.services.runs
    runs.prompt = False  # whoever submits goes away: the workers look after the run
    anna = await crew.ready("anna")
    plan = Plan(
        jobs=(
            *(planned(f"lint {number}", number=number) for number in range(5)),
            planned(
                "build", *(f"lint {number}" for number in range(5)), task=errands.held.name, name="build"
            ),
            *(planned(f"test {number}", "build", number=10 + number) for number in range(5)),
            planned("ship", *(f"test {number}" for number in range(5)), number=99),
        )
    )
    view = await runs.submit(RunSpec(plan=plan, workflow="ci"))
    await crew.noted("build began")
    await crew.ready("ben")

    await anna.kill()
    await crew.let_leases_run_out()
    crew.open_gate("build.2")
    view = await reported(crew, view.id)

    assert (view.outcome, view.tally) == ("SUCCESS", {"COMPLETED": 12})
    assert crew.count("jot 99") == 1
    assert [crew.notes.index("jot 99") > crew.notes.index(f"jot {10 + n}") for n in range(5)] == [True] * 5
    assert await crew.faults() == []


async def test_cancelling_a_run_stops_its_jobs_and_reports_the_run_as_confirmed_dead(crew: Crew) -> None:
    runs = crew.il.services.runs
    await crew.ready("anna")
    jobs = (planned("polite", task=errands.polite.name), planned("after", "polite", number=1))
    view = await runs.submit(RunSpec(plan=Plan(jobs=jobs)))
    await crew.noted("polite began")

    await runs.cancel(view.id, reason="not needed any more")
    view = await reported(crew, view.id)

    assert (view.outcome, view.reason, view.confirmed_dead) == ("CANCELED", "cancel", True)
    assert view.tally == {"CANCELED": 2}
    assert crew.count("jot 1") == 0
    assert await crew.faults() == []
