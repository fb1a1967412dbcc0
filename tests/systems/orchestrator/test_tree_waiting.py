"""Parents that wait for their children without a lease, and what children that fail do to them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.systems.orchestrator.house import House, beat, done, failed, release, stopped

from interlock.systems.settings import Settings
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import Grant


@pytest.fixture
async def narrow() -> AsyncIterator[House]:
    """One place below the root, so that whoever comes back has to be in line."""
    opened = await House(Settings(tree_quotas=(1, 1, 1, 1, 1, 1))).open()
    yield opened
    await opened.close()


async def waiting(house: House, number: int = 2, **spec: object) -> tuple[Grant, list[Grant]]:
    """A parent that waits for so many children, all of which are at work."""
    parent = await house.started(queue="parents")
    specs = [JobSpec(task="child", parent_job_id=parent.job_id, **spec) for _ in range(number)]  # type: ignore[arg-type]
    await house.jobs.submit_many(specs)
    children = await house.claim(limit=50)
    saved = msgspec.Raw(b'"half of it"')
    await house.heard(release(parent, await_children=True, checkpoint=saved, cost=0.5))
    await house.recover()
    return parent, children


async def test_a_parent_that_waits_holds_no_lease_and_is_not_granted(house: House) -> None:
    parent, _ = await waiting(house)
    assert await house.states(parent.job_id) == ("RUNNING", ["STALE", "CREATED"])
    assert await house.leases(parent.job_id) == ["REVOKED"]
    assert await house.claim(queues=("parents",)) == []
    await house.later(10_000)
    assert await house.claim(queues=("parents",)) == []


async def test_a_waiting_parent_is_granted_again_only_after_its_last_child_has_ended(house: House) -> None:
    parent, children = await waiting(house, 3)
    for child in children[:-1]:
        await house.heard(done(child))
        await house.recover()
        assert await house.claim(queues=("parents",)) == []
    await house.heard(failed(children[-1]))
    await house.recover()
    again = await house.grant(queues=("parents",))
    assert (again.job_id, again.attempt, again.checkpoint) == (parent.job_id, 2, msgspec.Raw(b'"half of it"'))
    await house.heard(done(again))
    view = await house.view(parent.job_id)
    assert (view.state, view.losses, view.attempts[0].cost) == ("COMPLETED", 0, 0.5)
    assert await house.faults() == []


async def test_waiting_uses_up_no_try(house: House) -> None:
    parent = await house.started(queue="parents", retries=0, losses=0)
    for _ in range(5):
        await house.submit(parent_job_id=parent.job_id)
        await house.heard(release(parent, await_children=True))
        await house.heard(done(await house.grant()))
        await house.recover()
        parent = await house.grant(queues=("parents",))
    await house.heard(done(parent))
    assert (await house.view(parent.job_id)).state == "COMPLETED"


async def test_children_that_end_while_the_parent_gives_its_lease_back_are_noticed(house: House) -> None:
    parent = await house.started(queue="parents")
    await house.submit(parent_job_id=parent.job_id)
    child = await house.grant()
    await house.heard(done(child))
    await house.recover()
    await house.heard(release(parent, await_children=True))
    await house.recover()
    assert (await house.grant(queues=("parents",))).attempt == 2


async def test_one_shard_waits_while_another_continues(house: House) -> None:
    await house.submit(queue="parents", worker_count=2)
    first, second = [(await house.claim(limit=1, queues=("parents",)))[0] for _ in range(2)]
    await house.submit(parent_job_id=first.job_id)
    child = await house.grant()
    await house.heard(release(first, await_children=True))
    await house.recover()
    assert await house.states(first.job_id) == ("RUNNING", ["STALE", "STARTING", "CREATED"])
    await house.heard(done(second))
    await house.heard(done(child))
    await house.recover()
    again = await house.grant(queues=("parents",))
    await house.heard(done(again))
    assert (again.shard, (await house.view(again.job_id)).state) == (1, "COMPLETED")


async def test_a_waiting_parent_below_the_root_frees_its_place_and_waits_for_another_to_continue(
    narrow: House,
) -> None:
    root = await narrow.started(queue="roots")
    first, second = [await narrow.submit(parent_job_id=root.job_id, queue="middle") for _ in range(2)]
    parent = await narrow.grant(queues=("middle",))
    assert parent.job_id == first
    await narrow.submit(parent_job_id=first)
    child = await narrow.grant()
    await narrow.heard(release(parent, await_children=True))
    await narrow.recover()
    other = await narrow.grant(queues=("middle",))
    assert other.job_id == second, "its place was given to the next"
    await narrow.heard(done(child))
    await narrow.recover()
    assert await narrow.claim(queues=("middle",)) == [], "its children have ended, but it has no place"
    assert (await narrow.jobs.explain(first)).sentence == (
        f"Its children have ended, and it waits for a place in the tree of {root.job_id}: "
        "at depth 1 it has 1 worker at a time."
    )
    await narrow.heard(done(other))
    await narrow.recover()
    again = await narrow.grant(queues=("middle",))
    assert (again.job_id, again.attempt) == (first, 2)
    await narrow.heard(done(again))
    await narrow.heard(done(root))
    await narrow.recover()
    assert await narrow.faults() == []


async def test_a_cancel_reaches_a_parent_that_waits_and_its_children(house: House) -> None:
    parent, children = await waiting(house)
    await house.jobs.cancel(parent.job_id)
    await house.recover(2)
    assert (await house.view(parent.job_id)).state == "CANCELED"
    for child in children:
        await house.heard(beat(child))
        await house.heard(stopped(child))
    await house.recover()
    assert {(await house.view(child.job_id)).state for child in children} == {"CANCELED"}


async def test_a_parent_that_waits_has_its_timeout_all_the_same(house: House) -> None:
    parent = await house.started(queue="parents", job_timeout_s=60.0)
    child = await house.submit(parent_job_id=parent.job_id)
    await house.heard(release(parent, await_children=True))
    await house.later(61)
    await house.recover(2)
    assert (await house.view(parent.job_id)).stop_reason == "timeout"
    assert (await house.view(child)).state == "CANCELED"


async def test_the_same_release_twice_waits_once(house: House) -> None:
    parent = await house.started(queue="parents")
    await house.submit(parent_job_id=parent.job_id)
    for _ in range(2):
        assert (await house.heard(release(parent, await_children=True))).state == "STALE"
    assert len((await house.view(parent.job_id)).attempts) == 2


async def test_explain_shows_how_many_children_a_parent_still_waits_for(house: House) -> None:
    parent, children = await waiting(house, 3)
    await house.heard(done(children[0]))
    explanation = await house.jobs.explain(parent.job_id)
    assert (
        explanation.sentence
        == "It waits for its children: 2 of 3 have not ended, and it holds no lease meanwhile."
    )


# What a child that fails does


async def test_a_failed_child_fails_neither_its_parent_nor_its_siblings_by_default(house: House) -> None:
    parent, children = await waiting(house, 2)
    await house.heard(failed(children[0]))
    await house.recover(2)
    assert await house.states(children[1].job_id) == ("RUNNING", ["STARTING"])
    assert (await house.view(parent.job_id)).state == "RUNNING"


async def test_a_failure_can_stop_the_siblings(house: House) -> None:
    parent, children = await waiting(house, 3, if_fails="cancel_siblings")
    await house.heard(done(children[1]))
    await house.heard(failed(children[0]))
    await house.recover(2)
    await house.heard(beat(children[2]))
    await house.heard(stopped(children[2]))
    await house.recover(2)
    views = [await house.view(child.job_id) for child in children]
    assert [view.state for view in views] == ["FAILED", "COMPLETED", "CANCELED"]
    assert views[2].stop_reason == "sibling"
    assert (await house.grant(queues=("parents",))).job_id == parent.job_id, "it decides what that means"


async def test_a_failure_can_fail_the_parent_and_stops_the_siblings_then(house: House) -> None:
    parent, children = await waiting(house, 2, if_fails="fail_parent")
    await house.heard(failed(children[0], failure_class="flaky", error="No luck."))
    await house.recover(3)
    for _ in range(2):  # flaky ones are tried again
        await house.later(10)
        (again,) = await house.claim()
        await house.heard(failed(again, failure_class="flaky", error="No luck."))
        await house.recover(2)
    view = await house.view(parent.job_id)
    assert view.state == "FAILED"
    assert view.failure is not None
    assert view.failure.error == f"Its child {children[0].job_id} failed: No luck."
    assert await house.states(children[1].job_id) == ("RUNNING", ["CANCEL_REQUESTED"])
    assert await house.claim(queues=("parents",)) == []
    assert await house.faults() == []


async def test_a_parent_that_is_at_work_is_stopped_when_it_fails_with_its_child(house: House) -> None:
    parent = await house.started(queue="parents")
    await house.submit(parent_job_id=parent.job_id, if_fails="fail_parent")
    await house.heard(failed(await house.grant()))
    await house.recover()
    assert (await house.view(parent.job_id)).state == "FAILED"
    assert (await house.heard(beat(parent))).cancel_requested


async def test_a_child_that_is_cancelled_alone_counts_as_failed(house: House) -> None:
    parent = await house.started(queue="parents")
    child = await house.submit(parent_job_id=parent.job_id, if_fails="fail_parent")
    await house.jobs.cancel(child)
    await house.recover()
    view = await house.view(parent.job_id)
    assert view.failure is not None
    assert view.failure.error == f"Its child {child} was stopped (cancel)."


async def test_a_child_that_is_stopped_with_its_tree_does_not_fail_its_parent(house: House) -> None:
    root = await house.started(queue="roots")
    middle = await house.started(queue="middle", parent_job_id=root.job_id)
    await house.submit(parent_job_id=middle.job_id, if_fails="fail_parent")
    await house.jobs.cancel(root.job_id)
    await house.recover(4)
    assert await house.states(middle.job_id) == ("RUNNING", ["CANCEL_REQUESTED"])


async def test_an_unknown_if_fails_policy_is_refused_with_the_valid_policies(house: House) -> None:
    parent = await house.started()
    with pytest.raises(Exception, match="must be one of ignore, cancel_siblings, fail_parent"):
        await house.submit(parent_job_id=parent.job_id, if_fails="explode")
