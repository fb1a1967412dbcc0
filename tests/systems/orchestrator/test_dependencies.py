"""Jobs that come after others: held without a slot, released or stopped by the ends they wait for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.systems.orchestrator.house import RUNNER, House, done, failed, release

from interlock.errors import InterlockError, InvalidJob, RequestIdReused, UnknownJob
from interlock.systems.settings import Settings
from interlock.wire.jobs import After, JobSpec, Unique
from interlock.wire.limits import LimitSpec
from interlock.wire.runner import Grant


async def after(house: House, *ids: str, **how: Any) -> str:
    """A job in a queue of its own that comes after these."""
    spec = how.pop("spec", {})
    return await house.submit("next", queue="next", after=After(jobs=ids, **how), **spec)


async def given(house: House) -> list[str]:
    """The jobs that a runner is given of those that came after others."""
    return [grant.job_id for grant in await house.claim(queues=("next",))]


async def state_of(house: House, job_id: str) -> tuple[str, str | None]:
    view = await house.view(job_id)
    return view.state, view.stop_reason


async def two(house: House) -> tuple[Grant, Grant]:
    return await house.started(retries=0), await house.started(retries=0)


# Waiting and being released


async def test_a_job_is_not_granted_before_the_jobs_it_comes_after_have_succeeded(house: House) -> None:
    one, other = await two(house)
    last = await after(house, one.job_id, other.job_id)
    assert (await house.view(last)).waits_for == (one.job_id, other.job_id)
    await house.heard(done(one))
    await house.recover()
    assert await given(house) == []
    assert (await house.view(last)).waits_for == (other.job_id,)
    await house.heard(done(other))
    await house.recover()
    assert await given(house) == [last]
    assert await house.faults() == []


async def test_a_job_with_need_any_starts_after_the_first_success_of_its_predecessors(house: House) -> None:
    one, other = await two(house)
    last = await after(house, one.job_id, other.job_id, need="any")
    await house.heard(failed(one))
    await house.recover()
    assert await given(house) == []
    await house.heard(done(other))
    await house.recover()
    assert await given(house) == [last]


async def test_a_follower_with_on_end_is_granted_even_if_a_predecessor_has_failed(house: House) -> None:
    one, other = await two(house)
    last = await after(house, one.job_id, other.job_id, on="end")
    await house.heard(failed(one))
    await house.heard(done(other))
    await house.recover()
    assert await given(house) == [last]


async def test_a_job_that_has_ended_already_counts_at_once(house: House) -> None:
    one, other = await two(house)
    await house.heard(done(one))
    last = await after(house, one.job_id, other.job_id)
    await house.recover()
    assert (await house.view(last)).waits_for == (other.job_id,)
    await house.heard(done(other))
    only = await after(house, one.job_id, other.job_id)
    await house.recover()
    assert await given(house) == [last, only]


async def test_an_end_that_is_reported_twice_changes_nothing(house: House) -> None:
    one, other = await two(house)
    last = await after(house, one.job_id, other.job_id)
    neighbour = await house.neighbour()
    await house.heard(done(one))
    before = (await house.record(last)).version
    here, there = house.port.services.followers, neighbour.port.services.followers
    assert await here.keep() == 1
    assert await there.keep() == 0
    assert (await house.record(last)).version == before + 1


async def test_a_message_that_a_dying_process_has_taken_is_delivered_by_another(house: House) -> None:
    one = await house.started()
    last = await after(house, one.job_id)
    await house.heard(done(one))

    async def dies(_: object) -> None:
        raise SystemExit

    here = house.port.services.followers
    here._move_followers = dies  # type: ignore[method-assign, assignment]
    with pytest.raises(SystemExit):
        await here.keep()
    neighbour = await house.neighbour()
    assert await neighbour.port.services.followers.keep() == 0
    house.clock.jump(61)
    await neighbour.recover()
    assert await given(neighbour) == [last]


async def test_delay_and_time_to_start_count_from_the_release(house: House) -> None:
    one = await house.started()
    last = await after(house, one.job_id, spec={"delay_s": 30.0, "start_within_s": 60.0})
    await house.later(1_000)
    again = await house.grant()
    assert again.job_id == one.job_id
    await house.heard(done(again))
    await house.recover()
    assert await given(house) == []
    house.clock.jump(31)
    assert await given(house) == [last]
    late = await after(house, again.job_id, spec={"start_within_s": 60.0})
    await house.recover()
    await house.later(61)
    assert (await house.view(late)).state == "FAILED"


# Waiting in vain


@pytest.mark.parametrize("need", ["all", "any"])
async def test_a_failed_job_cancels_its_followers_recursively_except_followers_with_on_end(
    house: House, need: str
) -> None:
    one = await house.started(retries=0)
    middle = await after(house, one.job_id, need=need)
    last = await after(house, middle)
    anyhow = await after(house, middle, on="end")
    await house.heard(failed(one))
    await house.recover()
    assert await state_of(house, middle) == ("CANCELED", "upstream")
    assert (await house.view(middle)).cancel_reason == f"it comes after {one.job_id}, which is FAILED"
    await house.recover()
    assert await state_of(house, last) == ("CANCELED", "upstream")
    assert await given(house) == [anyhow]
    assert await house.faults() == []


async def test_a_follower_of_a_skipped_job_is_granted(house: House) -> None:
    one = await house.started(retries=0)
    middle = await after(house, one.job_id, otherwise="skip")
    last = await after(house, middle)
    await house.heard(failed(one))
    await house.recover(2)
    assert await state_of(house, middle) == ("CANCELED", "skipped")
    assert await given(house) == [last]


async def test_a_follower_waits_for_the_retry_of_its_predecessor(house: House) -> None:
    one = await house.started(retries=1)
    last = await after(house, one.job_id)
    await house.heard(failed(one))
    await house.later(400)
    assert await state_of(house, last) == ("PENDING", None)
    await house.heard(done(await house.grant()))
    await house.recover()
    assert await given(house) == [last]


async def test_a_cancel_a_timeout_and_an_expiry_are_ends_as_well(house: House) -> None:
    ends = [
        await house.submit(),
        await house.submit(queue="late", start_within_s=10.0),
        (await house.started(queue="slow", job_timeout_s=10.0)).job_id,
    ]
    lasts = [await after(house, each, on="end") for each in ends]
    await house.jobs.cancel(ends[0])
    await house.later(11)
    await house.later(60)
    await house.recover()
    assert sorted(await given(house)) == sorted(lasts)


async def test_a_job_that_waits_can_be_canceled(house: House) -> None:
    one = await house.started()
    last = await after(house, one.job_id)
    await house.jobs.cancel(last)
    await house.heard(done(one))
    await house.recover()
    assert await state_of(house, last) == ("CANCELED", "cancel")


# Results


async def test_a_result_is_passed_on_as_an_argument(house: House) -> None:
    one = await house.started()
    last = await house.submit(
        "next", queue="next", input=msgspec.Raw(b'{"y":2}'), after=After(jobs=(one.job_id,), into="x")
    )
    await house.heard(done(one, b'{"a":[1,2]}'))
    await house.recover()
    grant = await house.grant(queues=("next",))
    assert msgspec.json.decode(grant.input) == {"y": 2, "x": {"a": [1, 2]}}
    assert msgspec.json.decode((await house.view(last)).input) == {"y": 2, "x": {"a": [1, 2]}}


async def test_the_results_of_several_are_a_list_in_their_order(house: House) -> None:
    one, other = await two(house)
    await after(house, one.job_id, other.job_id, on="end", into="x")
    await house.heard(done(other, b'"' + b"o" * 20_000 + b'"'))
    await house.recover()
    await house.heard(failed(one))
    await house.recover()
    grant = await house.grant(queues=("next",))
    assert msgspec.json.decode(grant.input) == {"x": [None, "o" * 20_000]}


async def test_of_any_the_result_of_the_first_is_passed_on(house: House) -> None:
    one, other = await two(house)
    await after(house, one.job_id, other.job_id, need="any", into="x", listed=True)
    await house.heard(done(other, b"7"))
    await house.recover()
    assert bytes((await house.grant(queues=("next",))).input) == b'{"x":[7]}'


async def test_results_that_are_too_large_to_be_passed_on_stop_the_job_with_advice() -> None:
    house = await House(Settings(max_input_bytes=1_000)).open()
    one = await house.started()
    last = await after(house, one.job_id, into="x")
    await house.heard(done(one, b'"' + b"o" * 2_000 + b'"'))
    await house.recover()
    view = await house.view(last)
    assert (view.state, view.stop_reason) == ("CANCELED", "upstream")
    assert "ctx.predecessors()" in (view.cancel_reason or "")
    await house.close()


async def test_a_handler_reads_the_jobs_before_it_under_its_lease(house: House) -> None:
    one, other = await two(house)
    await after(house, one.job_id, other.job_id, on="end")
    await house.heard(done(one, b"1"))
    await house.heard(failed(other))
    await house.recover()
    grant = await house.grant(queues=("next",))
    page = await house.port.services.followers.predecessors(grant.token, RUNNER)
    assert [(view.id, view.state) for view in page.jobs] == [
        (one.job_id, "COMPLETED"),
        (other.job_id, "FAILED"),
    ]
    assert page.jobs[0].result == msgspec.Raw(b"1")
    with pytest.raises(InterlockError):
        await house.port.services.followers.predecessors(grant.token, "another")


# Submissions


async def test_jobs_of_one_request_come_after_each_other(house: House) -> None:
    specs = [
        JobSpec(task="a"),
        JobSpec(task="b", after=After(jobs=("#0",))),
        JobSpec(task="c", after=After(jobs=("#0", "#1"))),
    ]
    ids = await house.jobs.submit_many(specs, request_id="once")
    assert await house.jobs.submit_many(specs, request_id="once") == ids
    with pytest.raises(RequestIdReused):
        await house.jobs.submit_many(specs[:2], request_id="once")
    order = []
    for _ in ids:
        grant = await house.grant()
        order.append(grant.job_id)
        assert await house.claim() == []
        await house.heard(done(grant))
        await house.recover()
    assert order == ids


@pytest.mark.parametrize("names", [("#0",), ("#1",), ("#7",)])
async def test_a_job_cannot_come_after_itself_or_a_later_one(house: House, names: tuple[str, ...]) -> None:
    with pytest.raises(InvalidJob, match="not a job before this one"):
        await house.submit(after=After(jobs=names))
    assert await house.number_of_jobs() == 0


async def test_a_job_that_is_not_there_cannot_be_waited_for(house: House) -> None:
    one = await house.submit()
    with pytest.raises(UnknownJob, match="so no job can come after it"):
        await house.submit(after=After(jobs=(one, "j_000000000000")))
    assert await house.number_of_jobs() == 1


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"after": After(jobs=())}, "names 0 jobs"),
        ({"after": After(jobs=("j_1", "j_1"))}, "twice"),
        ({"after": After(jobs=("j_1",), listed=True)}, "after.listed"),
        ({"after": After(jobs=("j_1",), into="x"), "input": msgspec.Raw(b"[1]")}, "no object"),
        ({"after": After(jobs=("j_1",), into="x"), "input": msgspec.Raw(b'{"x":1}')}, "already"),
        ({"after": After(jobs=("j_1",)), "parent_job_id": "j_1"}, "its own parent"),
    ],
)
async def test_an_invalid_after_clause_is_refused_with_an_error_that_names_the_fault(
    house: House, spec: dict[str, Any], fault: str
) -> None:
    with pytest.raises(InvalidJob, match=fault):
        await house.submit(**spec)


async def test_a_job_found_by_its_unique_key_can_be_waited_for(house: House) -> None:
    unique = Unique(key="k", policy="existing")
    there = await house.submit(unique=unique)
    specs = [JobSpec(task="build", unique=unique), JobSpec(task="next", after=After(jobs=("#0",)))]
    first, last = await house.jobs.submit_many(specs)
    assert first == there
    assert (await house.view(last)).waits_for == (there,)
    await house.heard(done(await house.grant()))
    await house.recover()
    assert (await house.grant()).job_id == last


async def test_a_limited_job_lines_up_when_it_is_released(house: House) -> None:
    await house.port.services.limits.declare("vendor", LimitSpec(max=1), source="test", actor="test")
    one = await house.started()
    lasts = [await after(house, one.job_id, spec={"limits": ("vendor",)}) for _ in range(2)]
    await house.recover()
    assert await given(house) == []
    await house.heard(done(one))
    await house.recover(3)
    assert await given(house) == lasts[:1]


# Trees


async def test_a_child_that_waits_takes_no_place_in_its_tree() -> None:
    house = await House(Settings(tree_quotas=(1, 1, 1, 1, 1, 1))).open()
    parent = await house.started(queue="parents")
    other = await house.started(queue="others")
    specs = [
        JobSpec(task="held", parent_job_id=parent.job_id, after=After(jobs=(other.job_id,))),
        JobSpec(task="free", parent_job_id=parent.job_id),
    ]
    held, free = await house.jobs.submit_many(specs)
    await house.heard(release(parent, await_children=True))
    await house.recover()
    first = await house.grant()
    assert first.job_id == free
    await house.heard(done(other))
    await house.recover(2)
    assert await house.claim() == []
    await house.heard(done(first))
    await house.recover(2)
    second = await house.grant()
    assert second.job_id == held
    assert await house.claim(queues=("parents",)) == []
    await house.heard(done(second))
    await house.recover(2)
    assert (await house.grant(queues=("parents",))).job_id == parent.job_id
    assert await house.faults() == []
    await house.close()


async def test_a_tree_stays_open_for_a_child_that_waits(house: House) -> None:
    parent, other = await house.started(queue="parents"), await house.started(queue="others")
    child = await house.submit(parent_job_id=parent.job_id, after=After(jobs=(other.job_id,)))
    await house.heard(done(parent))
    await house.recover(2)
    await house.heard(done(other))
    await house.recover(2)
    assert (await house.grant()).job_id == child


async def test_one_request_does_not_add_children_and_followers_of_one_job(house: House) -> None:
    parent = await house.started()
    specs = [
        JobSpec(task="child", parent_job_id=parent.job_id),
        JobSpec(task="next", after=After(jobs=(parent.job_id,))),
    ]
    with pytest.raises(InvalidJob, match="both children"):
        await house.jobs.submit_many(specs)


# Explaining


async def test_explain_names_the_jobs_that_a_job_waits_for_and_their_states(house: House) -> None:
    one, other = await two(house)
    last = await after(house, one.job_id, other.job_id)
    explanation = (await house.jobs.explain(last)).sentence
    assert f"{one.job_id} (RUNNING)" in explanation
    assert f"{other.job_id} (RUNNING)" in explanation
    await house.heard(failed(one))
    await house.recover()
    assert one.job_id in (await house.jobs.explain(last)).sentence
