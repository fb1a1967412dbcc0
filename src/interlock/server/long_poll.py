"""Long polls of runners for jobs, and the batching of their claims and messages.

Runners that ask for the same queues with the same labels and tasks share one line. A notification wakes the
first of each line; a runner that finds a job wakes the next one. So a submitted job costs a claim or two, not
one for each waiting runner. Claims that arrive while another is under way are served by one query of the
store, grouped by queues, labels and tasks; messages of all kinds are batched.

A runner may name its claim. The same claim again, because its answer was lost, takes the place of the first
one. If the runner disconnects, a grant under way is kept for a moment and then given back, unless another
server has given it to the runner in the meantime.

Why: decision 0153.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TypeAlias

from interlock.engine.coalescer import Coalescer
from interlock.store.contract import Store
from interlock.systems.orchestrator.grants import claim_key_of, claim_reused
from interlock.systems.orchestrator.orchestrator import Claimed
from interlock.wire.runner import Answer, ClaimRequest, Grant, Message, SendMessages

ClaimAll: TypeAlias = Callable[[Sequence[ClaimRequest]], Awaitable[list[Claimed]]]
ClaimTerms: TypeAlias = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...] | None]
"""The queues, labels and tasks of a runner."""


def wanted_by(request: ClaimRequest) -> ClaimTerms:
    """Return the queues, labels and tasks by which claims are served together."""
    return request.queues, request.labels, request.tasks


def claims_together(claim_all: ClaimAll) -> Coalescer[ClaimRequest, list[Grant]]:
    """Batch claims for the same queues, labels and tasks."""
    return Coalescer(
        claim_all,
        name="claims",
        size=lambda request: request.limit,
        key=wanted_by,
        skips_cancelled=True,
    )


def messages_together(send: SendMessages) -> Coalescer[Sequence[Message], list[Answer]]:
    """Batch messages of runners.

    Messages of a disconnected client are still valid.
    """

    async def send_all(parts: Sequence[Sequence[Message]]) -> list[list[Answer]]:
        answers = iter(await send([message for part in parts for message in part]))
        return [list(islice(answers, len(part))) for part in parts]

    return Coalescer(send_all, name="messages", size=len)


LOOK_EVERY_S = 1.0
"""Polling interval of the first in line: jobs that become ready by time (a delay, a retry) cause no
notification.
"""

CALM_S = 0.02
"""Pause of a line after a claim without a result: on a busy store notifications are frequent."""

COMES_BACK_S = 5.0
"""Time for which a grant is kept for a runner that disconnected meanwhile."""

ClaimName: TypeAlias = tuple[str, str, str]
"""The token, the runner, and the name of the claim."""
ClaimJobs: TypeAlias = Callable[[ClaimRequest], Awaitable[list[Grant]]]
GiveBack: TypeAlias = Callable[[list[Grant]], Awaitable[None]]


class RunnerLine:
    """Runners that can use the same jobs, in order of arrival."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.visits = 0
        """Number of claims in this line, waiting or active."""
        self._loop = loop
        self._waiting: deque[asyncio.Event] = deque()
        self._calm_until = 0.0
        self._next_look: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, called: asyncio.Event) -> None:
        """Add a waiting claim."""
        self._waiting.append(called)
        if self._next_look is None:
            self._next_look = self._loop.call_later(LOOK_EVERY_S, self._look)

    def leave(self, called: asyncio.Event, *, unused: bool) -> None:
        """Remove a waiting claim; an unused wake-up goes to the next one."""
        self._waiting.remove(called)
        if unused and called.is_set():
            self.call()
        if not self._waiting and self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None

    def call(self) -> None:
        """Wake the first claim that was not woken yet."""
        first = next((called for called in self._waiting if not called.is_set()), None)
        if first is not None:
            first.set()

    def news(self) -> None:
        """Wake the first claim: at once, or after the pause of the line."""
        wait_s = self._calm_until - self._loop.time()
        if wait_s <= 0:
            self.call()
        elif self._next_look is not None and self._next_look.when() > self._calm_until:
            self._next_look.cancel()
            self._next_look = self._loop.call_later(wait_s, self._look)

    def found_nothing(self) -> None:
        """Start the pause after a claim without a result."""
        self._calm_until = self._loop.time() + CALM_S

    def _look(self) -> None:
        self.call()
        self._next_look = self._loop.call_later(LOOK_EVERY_S, self._look)


