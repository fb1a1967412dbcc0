"""Long polls of runners for work, and the batching of their claims and messages.

Runners that ask for the same queues with the same labels and tasks stand in one line. News calls the first
of each line; a runner that finds work calls the next one. So a submitted job costs a claim or two, not one
for each runner that waits. Claims that arrive while another is under way are served by one look into the
store, grouped by what the runners can do; messages are batched whatever they are about.

A runner may name its claim. The same claim again, because its answer was lost, takes the place of the first
one. If the runner disconnects, what was just being granted is kept for a moment and then given back, unless
another server has given it to the runner meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from interlock.errors import InterlockError
from interlock.store.contract import Store
from interlock.systems.orchestrator.grants import asked_of, claim_reused
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


LOOK_EVERY_S = 1.0
"""Work that becomes ready by itself (a delay, a retry) makes no news: the first in line looks for it."""

CALM_S = 0.02
"""After a look that found nothing a line is left alone for so long: on a busy store all is news."""

COMES_BACK_S = 5.0
"""How long something is kept for a runner that has gone away while it was given to it."""

Name: TypeAlias = tuple[str, str, str]
"""Who asks, for which runner, and what that calls its claim."""
Claim: TypeAlias = Callable[[ClaimRequest], Awaitable[list[Grant]]]
GiveBack: TypeAlias = Callable[[list[Grant]], Awaitable[None]]


class Line:
    """Runners that can use the same work, in the order in which they came."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.visits = 0
        """How many claims it is for, whether they wait or look."""
        self._loop = loop
        self._waiting: deque[asyncio.Event] = deque()
        self._calm_until = 0.0
        self._next_look: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, called: asyncio.Event) -> None:
        """One more."""
        self._waiting.append(called)
        if self._next_look is None:
            self._next_look = self._loop.call_later(LOOK_EVERY_S, self._look)

    def leave(self, called: asyncio.Event, *, unused: bool) -> None:
        """One fewer; a call that it will not follow goes to the next one."""
        self._waiting.remove(called)
        if unused and called.is_set():
            self.call()
        if not self._waiting and self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None

    def call(self) -> None:
        """Let the first one look who was not called yet."""
        first = next((called for called in self._waiting if not called.is_set()), None)
        if first is not None:
            first.set()

    def news(self) -> None:
        """There may be something: at once, or as soon as the line has been left alone for long enough."""
        wait_s = self._calm_until - self._loop.time()
        if wait_s <= 0:
            self.call()
        elif self._next_look is not None and self._next_look.when() > self._calm_until:
            self._next_look.cancel()
            self._next_look = self._loop.call_later(wait_s, self._look)

    def found_nothing(self) -> None:
        """Somebody has looked in vain."""
        self._calm_until = self._loop.time() + CALM_S

    def _look(self) -> None:
        self.call()
        self._next_look = self._loop.call_later(LOOK_EVERY_S, self._look)


class Poll:
    """One claim, however many requests have asked for its answer."""

    def __init__(self, request: ClaimRequest, until: float) -> None:
        self.request = request
        self.until = until
        self.asking = 0
        """How many wait for the answer."""
        self.stirred = asyncio.Event()
        """It was called, its time is another one now, or nobody waits for it any more."""
        self.found: asyncio.Future[list[Grant]] = asyncio.get_running_loop().create_future()
        self.taken = False
        """Somebody was there to take what was found."""

    def stir(self, said: asyncio.Task[bool]) -> None:
        """Somebody says that it is enough; a word that is taken back means nothing."""
        if not said.cancelled():
            self.stirred.set()


