"""Jobs below jobs: how deep, under whom, and that a tree is stopped as one."""

from __future__ import annotations

import pytest
from tests.systems.orchestrator.house import TTL_S, House, beat, done, failed, stopped

from interlock.errors import InvalidJob, StoreUnavailable, TerminalState, UnknownJob
from interlock.store.records import Query
from interlock.wire.jobs import JobSpec


async def chain(house: House, depth: int) -> list[str]:
    """Jobs one below the other."""
    ids = [await house.submit()]
    for _ in range(depth):
        ids.append(await house.submit(parent_job_id=ids[-1]))
    return ids


async def states_of(house: House, ids: list[str]) -> list[str]:
    return [(await house.view(job_id)).state for job_id in ids]


async def test_a_tree_is_at_most_five_deep(house: House) -> None:
    ids = await chain(house, 5)
    assert [(await house.view(job_id)).depth for job_id in ids] == [0, 1, 2, 3, 4, 5]
    with pytest.raises(InvalidJob) as refused:
        await house.submit(parent_job_id=ids[-1])
    assert refused.value.facts["depth"] == 6
    assert await house.number_of_jobs() == 6


async def test_a_parent_has_to_exist(house: House) -> None:
    with pytest.raises(UnknownJob):
        await house.submit(parent_job_id="j_00000000beef")
    assert await house.number_of_jobs() == 0


@pytest.mark.parametrize("how", ["completed", "failed", "canceled"])
async def test_a_parent_that_has_ended_takes_no_more_children(house: House, how: str) -> None:
    grant = await house.started()
    if how == "canceled":
        await house.jobs.cancel(grant.job_id)
        await house.later(31)
    else:
        await house.heard(done(grant) if how == "completed" else failed(grant))
    with pytest.raises(TerminalState) as refused:
        await house.submit(parent_job_id=grant.job_id)
    assert refused.value.facts["state"] == how.upper()
    assert await house.number_of_jobs() == 1
    assert (await house.view(grant.job_id)).children == 0


async def test_a_parent_counts_its_children(house: House) -> None:
    parent = await house.submit()
    specs = [JobSpec(task="child", parent_job_id=parent) for _ in range(3)]
    ids = await house.jobs.submit_many([*specs, JobSpec(task="not a child")])
    assert (await house.view(parent)).children == 3
    found, _ = await house.jobs.find(Query(kind="job", parent=parent))
    assert {view.id for view in found} == set(ids[:3])
    assert (await house.view(ids[3])).parent_job_id is None


async def test_children_are_made_with_their_parents_knowledge_or_not_at_all(house: House) -> None:
    good, bad = await house.submit(), "j_nobody"
    with pytest.raises(UnknownJob):
        await house.jobs.submit_many([JobSpec(task="a", parent_job_id=p) for p in (good, bad)])
    assert await house.number_of_jobs() == 1
    assert (await house.view(good)).children == 0


async def test_submitting_children_does_not_disturb_the_parents_lease(house: House) -> None:
    grant = await house.started()
    before = await house.record(grant.job_id)
    house.clock.jump(10)
    await house.submit(parent_job_id=grant.job_id)
    after = await house.record(grant.job_id)
    assert (after.deadline_at, after.ready_at, after.state) == (before.deadline_at, None, "RUNNING")
    assert (await house.heard(done(grant))).state == "SUCCEEDED"
    assert await house.faults() == []


async def test_a_cancel_reaches_all_descendants(house: House) -> None:
    ids = await chain(house, 5)
    sibling = await house.submit(parent_job_id=ids[1])
    stranger = await house.submit()
    await house.jobs.cancel(ids[0])
    await house.recover(6)
    assert await states_of(house, [*ids, sibling]) == ["CANCELED"] * 7
    assert (await house.view(stranger)).state == "PENDING"
    assert {(await house.view(job_id)).stop_reason for job_id in ids[1:]} == {"parent"}
    assert await house.faults() == []


async def test_a_cancel_in_the_middle_leaves_those_above_alone(house: House) -> None:
    ids = await chain(house, 3)
    await house.jobs.cancel(ids[2])
    await house.recover(4)
    assert await states_of(house, ids) == ["PENDING", "PENDING", "CANCELED", "CANCELED"]


async def test_an_active_child_of_a_cancelled_parent_receives_a_cancel_request_first(house: House) -> None:
    parent = await house.submit(queue="parents")
    child = await house.started(parent_job_id=parent)
    await house.jobs.cancel(parent)
    await house.recover()
    assert (await house.view(parent)).state == "CANCELED"
    assert await house.states(child.job_id) == ("RUNNING", ["CANCEL_REQUESTED"])
    await house.heard(beat(child))
    await house.heard(stopped(child))
    assert (await house.view(child.job_id)).state == "CANCELED"


