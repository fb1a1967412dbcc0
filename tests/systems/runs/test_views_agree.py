"""One answer about a run says one thing: its tally counts the jobs that it shows."""

from __future__ import annotations

from collections import Counter

from tests.systems.orchestrator.house import beat, done
from tests.systems.runs.site import Site, planned


async def test_the_tally_of_a_run_matches_its_jobs_before_the_run_has_processed_their_messages(
    site: Site,
) -> None:
    run_id = await site.begin(planned("a"), planned("b"), planned("c", "a"))
    given = await site.offered(run_id)
    await site.heard(beat(given["a"]))
    await site.heard(done(given["b"]))
    view = await site.look(run_id)  # nobody has swept since
    assert view.tally == dict(Counter(job.state for job in view.jobs))
    assert view.tally == {"RUNNING": 1, "COMPLETED": 1, "WAITING": 1}
    outline = await site.runs.outline(run_id)
    assert sum(outline.tally.values()) == 3, "without its jobs it says what it knows"
