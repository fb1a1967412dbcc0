"""Refusals in the journal: the first of each kind under a lease is journalled, and no flood of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from tests.systems.orchestrator.house import TTL_S, House, ack, beat, done, failed, release, stopped

from interlock.engine.unit_of_work import REFUSAL_JOURNALLED_EVERY_S
from interlock.wire.runner import Message

KINDS: tuple[Callable[..., Message], ...] = (ack, beat, done, stopped, release)
"""One message of each type."""


async def lost_lease(house: House) -> Any:
    grant = await house.started()
    await house.later(TTL_S)
    return grant


async def test_a_runner_cannot_fill_the_journal_with_refused_messages(house: House) -> None:
    grant = await lost_lease(house)
    for number in range(40):
        for say in KINDS:
            await house.stale(say(grant, sequence=number + 1))
        await house.stale(failed(grant, error=f"another reason, number {number}"))
    journalled = await house.refusals(grant.job_id)
    assert len(journalled) == len({refusal.partition(":")[0] for refusal in journalled}) == len(KINDS)
    assert await house.faults() == []


async def test_other_names_of_runners_add_nothing_to_the_journal(house: House) -> None:
    grant = await house.started()
    for number in range(20):
        answer = await house.refused(beat(grant, number + 1, runner_id=f"other-{number}"))
        assert answer.code == "wrong_runner"
        assert f"other-{number}" in answer.error, "each refusal is explained to the runner that it is about"
    assert len(await house.refusals(grant.job_id)) == 1


async def test_each_attempt_and_each_reason_has_its_first_refusal_in_the_journal(house: House) -> None:
    first = await lost_lease(house)
    second = await house.grant()
    await house.stale(beat(first, 7))
    await house.refused(beat(second, 1, runner_id="somebody else"))
    await house.refused(beat(second, 2, runner_id="somebody else"))
    await house.heard(done(second))
    await house.stale(beat(second, 3))
    await house.refused(done(second, b"2"))
    assert len(await house.refusals(first.job_id)) == 4


async def test_a_refusal_that_is_not_journalled_again_leaves_the_job_alone(house: House) -> None:
    grant = await lost_lease(house)
    await house.stale(beat(grant, 2))
    before, entries = await house.record(grant.job_id), len(await house.history(grant.job_id))
    answers = await house.port.report([beat(grant, number) for number in range(3, 30)])
    assert len({msgspec.json.encode(answer) for answer in answers}) == 1
    assert await house.record(grant.job_id) == before
    assert len(await house.history(grant.job_id)) == entries


async def test_a_repeated_refusal_is_journalled_again_after_seven_days(house: House) -> None:
    grant = await house.started()
    await house.heard(done(grant))
    await house.stale(beat(grant, 2))
    house.clock.jump(REFUSAL_JOURNALLED_EVERY_S + 1)
    await house.stale(beat(grant, 3))
    await house.stale(beat(grant, 4))
    assert len(await house.refusals(grant.job_id)) == 2
