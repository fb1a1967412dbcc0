"""Requests of concurrent callers, answered together: those that arrive while a batch is under way.

A caller that is alone is answered at once. Commits, loads, reports and the writer of SQLite have queues of
their own: decision 0500.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from interlock.errors import InterlockError

T = TypeVar("T")
R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)

MOST = 500
"""Maximum size of a batch, in the unit of its requests: jobs to claim, or messages."""


async def _let_arrive() -> None:
    """Wait for the requests that are in the sockets already.

    After a batch of several there usually are some, and each batch costs a round trip to the store, however
    small it is. A request gets from its socket into the line in one turn of the loop, or in two if it has a
    task.
    """
    await asyncio.sleep(0)
    await asyncio.sleep(0)


class PendingAnswer(Protocol[R_contra]):
    """The place of one answer: a future, or an object that passes it on."""

    def done(self) -> bool:
        """Return whether the answer is set, or is not wanted any more."""
        ...

    def set_result(self, result: R_contra, /) -> None:
        """Set the answer. Must not raise: the answers of others follow."""
        ...

    def set_exception(self, error: Exception, /) -> None:
        """Set the error in place of an answer."""
        ...

    def cancel(self) -> object:
        """Give up, because this process ends."""
        ...


_Queued: TypeAlias = tuple[T, PendingAnswer[Any], Callable[[R], Any] | None]


class Coalescer(Generic[T, R]):
    """Batches requests: those with one key that arrive while a batch is under way."""

    def __init__(
        self,
        answer_all: Callable[[Sequence[T]], Awaitable[Sequence[R | InterlockError]]],
        *,
        name: str,
        size: Callable[[T], int],
        key: Callable[[T], Hashable] = lambda _: None,
        skips_cancelled: bool = False,
    ) -> None:
        """Batch requests that `answer_all` answers.

        With `skips_cancelled` the request of a client that has disconnected is not answered.
        """
        self._answer_all = answer_all
        self._name = name
        self._size = size
        self._key = key
        self._skips_cancelled = skips_cancelled
        self._queued: dict[Hashable, deque[_Queued[T, R]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, request: T) -> R:
        """Return the answer to one request."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self.enter(request, answer)
        return await answer

    def enter(
        self, request: T, answer: PendingAnswer[Any], answer_of: Callable[[R], Any] | None = None
    ) -> None:
        """Queue a request, whose answer is set later.

        `answer_of` returns the answer from the result, or raises a refusal; without it both are the same.
        """
        key = self._key(request)
        if key in self._queued:
            self._queued[key].append((request, answer, answer_of))
        else:
            self._queued[key] = deque([(request, answer, answer_of)])
            task = asyncio.create_task(self._serve(key), name=self._name)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, key: Hashable) -> None:
        """Serve batches until no request with this key is left."""
        try:
            while batch := self._next(self._queued[key]):
                await self._serve_some(batch)
                if len(batch) > 1:
                    await _let_arrive()
        finally:
            for _, answer, _ in self._queued.pop(key):
                answer.cancel()

    def _next(self, queued: deque[_Queued[T, R]]) -> list[_Queued[T, R]]:
        batch: list[_Queued[T, R]] = []
        number = 0
        while queued and (not batch or number + self._size(queued[0][0]) <= MOST):
            request, answer, answer_of = queued.popleft()
            if not (self._skips_cancelled and answer.done()):
                batch.append((request, answer, answer_of))
                number += self._size(request)
        return batch

    async def _serve_some(self, batch: Sequence[_Queued[T, R]]) -> None:
        answers: Sequence[R | Exception]
        try:
            answers = await self._answer_all([request for request, _, _ in batch])
        except Exception as error:  # noqa: BLE001 - passed to the callers
            answers = [error] * len(batch)
        for (_, future, answer_of), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
                continue
            try:
                result = answer if answer_of is None else answer_of(answer)
            except Exception as error:  # noqa: BLE001 - the answers of others follow
                future.set_exception(error)
            else:
                future.set_result(result)
