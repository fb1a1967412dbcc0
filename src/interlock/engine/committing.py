"""How a commit reaches the store: alone, or together with others.

A database can do a hundred commits in little more time than one, because the wait for the disk is
shared. So while one batch is on its way, whatever arrives is gathered into the next; nobody waits
for a timer, and a lone commit is not delayed. When more callers wait than `max_waiting`, the next
ones wait to be let in: that is the back-pressure.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Protocol

import msgspec

from interlock.errors import InterlockError, StoreUnavailable
from interlock.store.contract import Store
from interlock.store.records import Commit, Outcome


class Committer(Protocol):
    """Whoever makes commits true."""

    async def commit(self, commit: Commit) -> Outcome:
        """The outcome of this commit, whatever becomes of others."""
        ...

    async def commit_all(self, commits: Sequence[Commit]) -> list[Outcome | InterlockError]:
        """The outcome of each of many; one that fails does not disturb its neighbours."""
        ...


class DirectCommitter:
    """One commit at a time: for tests, for simulated worlds, and to compare with."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def commit(self, commit: Commit) -> Outcome:
        """Straight to the store."""
        return (await self._store.commit([commit]))[0]

    async def commit_all(self, commits: Sequence[Commit]) -> list[Outcome | InterlockError]:
        """One after the other."""
        return [await _outcome_of(self.commit(commit)) for commit in commits]


class Tally(msgspec.Struct):
    """What a group commit has done so far."""

    commits: int = 0
    batches: int = 0
    largest: int = 0


class _Bundle:
    """What one caller wants committed, and where it waits for the outcomes."""

    __slots__ = ("answer", "commits")

    def __init__(self, commits: Sequence[Commit]) -> None:
        self.commits = commits
        self.answer: asyncio.Future[list[Outcome | InterlockError]] = (
            asyncio.get_running_loop().create_future()
        )

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class GroupCommit:
    """Gathers what concurrent callers commit into one call of the store."""

    def __init__(self, store: Store, *, max_batch: int = 500, max_waiting: int = 5_000) -> None:
        self._store = store
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._waiting: deque[_Bundle] = deque()
        self._outside: deque[asyncio.Future[None]] = deque()
        self._inside = 0
        self._flusher: asyncio.Task[None] | None = None
        self._closed = False
        self.tally = Tally()

    async def commit(self, commit: Commit) -> Outcome:
        """Wait for room, then for the outcome."""
        if self._inside >= self._max_waiting:
            await self._let_in()
        [outcome] = await self._enter((commit,)).answer
        if isinstance(outcome, InterlockError):
            raise outcome
        return outcome

    async def commit_all(self, commits: Sequence[Commit]) -> list[Outcome | InterlockError]:
        """The same for somebody who has many at once; each has an outcome or an error of its own.

        Cheaper than as many callers of `commit`: none of them has to be woken by itself.
        """
        bundles: list[_Bundle] = []
        start = 0
        while start < len(commits):
            if self._inside >= self._max_waiting:
                await self._let_in()
            size = min(self._max_batch, self._max_waiting - self._inside)
            bundles.append(self._enter(commits[start : start + size]))
            start += size
        outcomes: list[Outcome | InterlockError] = []
        for bundle in bundles:
            outcomes += await bundle.answer
        return outcomes

    async def _let_in(self) -> None:
        """Wait outside, first come first served, until a batch has made room."""
        while self._inside >= self._max_waiting:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._outside.append(turn)
            await turn

    def _enter(self, commits: Sequence[Commit]) -> _Bundle:
        bundle = _Bundle(commits)
        if self._closed:
            bundle.answer.set_result([_closing()] * len(commits))
            return bundle
        self._waiting.append(bundle)
        self._inside += len(commits)
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush(), name="group commit")
        return bundle

    async def close(self) -> None:
        """Take nothing more, and finish what is waiting."""
        self._closed = True
        while self._flusher is not None and not self._flusher.done():
            await asyncio.wait([self._flusher])

    async def _flush(self) -> None:
        while self._waiting:
            batch = self._next_batch()
            # A caller that has gone away while it waited wants nothing any more.
            wanted = [bundle for bundle in batch if not bundle.answer.done()]
            if wanted:
                await self._flush_batch(wanted)
            self._make_room(sum(len(bundle.commits) for bundle in batch))

    def _next_batch(self) -> list[_Bundle]:
        """The next ones, as many as the store takes at once."""
        batch = [self._waiting.popleft()]
        size = len(batch[0].commits)
        while self._waiting and size + len(self._waiting[0].commits) <= self._max_batch:
            batch.append(self._waiting.popleft())
            size += len(batch[-1].commits)
        return batch

    async def _flush_batch(self, batch: Sequence[_Bundle]) -> None:
        commits = [commit for bundle in batch for commit in bundle.commits]
        self._count(len(commits))
        try:
            outcomes = await self._outcomes_of(commits)
        except asyncio.CancelledError as error:
            self._closed = True
            for bundle in (*batch, *self._waiting):
                bundle.fail(error)  # nobody would come for them any more
            self._waiting.clear()
            self._make_room(max(self._inside, len(self._outside)))  # they are told at the door
            raise
        except Exception as error:  # noqa: BLE001 - whoever waits is told, and the others go on
            for bundle in batch:
                bundle.fail(error)
        else:
            start = 0
            for bundle in batch:
                end = start + len(bundle.commits)
                if not bundle.answer.done():
                    bundle.answer.set_result(outcomes[start:end])
                start = end

    async def _outcomes_of(self, commits: list[Commit]) -> list[Outcome | InterlockError]:
        """What becomes of each; one that the store does not even take is told so alone."""
        try:
            return [*await self._store.commit(commits)]
        except StoreUnavailable as error:
            return [error] * len(commits)  # each of them has an unknown outcome of its own
        except InterlockError as error:
            if len(commits) == 1:
                return [error]
        # The store refuses a batch before it writes anything of it: find out whose fault it was.
        middle = len(commits) // 2
        return [*await self._outcomes_of(commits[:middle]), *await self._outcomes_of(commits[middle:])]

    def _make_room(self, places: int) -> None:
        self._inside -= places
        while places and self._outside:
            turn = self._outside.popleft()
            if not turn.done():  # else its caller has gone away, and the next may come
                turn.set_result(None)
                places -= 1

    def _count(self, size: int) -> None:
        self.tally.commits += size
        self.tally.batches += 1
        self.tally.largest = max(self.tally.largest, size)


async def _outcome_of(answer: Awaitable[Outcome]) -> Outcome | InterlockError:
    try:
        return await answer
    except InterlockError as error:
        return error


def _closing() -> StoreUnavailable:
    return StoreUnavailable(
        "This engine is shutting down and takes no more commits.",
        todo="Send it to another one; nothing was written.",
    )
