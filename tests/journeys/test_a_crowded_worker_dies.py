"""A worker dies with its hands full: all is done again, and the others do not get into each other's way."""

from __future__ import annotations

from tests.effort import pick
from tests.journeys import errands
from tests.journeys.crew import Crew, Place, stores

from interlock.engine.outbox import SENDING, WAITING
from interlock.store.records import Query
from interlock.testing.servers import PostgresServer

HELD = pick(25, 1_000)
A_FEW = pick(10, 5)
"""Conflicts for each loss: six of 25 on a busy machine. Of 1,000 there were 68 when each of them changed the
record of the dead worker.
"""


async def conflicts(place: Place) -> int:
    """How many transactions were rolled back on the server so far; others count none."""
    if not isinstance(place.server, PostgresServer):
        return 0
    [[rolled_back]] = place.server.sql("SELECT sum(xact_rollback) FROM pg_stat_database")
    return int(rolled_back or 0)


@stores("postgres")
async def test_the_work_of_a_crowded_worker_is_done_again_without_a_storm(crew: Crew, place: Place) -> None:
    anna = await crew.start("anna", "--slots", str(HELD))
    await crew.il.submit_many([errands.done_the_second_time.spec() for _ in range(HELD)])
    await crew.noted("crowd began", times=HELD)
    others = [await crew.ready(name, "--slots", "50") for name in ("ben", "carl", "dora")]
    before = await conflicts(place)

    await anna.kill()
    await crew.let_leases_run_out()
    await crew.all_completed(HELD)

    async def all_is_told() -> bool:
        waiting = Query(kind="message", states=(WAITING, SENDING))
        return (await crew.il.here.store.count(waiting, cap=1)).number == 0

    await crew.until(all_is_told, "every message has arrived")
    assert await conflicts(place) - before <= A_FEW * HELD
    (standing,) = await crew.il.here.quarantine.list()
    assert (standing.runner, standing.occasions) == ("anna", 1)
    assert [other.exit_code for other in others] == [None] * 3
    assert await crew.faults() == []
