"""The judge of workers: it knows their records, their grants, and their quarantine.

A worker is held from the write that pauses or ends it, until one that lets it claim again. Grants are judged
by their grant time: an answer may still be under way while the worker is paused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

import msgspec

from interlock.engine.outbox import SENT, message_in
from interlock.lifecycles import job, lease, worker
from interlock.lifecycles.worker import WorkerState
from interlock.store.records import Record
from interlock.systems.quarantine import QUARANTINED, STANDING, body_of, name_of
from interlock.systems.supervisor.aggregate import LET_GO, ReleaseLeases, WorkerBody, decode_body
from interlock.wire.runner import ClaimRequest, Grant
from interlock_verification.claims import DecodedJob
from interlock_verification.worlds.claims.workers import (
    GrantsToRunner,
    GrantToHeldWorker,
    ReleasedLeases,
    WorkerTransition,
    WorkerWritten,
)
from interlock_verification.worlds.network import ClaimWatcher


class WorkerLife(msgspec.Struct, frozen=True):
    """A worker's current record."""

    state: WorkerState
    body: WorkerBody
    held_since: datetime | None
    """Time since which it receives no grants; None while it does."""


class WorkerJudge:
    """Observes the store and the grants, and reports facts about workers."""

    def __init__(self, watcher: ClaimWatcher, looks: Callable[[], Iterable[tuple[str, DecodedJob]]]) -> None:
        self._watcher = watcher
        self._looks = looks
        self._lives: dict[str, WorkerLife] = {}
        self._granted: dict[tuple[str, int, int], datetime] = {}
        self._quarantined: dict[str, datetime] = {}
        """Quarantined runners by name, with the start."""

    def living(self) -> dict[str, str]:
        """Return the live workers with their runner ids."""
        lives = self._lives.items()
        return {name: life.body.runner_id for name, life in lives if life.state in worker.LIVING}

    def written(self, record: Record, now: datetime) -> None:
        """Handle a changed worker."""
        before, state, body = self._lives.get(record.id), WorkerState(record.state), decode_body(record)
        held_since = None if state in worker.TAKING else now
        if before is not None and before.held_since is not None and held_since is not None:
            held_since = before.held_since
        self._lives[record.id] = WorkerLife(state, body, held_since)
        if before is None or before.state is not state:
            self._watcher.saw(f"worker {state}" + (" in silence" if body.silent else ""))
        self._watcher.check(WorkerWritten(record.id, state, body))
        if before is not None:
            self._watcher.check(WorkerTransition(record.id, before.state, before.body, state, body))

    def standing_written(self, record: Record, now: datetime) -> None:
        """Handle a changed standing of a runner."""
        name = body_of(record).runner
        if record.state != QUARANTINED:
            self._quarantined.pop(name, None)
        elif name not in self._quarantined:
            self._quarantined[name] = now
            self._watcher.saw("a runner is quarantined")

    def lost(self, kind: str, name: str, back_to: Record | None) -> None:
        """Handle a worker or standing with writes lost in a fail-over."""
        if kind == STANDING.name:
            self._quarantined.clear()  # the next write shows which are
            return
        self._lives.pop(name, None)
        if back_to is not None:
            state = WorkerState(back_to.state)
            held_since = None if state in worker.TAKING else back_to.updated_at
            self._lives[name] = WorkerLife(state, decode_body(back_to), held_since)

    def granted(self, job_id: str, entity: str, now: datetime) -> None:
        """Record the time of a grant."""
        shard, _, index = entity.partition(".")
        self._granted[job_id, int(shard), int(index)] = now

    def given(self, request: ClaimRequest, grants: Sequence[Grant], looked_at: datetime | None) -> None:
        """Check grants to a worker.

        The server read the quarantines at that time.
        """
        since = self._quarantined.get(name_of(request.runner_id))
        if grants and since is not None and looked_at is not None:
            given = GrantsToRunner(request.runner_id, len(grants), since, looked_at)
            self._watcher.check(given, grants[0].job_id)
        life = self._lives.get(request.worker_id)
        for grant in grants:
            at = self._granted.get((grant.job_id, grant.shard, grant.attempt))
            if life is None or life.held_since is None or at is None:
                continue
            held = GrantToHeldWorker(request.worker_id, life.state, life.held_since, at)
            self._watcher.check(held, grant.job_id)

    def gone(self, job_id: str) -> None:
        """Handle a pruned job."""
        for key in [key for key in self._granted if key[0] == job_id]:
            del self._granted[key]

    def message_written(self, record: Record) -> None:
        """Handle a changed message; a sent one has had its effect."""
        if record.queue != LET_GO or record.state != SENT:
            return
        order = message_in(record.body, ReleaseLeases)
        life = self._lives.get(order.worker_id)
        if life is None or life.held_since is None:
            return
        self._watcher.saw("the leases of a worker are released")
        until = order.until or life.held_since
        left: dict[str, str] = {}
        for job_id, look in self._looks():
            if look.state in job.ENDED:
                continue  # attempts that are being stopped have their own deadline
            for one in look.body.attempts:
                held = one.lease
                if held is None or held.state not in lease.LIVE or held.data.runner_id != order.runner_id:
                    continue
                if held.granted_at <= until:
                    left[job_id] = f"{one.name} of {job_id}"
        self._watcher.check(ReleasedLeases(order.runner_id, list(left.values())), next(iter(left), ""))
