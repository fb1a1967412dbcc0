"""The same work through the engine: claims by a decider, completions by way of the group commit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from bench.stores.bare.loop import Unexpected
from bench.stores.errand import (
    BATCH,
    FILLED_AT_ONCE,
    KIND,
    LEASE,
    QUEUE,
    claimed,
    completed,
    refused,
    submitted,
)
from interlock.engine.committer import GroupCommit
from interlock.errors import InterlockError
from interlock.store.contract import Store
from interlock.store.records import Claim, Commit, Committed, Outcome, Record

_CLAIM = Claim(kind=KIND, queues=(QUEUE,), limit=BATCH)
_REFUSED_TOGETHER = 10


class Ours:
    """A store with an engine before it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._group = GroupCommit(store, max_batch=BATCH)

    @classmethod
    async def made(cls, store: Store) -> Ours:
        """Open the store, which was not."""
        await store.open()
        return cls(store)

    async def fill(self, names: range) -> None:
        """Submit these errands; they became ready a minute ago, one microsecond after the other."""
        since = await self.store.now() - timedelta(minutes=1)
        for start in range(names.start, names.stop, FILLED_AT_ONCE):
            some = range(start, min(names.stop, start + FILLED_AT_ONCE))
            check(
                await self.store.commit(
                    [
                        submitted(f"{name:012d}", since + timedelta(microseconds=name - names.start))
                        for name in some
                    ]
                )
            )

    async def lengthen(self, entries: int, names: range) -> None:
        """Add so many lines to the journal, about these errands in turn."""
        together = FILLED_AT_ONCE * _REFUSED_TOGETHER
        for start in range(0, entries, together):
            commits: list[Commit] = []
            for place in range(start, min(entries, start + together), _REFUSED_TOGETHER):
                first = place % (len(names) - _REFUSED_TOGETHER)
                commits.append(refused([f"{name:012d}" for name in names[first : first + _REFUSED_TOGETHER]]))
            check(await self.store.commit(commits))

    async def drain(self, batches: int) -> None:
        """Claim and complete so many batches."""
        taken: list[Record] = []
        until = await self.store.now()

        def decide(records: Sequence[Record], now: datetime) -> list[Commit]:
            nonlocal until
            taken[:], until = records, now + LEASE
            return claimed(records, now)

        for _ in range(batches):
            at = check(await self.store.claim(_CLAIM, decide), BATCH)
            check(await self._group.commit_all(completed(taken, at, until)), BATCH)

    async def close(self) -> None:
        """Finish what waits, and close the store."""
        await self._group.close()
        await self.store.close()


def check(outcomes: Sequence[Outcome | InterlockError], wanted: int | None = None) -> datetime:
    """What is timed has to have happened; when that was."""
    at = datetime.min.replace(tzinfo=UTC)
    for outcome in outcomes:
        if type(outcome) is not Committed:
            raise Unexpected(f"A commit of the bench became {outcome}.")
        at = outcome.at
    if wanted is not None and len(outcomes) != wanted:
        raise Unexpected(f"{len(outcomes)} of {wanted} commits were made.")
    return at
