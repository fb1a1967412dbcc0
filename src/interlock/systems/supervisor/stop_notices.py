"""Stops are noticed where they are committed, so that workers hear of them before their next heartbeat.

Whoever stops something (a person, a run, a tree, a deadline) commits it through here. A worker whose lease
was asked to stop, or taken away, is told to look at its leases. That is a courtesy: it is lost with its
process, and then the next heartbeat says the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice

from interlock.engine.committer import Committer
from interlock.errors import InterlockError
from interlock.lifecycles import lease
from interlock.lifecycles.job import JOB
from interlock.lifecycles.lease import LEASE
from interlock.store.records import Batch, Change, Commit, Committed, Outcome, Work
from interlock.systems.orchestrator.body import decode_body
from interlock.systems.runs.debounce import Debouncer

STOPS = frozenset((lease.request_cancel.name, lease.revoke.name))

Tell = Callable[[Sequence[str]], Awaitable[None]]
"""Tells the workers of these runner ids."""


class StopNotices:
    """A committer after which workers are told of what was stopped among what they hold."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._stopped: dict[str, None] = {}
        self._bell = Debouncer("workers are told of stops", self._answer)
        self.tell: Tell = _nobody

    async def commit(self, commit: Commit) -> Outcome:
        """Commit, and notice what was stopped."""
        outcome = await self._committer.commit(commit)
        self.notice((commit,), (outcome,))
        return outcome

    async def commit_all(self, work: Sequence[Work]) -> list[Outcome | InterlockError]:
        """Commit all of them, and notice what was stopped."""
        outcomes = await self._committer.commit_all(work)
        self.notice(work, outcomes)
        return outcomes

    def notice(self, work: Sequence[Work], outcomes: Sequence[Outcome | InterlockError]) -> None:
        """Have workers told whose leases were stopped by what was committed."""
        told = iter(outcomes)
        for item in work:
            changes = (item.change,) if isinstance(item, Batch) else item.changes
            some = list(islice(told, len(item.ids) if isinstance(item, Batch) else 1))
            for change in changes:
                if change.kind == JOB.name and _stops(change) and any(isinstance(o, Committed) for o in some):
                    self._stopped |= dict.fromkeys(_holders(change))
        if self._stopped:
            self._bell.ring()

    async def close(self) -> None:
        """Tell what is to be told, if that does not take long."""
        await self._bell.close()

    async def _answer(self) -> int:
        stopped, self._stopped = self._stopped, {}
        await self.tell(tuple(stopped))
        return 0


async def _nobody(_: Sequence[str]) -> None:
    """For a store without workers."""


def _stops(change: Change) -> bool:
    return change.note is not None and any(step.event in STOPS for step in change.note.steps)


def _holders(change: Change) -> Iterator[str]:
    """The runners whose leases were stopped by this change."""
    assert change.note is not None
    stopped = {
        step.entity for step in change.note.steps if step.machine == LEASE.name and step.event in STOPS
    }
    for one in decode_body(change.body).attempts:
        if one.name in stopped and one.lease is not None:
            yield one.lease.data.runner_id
