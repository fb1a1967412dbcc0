"""Wakes whoever waits for news of one worker, and nobody else.

A thousand workers that wait for orders must not all look whenever one of them gives a sign of life.
The server reads the journal anyway, and orders are in it; what was ordered at this very server is
known before that. A bell that nobody hears costs a worker nothing but time: it is told the same with
its next sign of life.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress

from interlock.lifecycles.worker import WORKER
from interlock.server.journal_reader import Following
from interlock.store.records import Entry

Wake = Callable[[], None]


class Bells:
    """One bell for each worker that waits."""

    def __init__(self, following: Following) -> None:
        self._waiting: defaultdict[str, list[Wake]] = defaultdict(list)
        following.add(self._read)

    @property
    def waiting(self) -> int:
        """How many workers wait."""
        return len(self._waiting)

    def of(self, worker_id: str) -> Callable[[Wake], Wake]:
        """How to be woken by news of this one."""

        def subscribe(wake: Wake) -> Wake:
            self._waiting[worker_id].append(wake)

            def stop() -> None:
                with suppress(ValueError):
                    self._waiting[worker_id].remove(wake)
                if not self._waiting[worker_id]:
                    del self._waiting[worker_id]

            return stop

        return subscribe

    def ring(self, worker_id: str) -> None:
        """There is news of this one."""
        for wake in self._waiting.get(worker_id, ()):
            wake()

    def _read(self, entries: Sequence[Entry], gap: bool) -> None:
        told = {entry.id for entry in entries if entry.kind == WORKER.name}
        for worker_id in tuple(self._waiting) if gap else told:
            self.ring(worker_id)
