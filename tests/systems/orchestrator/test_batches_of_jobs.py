"""Batches: many jobs with one progress, one cancel, and a callback when all have ended."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.effort import pick
from tests.systems.orchestrator.house import House, done, failed
from tests.systems.orchestrator.test_every_store_alike import OpenHouse, open_house
from tests.waiting import until

from interlock.errors import InvalidJob, InvalidRecord, RequestIdReused, TransitionRefused, UnknownBatch
from interlock.store.records import Key, Record
from interlock.systems.orchestrator.batches import Batches, batch_key
from interlock.systems.orchestrator.dependencies import EndMessage
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.batches import BatchCounts, BatchSpec
from interlock.wire.jobs import After, JobSpec, Unique

__all__ = ["open_house"]
CALLBACK = JobSpec(task="report", queue="callbacks")
TOLD = BatchSpec(callback=CALLBACK, into="batch")


def batches(house: House) -> Batches:
    return house.port.services.batches


def jobs(number: int, **spec: object) -> list[JobSpec]:
    return [JobSpec(task="part", retries=0, **spec) for _ in range(number)]  # type: ignore[arg-type]


async def worked(house: House, number: int, failing: int = 0) -> None:
    """So many jobs, of which the last ones fail."""
    grants = await house.claim(limit=number)
    for place, grant in enumerate(grants):
        await house.heard(failed(grant) if place >= number - failing else done(grant))
    await house.recover()


async def test_a_batch_counts_its_jobs_by_outcome_and_submits_its_callback_once(house: House) -> None:
    made = await batches(house).create(TOLD, jobs(5), close=True, actor="anna")
    await worked(house, 3, failing=1)
    view = await batches(house).get(made.batch_id)
    assert (view.state, view.by) == ("RUNNING", "anna")
    assert view.counts == BatchCounts(total=5, completed=2, failed=1)
    assert await house.claim(queues=("callbacks",)) == []
    await worked(house, 2)
    view = await batches(house).get(made.batch_id)
    assert (view.state, view.counts) == ("ENDED", BatchCounts(total=5, completed=4, failed=1))
    (grant,) = await house.claim(queues=("callbacks",))
    assert grant.job_id == view.callback_job_id
    summary = {"id": made.batch_id, "total": 5, "completed": 4, "failed": 1, "canceled": 0}
    assert msgspec.json.decode(grant.input) == {"batch": summary}
    assert (await house.view(made.ids[0])).batch_id == made.batch_id
    assert await house.faults() == []


async def test_a_callback_on_success_is_left_out_after_a_failure(house: House) -> None:
    spec = BatchSpec(callback=CALLBACK, on="success")
    made = await batches(house).create(spec, jobs(2), close=True)
    await worked(house, 2, failing=1)
    view = await batches(house).get(made.batch_id)
    assert (view.state, view.callback_job_id) == ("ENDED", None)
    await batches(house).create(spec, jobs(1), close=True)
    await worked(house, 1)
    assert len(await house.claim(queues=("callbacks",))) == 1


async def test_jobs_are_added_until_it_is_closed_and_ends_are_counted_before_that(house: House) -> None:
    made = await batches(house).create(TOLD)
    for _ in range(2):
        await batches(house).add(made.batch_id, jobs(2))
        await worked(house, 2)
    assert (await batches(house).get(made.batch_id)).state == "OPEN"
    await batches(house).add(made.batch_id, (), close=True)
    view = await batches(house).get(made.batch_id)
    assert (view.state, view.counts.completed) == ("ENDED", 4)
    with pytest.raises(TransitionRefused):
        await batches(house).add(made.batch_id, jobs(1))


async def test_requests_with_one_id_add_once(house: House) -> None:
    here = batches(house)
    made = await here.create(TOLD, jobs(2), request_id="once")
    assert await here.create(TOLD, jobs(2), request_id="once") == made
    more = await here.add(made.batch_id, jobs(3), close=True, request_id="more")
    assert await here.add(made.batch_id, jobs(3), close=True, request_id="more") == more
    with pytest.raises(RequestIdReused):
        await here.add(made.batch_id, jobs(1), request_id="more")
    assert await house.number_of_jobs() == 5


async def test_a_batch_is_canceled_as_a_whole_and_then_submits_no_callback(house: House) -> None:
    made = await batches(house).create(TOLD, jobs(4), close=True)
    grant = await house.grant()
    view = await batches(house).cancel(made.batch_id, reason="wrong month", request_id="stop")
    assert (view.state, view.reason) == ("STOPPING", "wrong month")
    assert await batches(house).cancel(made.batch_id, reason="wrong month", request_id="stop") == view
    await house.heard(done(grant))
    await house.recover()
    view = await batches(house).get(made.batch_id)
    assert (view.state, view.counts) == ("CANCELED", BatchCounts(total=4, canceled=4))
    assert await house.claim(queues=("callbacks",)) == []
    with pytest.raises(TransitionRefused):
        await batches(house).cancel(made.batch_id)


async def test_the_cancel_of_a_process_that_dies_is_carried_out_by_another(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await batches(house).create(BatchSpec(), jobs(3), close=True)

    async def dies(*_: object) -> None:
        raise SystemExit

    monkeypatch.setattr(batches(house), "_stop", dies)
    with pytest.raises(SystemExit):
        await batches(house).cancel(made.batch_id)
    neighbour = await house.neighbour()

    async def is_canceled() -> bool:
        await neighbour.recover()
        return (await batches(neighbour).get(made.batch_id)).state == "CANCELED"

    await until(is_canceled, "the batch is canceled")


async def test_the_jobs_of_a_batch_are_listed_in_their_order_with_their_outcomes(house: House) -> None:
    made = await batches(house).create(BatchSpec(), jobs(2))
    more = await batches(house).add(made.batch_id, jobs(1))
    await worked(house, 2, failing=1)
    first = await batches(house).jobs(made.batch_id)
    second = await batches(house).jobs(made.batch_id, cursor=first.cursor)
    assert [job.id for job in (*first.jobs, *second.jobs)] == [*made.ids, *more.ids]
    assert [job.state for job in (*first.jobs, *second.jobs)] == ["COMPLETED", "FAILED", ""]
    page = await batches(house).page(limit=10)
    assert [view.id for view in page.batches] == [made.batch_id]


@pytest.mark.parametrize("cursor", ["next", "-1", "1.5", "²", "9" * 20, "9" * 5_000])
async def test_a_cursor_that_no_page_had_is_refused_and_not_read_as_the_first_page(
    house: House, cursor: str
) -> None:
    made = await batches(house).create(BatchSpec(), [JobSpec(task="t")])
    with pytest.raises(InvalidRecord, match="is not a cursor"):
        await batches(house).jobs(made.batch_id, cursor=cursor)
    assert (await batches(house).jobs(made.batch_id, cursor="1")).jobs == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"parent_job_id": "j_1"},
        {"after": After(jobs=("j_1",))},
        {"unique": Unique(key="k")},
    ],
)
async def test_a_job_of_a_batch_stands_for_itself(house: House, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidJob, match=next(iter(wrong))):
        await batches(house).create(BatchSpec(), jobs(1, **wrong))
    with pytest.raises(InvalidJob):
        await batches(house).create(BatchSpec(callback=jobs(1, **wrong)[0]))


async def test_an_unknown_batch_or_a_callback_that_cannot_receive_the_counts_is_refused(house: House) -> None:
    with pytest.raises(UnknownBatch):
        await batches(house).get("b_000000000000")
    with pytest.raises(UnknownBatch):
        await batches(house).add("b_000000000000", jobs(1))
    listed = JobSpec(task="report", input=msgspec.Raw(b"[1]"))
    with pytest.raises(InvalidJob, match="gets the counts"):
        await batches(house).create(BatchSpec(callback=listed, into="batch"))


async def test_many_ends_change_the_record_of_a_batch_once_for_each_part(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.systems.orchestrator.batches.PART_SIZE", 3)
    made = await batches(house).create(BatchSpec(), jobs(7), close=True)
    key = batch_key(made.batch_id)
    (before,) = await house.store.load([key])
    for _ in range(7):
        await worked(house, 1)
    (after,) = await house.store.load([key])
    assert before is not None
    assert after is not None
    assert (after.version - before.version, after.state) == (3, "ENDED")


async def test_a_list_reads_the_parts_of_small_batches_at_once_and_none_of_large_ones(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.systems.orchestrator.batches.PART_SIZE", 2)
    monkeypatch.setattr("interlock.systems.orchestrator.batches.LISTED_PARTS", 2)
    large = (await batches(house).create(BatchSpec(), jobs(5), close=True)).batch_id
    small = (await batches(house).create(BatchSpec(), jobs(3, queue="mail"), close=True)).batch_id
    empty = (await batches(house).create(BatchSpec())).batch_id
    await worked(house, 3)
    (grant,) = await house.claim(queues=("mail",), limit=1)
    await house.heard(failed(grant))
    await house.recover()
    sizes: list[int] = []
    load = house.store.load

    async def counting(keys: list[Key]) -> list[Record | None]:
        sizes.append(len(keys))
        return await load(keys)

    monkeypatch.setattr(house.store, "load", counting)
    listed = {view.id: view.counts for view in (await batches(house).page()).batches}
    assert sizes == [2]
    assert listed[large] == BatchCounts(total=5, completed=2), "its second part is not settled"
    assert listed[small] == BatchCounts(total=3, failed=1)
    assert listed[empty] == BatchCounts()


async def test_the_end_of_a_job_that_is_delivered_twice_is_counted_once(house: House) -> None:
    made = await batches(house).create(TOLD, jobs(2), close=True)
    part = f"{made.batch_id}.0"
    first, second = (EndMessage(job_id, "COMPLETED", (part,), counts=True) for job_id in made.ids)
    changed = EndMessage(first.job_id, "FAILED", (part,))
    for word in (first, first, changed, second, second, first):
        await batches(house).note_ends({part: {word.job_id: word}})
    view = await batches(house).get(made.batch_id)
    assert (view.state, view.counts) == ("ENDED", BatchCounts(total=2, completed=2))
    assert len(await house.claim(queues=("callbacks",))) == 1


async def test_jobs_of_a_batch_that_end_in_several_programs_are_counted_once(open_house: OpenHouse) -> None:
    houses = [await open_house(DEFAULT_SETTINGS) for _ in range(4)]
    number = pick(40, 200)
    made = await batches(houses[0]).create(TOLD, jobs(number), close=True)

    async def work(house: House) -> None:
        while grants := await house.claim(limit=5):
            for grant in grants:
                await house.heard(done(grant))
            await house.recover()

    async def has_ended() -> bool:
        await houses[0].recover()
        return (await batches(houses[0]).get(made.batch_id)).state == "ENDED"

    await asyncio.gather(*map(work, houses))
    await until(has_ended, "the batch has ended")
    view = await batches(houses[1]).get(made.batch_id)
    assert view.counts == BatchCounts(total=number, completed=number)
    assert [grant.job_id for grant in await houses[2].claim(queues=("callbacks",))] == [view.callback_job_id]
    assert await houses[0].faults() == []
