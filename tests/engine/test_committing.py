"""Group commit: callers share a batch, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from interlock.engine.committer import DirectCommitter, GroupCommit
from interlock.errors import StoreUnavailable, UnknownState
from interlock.store.memory import MemoryStore
from interlock.store.records import Commit, Committed, Conflict, Key, Outcome, Work, one_by_one

MakeCommit = Callable[..., Commit]


class SlowStore(MemoryStore):
    """Answers when it is let go, so that callers can gather."""

    def __init__(self, like: MemoryStore) -> None:
        super().__init__(like._catalogue)
        self.go = asyncio.Event()
        self.batches: list[int] = []

    async def commit(self, commits: Sequence[Work]) -> list[Outcome]:
        self.batches.append(len(commits))
        await self.go.wait()
        return await super().commit(commits)


async def test_commits_that_arrive_while_a_batch_is_being_written_are_batched_together(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    slow = SlowStore(store)
    group = GroupCommit(slow)
    callers = [asyncio.create_task(group.commit(make_commit(f"p{n}", 0, "packed"))) for n in range(64)]
    await asyncio.sleep(0)
    slow.go.set()
    outcomes = await asyncio.gather(*callers)
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    assert sum(slow.batches) == 64
    assert len(slow.batches) <= 3
    assert group.tally.commits == 64


async def test_a_lone_commit_is_not_kept_waiting_for_company(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    group = GroupCommit(store)
    assert isinstance(await group.commit(make_commit("p", 0, "packed")), Committed)
    assert group.tally.batches == 1


async def test_a_batch_is_never_larger_than_it_may_be(store: MemoryStore, make_commit: MakeCommit) -> None:
    slow = SlowStore(store)
    slow.go.set()
    group = GroupCommit(slow, max_batch=10)
    await asyncio.gather(*(group.commit(make_commit(f"p{n}", 0, "packed")) for n in range(35)))
    assert max(slow.batches) == 10
    assert sum(slow.batches) == 35


async def test_a_conflict_is_reported_to_its_caller_only(store: MemoryStore, make_commit: MakeCommit) -> None:
    group = GroupCommit(store)
    bad = make_commit("p3", 7, "sent")
    commits = [make_commit(f"p{n}", 0, "packed") if n != 3 else bad for n in range(8)]
    outcomes = await asyncio.gather(*(group.commit(commit) for commit in commits))
    assert outcomes[3] == Conflict(Key("parcel", "p3"), 7, 0)
    assert sum(isinstance(outcome, Committed) for outcome in outcomes) == 7


async def test_an_invalid_commit_does_not_fail_the_other_commits_of_its_batch(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    slow = SlowStore(store)
    group = GroupCommit(slow)
    commits = [make_commit(f"p{n}", 0, "packed" if n != 5 else "lost at sea") for n in range(9)]
    callers = [asyncio.create_task(group.commit(commit)) for commit in commits]
    await asyncio.sleep(0)
    slow.go.set()
    outcomes = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(outcomes[5], UnknownState)
    assert sum(isinstance(outcome, Committed) for outcome in outcomes) == 8
    found = await slow.load([Key("parcel", f"p{n}") for n in range(9)])
    assert [record is None for record in found] == [n == 5 for n in range(9)]


async def test_a_caller_that_gave_up_while_waiting_is_not_committed(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    slow = SlowStore(store)
    group = GroupCommit(slow, max_batch=1)
    first = asyncio.create_task(group.commit(make_commit("first", 0, "packed")))
    second = asyncio.create_task(group.commit(make_commit("second", 0, "packed")))
    await asyncio.sleep(0)
    second.cancel()
    slow.go.set()
    assert isinstance(await first, Committed)
    await group.close()
    assert await slow.load([Key("parcel", "second")]) == [None]


async def test_when_too_many_wait_the_next_one_waits_outside(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    slow = SlowStore(store)
    group = GroupCommit(slow, max_waiting=4)
    callers = [asyncio.create_task(group.commit(make_commit(f"p{n}", 0, "packed"))) for n in range(10)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(group._waiting) + slow.batches[0] <= 4
    slow.go.set()
    assert len(await asyncio.gather(*callers)) == 10


async def test_closing_completes_waiting_commits_and_refuses_new_ones_with_store_unavailable(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    slow = SlowStore(store)
    group = GroupCommit(slow)
    waiting = asyncio.create_task(group.commit(make_commit("p", 0, "packed")))
    await asyncio.sleep(0)
    slow.go.set()
    await group.close()
    assert isinstance(await waiting, Committed)
    with pytest.raises(StoreUnavailable):
        await group.commit(make_commit("q", 0, "packed"))


async def test_each_caller_receives_store_unavailable_when_the_store_is_unavailable(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    store.losses = ["before"]  # type: ignore[attr-defined]
    group = GroupCommit(store)
    outcomes = await asyncio.gather(
        *(group.commit(make_commit(f"p{n}", 0, "packed")) for n in range(3)), return_exceptions=True
    )
    assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)


async def test_the_direct_committer_sends_a_commit_straight_to_the_store(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    assert isinstance(await DirectCommitter(store).commit(make_commit("p", 0, "packed")), Committed)


async def test_an_unexpected_error_is_raised_only_to_the_callers_of_that_batch(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    class Surprised(SlowStore):
        async def commit(self, commits: Sequence[Work]) -> list[Outcome]:
            if any(change.id == "p0" for commit in one_by_one(commits) for change in commit.changes):
                raise NameError("who?")
            return await super().commit(commits)

    surprised = Surprised(store)
    surprised.go.set()
    group = GroupCommit(surprised, max_batch=1)
    outcomes = await asyncio.gather(
        *(group.commit(make_commit(f"p{n}", 0, "packed")) for n in range(3)), return_exceptions=True
    )
    assert isinstance(outcomes[0], NameError)
    assert all(isinstance(outcome, Committed) for outcome in outcomes[1:])


async def test_when_the_engine_is_torn_down_no_caller_is_left_waiting(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    slow = SlowStore(store)
    group = GroupCommit(slow, max_batch=1)
    callers = [asyncio.create_task(group.commit(make_commit(f"p{n}", 0, "packed"))) for n in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert group._flusher is not None
    group._flusher.cancel()
    outcomes = await asyncio.gather(*callers, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)


async def test_commit_all_returns_one_outcome_per_commit_and_respects_the_batch_limit(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    group = GroupCommit(store, max_batch=3, max_waiting=4)
    bad = make_commit("p5", 0, "no such state")
    commits = [bad if n == 5 else make_commit(f"p{n}", 0, "packed") for n in range(10)]
    outcomes = await group.commit_all(commits)
    assert isinstance(outcomes[5], UnknownState)
    assert sum(isinstance(outcome, Committed) for outcome in outcomes) == 9
    assert group.tally.largest <= 3


async def test_callers_waiting_for_space_receive_an_error_when_the_flusher_is_cancelled(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    group = GroupCommit(SlowStore(store), max_waiting=2)
    callers = [asyncio.create_task(group.commit(make_commit(f"p{n}", 0, "packed"))) for n in range(6)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert group._flusher is not None
    group._flusher.cancel()
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert all(isinstance(answer, asyncio.CancelledError | StoreUnavailable) for answer in results)


class Noting(SlowStore):
    """Knows which task has come to it."""

    def __init__(self, like: MemoryStore) -> None:
        super().__init__(like)
        self.tasks: list[asyncio.Task[object] | None] = []

    async def commit(self, commits: Sequence[Work]) -> list[Outcome]:
        self.tasks.append(asyncio.current_task())
        return await super().commit(commits)


async def quiet_group(store: Noting, make_commit: MakeCommit) -> GroupCommit:
    """Return a group commit whose last batch was of one caller."""
    group = GroupCommit(store)
    store.go.set()
    await group.commit(make_commit("first", 0, "packed"))
    store.go.clear()
    store.tasks.clear()
    store.batches.clear()
    return group


async def test_a_commit_to_an_idle_group_is_sent_to_the_store_in_the_task_of_the_caller(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    noting = Noting(store)
    group = await quiet_group(noting, make_commit)
    noting.go.set()
    assert isinstance(await group.commit(make_commit("p", 0, "packed")), Committed)
    [outcome] = await group.commit_all([make_commit("q", 0, "packed")])
    assert isinstance(outcome, Committed)
    assert noting.tasks == [asyncio.current_task()] * 2
    [error] = await group.commit_all([make_commit("r", 0, "lost at sea")])
    assert isinstance(error, UnknownState)
    assert await group.commit_all([]) == []
    assert group.tally.commits == 3, "what the store refuses unseen is not counted"


async def test_commits_that_arrive_during_a_direct_commit_share_the_next_batch(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    noting = Noting(store)
    group = await quiet_group(noting, make_commit)
    for turn in range(2):
        noting.go.clear()
        callers = [
            asyncio.create_task(group.commit(make_commit(f"p{turn}{n}", 0, "packed"))) for n in range(8)
        ]
        for _ in range(3):
            await asyncio.sleep(0)
        noting.go.set()
        assert kinds(await asyncio.gather(*callers)) == [Committed] * 8
    assert noting.batches == [1, 7, 8], "Callers that come together are gathered from then on."


async def test_a_caller_cancelled_during_its_direct_commit_does_not_block_other_callers(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    noting = Noting(store)
    group = await quiet_group(noting, make_commit)
    first, second = (asyncio.create_task(group.commit(make_commit(name, 0, "packed"))) for name in "ab")
    await asyncio.sleep(0)
    first.cancel()
    noting.go.set()
    assert isinstance(await second, Committed)
    assert first.cancelled()
    assert isinstance(await group.commit(make_commit("c", 0, "packed")), Committed)


async def test_closing_waits_for_a_direct_commit_in_progress(
    store: MemoryStore, make_commit: MakeCommit
) -> None:
    noting = Noting(store)
    group = await quiet_group(noting, make_commit)
    callers = [asyncio.create_task(group.commit(make_commit(name, 0, "packed"))) for name in "ab"]
    await asyncio.sleep(0)
    closing = asyncio.create_task(group.close())
    for _ in range(3):
        await asyncio.sleep(0)
    assert not closing.done()
    noting.go.set()
    await closing
    assert kinds([caller.result() for caller in callers]) == [Committed] * 2
    with pytest.raises(StoreUnavailable):
        await group.commit(make_commit("c", 0, "packed"))


def kinds(outcomes: Sequence[Outcome]) -> list[type[Outcome]]:
    return [type(outcome) for outcome in outcomes]