class LongPoll:
    """The lines of one server."""

    def __init__(self, store: Store) -> None:
        self._lines: dict[Wanted, Line] = {}
        self._visits: dict[Name, Poll] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._gathering: Coalescer | None = None
        self._telling = False
        self._loop = asyncio.get_running_loop()
        self._leave = store.subscribe(self._news)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(map(len, self._lines.values()))

    @property
    def asking(self) -> int:
        """How many requests under a name are unanswered."""
        return sum(visit.asking for visit in self._visits.values())

    def close(self) -> None:
        """Hear no more news, and answer nobody any more."""
        self._leave()
        for task in self._tasks:
            task.cancel()

    def together(self, claim_all: ClaimAll) -> Claim:
        """Claims that are gathered while one is on its way."""
        if self._gathering is None:
            self._gathering = Coalescer(claim_all)
        return self._gathering.claim

    async def claim(
        self,
        whom: str,
        request: ClaimRequest,
        claim: Claim,
        give_back: GiveBack,
        *,
        within_s: float,
        unless: asyncio.Event,
    ) -> list[Grant]:
        """What there is, or what there is within that time; nothing at once when somebody says so."""
        until = self._loop.time() + within_s
        name = (whom, request.runner_id, request.claim_id)
        visit = self._visits.get(name)
        if visit is None:
            visit = Poll(request, until)
            if request.claim_id:
                self._visits[name] = visit
            task = asyncio.create_task(self._give(visit, name, claim, give_back, unless), name="claim")
            self._tasks.add(task)
            task.add_done_callback(partial(self._done, visit))
        else:
            _check_same(visit.request, request)
            visit.until = until
            visit.stirred.set()
        return await self._answer(visit)

    async def _answer(self, visit: Poll) -> list[Grant]:
        """Whoever is cancelled while it waits has gone, and with the last one its claim."""
        visit.asking += 1
        try:
            grants = await asyncio.shield(visit.found)
            visit.taken = True
            return grants
        finally:
            visit.asking -= 1
            visit.stirred.set()

    async def _give(
        self, visit: Poll, name: Name, claim: Claim, give_back: GiveBack, unless: asyncio.Event
    ) -> None:
        try:
            found = await self._look(visit, claim, unless)
            visit.found.set_result(found)
            taken = not found or await self._is_taken(visit)
        finally:
            self._forget(name, visit)
        if not taken:
            await give_back(found)

    async def _is_taken(self, visit: Poll) -> bool:
        """Whether somebody was there to take what was found, or comes back for it."""
        until = self._loop.time() + COMES_BACK_S if visit.request.claim_id else 0.0
        while not visit.taken and (visit.asking or self._loop.time() < until):
            visit.stirred.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if visit.asking else until):
                    await visit.stirred.wait()
        return visit.taken

    async def _look(self, visit: Poll, claim: Claim, unless: asyncio.Event) -> list[Grant]:
        stop = asyncio.create_task(unless.wait())
        stop.add_done_callback(visit.stir)
        line = self._enter(visit.request)
        try:
            while not (grants := await claim(visit.request)):
                line.found_nothing()
                if not await self._wait(visit, line, unless):
                    return []
            line.call()
            return grants
        finally:
            stop.cancel()
            self._exit(visit.request, line)

    async def _wait(self, visit: Poll, line: Line, unless: asyncio.Event) -> bool:
        """Whether to look once more; not when its time is over, all have gone, or somebody says so."""
        called = visit.stirred
        called.clear()
        looks = False
        line.join(called)
        try:
            if visit.asking and self._loop.time() < visit.until and not unless.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(visit.until):
                        await called.wait()
                looks = bool(visit.asking) and not unless.is_set() and called.is_set()
        finally:
            line.leave(called, unused=not looks)
        return looks

    def _enter(self, request: ClaimRequest) -> Line:
        line = self._lines.setdefault(wanted_by(request), Line(self._loop))
        line.visits += 1
        return line

    def _exit(self, request: ClaimRequest, line: Line) -> None:
        line.visits -= 1
        if not line.visits:
            del self._lines[wanted_by(request)]

    def _forget(self, name: Name, visit: Poll) -> None:
        if self._visits.get(name) is visit:
            del self._visits[name]

    def _done(self, visit: Poll, task: asyncio.Task[None]) -> None:
        """Whatever went wrong is told to whoever waits; perhaps nobody is left who would want to know."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if visit.found.done():
            return
        if error is None:
            visit.found.cancel()
        else:
            visit.found.set_exception(error)
            visit.found.exception()

    def _news(self) -> None:
        """From any thread. Where nobody waits, or all are told already, the loop need not be woken."""
        if self._lines and not self._telling:
            self._telling = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._tell_lines)

    def _tell_lines(self) -> None:
        self._telling = False
        for line in list(self._lines.values()):
            line.news()


def _check_same(first: ClaimRequest, again: ClaimRequest) -> None:
    """Whoever asks again asks for the same."""
    if asked_of(first).fingerprint != asked_of(again).fingerprint:
        raise claim_reused(again.claim_id)
