"""A store that fails as databases and networks do, by a plan that is data.

    plan = Plan(seed=7, faults=(Fault("reply lost", chance=0.2), Fault("late", of=("load",), chance=0.5)))
    store = FaultyStore(MemoryStore(catalogue), plan)

The tested code has to survive the faults of every real store: that it is unavailable, or that its answer is
lost. The same plan on the same calls injects the same faults, so a failing test only has to report its seed.
`counts` counts the injected faults.

The kinds of faults:

    request lost    the call never reaches the store; the caller learns that the outcome is unknown
    reply lost      the store executes the call; the caller learns that the outcome is unknown
    late            the call reaches the store after a delay
    done twice      the store receives the call a second time after it has answered, as from a network device
                    that repeats packets; the caller gets the first answer
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeAlias, TypeVar

import msgspec

from interlock.errors import StoreUnavailable
from interlock.store.catalogue import Catalogue
from interlock.store.contract import Capabilities, Decide, Store, StoreStatus, Wake
from interlock.store.records import (
    Claim,
    Count,
    Feed,
    Key,
    Outcome,
    Page,
    Pruned,
    Query,
    Record,
    Recorded,
    Work,
)

What: TypeAlias = Literal["request lost", "reply lost", "late", "done twice"]

T = TypeVar("T")

ALL = (
    *("now", "epoch", "raise_epoch", "load", "find", "count", "commit", "claim", "due"),
    *("recall", "feed", "latest", "history", "prune", "prune_by_queue", "compact", "status"),
)
"""The calls that a fault can affect; opening, closing and subscribing always work."""


class Fault(msgspec.Struct, frozen=True):
    """A fault: with a chance at each call, or at the calls with these numbers."""

    what: What
    of: tuple[str, ...] = ("commit",)
    """The methods that it affects."""
    chance: float = 0.0
    at: tuple[int, ...] = ()
    """Numbers of calls, counted from 1 for each method."""
    delay_s: float = 0.01
    """Maximum delay of a late call."""


class Plan(msgspec.Struct, frozen=True):
    """The faults. When several apply to a call, the first in the list is used."""

    faults: tuple[Fault, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        for fault in self.faults:
            if unknown := set(fault.of) - set(ALL):
                raise ValueError(
                    f"A store has no call {', '.join(sorted(unknown))}; it has {', '.join(ALL)}."
                )
            if not 0.0 <= fault.chance <= 1.0:
                raise ValueError(f"A probability is between 0 and 1, {fault.chance:g} does not.")


class FaultyStore:
    """A store that injects faults into the calls of another store. `sleep` delays late calls."""

    def __init__(
        self, store: Store, plan: Plan, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._store = store
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._sleep = sleep
        self._calls: Counter[str] = Counter()
        self.counts: Counter[tuple[What, str]] = Counter()
        """Number of faults by kind and method."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the wrapped store."""
        return self._store.capabilities

    async def open(self) -> None:
        """Open the wrapped store, without faults."""
        await self._store.open()

    async def learn(self, kinds: Catalogue) -> None:
        """Forward the call, subject to faults."""
        await self._spoilt("learn", lambda: self._store.learn(kinds))

    async def close(self) -> None:
        """Close the wrapped store, without faults."""
        await self._store.close()

    async def now(self) -> datetime:
        """Forward the call, subject to faults."""
        return await self._spoilt("now", self._store.now)

    async def epoch(self) -> int:
        """Forward the call, subject to faults."""
        return await self._spoilt("epoch", self._store.epoch)

    async def raise_epoch(self, above: int = 0) -> int:
        """Forward the call, subject to faults."""
        return await self._spoilt("raise_epoch", lambda: self._store.raise_epoch(above))

    async def load(self, keys: Sequence[Key]) -> list[Record | None]:
        """Forward the call, subject to faults."""
        return await self._spoilt("load", lambda: self._store.load(keys))

    async def find(self, query: Query) -> Page:
        """Forward the call, subject to faults."""
        return await self._spoilt("find", lambda: self._store.find(query))

    async def count(self, query: Query, *, cap: int = 10_000, within: int | None = None) -> Count:
        """Forward the call, subject to faults."""
        return await self._spoilt("count", lambda: self._store.count(query, cap=cap, within=within))

    async def commit(self, commits: Sequence[Work]) -> list[Outcome]:
        """Forward the call, subject to faults, which affect the whole batch."""
        return await self._spoilt("commit", lambda: self._store.commit(commits))

    async def claim(self, claim: Claim, decide: Decide) -> list[Outcome]:
        """Forward the call, subject to faults."""
        return await self._spoilt("claim", lambda: self._store.claim(claim, decide))

    async def due(self, kinds: Sequence[str], limit: int, decide: Decide) -> list[Outcome]:
        """Forward the call, subject to faults."""
        return await self._spoilt("due", lambda: self._store.due(kinds, limit, decide))

    async def recall(self, request_id: str) -> Recorded | None:
        """Forward the call, subject to faults."""
        return await self._spoilt("recall", lambda: self._store.recall(request_id))

    async def feed(self, after: str = "", *, limit: int = 1_000) -> Feed:
        """Forward the call, subject to faults."""
        return await self._spoilt("feed", lambda: self._store.feed(after, limit=limit))

    async def latest(self, *, back: int = 0) -> str:
        """Forward the call, subject to faults."""
        return await self._spoilt("latest", lambda: self._store.latest(back=back))

    async def history(self, key: Key, *, after_version: int = 0, limit: int = 1_000) -> Feed:
        """Forward the call, subject to faults."""
        return await self._spoilt(
            "history", lambda: self._store.history(key, after_version=after_version, limit=limit)
        )

    def subscribe(self, wake: Wake) -> Callable[[], None]:
        """Subscribe to the wrapped store, without faults."""
        return self._store.subscribe(wake)

    async def prune(
        self, *, kind: str, states: Sequence[str], older_than: timedelta, limit: int = 1_000
    ) -> Pruned:
        """Forward the call, subject to faults."""
        return await self._spoilt(
            "prune",
            lambda: self._store.prune(kind=kind, states=states, older_than=older_than, limit=limit),
        )

    async def prune_by_queue(
        self,
        *,
        kind: str,
        state: str,
        older_than: timedelta | None,
        queues: Mapping[str, timedelta],
        cursor: str = "",
        limit: int = 1_000,
        within: int = 5_000,
    ) -> Pruned:
        """Forward the call, subject to faults."""
        return await self._spoilt(
            "prune_by_queue",
            lambda: self._store.prune_by_queue(
                kind=kind,
                state=state,
                older_than=older_than,
                queues=queues,
                cursor=cursor,
                limit=limit,
                within=within,
            ),
        )

    async def compact(self) -> int | None:
        """Forward the call, subject to faults."""
        return await self._spoilt("compact", self._store.compact)

    async def status(self) -> StoreStatus:
        """Forward the call, subject to faults."""
        return await self._spoilt("status", self._store.status)

    async def _spoilt(self, method: str, call: Callable[[], Awaitable[T]]) -> T:
        fault = self._next_fault(method)
        if fault is None:
            return await call()
        self.counts[fault.what, method] += 1
        match fault.what:
            case "request lost":
                raise _unavailable(method)
            case "reply lost":
                await call()
                raise _unavailable(method)
            case "late":
                await self._sleep(fault.delay_s * self._random.random())
                return await call()
            case "done twice":
                answer = await call()
                await call()
                return answer

    def _next_fault(self, method: str) -> Fault | None:
        self._calls[method] += 1
        number = self._calls[method]
        fates = [
            (fault, number in fault.at or self._random.random() < fault.chance)
            for fault in self._plan.faults
            if method in fault.of
        ]
        return next((fault for fault, befalls in fates if befalls), None)


def _unavailable(method: str) -> StoreUnavailable:
    """Return the error of a lost request or reply.

    The caller cannot distinguish the two.
    """
    return StoreUnavailable(
        f"Planned fault: no answer to {method}; whether it was executed is unknown.",
        todo="Read to find out, or repeat it with the same request or expected version.",
        facts={"method": method, "outcome": "unknown"},
    )
