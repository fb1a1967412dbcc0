"""Children that a handler submits: under its lease, once under a name, and with no secrets but its own."""

from __future__ import annotations

import msgspec
import pytest
from tests.systems.orchestrator.house import RUNNER, TTL_S, House, beat, done, failed, release

from interlock.errors import InvalidJob, LeaseExpired, RequestIdReused, UnknownLease, WrongRunner
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import Grant

CHILD = JobSpec(task="child", input=msgspec.Raw(b'{"page":1}'))


async def submit(house: House, grant: Grant, *specs: JobSpec, name: str = "pages") -> tuple[str, ...]:
    return await house.port.submit_children(grant.token, RUNNER, name, specs or (CHILD,))


async def test_a_child_belongs_to_the_job_of_the_lease(house: House) -> None:
    parent = await house.started(trace={"traceparent": "00-1"})
    (child,) = await submit(house, parent, msgspec.structs.replace(CHILD, parent_job_id="j_somebodyelse"))
    grant = await house.grant()
    assert (grant.job_id, grant.parent_job_id, grant.depth) == (child, parent.job_id, 1)
    assert grant.trace == {"traceparent": "00-1"}
    assert (await house.view(parent.job_id)).children == 1
    assert await house.faults() == []


async def test_children_under_the_same_name_are_created_once_across_attempts(house: House) -> None:
    parent = await house.started(queue="parents", retries=1)
    first = await submit(house, parent)
    assert await submit(house, parent) == first
    await house.heard(failed(parent))
    await house.later(30)
    again = await house.grant(queues=("parents",))
    assert again.attempt == 2
    house.clock.jump(100)
    assert await submit(house, again) == first
    assert await submit(house, again, name="others") != first
    assert (await house.view(parent.job_id)).children == 2


async def test_a_name_is_known_for_longer_than_any_request_id(house: House) -> None:
    parent = await house.started(queue="parents")
    lasting = msgspec.structs.replace(CHILD, timeout_s=100_000.0)
    first = await submit(house, parent, lasting)
    await house.heard(release(parent, await_children=True))
    child = await house.grant()
    for _ in range(100):
        house.clock.jump(60)
        await house.heard(beat(child, sequence=0))
    await house.heard(done(child))
    await house.recover()
    again = await house.grant(queues=("parents",))
    assert await submit(house, again, lasting) == first, "after an hour and forty minutes"


async def test_each_shard_has_names_of_its_own(house: House) -> None:
    await house.submit(queue="parents", worker_count=2)
    one, other = [(await house.claim(limit=1, queues=("parents",)))[0] for _ in range(2)]
    assert await submit(house, one) != await submit(house, other)


async def test_other_children_under_the_same_name_are_a_mistake(house: House) -> None:
    parent = await house.started()
    await submit(house, parent)
    with pytest.raises(RequestIdReused, match="has submitted other children under the name 'pages'"):
        await submit(house, parent, CHILD, CHILD)
    in_a_hurry = msgspec.structs.replace(CHILD, priority=5, queue="fast")
    assert len(await submit(house, parent, in_a_hurry)) == 1, "how it is queued may change with a deploy"


async def test_an_attempt_that_was_given_up_submits_nothing(house: House) -> None:
    parent = await house.started()
    house.clock.jump(TTL_S + 1)
    with pytest.raises(LeaseExpired):
        await submit(house, parent)
    await house.recover()
    await house.grant()
    with pytest.raises(LeaseExpired):
        await submit(house, parent)
    assert await house.number_of_jobs() == 1
    assert any("children" in refusal for refusal in await house.refusals(parent.job_id))


async def test_only_the_runner_of_the_lease_may_report(house: House) -> None:
    parent = await house.started()
    with pytest.raises(WrongRunner):
        await house.port.submit_children(parent.token, "somebody", "pages", [CHILD])
    with pytest.raises(UnknownLease):
        await house.port.submit_children(f"{parent.token[:-1]}x", RUNNER, "pages", [CHILD])
    with pytest.raises(UnknownLease):
        await house.port.children("j_000000000000.1.1." + "0" * 32, RUNNER, "")
    assert await house.number_of_jobs() == 1


