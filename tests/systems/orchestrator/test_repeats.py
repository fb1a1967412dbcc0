"""Whatever is said twice is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from tests.systems.orchestrator.house import (
    TTL_S,
    House,
    ack,
    beat,
    done,
    failed,
    release,
    stopped,
)

from interlock.errors import RequestIdReused
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import Heard, LogLine, Message, NotHeard, Progress, Stale, StaleCode

# Requests of people


async def test_the_same_request_makes_one_job_and_gets_its_id_again(house: House) -> None:
    spec = JobSpec(task="build", input=msgspec.Raw(b'{"x":1}'))
    first = await house.jobs.submit(spec, request_id="r-1")
    house.clock.jump(60)
    assert await house.jobs.submit(spec, request_id="r-1") == first
    assert await house.number_of_jobs() == 1


async def test_several_jobs_under_one_request_are_made_once(house: House) -> None:
    specs = [JobSpec(task=f"task-{n}") for n in range(5)]
    ids = await house.jobs.submit_many(specs, request_id="r-1")
    assert await house.jobs.submit_many(specs, request_id="r-1") == ids
    assert await house.number_of_jobs() == 5


async def test_the_same_request_sent_at_once_by_many_makes_one_job(house: House) -> None:
    spec = JobSpec(task="build")
    ids = await asyncio.gather(*(house.jobs.submit(spec, request_id="r-1") for _ in range(20)))
    assert len(set(ids)) == 1
    assert await house.number_of_jobs() == 1


async def test_a_request_id_with_other_content_is_refused_and_stores_nothing(house: House) -> None:
    await house.jobs.submit(JobSpec(task="build"), request_id="r-1")
    for other in (JobSpec(task="test"), JobSpec(task="build", priority=1), JobSpec(task="build", retries=0)):
        with pytest.raises(RequestIdReused) as refused:
            await house.jobs.submit(other, request_id="r-1")
        assert refused.value.code == "request_id_reused"
    assert await house.number_of_jobs() == 1


async def test_a_refused_submission_releases_its_request_id(house: House) -> None:
    bad, good = JobSpec(task="build", parent_job_id="j_nobody"), JobSpec(task="build")
    with pytest.raises(Exception, match="no job j_nobody"):
        await house.jobs.submit(bad, request_id="r-1")
    assert await house.jobs.submit(good, request_id="r-1")


async def test_a_repeated_submission_under_a_parent_is_replayed_although_the_parent_has_ended(
    house: House,
) -> None:
    parent = await house.started()
    spec = JobSpec(task="child", parent_job_id=parent.job_id)
    child = await house.jobs.submit(spec, request_id="r-1")
    await house.heard(done(parent))
    assert await house.jobs.submit(spec, request_id="r-1") == child
    assert await house.number_of_jobs() == 2


@pytest.mark.parametrize("active", [False, True])
async def test_a_repeated_cancel_is_replayed_although_the_job_has_ended(house: House, active: bool) -> None:
    job_id = await house.submit()
    grant = await house.grant() if active else None
    first = await house.jobs.cancel(job_id, request_id="c-1")
    if grant is not None:
        await house.heard(beat(grant))
        await house.heard(stopped(grant))
    before = await house.record(job_id)
    assert await house.jobs.cancel(job_id, request_id="c-1") == first, "what was answered then"
    assert await house.record(job_id) == before


async def test_a_cancel_repeated_under_its_request_id_while_the_job_is_stopping_changes_nothing(
    house: House,
) -> None:
    grant = await house.started()
    await house.jobs.cancel(grant.job_id, request_id="c-1")
    before = await house.record(grant.job_id)
    house.clock.jump(3)
    await house.jobs.cancel(grant.job_id, request_id="c-1")
    assert await house.record(grant.job_id) == before


async def test_a_repeated_retry_makes_one_job(house: House) -> None:
    grant = await house.started()
    await house.heard(failed(grant))
    again = await house.jobs.retry(grant.job_id, request_id="a-1")
    assert await house.jobs.retry(grant.job_id, request_id="a-1") == again
    assert await house.jobs.retry(grant.job_id) != again
    assert await house.number_of_jobs() == 3


async def test_the_id_of_one_request_cannot_be_used_for_another_kind(house: House) -> None:
    job_id = await house.jobs.submit(JobSpec(task="build"), request_id="r-1")
    with pytest.raises(RequestIdReused):
        await house.jobs.cancel(job_id, request_id="r-1")
    assert (await house.view(job_id)).state == "PENDING"


# Messages of runners


async def repeated(house: House, message: Message, job_id: str) -> None:
    """The same again gets the same answer, and adds no row."""
    first = await house.heard(message)
    record, history = await house.record(job_id), await house.history(job_id)
    chunks = await house.chunks(job_id)
    house.clock.jump(1)
    assert await house.say(message) == first
    assert await house.record(job_id) == record
    assert await house.history(job_id) == history
    assert await house.chunks(job_id) == chunks


@pytest.mark.parametrize("say", [beat, done, failed, release], ids=lambda say: str(say.__name__))
async def test_a_message_that_arrives_twice_does_nothing_the_second_time(
    house: House, say: Callable[..., Message]
) -> None:
    grant = await house.started(retries=1)
    line = LogLine(house.clock(), "info", "hello")
    await repeated(house, say(grant, log=(line,)), grant.job_id)
    assert len(await house.chunks(grant.job_id)) == 1


async def test_an_ack_that_arrives_twice_does_nothing_the_second_time(house: House) -> None:
    await house.submit()
    grant = await house.grant(acknowledge=False)
    await repeated(house, ack(grant), grant.job_id)


async def test_a_cancel_ack_that_arrives_twice_does_nothing_the_second_time(house: House) -> None:
    grant = await house.started()
    await house.jobs.cancel(grant.job_id)
    await house.heard(beat(grant))
    await repeated(house, stopped(grant), grant.job_id)


@pytest.mark.parametrize("say", [done, failed, release], ids=lambda say: str(say.__name__))
async def test_a_report_that_is_sent_again_with_another_number_is_the_same_report(
    house: House, say: Callable[..., Message]
) -> None:
    grant = await house.started(retries=1)
    first = await house.heard(say(grant, sequence=5))
    assert await house.heard(say(grant, sequence=6)) == first


async def test_a_report_is_still_known_after_its_lease_would_have_run_out(house: House) -> None:
    grant = await house.started()
    await house.heard(done(grant, b"1"))
    await house.later(10 * TTL_S)
    assert (await house.heard(done(grant, b"1"))).state == "SUCCEEDED"


@pytest.mark.parametrize("say", [done, failed, release], ids=lambda say: str(say.__name__))
async def test_twice_in_one_batch_is_once(house: House, say: Callable[..., Message]) -> None:
    grant = await house.started(retries=1)
    first, second = await house.port.report([say(grant), say(grant)])
    assert isinstance(first, Heard)
    assert second == first
    assert [entry.version for entry in await house.history(grant.job_id)] == [1, 2, 3]


async def test_a_second_report_with_other_content_is_a_conflict_and_is_journalled_once(house: House) -> None:
    grant = await house.started()
    await house.heard(done(grant, b"1"))
    before = await house.record(grant.job_id)
    others = [done(grant, b"2"), failed(grant), done(grant, b"1", cost=3.0)]
    for other in others:
        answer = await house.refused(other)
        assert answer.code == "conflicting_completion"
        assert len(await house.refusals(grant.job_id)) == 1
    assert await house.record(grant.job_id) == before
    assert (await house.view(grant.job_id)).result == msgspec.Raw(b"1")
    assert (await house.heard(done(grant, b"1"))).state == "SUCCEEDED"
    assert await house.faults() == []


async def test_a_failure_after_a_success_in_one_batch_is_a_conflict(house: House) -> None:
    grant = await house.started()
    first, second = await house.port.report([done(grant, b"1"), failed(grant)])
    assert isinstance(first, Heard)
    assert isinstance(second, NotHeard)
    assert second.code == "conflicting_completion"
    assert (await house.view(grant.job_id)).state == "COMPLETED"


async def test_a_conflicting_completion_is_refused_as_such_even_if_the_job_continues(house: House) -> None:
    grant = await house.started(retries=1)
    await house.heard(failed(grant))
    assert (await house.refused(done(grant))).code == "conflicting_completion"
    assert (await house.view(grant.job_id)).state == "RUNNING"


async def test_after_the_end_a_heartbeat_is_stale(house: House) -> None:
    grant = await house.started()
    await house.heard(beat(grant, 1))
    await house.heard(done(grant))
    for late in (beat(grant, 1), beat(grant, 200), ack(grant), release(grant), stopped(grant)):
        answer = await house.say(late)
        assert isinstance(answer, Stale), late


async def test_heartbeats_are_distinguished_by_their_numbers(house: House) -> None:
    grant = await house.started()
    await house.heard(beat(grant, 3, progress=Progress(done=3)))
    before = await house.record(grant.job_id)
    house.clock.jump(1)
    await house.heard(beat(grant, 3, progress=Progress(done=9)))
    assert await house.record(grant.job_id) == before
    for overtaken in (2, 1, 2, 1):
        await house.heard(beat(grant, overtaken, progress=Progress(done=overtaken)))
    (one,) = (await house.view(grant.job_id)).attempts
    assert one.progress == Progress(done=3)
    await house.heard(beat(grant, 4, progress=Progress(done=4)))
    (one,) = (await house.view(grant.job_id)).attempts
    assert one.progress == Progress(done=4)


async def test_an_overtaken_heartbeat_is_not_a_repeat_and_its_lines_are_kept(house: House) -> None:
    grant = await house.started()
    for number in (2, 1):
        line = LogLine(house.clock(), "info", f"line {number}")
        await house.heard(beat(grant, number, log=(line,)))
        await house.heard(beat(grant, number, log=(line,)))
    texts = [line.text for chunk in await house.chunks(grant.job_id) for line in chunk.lines]
    assert sorted(texts) == ["line 1", "line 2"]


async def test_the_checkpoint_of_an_overtaken_heartbeat_is_kept_unless_there_is_a_newer_one(
    house: House,
) -> None:
    grant = await house.started()
    await house.heard(beat(grant, 3))
    await house.heard(beat(grant, 2, checkpoint=msgspec.Raw(b"2")))
    await house.heard(beat(grant, 1, checkpoint=msgspec.Raw(b"1")))
    await house.heard(release(grant))
    assert (await house.grant()).checkpoint == msgspec.Raw(b"2")


async def test_the_progress_of_an_overtaken_heartbeat_is_kept_unless_there_is_a_newer_one(
    house: House,
) -> None:
    """The last progress goes ahead of the report, and a renewal without any may overtake it."""
    grant = await house.started()
    await house.heard(beat(grant, 3))
    await house.heard(beat(grant, 2, progress=Progress(done=2)))
    await house.heard(beat(grant, 1, progress=Progress(done=1)))
    (one,) = (await house.view(grant.job_id)).attempts
    assert one.progress == Progress(done=2)


async def test_messages_of_different_types_may_have_the_same_number(house: House) -> None:
    """A message is known by its lease, its type and its number."""
    line = (LogLine(house.clock(), "info", "hello"),)
    await house.submit()
    grant = await house.grant(acknowledge=False)
    await house.heard(ack(grant, 1, log=line))
    house.clock.jump(5)
    answer = await house.heard(beat(grant, 1, log=line))
    assert answer.state == "RUNNING"
    assert (await house.heard(done(grant, sequence=1, log=line))).state == "SUCCEEDED"
    assert len(await house.chunks(grant.job_id)) == 3


async def test_numbers_need_not_be_given(house: House) -> None:
    grant = await house.started()
    line = (LogLine(house.clock(), "info", "hello"),)
    await house.heard(beat(grant, 0, log=line))
    assert (await house.heard(done(grant, sequence=0, log=line))).state == "SUCCEEDED"


async def test_a_duplicate_of_a_report_that_was_lost_to_expiry_is_stale_each_time(house: House) -> None:
    grant = await house.started()
    house.clock.jump(TTL_S)
    for _ in range(3):
        assert (await house.stale(done(grant))).code is StaleCode.LEASE_EXPIRED
    assert await house.states(grant.job_id) == ("RUNNING", ["STALE", "QUEUED"])
    assert (await house.view(grant.job_id)).losses == 1
