"""Where runners wait for work, so that news wakes as few of them as can use it.

Runners that ask for the same queues with the same labels stand in one line. News calls the first of
each line; whoever finds work calls the next one, whoever finds none does not. So a job that is
submitted costs one claim, not one for each runner that waits.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

from interlock.store.contract import Store
from interlock.wire.runner import ClaimRequest, Grant

LOOK_EVERY_S = 1.0
"""Work that becomes ready by itself (a delay, a retry) makes no news: the first in line looks for it."""

REMEMBERED = 1_000
"""How many answered claims are known, in case one of them is asked again."""

Line: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
Claim: TypeAlias = Callable[[ClaimRequest], Awaitable[list[Grant]]]


class WaitingRoom:
    """The lines of one server."""

    def __init__(self, store: Store) -> None:
        self._lines: dict[Line, deque[asyncio.Event]] = {}
        self._given: OrderedDict[tuple[str, str], list[Grant]] = OrderedDict()
        self._loop = asyncio.get_running_loop()
        self._leave = store.subscribe(self._news)

    def close(self) -> None:
        """Hear no more news; whoever waits waits until its time is over."""
        self._leave()

    async def claim(
        self, request: ClaimRequest, claim: Claim, *, within_s: float, unless: asyncio.Event
    ) -> list[Grant]:
        """What there is, or what there is within that time; nothing at once when somebody says so."""
        if request.claim_id and (given := self._given.get(_name_of(request))) is not None:
            return given
        until = self._loop.time() + within_s
        grants = await claim(request)
        while not grants and not unless.is_set() and self._loop.time() < until:
            await self._wait(request, until, unless)
            grants = await claim(request)
        if grants:
            self._call(_line_of(request))
            self._remember(request, grants)
        return grants

    def _remember(self, request: ClaimRequest, grants: list[Grant]) -> None:
        """An answer may be lost on its way; whoever asks again gets what is already theirs."""
        if request.claim_id:
            self._given[_name_of(request)] = grants
            if len(self._given) > REMEMBERED:
                self._given.popitem(last=False)

    async def _wait(self, request: ClaimRequest, until: float, unless: asyncio.Event) -> None:
        line = self._lines.setdefault(_line_of(request), deque())
        called = asyncio.Event()
        line.append(called)
        stop = asyncio.create_task(unless.wait())
        stop.add_done_callback(lambda _: called.set())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(until, self._loop.time() + LOOK_EVERY_S)):
                    await called.wait()
        finally:
            stop.cancel()
            line.remove(called)
            if not line:
                self._lines.pop(_line_of(request), None)

    def _news(self) -> None:
        """From any thread."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._call_everywhere)

    def _call_everywhere(self) -> None:
        for line in list(self._lines):
            self._call(line)

    def _call(self, line: Line) -> None:
        first = next((called for called in self._lines.get(line, ()) if not called.is_set()), None)
        if first is not None:
            first.set()


def _line_of(request: ClaimRequest) -> Line:
    return request.queues, request.labels


def _name_of(request: ClaimRequest) -> tuple[str, str]:
    return request.runner_id, request.claim_id
