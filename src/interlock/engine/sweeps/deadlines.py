"""Deadlines that have passed: each record is given to its decider once, by whoever comes first."""

from __future__ import annotations

from collections.abc import Sequence

from interlock.store.contract import Decide, Store
from interlock.store.records import Committed


async def sweep_deadlines(store: Store, kinds: Sequence[str], decide: Decide, *, limit: int = 500) -> int:
    """Let `decide` deal with up to `limit` overdue records; answers how many it has changed."""
    outcomes = await store.due(kinds, limit, decide)
    return sum(isinstance(outcome, Committed) for outcome in outcomes)
