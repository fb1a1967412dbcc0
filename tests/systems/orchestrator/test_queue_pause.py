"""A paused queue: its jobs wait, wherever work is given out, until it is resumed."""

from __future__ import annotations

import pytest
from tests.systems.orchestrator.house import House, done

from interlock.errors import InvalidJob
from interlock.systems.orchestrator.queues import Queues

MAIL = ("mail", "default")


def queues(house: House) -> Queues:
    return house.port.services.queues


async def test_no_job_of_a_paused_queue_is_given_out_until_it_is_resumed(house: House) -> None:
    letter, other = await house.submit(queue="mail"), await house.submit(queue="default")
    running = await house.submit(queue="mail", priority=10)
    granted = (await house.claim(limit=1, queues=("mail",)))[0]
    held = await queues(house).pause("mail", reason="the mail server is away", actor="ann")
    assert (held.name, held.state, held.reason, held.by) == (
        "mail",
        "paused",
        "the mail server is away",
        "ann",
    )
    assert [grant.job_id for grant in await house.claim(queues=MAIL)] == [other]
    assert await house.claim(queues=("mail",)) == []
    assert granted.job_id == running
    await house.heard(done(granted))  # what runs goes on
    assert (await queues(house).resume("mail", actor="ann")).state == "open"
    assert [grant.job_id for grant in await house.claim(queues=MAIL)] == [letter]
    assert not await house.faults()


async def test_other_processes_know_it_when_they_deliver_messages_and_new_ones_at_once(house: House) -> None:
    before = await house.neighbour()
    await before.claim(queues=("mail",))
    await house.submit(queue="mail")
    await queues(house).pause("mail")
    after = await house.neighbour()
    assert await after.claim(queues=("mail",)) == []
    await before.port.recover()
    assert await before.claim(queues=("mail",)) == []
    await queues(house).resume("mail")
    await before.port.recover()
    assert len(await before.claim(queues=("mail",))) == 1
    await before.close()
    await after.close()


async def test_explain_shows_that_a_queue_is_paused_with_actor_reason_and_resume_command(
    house: House,
) -> None:
    job_id = await house.submit(queue="mail")
    await queues(house).pause("mail", reason="the mail server is away", actor="ann")
    explanation = await house.jobs.explain(job_id)
    assert explanation.blocked == "The queue mail was paused by ann: the mail server is away."
    assert explanation.blocked in explanation.sentence
    assert explanation.todo == "interlock queue resume mail"
    await queues(house).resume("mail")
    assert "paused" not in (await house.jobs.explain(job_id)).sentence


async def test_pausing_twice_changes_nothing_and_a_repeat_is_answered_as_before(house: House) -> None:
    first = await queues(house).pause("mail", reason="first", request_id="p-1")
    assert (await queues(house).pause("mail", reason="second")).reason == "first"
    await queues(house).resume("mail")
    assert await queues(house).pause("mail", reason="first", request_id="p-1") == first
    assert await queues(house).paused() == []
    assert (await queues(house).resume("never paused")).state == "open"


async def test_a_paused_queue_is_listed_also_without_jobs(house: House) -> None:
    await house.submit(queue="busy")
    await queues(house).pause("mail", reason="away")
    listed = [(view.name, view.state, view.pending, view.reason) for view in await queues(house).list()]
    assert listed == [("busy", "open", 1, ""), ("mail", "paused", 0, "away")]


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb"])
async def test_pausing_a_queue_with_an_invalid_name_is_refused(house: House, name: str) -> None:
    with pytest.raises(InvalidJob, match="1 to 64 printable characters"):
        await queues(house).pause(name)
