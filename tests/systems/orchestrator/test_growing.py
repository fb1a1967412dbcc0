"""A record has a largest size; a job that comes near it must not be stuck, nor hold up anybody else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.systems.orchestrator.house import TTL_S, House, beat, done, failed, release

from interlock.store.memory import MemoryStore
from interlock.systems.catalogue import CATALOGUE
from interlock.testing.clocks import JumpingClock

LARGEST = 20_000
GRANT_BYTES, LOSS_BYTES = 240, 180
"""By how much a record grows, about, when a lease is granted and when it is lost."""


@pytest.fixture
async def small() -> AsyncIterator[House]:
    """On a store that takes only small records, so that little is needed to fill one."""
    clock = JumpingClock()
    store = MemoryStore(CATALOGUE, clock=clock)
    store.capabilities = msgspec.structs.replace(store.capabilities, max_body_bytes=LARGEST)
    house = await House(store=lambda: store, clock=clock).open()
    yield house
    await house.close()


async def large_job(house: House, *, leave: int) -> str:
    """A job that waits again, whose checkpoint leaves hardly any room in its record."""
    empty = await given_back(house, b'""', "measured")
    room = LARGEST - len((await house.record(empty)).body) - leave
    return await given_back(house, b'"' + b"x" * room + b'"', "default")


async def given_back(house: House, checkpoint: bytes, queue: str) -> str:
    """A job that was given back with a checkpoint."""
    grant = await house.started(queue=queue)
    await house.heard(release(grant, checkpoint=msgspec.Raw(checkpoint)))
    return grant.job_id


@pytest.mark.parametrize("limit", [1, 10])
@pytest.mark.parametrize("leave", range(0, 700, 50))
async def test_a_job_that_has_grown_does_not_keep_others_from_being_given_out(
    small: House, leave: int, limit: int
) -> None:
    large = await large_job(small, leave=leave)
    small.clock.jump(1)
    other = await small.submit()
    given = {grant.job_id for _ in range(3) for grant in await small.claim(limit=limit)}
    assert other in given
    view = await small.view(large)
    stopped = leave < GRANT_BYTES
    assert (large in given, view.state) == ((False, "CANCELED") if stopped else (True, "RUNNING"))
    assert view.stop_reason == ("too_large" if stopped else None)


@pytest.mark.parametrize("leave", range(280, 700, 40))
async def test_a_job_that_has_grown_does_not_keep_the_sweep_from_others(small: House, leave: int) -> None:
    large = await large_job(small, leave=leave)
    await small.claim()
    small.clock.jump(1)
    other = await small.started(queue="others")
    await small.later(TTL_S)
    assert (await small.states(other.job_id))[1][0] == "STALE"
    view = await small.view(large)
    assert view.stop_reason == ("too_large" if leave < GRANT_BYTES + LOSS_BYTES else None)


async def test_a_job_that_is_given_back_again_and_again_can_still_be_done(small: House) -> None:
    """Giving back costs nothing, however often: neither a try nor, in the end, the job."""
    job_id = await small.submit()
    for _ in range(200):
        await small.heard(release(await small.grant()))
    assert (await small.heard(done(await small.grant()))).state == "SUCCEEDED"
    assert (await small.view(job_id)).state == "COMPLETED"


async def test_budgets_are_kept_however_many_attempts_there_were(house: House) -> None:
    """Of attempts of long ago less is known; how many failures and losses they were is not forgotten."""
    failing = await house.submit(retries=45)
    for _ in range(45):
        await house.heard(failed(await house.grant()))
        assert (await house.view(failing)).state == "RUNNING"
        house.clock.jump(600)
    last = await house.grant()
    assert last.attempt == 46
    await house.heard(failed(last))
    assert (await house.view(failing)).state == "FAILED"

    losing = await house.submit(losses=45)
    for _ in range(45):
        await house.grant()
        await house.later(TTL_S)
        assert (await house.view(losing)).state == "RUNNING"
    await house.grant()
    await house.later(TTL_S)
    view = await house.view(losing)
    assert (view.state, view.losses) == ("FAILED", 46)
    assert await house.faults() == []


async def test_the_shards_of_a_job_with_many_attempts_all_stay_known(house: House) -> None:
    job_id = await house.submit(worker_count=3)
    first = await house.grant()
    await house.heard(done(first, b"1"))
    for _ in range(60):
        await house.heard(release(await house.grant()))
    for grant in [await house.grant() for _ in range(2)]:
        await house.heard(done(grant, b"%d" % grant.shard))
    view = await house.view(job_id)
    assert isinstance(view.result, msgspec.Raw)
    assert (view.state, msgspec.json.decode(view.result)) == ("COMPLETED", [1, 2, 3])


async def test_a_late_message_of_an_attempt_of_long_ago_is_stale(house: House) -> None:
    old = await house.started()
    await house.heard(release(old))
    for _ in range(60):
        await house.heard(release(await house.grant()))
    before = await house.record(old.job_id)
    for late in (done(old), release(old, reason="other")):
        await house.stale(late)
    assert await house.record(old.job_id) == before


@pytest.mark.parametrize("character", ["x", "\x1b", "\x00", '"', "ß", "☃", "\ud800"])
async def test_a_failure_report_with_262144_characters_of_details_is_accepted_for_any_character(
    house: House, character: str
) -> None:
    grant = await house.started()
    await house.heard(failed(grant, details=character * 262_144))
    assert (await house.view(grant.job_id)).state == "FAILED"


async def test_a_large_result_is_shown_like_a_small_one(house: House) -> None:
    for length in (10, 16_384, 16_385, 100_000):
        result = b'"' + b"x" * (length - 2) + b'"'
        grant = await house.started()
        await house.heard(done(grant, result))
        assert (await house.view(grant.job_id)).result == msgspec.Raw(result)
        (found,) = await house.jobs.get_many([grant.job_id])
        assert found is not None
        assert found.result == msgspec.Raw(result)
        assert (await house.heard(done(grant, result))).state == "SUCCEEDED"
        assert (await house.refused(done(grant, result[:-2] + b'y"'))).code == "conflicting_completion"
    assert await house.faults() == []


async def test_ten_shards_may_each_return_as_much_as_one_may(house: House) -> None:
    job_id = await house.submit(worker_count=10)
    result = b'"' + b"x" * (house.settings.max_result_bytes - 2) + b'"'
    for _ in range(10):
        await house.heard(done(await house.grant(), result))
    assert (await house.view(job_id)).state == "COMPLETED"


@pytest.mark.parametrize("character", ["x", "\x1b", "☃", "\ud800"])
async def test_the_most_that_each_limit_allows_fits_into_the_record_together(
    house: House, character: str
) -> None:
    job_id = await house.submit(input=msgspec.Raw(b'"' + b"x" * 262_142 + b'"'), worker_count=10, retries=100)
    saved = msgspec.Raw(b'"' + b"x" * 65_534 + b'"')
    for _ in range(9):
        grant = await house.grant()
        await house.say(beat(grant, checkpoint=saved))
        await house.heard(done(grant, b'"' + b"x" * 16_382 + b'"'))
    failure: dict[str, Any] = {
        "error": character * 2_000,
        "exception": character * 2_000,
        "details": character * 262_144,
    }
    for _ in range(30):
        grant = await house.grant()
        await house.say(beat(grant, checkpoint=saved))
        await house.heard(failed(grant, **failure))
        house.clock.jump(400)
    await house.heard(done(await house.grant()))
    assert (await house.view(job_id)).state == "COMPLETED"


async def test_twenty_long_explanations_do_not_end_the_retries(house: House) -> None:
    job_id = await house.submit(retries=20)
    for _ in range(20):
        await house.heard(failed(await house.grant(), details="x" * 100_000))
        house.clock.jump(400)
    assert (await house.heard(done(await house.grant()))).state == "SUCCEEDED"
    assert (await house.view(job_id)).state == "COMPLETED"
