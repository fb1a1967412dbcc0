"""Jobs that submit jobs, with real workers, on a store and behind a server."""

from __future__ import annotations

import pytest
from tests.journeys import errands
from tests.journeys.crew import Crew
from tests.waiting import PROGRAM_S

from interlock import Interlock, Task

HANDLERS = {
    "async": errands.gather,
    "thread": errands.gather_in_a_thread,
    "process": errands.gather_in_a_process,
}
QUICK = {("store", "async"), ("server", "thread"), ("store", "process")}


@pytest.mark.parametrize(
    ("crew", "handler"),
    [
        pytest.param(
            way,
            handler,
            marks=() if (way, name) in QUICK else pytest.mark.long,
            id=f"{way}-{name}",
        )
        for way in ("store", "server")
        for name, handler in HANDLERS.items()
    ],
    indirect=["crew"],
)
async def test_a_parent_waits_for_its_children_where_there_is_only_one_slot(
    crew: Crew, client: Interlock, handler: Task[..., int]
) -> None:
    await crew.start("anna", "--slots", "1")
    made = await client.submit(handler, parts=3)

    assert await made.result(timeout_s=PROGRAM_S) == 0 + 1 + 2 + 3

    view = await made.view()
    assert [one.state for one in view.attempts] == ["STALE", "SUCCEEDED"]
    assert (view.children, view.losses) == (4, 0)
    tree = await client.tree(made.id)
    assert tree.states == {"COMPLETED": 5}
    assert [node.depth for node in tree.nodes] == [0, 1, 1, 1, 1]
    assert [crew.count(f"jot {number}") for number in range(4)] == [1, 1, 1, 1]
    assert await crew.faults() == []


@pytest.mark.long
async def test_the_tree_cost_adds_the_spending_of_a_parent_before_and_after_its_wait_for_children(
    crew: Crew, client: Interlock
) -> None:
    await crew.start("anna", "--slots", "1")  # the children begin when it waits for them
    made = await client.submit(errands.gather, parts=1)
    assert await made.result(timeout_s=PROGRAM_S) == 1
    assert (await client.tree(made.id)).nodes[0].tree_cost == 1.0


async def test_a_handler_that_runs_again_after_a_crash_finds_its_children_again(
    crew: Crew, client: Interlock
) -> None:
    anna = await crew.ready("anna")
    made = await client.submit(errands.submit_and_hang)
    await crew.noted("submitted 1")
    before = [node.id for node in (await client.tree(made.id)).nodes]

    await anna.kill()
    await crew.let_leases_run_out()
    await crew.start("ben")

    assert [made.id, *await made.result(timeout_s=PROGRAM_S)] == before
    assert (await made.view()).children == 5
    await crew.all_completed(6)
