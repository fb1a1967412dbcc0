"""Committers: how a commit reaches the store, alone, or together with others.

A database can do a hundred commits in little more time than one, because the wait for the disk is shared. So
while one batch is on its way, arriving commits are gathered into the next; there is no timer. When more than
`max_waiting` commits wait, further callers have to wait to be admitted: that is the back-pressure.

A caller that finds nothing under way, after a batch of one caller, goes straight to the store, without a
task, whose start and result would take several iterations of the loop. With concurrent callers the first
would always go without the others, so then a task gathers them.

Why: decisions 0112 and 0396.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from interlock.errors import InterlockError, StoreUnavailable
from interlock.store.contract import Store
from interlock.store.records import Commit, Outcome, Work, one_by_one


class Committer(Protocol):
    """Commits changes."""

    async def commit(self, commit: Commit) -> Outcome:
        """Return the outcome of this commit, independent of others."""
        ...

    async def commit_all(self, work: Sequence[Work]) -> list[Outcome | InterlockError]:
        """Return the outcome of each of many.

        A failure does not affect the others.
        """
        ...


class DirectCommitter:
    """One commit at a time: for tests, for simulated worlds, and for comparison."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def commit(self, commit: Commit) -> Outcome:
        """Commit directly to the store."""
        return (await self._store.commit([commit]))[0]

    async def commit_all(self, work: Sequence[Work]) -> list[Outcome | InterlockError]:
        """Commit one after the other."""
        return [await _outcome_of(self.commit(commit)) for commit in one_by_one(work)]


class Tally(msgspec.Struct):
    """The counts of a group commit: of the changes judged by the store."""

    commits: int = 0
    batches: int = 0
    largest: int = 0