async def test_a_waiting_child_is_canceled_while_its_running_parent_is_still_stopping(house: House) -> None:
    parent = await house.started()
    child = await house.submit(parent_job_id=parent.job_id)
    await house.jobs.cancel(parent.job_id)
    await house.recover(2)
    assert await states_of(house, [parent.job_id, child]) == ["RUNNING", "CANCELED"]


async def test_a_child_that_is_made_while_its_parent_stops_is_stopped_with_it(house: House) -> None:
    parent = await house.started()
    await house.submit(parent_job_id=parent.job_id)
    await house.jobs.cancel(parent.job_id)
    await house.recover()
    late = await house.submit(parent_job_id=parent.job_id)
    await house.heard(beat(parent))
    await house.heard(stopped(parent))
    await house.recover(2)
    assert (await house.view(late)).state == "CANCELED"


async def test_a_timeout_stops_the_tree_as_well(house: House) -> None:
    parent = await house.started(job_timeout_s=60.0)
    child = await house.submit(parent_job_id=parent.job_id)
    await house.later(60)
    await house.recover(2)
    assert (await house.view(child)).state == "CANCELED"
    await house.later(31)
    assert (await house.view(parent.job_id)).stop_reason == "timeout"


@pytest.mark.parametrize("how", ["completed", "failed"])
async def test_a_parent_that_ends_by_itself_leaves_its_children_alone(house: House, how: str) -> None:
    parent = await house.started()
    child = await house.submit(parent_job_id=parent.job_id)
    await house.heard(done(parent) if how == "completed" else failed(parent))
    await house.recover(3)
    assert (await house.view(child)).state == "PENDING"


async def test_children_that_have_ended_are_passed_over(house: House) -> None:
    parent = await house.submit(queue="parents")
    ended = await house.started(parent_job_id=parent)
    await house.heard(done(ended))
    waiting = await house.submit(parent_job_id=parent)
    before = await house.record(ended.job_id)
    await house.jobs.cancel(parent)
    await house.recover(2)
    assert await house.record(ended.job_id) == before
    assert (await house.view(waiting)).state == "CANCELED"


async def test_another_process_cancels_the_children_after_a_crash_between_commit_and_delivery(
    house: House,
) -> None:
    parent = await house.submit()
    children = [await house.submit(parent_job_id=parent) for _ in range(3)]
    grandchild = await house.submit(parent_job_id=children[0])
    await house.jobs.cancel(parent)
    assert await states_of(house, children) == ["PENDING"] * 3
    other = await house.neighbour()  # the first one is never heard of again
    await other.recover(3)
    assert await states_of(house, [*children, grandchild]) == ["CANCELED"] * 4


async def test_a_courier_that_dies_on_the_way_is_replaced(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await house.submit()
    children = [await house.submit(parent_job_id=parent) for _ in range(3)]
    await house.jobs.cancel(parent)

    class Killed(BaseException):
        """Like kill -9: nobody gets to clean up."""

    async def die(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(house.port.services.trees, "stop_children", die)
    with pytest.raises(Killed):
        await house.recover()
    other = await house.neighbour()
    await other.recover()
    assert await states_of(house, children) == ["PENDING"] * 3, "somebody has taken it, and may yet do it"
    house.clock.jump(61)
    await other.recover(2)
    assert await states_of(house, children) == ["CANCELED"] * 3


async def test_cancelling_children_is_retried_after_the_store_was_unavailable(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await house.submit()
    child = await house.submit(parent_job_id=parent)
    await house.jobs.cancel(parent)

    async def away(*_: object) -> None:
        raise StoreUnavailable("It is away.")

    with monkeypatch.context() as patch:
        patch.setattr(house.port.services.trees, "stop_children", away)
        await house.recover()
    assert (await house.view(child)).state == "PENDING"
    house.clock.jump(2)
    await house.recover()
    assert (await house.view(child)).state == "CANCELED"


async def test_a_cancel_reaches_a_thousand_children(house: House) -> None:
    parent = await house.submit()
    await house.jobs.submit_many([JobSpec(task="child", parent_job_id=parent) for _ in range(1_001)])
    await house.jobs.cancel(parent)
    await house.recover(2)
    found = await house.jobs.count(Query(kind="job", parent=parent, states=("CANCELED",)))
    assert found.number == 1_001


async def test_a_lost_parent_is_not_a_stopped_one(house: House) -> None:
    parent = await house.started()
    child = await house.submit(parent_job_id=parent.job_id)
    await house.later(TTL_S)
    await house.recover(2)
    assert (await house.view(child)).state == "PENDING"