async def test_submitting_is_a_sign_of_life(house: House) -> None:
    parent = await house.started()
    for number in range(4):
        house.clock.jump(TTL_S - 1)
        await submit(house, parent, name=f"portion {number}")
    await house.heard(done(parent))


async def test_a_child_is_given_no_secret_that_its_parent_is_not(house: House) -> None:
    parent = await house.started()
    with pytest.raises(InvalidJob, match="only secrets of its parent, which has no NPM_TOKEN"):
        await submit(house, parent, msgspec.structs.replace(CHILD, secrets=("NPM_TOKEN",)))
    withheld = await house.started(queue="forks", secrets=("NPM_TOKEN",), secrets_withheld=True)
    await submit(house, withheld, msgspec.structs.replace(CHILD, secrets=("NPM_TOKEN",)))
    assert (await house.grant()).secrets_withheld


async def test_a_handler_receives_the_states_results_and_failures_of_its_children(house: House) -> None:
    parent = await house.started(queue="parents")
    ids = await submit(house, parent, *[CHILD] * 8)
    grants = await house.claim()
    await house.heard(done(grants[0], b'{"words":3}', cost=0.25))
    await house.heard(done(grants[1], b'"' + b"x" * 20_000 + b'"'))
    await house.heard(failed(grants[2], error="Not found."))
    page = await house.port.children(parent.token, RUNNER, "")
    assert [child.id for child in page.children] == list(ids)
    assert page.children[0].result == msgspec.Raw(b'{"words":3}')
    assert page.children[0].cost == 0.25
    large = page.children[1].result
    assert isinstance(large, msgspec.Raw)
    assert len(large) == 20_002
    assert page.children[2].failure is not None
    assert page.children[2].failure.error == "Not found."
    assert {child.state for child in page.children[3:]} == {"RUNNING"}


async def test_many_children_are_returned_in_pages(house: House) -> None:
    parent = await house.started(queue="parents")
    ids = await submit(house, parent, *[CHILD] * 250)
    child_ids, cursor, pages = [], "", 0
    while cursor or not pages:
        page = await house.port.children(parent.token, RUNNER, cursor)
        child_ids += [child.id for child in page.children]
        cursor, pages = page.cursor, pages + 1
    assert (child_ids, pages) == (list(ids), 3)


@pytest.mark.parametrize("name", ["", "x" * 201, "two\nlines"])
async def test_a_name_that_cannot_be_one_is_refused(house: House, name: str) -> None:
    parent = await house.started()
    with pytest.raises(InvalidJob, match="The name of children"):
        await submit(house, parent, name=name)


# Looking at a tree


async def test_the_view_of_a_tree_lists_its_jobs_depth_first_with_the_cost_of_each_subtree(
    house: House,
) -> None:
    root = await house.started(queue="roots")
    first, second = await submit(house, root, CHILD, CHILD)
    one, other = await house.claim()
    (deep,) = await submit(house, one, msgspec.structs.replace(CHILD, queue="deep"))
    below = await house.grant(queues=("deep",))
    await house.heard(done(below, cost=0.5))
    await house.heard(done(one, cost=0.25))
    await house.heard(release(root, await_children=True, cost=1.0))
    view = await house.jobs.tree(root.job_id)
    assert [(node.id, node.depth) for node in view.nodes] == [
        (root.job_id, 0),
        (first, 1),
        (deep, 2),
        (second, 1),
    ]
    assert [node.tree_cost for node in view.nodes] == [1.75, 0.75, 0.5, None]
    assert [node.waits_for for node in view.nodes] == ["children", "", "", ""]
    assert view.states == {"RUNNING": 2, "COMPLETED": 2}
    assert not view.cut
    assert [node.id for node in (await house.jobs.tree(first)).nodes] == [first, deep]
    assert other.job_id == second


async def test_the_view_of_a_tree_over_the_size_limit_is_marked_as_cut(house: House) -> None:
    root = await house.started(queue="roots")
    await submit(house, root, *[CHILD] * 20)
    view = await house.jobs.tree(root.job_id, most=10)
    assert (len(view.nodes), view.cut) == (10, True)
    assert not (await house.jobs.tree(root.job_id, most=21)).cut