class _Bundle:
    """The work of one caller, and the future of its outcomes."""

    __slots__ = ("answer", "size", "work")

    def __init__(self, work: Sequence[Work]) -> None:
        self.work = work
        self.size = sum([item.size for item in work])
        self.answer: asyncio.Future[list[Outcome | InterlockError]] = (
            asyncio.get_running_loop().create_future()
        )

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class GroupCommit:
    """Gathers the commits of concurrent callers into one call of the store."""

    def __init__(
        self,
        store: Store,
        *,
        max_batch: int = 500,
        max_waiting: int = 5_000,
        committed: Callable[[Sequence[Work], Sequence[Outcome]], None] | None = None,
    ) -> None:
        """Commit to a store in groups.

        `committed` is called with all work of each call of the store, and its outcomes.
        """
        self._store = store
        self._committed = committed
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._waiting: deque[_Bundle] = deque()
        self._outside: deque[asyncio.Future[None]] = deque()
        self._inside = 0
        self._flusher: asyncio.Task[None] | None = None
        self._is_quiet = False
        """Whether nothing is under way, and the last batch was of one caller."""
        self._direct = False
        """Whether a caller is using the store directly."""
        self._direct_ended: asyncio.Future[None] | None = None
        """Set by `close`, to wait for that."""
        self._closed = False
        self.tally: Tally = Tally()

    async def commit(self, commit: Commit) -> Outcome:
        """Wait for admission, then for the outcome."""
        if self._is_quiet:
            [outcome] = await self._commit_directly((commit,), 1)
        else:
            if self._inside >= self._max_waiting:
                await self._let_in()
            [outcome] = await self._enter((commit,)).answer
        if isinstance(outcome, InterlockError):
            raise outcome
        return outcome

    async def commit_all(self, work: Sequence[Work]) -> list[Outcome | InterlockError]:
        """Commit many at once; each has its own outcome or error.

        Cheaper than as many callers of `commit`: there is one wake-up.
        """
        if self._is_quiet and (size := sum([item.size for item in work])) <= self._max_batch:
            return await self._commit_directly(work, size) if size else []
        bundles: list[_Bundle] = []
        for some in _parts(work, self._max_batch):
            while self._inside >= self._max_waiting:
                await self._let_in()
            bundles.append(self._enter(some))
        outcomes: list[Outcome | InterlockError] = []
        for bundle in bundles:
            outcomes += await bundle.answer
        return outcomes

    async def _commit_directly(self, work: Sequence[Work], size: int) -> list[Outcome | InterlockError]:
        """Commit in the caller's task, while arriving commits are gathered."""
        self._is_quiet, self._direct = False, True
        self._inside += size
        try:
            return await self._outcomes_of(work, size)
        finally:
            self._direct = False
            self._is_quiet = not self._waiting and not self._closed
            if self._waiting:
                self._begin_flush()
            if self._direct_ended is not None:
                self._direct_ended.set_result(None)
            if self._outside:
                self._make_room(size)
            else:
                self._inside -= size

    async def _let_in(self) -> None:
        """Wait, first come first served, until a batch has made room."""
        while self._inside >= self._max_waiting:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._outside.append(turn)
            await turn

    def _enter(self, work: Sequence[Work]) -> _Bundle:
        bundle = _Bundle(work)
        if self._closed:
            bundle.answer.set_result([_closing()] * bundle.size)
            return bundle
        self._waiting.append(bundle)
        self._inside += bundle.size
        self._is_quiet = False
        if not self._direct and (self._flusher is None or self._flusher.done()):
            self._begin_flush()
        return bundle

    def _begin_flush(self) -> None:
        self._flusher = asyncio.create_task(self._flush(), name="group commit")

    async def close(self) -> None:
        """Accept no more commits, and finish the waiting ones."""
        self._closed, self._is_quiet = True, False
        if self._direct and self._direct_ended is None:
            self._direct_ended = asyncio.get_running_loop().create_future()
        if self._direct_ended is not None:
            await asyncio.shield(self._direct_ended)
        while self._flusher is not None and not self._flusher.done():
            await asyncio.wait([self._flusher])

    async def _flush(self) -> None:
        while self._waiting:
            batch = self._next_batch()
            # A caller that was cancelled while waiting wants no commit.
            wanted = [bundle for bundle in batch if not bundle.answer.done()]
            if wanted:
                await self._flush_batch(wanted)
            self._make_room(sum(bundle.size for bundle in batch))
            self._is_quiet = len(batch) == 1 and not self._waiting and not self._closed

    def _next_batch(self) -> list[_Bundle]:
        """Return the next batch, up to the limit of the store."""
        batch = [self._waiting.popleft()]
        size = batch[0].size
        while self._waiting and size + self._waiting[0].size <= self._max_batch:
            batch.append(self._waiting.popleft())
            size += batch[-1].size
        return batch

    async def _flush_batch(self, batch: Sequence[_Bundle]) -> None:
        try:
            work = [item for bundle in batch for item in bundle.work]
            outcomes = await self._outcomes_of(work, sum([bundle.size for bundle in batch]))
        except asyncio.CancelledError as error:
            self._closed = True
            for bundle in (*batch, *self._waiting):
                bundle.fail(error)  # no flush would follow
            self._waiting.clear()
            self._make_room(max(self._inside, len(self._outside)))  # the waiting callers are refused
            raise
        except Exception as error:  # noqa: BLE001 - raised to the waiter; the others continue
            for bundle in batch:
                bundle.fail(error)
        else:
            start = 0
            for bundle in batch:
                end = start + bundle.size
                if not bundle.answer.done():
                    bundle.answer.set_result(outcomes[start:end])
                start = end

    async def _outcomes_of(self, work: Sequence[Work], size: int) -> list[Outcome | InterlockError]:
        """Return the `size` outcomes; a rejected commit gets its own error."""
        try:
            outcomes = await self._store.commit(work)
        except StoreUnavailable as error:
            return [error] * size  # each of them has an unknown outcome
        except InterlockError as error:
            if size == 1:
                return [error]
        else:
            self.tally.commits += size
            self.tally.batches += 1
            self.tally.largest = max(self.tally.largest, size)
            if self._committed is not None:
                self._committed(work, outcomes)
            return [*outcomes]
        # The store rejects all before it writes any: find the invalid commit.
        if len(work) == 1:
            work = [*one_by_one(work)]
        middle = len(work) // 2
        found: list[Outcome | InterlockError] = []
        for half in (work[:middle], work[middle:]):
            found += await self._outcomes_of(half, sum([item.size for item in half]))
        return found

    def _make_room(self, places: int) -> None:
        self._inside -= places
        while places and self._outside:
            turn = self._outside.popleft()
            if not turn.done():  # otherwise its caller was cancelled, and the next may enter
                turn.set_result(None)
                places -= 1


def _parts(work: Sequence[Work], most: int) -> Iterator[list[Work]]:
    """Split work into parts of limited size; a single batch may be larger."""
    part: list[Work] = []
    size = 0
    for item in work:
        if part and size + item.size > most:
            yield part
            part, size = [], 0
        part.append(item)
        size += item.size
    if part:
        yield part


async def _outcome_of(answer: Awaitable[Outcome]) -> Outcome | InterlockError:
    try:
        return await answer
    except InterlockError as error:
        return error


def _closing() -> StoreUnavailable:
    return StoreUnavailable(
        "This engine is shutting down and accepts no more commits.",
        todo="Send it to another one; nothing was written.",
    )
