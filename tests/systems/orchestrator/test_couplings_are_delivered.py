"""Every consequence that the tables name has somebody who sees to it."""

from __future__ import annotations

from tests.systems.orchestrator.house import TTL_S, House, beat, done, failed, stopped

from interlock.lifecycles import attempt, job, lease
from interlock.lifecycles.attempt import ATTEMPT
from interlock.lifecycles.couplings import COUPLINGS
from interlock.lifecycles.job import JOB
from interlock.lifecycles.lease import LEASE
from interlock.systems.orchestrator.aggregate import JobAggregate

ROUTES = JobAggregate.wiring.routes
MINE = [coupling for coupling in COUPLINGS if coupling.cause in (JOB, ATTEMPT, LEASE)]


def test_the_delivery_routes_are_exactly_the_recipients_of_the_couplings() -> None:
    assert set(ROUTES) == {coupling.to for coupling in MINE}


async def test_each_consequence_within_a_job_is_seen_in_some_journal(house: House) -> None:
    """Every event that one machine of a job sends to another is taken by it, at least once."""
    for spec in ({}, {"retries": 1}, {"losses": 0}, {"timeout_s": 50.0}, {"job_timeout_s": 50.0}):
        await house.submit(**spec)
    await house.submit(worker_count=3)
    ids = []
    for number in range(7):
        (grant,) = await house.claim(limit=1)
        ids.append(grant.job_id)
        if number == 0:
            await house.heard(beat(grant))
            await house.heard(done(grant))
        elif number == 1:
            await house.heard(failed(grant))
    await house.later(50)
    await house.later(TTL_S)
    waiting, granted = await house.submit(), await house.submit(queue="granted")
    await house.grant(queues=("granted",), acknowledge=False)
    cooperative = await house.started(queue="told")
    for job_id in (waiting, granted, cooperative.job_id):
        await house.jobs.cancel(job_id)
    await house.heard(beat(cooperative))
    await house.heard(stopped(cooperative))
    forced = await house.started(queue="forced")
    await house.jobs.cancel(forced.job_id)
    await house.later(31)
    taken = {
        (step.machine, step.event)
        for entry in (await house.store.feed(limit=100_000)).entries
        for step in entry.note.steps
    }
    sent = {
        (coupling.effect.name, coupling.event.name)
        for coupling in MINE
        if coupling.event is not None and ROUTES[coupling.to].find is not None
    }
    assert sent - taken == set()
    assert (LEASE.name, lease.Expire.name) in taken
    assert (ATTEMPT.name, attempt.force_cancel.name) in taken
    assert (JOB.name, job.Timeout.name) in taken