class Poll:
    """One claim, and all requests that wait for its answer."""

    def __init__(self, request: ClaimRequest, until: float) -> None:
        self.request = request
        self.until = until
        self.unanswered = 0
        """Number of waiting requests."""
        self.woken: asyncio.Event = asyncio.Event()
        """Set when the claim was woken, its deadline changed, or its last request disconnected."""
        self.found: asyncio.Future[list[Grant]] = asyncio.get_running_loop().create_future()
        self.taken = False
        """Whether a request received the grants."""

    def wake(self, wait: asyncio.Task[bool]) -> None:
        """Wake the claim, unless the future was cancelled."""
        if not wait.cancelled():
            self.woken.set()


class LongPoll:
    """The lines of one server."""

    def __init__(self, store: Store) -> None:
        self._lines: dict[ClaimTerms, RunnerLine] = {}
        self._visits: dict[ClaimName, Poll] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._claims: Coalescer[ClaimRequest, list[Grant]] | None = None
        self._notifying = False
        self._loop = asyncio.get_running_loop()
        self._leave = store.subscribe(self._news)

    @property
    def waiting(self) -> int:
        """Number of waiting claims."""
        return sum(map(len, self._lines.values()))

    @property
    def unanswered(self) -> int:
        """Number of unanswered requests with a named claim."""
        return sum(visit.unanswered for visit in self._visits.values())

    def close(self) -> None:
        """Unsubscribe, and cancel all claims."""
        self._leave()
        for task in self._tasks:
            task.cancel()

    def together(self, claim_all: ClaimAll) -> Coalescer[ClaimRequest, list[Grant]]:
        """Return the line in which concurrent claims are batched."""
        if self._claims is None:
            self._claims = claims_together(claim_all)
        return self._claims

    async def claim(
        self,
        whom: str,
        request: ClaimRequest,
        claim: ClaimJobs,
        give_back: GiveBack,
        *,
        within_s: float,
        unless: asyncio.Event,
    ) -> list[Grant]:
        """Return grants, at the latest when the time is over.

        Return none at once if `unless` is set.
        """
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
            visit.woken.set()
        return await self._answer(visit)

    async def _answer(self, visit: Poll) -> list[Grant]:
        """Wait for the answer of a poll.

        When the last waiting request is cancelled, the claim ends.
        """
        visit.unanswered += 1
        try:
            grants = await asyncio.shield(visit.found)
            visit.taken = True
            return grants
        finally:
            visit.unanswered -= 1
            visit.woken.set()

    async def _give(
        self, visit: Poll, name: ClaimName, claim: ClaimJobs, give_back: GiveBack, unless: asyncio.Event
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
        """Return whether a request received the grants, perhaps after a reconnect."""
        until = self._loop.time() + COMES_BACK_S if visit.request.claim_id else 0.0
        while not visit.taken and (visit.unanswered or self._loop.time() < until):
            visit.woken.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if visit.unanswered else until):
                    await visit.woken.wait()
        return visit.taken

    async def _look(self, visit: Poll, claim: ClaimJobs, unless: asyncio.Event) -> list[Grant]:
        stop = asyncio.create_task(unless.wait())
        stop.add_done_callback(visit.wake)
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

    async def _wait(self, visit: Poll, line: RunnerLine, unless: asyncio.Event) -> bool:
        """Wait for news; return whether to claim again.

        It is not claimed again after the deadline, without a waiting request, or if `unless` is set.
        """
        called = visit.woken
        called.clear()
        looks = False
        line.join(called)
        try:
            if visit.unanswered and self._loop.time() < visit.until and not unless.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(visit.until):
                        await called.wait()
                looks = bool(visit.unanswered) and not unless.is_set() and called.is_set()
        finally:
            line.leave(called, unused=not looks)
        return looks

    def _enter(self, request: ClaimRequest) -> RunnerLine:
        line = self._lines.setdefault(wanted_by(request), RunnerLine(self._loop))
        line.visits += 1
        return line

    def _exit(self, request: ClaimRequest, line: RunnerLine) -> None:
        line.visits -= 1
        if not line.visits:
            del self._lines[wanted_by(request)]

    def _forget(self, name: ClaimName, visit: Poll) -> None:
        if self._visits.get(name) is visit:
            del self._visits[name]

    def _done(self, visit: Poll, task: asyncio.Task[None]) -> None:
        """Forward an error to the waiting requests, if there are any."""
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
        """Handle a notification, from any thread.

        Skip the loop if no claim waits or all are woken.
        """
        if self._lines and not self._notifying:
            self._notifying = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._notify_lines)

    def _notify_lines(self) -> None:
        self._notifying = False
        for line in list(self._lines.values()):
            line.news()


def _check_same(first: ClaimRequest, again: ClaimRequest) -> None:
    """Raise if a repeated claim differs from the first one."""
    if claim_key_of(first).fingerprint != claim_key_of(again).fingerprint:
        raise claim_reused(again.claim_id)
