"""One job from submit to done, told in order. Read it as the tutorial.

Somebody writes a function, submits work, and starts a worker, which does it. Afterwards they look at
what has happened.
"""

from __future__ import annotations

from tests.journeys.crew import Crew
from tests.waiting import PROGRAM_S

from interlock import Context, task

# A task is a function with types. What comes in and what goes out is JSON; a worker that imports
# this module can execute it. `ctx` is no argument of the job: the worker gives it to the handler.


@task
async def brew(ctx: Context, cups: int, *, strong: bool = False) -> dict[str, int]:
    """Make coffee."""
    for cup in range(cups):
        ctx.progress(cup + 1, cups, f"cup {cup + 1}")
    ctx.log("smells good")
    return {"cups": cups, "grams": cups * (12 if strong else 8)}


async def test_one_job_from_submit_to_done(crew: Crew) -> None:
    # A store is a URL. This one is a file of SQLite; PostgreSQL and Redis are used in the same way.
    # `crew.il` is what `Interlock("sqlite:///…")` gives you.
    il = crew.il

    # Arguments are checked here and now, not later in some worker. What comes back is a handle.
    made = await il.submit(brew, 3, strong=True)

    # Nobody is there to do it yet. Nothing waits in silence: ask what it waits for.
    waiting = await il.services.jobs.explain(made.id)
    assert waiting.state == "PENDING"
    assert waiting.sentence == (
        "It waits for a worker of the queue default. No live worker takes the queue default."
    )

    # Start a worker, as you would in another terminal: `interlock worker start THIS_FILE --store URL`.
    worker = await crew.start("barista", module=__file__)

    # Wait for what the function has returned.
    assert await made.result(timeout_s=PROGRAM_S) == {"cups": 3, "grams": 36}

    # The job knows who has done it, when, and in how many attempts.
    view = await made.view()
    assert view.state == "COMPLETED"
    (attempt,) = view.attempts
    assert attempt.state == "SUCCEEDED"
    assert attempt.lease is not None
    assert attempt.lease.runner_id.startswith("barista#")
    assert attempt.progress is not None
    assert (attempt.progress.done, attempt.progress.message) == (3, "cup 3")
    assert view.completed_at is not None
    assert view.created_at < view.completed_at

    # Every step of every machine is in the journal, written in the same commit as the step itself.
    assert await crew.steps(made.id, "job") == [
        "validate → PENDING",
        "allocate_resources → RUNNING",
        "success → COMPLETED",
    ]
    assert await crew.steps(made.id, "attempt") == [
        "publish → QUEUED",
        "grant → LEASED",
        "acknowledged → STARTING",
        "heartbeat → RUNNING",
        "upload → UPLOADING",
        "completed → SUCCEEDED",
    ]
    assert await crew.steps(made.id, "lease") == ["ack → ACTIVE", "complete → COMPLETED"]
    assert {entry.note.actor for entry in await crew.history(made.id)} == {
        "somebody",
        attempt.lease.runner_id,
    }

    # What the handler has logged is kept with the job.
    chunks = [chunk async for chunk in il.services.jobs.logs(made.id)]
    assert [line.text for chunk in chunks for line in chunk.lines] == ["smells good"]

    # And it can say in a sentence how it ended.
    assert (await il.services.jobs.explain(made.id)).sentence == "It completed after 1 attempt."

    # The worker waits for more. Ask it to go, and it goes.
    worker.ask_to_go()
    assert await worker.gone() == 0

    # Whether journal and records agree can be checked at any time.
    assert await crew.faults() == []
