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


class GroupCommit:
    """Gathers what concurrent callers commit into one call of the store."""

    def __init__(self, store: Store, *, max_batch: int = 500, max_waiting: int = 5_000) -> None:
        self._store = store
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._waiting: deque[tuple[Commit, asyncio.Future[Outcome]]] = deque()
        self._outside: deque[asyncio.Future[None]] = deque()
        self._inside = 0
        self._flusher: asyncio.Task[None] | None = None
        self._closed = False
        self.tally = Tally()

    async def commit(self, commit: Commit) -> Outcome:
        """Wait for room, then for the outcome."""
        if self._inside >= self._max_waiting:
            await self._let_in()
        return await self._enter(commit)

    async def commit_all(self, commits: Sequence[Commit]) -> list[Outcome | InterlockError]:
        """The same for somebody who has many at once; each has an outcome or an error of its own.

        Cheaper than as many callers of `commit`: none of them has to be woken by itself.
        """
        answers: list[asyncio.Future[Outcome]] = []
        for commit in commits:
            if self._inside >= self._max_waiting:
                await self._let_in()
            answers.append(self._enter(commit))
        return [await _outcome_of(answer) for answer in answers]

    async def _let_in(self) -> None:
        """Wait outside, first come first served, until a batch has made room."""
        while self._inside >= self._max_waiting:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._outside.append(turn)
            await turn

    def _enter(self, commit: Commit) -> asyncio.Future[Outcome]:
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if self._closed:
            answer.set_exception(_closing())
            return answer
        self._waiting.append((commit, answer))
        self._inside += 1
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush(), name="group commit")
        return answer

    async def close(self) -> None:
        """Take nothing more, and finish what is waiting."""
        self._closed = True
        while self._flusher is not None and not self._flusher.done():
            await asyncio.wait([self._flusher])

    async def _flush(self) -> None:
        while self._waiting:
            size = min(self._max_batch, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(size)]
            # A caller that has gone away while it waited wants nothing any more.
            wanted = [(commit, answer) for commit, answer in batch if not answer.done()]
            if wanted:
                self._count(len(wanted))
                await self._flush_batch(wanted)
            self._make_room(size)

    async def _flush_batch(self, batch: Sequence[tuple[Commit, asyncio.Future[Outcome]]]) -> None:
        try:
            outcomes = await self._store.commit([commit for commit, _ in batch])
        except StoreUnavailable as error:
            _fail(batch, error)  # each of them has an unknown outcome of its own
        except InterlockError as error:
            await self._isolate(batch, error)
        except asyncio.CancelledError as error:
            self._closed = True
            _fail([*batch, *self._waiting], error)  # nobody would come for them any more
            self._waiting.clear()
            self._make_room(max(self._inside, len(self._outside)))  # they are told at the door
            raise
        except Exception as error:  # noqa: BLE001 - whoever waits is told, and the others go on
            _fail(batch, error)
        else:
            for (_, answer), outcome in zip(batch, outcomes, strict=True):
                if not answer.done():
                    answer.set_result(outcome)

    async def _isolate(
        self, batch: Sequence[tuple[Commit, asyncio.Future[Outcome]]], error: InterlockError
    ) -> None:
        """The store refuses a batch before it writes anything of it: find out whose fault it was."""
        if len(batch) == 1:
            _fail(batch, error)
            return
        middle = len(batch) // 2
        await self._flush_batch(batch[:middle])
        await self._flush_batch(batch[middle:])

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


def _fail(batch: Sequence[tuple[Commit, asyncio.Future[Outcome]]], error: BaseException) -> None:
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(error)


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
