"""How many jobs of a tree are at work at the same time, at each depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.systems.orchestrator.house import House, done, failed, release

from interlock.errors import InvalidJob
from interlock.store.records import Query
from interlock.systems.orchestrator.body import TREE, TreeBody, tree_key
from interlock.systems.orchestrator.settings import DEFAULT_QUOTAS
from interlock.systems.settings import Settings
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import Grant


@pytest.fixture
async def small() -> AsyncIterator[House]:
    """With few places."""
    opened = await House(Settings(tree_quotas=(2, 2, 1, 1, 1, 1))).open()
    yield opened
    await opened.close()


async def family(house: House, number: int, **spec: object) -> tuple[Grant, list[str]]:
    """A parent that is at work, and so many children of it."""
    parent = await house.started(queue="parents")
    children = [JobSpec(task="child", parent_job_id=parent.job_id, **spec) for _ in range(number)]  # type: ignore[arg-type]
    return parent, await house.jobs.submit_many(children)


async def tree_of(house: House, root_id: str) -> TreeBody:
    (record,) = await house.store.load([tree_key(root_id)])
    assert record is not None
    return msgspec.json.decode(record.body, type=TreeBody)


async def test_no_more_are_given_out_than_the_quota_of_their_depth(house: House) -> None:
    parent, children = await family(house, 20)
    grants = await house.claim(limit=50)
    assert [grant.job_id for grant in grants] == children[: DEFAULT_QUOTAS[1]]
    assert await house.claim() == []
    states = Counter([(await house.view(child)).state for child in children])
    assert states == {"RUNNING": 8, "PENDING": 12}
    assert (await house.view(parent.job_id)).children == 20


async def test_a_job_that_ends_frees_its_place_for_the_next_waiting_job(house: House) -> None:
    _, children = await family(house, 10)
    grants = await house.claim(limit=50)
    await house.heard(done(grants[3]))
    await house.heard(failed(grants[4]))
    await house.recover()
    assert [grant.job_id for grant in await house.claim()] == children[8:]
    assert await house.faults() == []


async def test_a_tree_drains_however_many_are_held_back(small: House) -> None:
    parent, children = await family(small, 300)
    ended: list[str] = []
    while grants := await small.claim():
        assert len(grants) <= 2
        for grant in grants:
            await small.heard(done(grant))
        ended += [grant.job_id for grant in grants]
        await small.recover()
    assert ended == children, "each once, in the order in which they were submitted"
    await small.heard(done(parent))
    await small.recover()
    (tree,) = await small.store.load([tree_key(parent.job_id)])
    assert tree is not None
    assert tree.state == "closed"
    assert msgspec.json.decode(tree.body, type=TreeBody).empty


async def test_each_depth_has_places_of_its_own(small: House) -> None:
    root = await small.started(queue="roots")
    middle = [await small.submit(parent_job_id=root.job_id, queue="middle") for _ in range(3)]
    grants = await small.claim(queues=("middle",))
    assert [grant.job_id for grant in grants] == middle[:2]
    deep = [await small.submit(parent_job_id=grant.job_id, queue="deep") for grant in grants]
    assert [grant.job_id for grant in await small.claim(queues=("deep",))] == deep[:1], "one in all"


async def test_two_trees_do_not_take_each_others_places(small: House) -> None:
    one, other = await family(small, 3), await family(small, 3)
    assert one[0].job_id != other[0].job_id
    grants = await small.claim()
    assert Counter(grant.parent_job_id for grant in grants) == {one[0].job_id: 2, other[0].job_id: 2}


async def test_a_job_takes_a_place_for_each_of_its_workers(small: House) -> None:
    parent = await small.started(queue="parents")
    wide = await small.submit(parent_job_id=parent.job_id, worker_count=2)
    narrow = await small.submit(parent_job_id=parent.job_id)
    first, second = [*await small.claim(), *await small.claim()]
    assert {first.job_id, second.job_id} == {wide}
    assert await small.claim() == []
    await small.heard(done(first))
    await small.heard(done(second))
    await small.recover()
    assert (await small.grant()).job_id == narrow


async def test_a_job_that_needs_several_places_is_not_overtaken(small: House) -> None:
    parent = await small.started(queue="parents")
    first, second = [await small.submit(parent_job_id=parent.job_id) for _ in range(2)]
    wide = await small.submit(parent_job_id=parent.job_id, worker_count=2)
    last = await small.submit(parent_job_id=parent.job_id)
    grants = {grant.job_id: grant for grant in await small.claim()}
    await small.heard(done(grants[first]))
    await small.recover()
    assert await small.claim() == [], "one place is not enough, and nobody goes ahead"
    await small.heard(done(grants[second]))
    await small.recover()
    assert [grant.job_id for grant in [*await small.claim(), *await small.claim()]] == [wide, wide]
    assert (await small.view(last)).state == "PENDING"


async def test_a_job_that_could_never_be_let_in_is_refused(small: House) -> None:
    parent = await small.started()
    with pytest.raises(InvalidJob, match="has 2 workers at a time, and the job wants 3"):
        await small.submit(parent_job_id=parent.job_id, worker_count=3)


async def test_a_retry_keeps_the_place(small: House) -> None:
    _, children = await family(small, 3, retries=1)
    grants = await small.claim()
    await small.heard(failed(grants[0]))
    await small.later(30)
    again = await small.grant()
    assert (again.job_id, again.attempt) == (children[0], 2)
    assert (await small.view(children[2])).ready_at is None


async def test_a_lost_worker_keeps_its_place_for_the_next_attempt(small: House) -> None:
    _, children = await family(small, 3)
    await small.claim()
    await small.later(121)
    grants = await small.claim()
    assert [(grant.job_id, grant.attempt) for grant in grants] == [(each, 2) for each in children[:2]]


async def test_a_delay_counts_from_the_submission_also_for_held_jobs(small: House) -> None:
    _, children = await family(small, 2)
    grants = await small.claim()
    parent_id = grants[0].parent_job_id
    late = await small.submit(parent_job_id=parent_id, delay_s=100.0)
    small.clock.jump(40)
    await small.heard(done(grants[0]))
    await small.recover()
    assert (await small.view(late)).ready_at is not None
    assert await small.claim() == []
    small.clock.jump(60)
    assert (await small.grant()).job_id == late
    assert len(children) == 2


async def test_cancelling_a_held_job_of_a_tree_neither_frees_nor_takes_a_place(small: House) -> None:
    _, children = await family(small, 4)
    grants = await small.claim()
    await small.jobs.cancel(children[2])
    await small.recover()
    assert (await small.view(children[2])).state == "CANCELED"
    assert await small.claim() == []
    await small.heard(done(grants[0]))
    await small.recover()
    assert (await small.grant()).job_id == children[3]


async def test_no_waiting_job_of_a_tree_is_admitted_after_the_tree_is_cancelled(small: House) -> None:
    parent, children = await family(small, 6)
    grants = await small.claim()
    await small.jobs.cancel(parent.job_id)
    await small.heard(done(grants[0]))
    await small.recover(3)
    views = [await small.view(child) for child in children]
    assert [view.state for view in views] == ["COMPLETED", "RUNNING", *["CANCELED"] * 4]
    assert all(not view.started_at for view in views[2:])


async def test_another_process_admits_the_next_job_of_a_tree_after_a_crash(
    small: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, children = await family(small, 3)
    grants = await small.claim()
    await small.heard(done(grants[0]))

    class Killed(BaseException):
        """Like kill -9."""

    async def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(small.port.services.trees, "fill_slots", die)
        with pytest.raises(Killed):
            await small.recover()
    other = await small.neighbour()
    small.clock.jump(61)
    await other.recover(2)
    assert (await other.grant()).job_id == children[2]
    assert set((await tree_of(small, parent.job_id)).inside) == {children[1], children[2]}


async def test_two_keepers_of_the_same_tree_admit_each_job_once_and_within_the_quota(small: House) -> None:
    parent, children = await family(small, 30)
    other = await small.neighbour()
    given = 0
    while grants := await small.claim():
        given += len(grants)
        for grant in grants:
            await small.heard(done(grant))
            await other.recover()
            await small.recover()
        assert len((await tree_of(small, parent.job_id)).inside) <= 2
    assert given == len(children)
    assert await small.faults() == []


async def test_a_job_without_a_parent_creates_no_tree_and_sends_no_messages(house: House) -> None:
    grant = await house.started()
    await house.heard(done(grant))
    assert (await house.store.find(Query(kind=TREE.name))).records == ()
    assert (await house.store.find(Query(kind="message"))).records == ()


async def test_explain_shows_that_a_job_waits_for_a_place_in_its_tree(small: House) -> None:
    parent, children = await family(small, 3)
    explanation = await small.jobs.explain(children[2])
    assert explanation.sentence == (
        f"It waits for a place in the tree of {parent.job_id}: at depth 1 it has 2 workers at a time."
    )


async def test_explain_shows_that_a_child_waits_to_be_stopped_with_its_parent(small: House) -> None:
    parent, children = await family(small, 3)
    small.port.services.runs.prompt = False  # nobody sees to it at once
    await small.jobs.cancel(parent.job_id)
    explanation = await small.jobs.explain(children[2])
    assert explanation.sentence.startswith(f"It waits to be stopped with its parent {parent.job_id}")
    await small.recover(2)
    explanation = await small.jobs.explain(children[2])
    assert (
        explanation.sentence
        == f"It was stopped (parent) after 1 attempt, since its parent {parent.job_id} was."
    )


async def test_a_parent_that_was_given_back_without_children_is_given_out_at_once(house: House) -> None:
    grant = await house.started()
    await house.heard(release(grant, await_children=True))
    assert (await house.grant()).attempt == 2
