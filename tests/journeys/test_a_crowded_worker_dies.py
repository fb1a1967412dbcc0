"""A worker dies with its hands full: all is done again, and the others do not get into each other's way."""

from __future__ import annotations

import pytest
from tests.effort import pick
from tests.journeys import errands
from tests.journeys.crew import Crew, stores

from interlock.engine.outbox import SENDING, WAITING
from interlock.store.records import Query
from interlock.systems.quarantine import STANDING

HELD = pick(25, 1_000)
A_FEW = HELD // 4
"""Changes of the record of the dead worker. With one for each loss there were 68 conflicts for each."""


@stores("postgres")
@pytest.mark.long  # others kill workers with less work
async def test_the_work_of_a_crowded_worker_is_done_again_without_a_storm(crew: Crew) -> None:
    anna = await crew.start("anna", "--slots", str(HELD))
    await crew.il.submit_many([errands.done_the_second_time.spec() for _ in range(HELD)])
    await crew.noted("crowd began", times=HELD)
    others = [await crew.ready(name, "--slots", "50") for name in ("ben", "carl", "dora")]

    await anna.kill()
    await crew.let_leases_run_out()
    await crew.all_completed(HELD)

    async def all_is_told() -> bool:
        waiting = Query(kind="message", states=(WAITING, SENDING))
        return (await crew.il.services.store.count(waiting, cap=1)).number == 0

    await crew.until(all_is_told, "every message has arrived")
    [changed] = (await crew.il.services.store.find(Query(kind=STANDING.name))).records
    assert changed.version <= A_FEW
    (standing,) = await crew.il.services.quarantine.list()
    assert (standing.runner, standing.occasions) == ("anna", 1)
    assert [other.exit_code for other in others] == [None] * 3
    assert await crew.faults() == []
