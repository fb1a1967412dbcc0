"""What runners ask and say while something of the kind is on its way is done together, in one go.

Fifty runners that ask for one job each cost as much as one that asks for fifty: one look into the store
for all of them. They are gathered by what they can do, since only those who could do the same work can
be served together. What is said is gathered whatever it is about.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from interlock.errors import InterlockError
from interlock.systems.orchestrator.orchestrator import Claimed
from interlock.wire.runner import Answer, ClaimRequest, Grant, Message

MOST = 500
"""How much is claimed together."""

ClaimAll: TypeAlias = Callable[[Sequence[ClaimRequest]], Awaitable[list[Claimed]]]
Hear: TypeAlias = Callable[[Sequence[Message]], Awaitable[list[Answer]]]
Wanted: TypeAlias = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...] | None]
"""The queues, labels and tasks of a runner."""
_Said: TypeAlias = tuple[Sequence[Message], "asyncio.Future[list[Answer]]"]
_Asked: TypeAlias = tuple[ClaimRequest, "asyncio.Future[list[Grant]]"]


def wanted_by(request: ClaimRequest) -> Wanted:
    """Which work a runner can do: those of which it is the same are served together."""
    return request.queues, request.labels, request.tasks


class Coalescer:
    """The claims of one server."""

    def __init__(self, claim_all: ClaimAll) -> None:
        self._claim_all = claim_all
        self._asked: dict[Wanted, deque[_Asked]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """Work for one runner."""
        answer: asyncio.Future[list[Grant]] = asyncio.get_running_loop().create_future()
        key = wanted_by(request)
        if key in self._asked:
            self._asked[key].append((request, answer))
        else:
            self._asked[key] = deque([(request, answer)])
            task = asyncio.create_task(self._serve(key), name="claims")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await answer

    async def _serve(self, key: Wanted) -> None:
        """As many claims as it takes until nobody of this kind is left."""
        try:
            while batch := self._next(self._asked[key]):
                await self._serve_some(batch)
        finally:
            for _, answer in self._asked.pop(key):
                answer.cancel()

    def _next(self, asked: deque[_Asked]) -> list[_Asked]:
        batch: list[_Asked] = []
        number = 0
        while asked and (not batch or number + asked[0][0].limit <= MOST):
            request, answer = asked.popleft()
            if not answer.done():  # nobody waits for it any more
                batch.append((request, answer))
                number += request.limit
        return batch

    async def _serve_some(self, batch: Sequence[_Asked]) -> None:
        try:
            given = await self._claim_all([request for request, _ in batch])
        except Exception as error:  # noqa: BLE001 - whoever asked is told, whatever it is
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
        else:
            for (_, answer), claimed in zip(batch, given, strict=True):
                if answer.done():
                    continue
                if isinstance(claimed, InterlockError):
                    answer.set_exception(claimed)
                else:
                    answer.set_result(claimed)


class MessageCoalescer:
    """What is said to one server."""

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._said: deque[_Said] = deque()
        self._serving: asyncio.Task[None] | None = None

    async def hear(self, messages: Sequence[Message]) -> list[Answer]:
        """What the messages of one runner do; the answers are in their order."""
        answers: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        self._said.append((messages, answers))
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve(), name="messages")
        return await answers

    async def _serve(self) -> None:
        try:
            while batch := self._next():
                await self._serve_some(batch)
        finally:
            self._serving = None
            for _, answers in self._said:
                answers.cancel()
            self._said.clear()

    def _next(self) -> list[_Said]:
        """Also what nobody waits for any more: it was said, and may be true."""
        batch: list[_Said] = []
        number = 0
        while self._said and (not batch or number + len(self._said[0][0]) <= MOST):
            batch.append(self._said.popleft())
            number += len(batch[-1][0])
        return batch

    async def _serve_some(self, batch: Sequence[_Said]) -> None:
        try:
            heard = await self._hear([message for messages, _ in batch for message in messages])
        except Exception as error:  # noqa: BLE001 - whoever has said something is told, whatever it is
            for _, answers in batch:
                if not answers.done():
                    answers.set_exception(error)
            return
        start = 0
        for messages, answers in batch:
            if not answers.done():
                answers.set_result(heard[start : start + len(messages)])
            start += len(messages)
