"""Trees of jobs with real workers, on every store."""

from __future__ import annotations

import msgspec
from tests.effort import pick
from tests.journeys import errands
from tests.journeys.crew import STEADY, Crew, stores

from interlock.store.records import Query

UNHURRIED = msgspec.structs.replace(
    STEADY, heartbeat_every_s=3.0, lease_ttl_s=600.0, shutdown_deadline_s=500.0, cancel_deadline_s=500.0
)
"""A thousand leases are renewed meanwhile, and a thousand handlers are told to stop."""

JOBS = pick(33, 1_000)
WIDTHS = pick([4, 7], [9, 110])
"""The root, four or nine below it, and seven or 110 below each of those."""


@stores("postgres")
async def test_a_tree_of_many_jobs_is_cancelled_at_its_root_while_all_are_running(crew: Crew) -> None:
    await crew.open(UNHURRIED, tree_quotas=(10, 10, JOBS, 1, 1, 1))
    for name in ("anna", "ben"):
        await crew.start(name, "--slots", "500")
    root = await crew.il.submit(errands.plant, widths=WIDTHS)
    await crew.noted("planted", JOBS)

    await root.cancel(reason="enough")

    async def all_stopped() -> bool:
        query = Query(kind="job", states=("CANCELED",))
        return (await crew.il.services.jobs.count(query, cap=JOBS + 1)).number == JOBS

    await crew.until(all_stopped, "all of it is CANCELED")
    tree = await crew.il.tree(root.id, most=JOBS)
    assert (len(tree.nodes), tree.states, tree.cut) == (JOBS, {"CANCELED": JOBS}, False)
    assert {node.stop_reason for node in tree.nodes[1:]} == {"parent"}
    leaf = await crew.il.job(tree.nodes[-1].id)
    *given_back, last = [one.state for one in leaf.attempts]
    assert (last, set(given_back) - {"STALE"}, leaf.losses) == ("CANCELED", set(), 0)
