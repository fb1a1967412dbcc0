"""Every consequence that the tables name has somebody who sees to it."""

from __future__ import annotations

import pytest
from tests.systems.orchestrator.house import TTL_S, House, beat, done, failed, stopped

from interlock.lifecycles import attempt, job, lease
from interlock.lifecycles.attempt import ATTEMPT
from interlock.lifecycles.couplings import COUPLINGS, Facts
from interlock.lifecycles.job import JOB
from interlock.lifecycles.lease import LEASE
from interlock.machine import Coupling
from interlock.systems.orchestrator.draft import OUTWARD, Draft

MINE = [coupling for coupling in COUPLINGS if coupling.cause in (JOB, ATTEMPT, LEASE)]
ONE_EACH = pytest.mark.parametrize("coupling", MINE, ids=[coupling.sentence for coupling in MINE])


@ONE_EACH
def test_a_consequence_is_delivered_here_or_known_to_go_elsewhere(coupling: Coupling[Facts]) -> None:
    assert (coupling.to in Draft.DELIVERIES) is not (coupling.to in OUTWARD), coupling.sentence


@ONE_EACH
def test_what_goes_to_another_machine_of_the_same_record_is_delivered_here(coupling: Coupling[Facts]) -> None:
    elsewhere = {"each of its children", "each job that needs it", "each of its siblings", "its parent"}
    if coupling.effect in (JOB, ATTEMPT, LEASE) and coupling.to not in elsewhere:
        assert coupling.to in Draft.DELIVERIES
    else:
        assert coupling.to in OUTWARD


def test_nothing_is_delivered_that_no_coupling_speaks_of() -> None:
    assert {*Draft.DELIVERIES, *OUTWARD} == {coupling.to for coupling in MINE}


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
    told = await house.started(queue="told")
    for job_id in (waiting, granted, told.job_id):
        await house.jobs.cancel(job_id)
    await house.heard(beat(told))
    await house.heard(stopped(told))
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
        if coupling.event is not None and coupling.to in Draft.DELIVERIES
    }
    assert sent - taken == set()
    assert (LEASE.name, lease.Expire.name) in taken
    assert (ATTEMPT.name, attempt.force_cancel.name) in taken
    assert (JOB.name, job.Timeout.name) in taken
