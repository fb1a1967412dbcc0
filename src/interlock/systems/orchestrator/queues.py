"""Queues: their jobs, and pausing one so that none of its jobs is claimed.

A paused queue has a record; others need none. Claims cost nothing more for it: a process that grants jobs
keeps the names of the paused queues in memory and reads them again whenever it delivers messages, once a
second on a server. The process that pauses a queue knows it at once, other processes a moment later.

Why: decision 0362.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from interlock.engine.aggregate import RecordKind
from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import InvalidJob
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB, JobState
from interlock.machine import Event, Machine, Refusal, Tone, command, ignore, on, rest, state
from interlock.store.contract import Store
from interlock.store.records import Commit, Key, Query, Record
from interlock.store.validation import MAX_ID
from interlock.systems.orchestrator.explanation import Blocker
from interlock.wire.filter_language import LOOKED_AT
from interlock.wire.jobs import QueueHold, QueueView

MAX_COUNT = 10_000
PAGES = 5
"""Number of pages of jobs to read for the names of queues."""
MOST = 1_000
"""Maximum number of paused queues."""


class QueueState(StrEnum):
    """The states of a queue."""

    OPEN = "open"
    PAUSED = "paused"


OPEN, PAUSED = QueueState.OPEN, QueueState.PAUSED

pause: Event = command("pause", "Pause the queue.", by="operator")
resume: Event = command("resume", "Resume the queue.", by="operator")

# fmt: off
QUEUE = Machine[QueueState, None](
    "queue",
    "A queue, active or paused.",
    initial=OPEN,
    spine=(OPEN, PAUSED),
    stop=(resume,),
    states=(
        rest(OPEN, "Its jobs are given to workers.", tone=Tone.ACTIVE),
        state(PAUSED, "Its jobs wait; running jobs continue.", turn="operator", tone=Tone.WAITING),
    ),
    rows=(
        on(pause, OPEN, PAUSED, owner="operator",
           why="A service that the jobs need is unavailable, or must be spared."),
        on(resume, PAUSED, OPEN, owner="operator", why="The jobs can run again."),
        ignore(pause, PAUSED, why="it is paused"),
        ignore(resume, OPEN, why="it is not paused"),
    ),
)
# fmt: on


class QueueBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a queue's record."""

    reason: str = ""
    by: str = ""
    """The actor that paused or resumed it."""


_QUEUES = RecordKind(QUEUE, QueueBody)


class Queues:
    """The queues in a store."""

    def __init__(
        self, engine: Engine, *, also_refresh: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Keep the paused queues in memory.

        `also_refresh` reads what else is kept in memory, whenever the paused queues are read.
        """
        self._engine = engine
        self._paused: frozenset[str] | None = None
        self.all_open: bool = False
        """Whether no queue is paused, as far as is known here."""
        self._also_refresh = also_refresh

    # Pause and resume

    async def open_among(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the queues that are not paused, as far as is known here."""
        if self._paused is None:
            await self.look()
        paused = self._paused
        return tuple(name for name in names if name not in paused) if paused else tuple(names)

    async def look(self) -> None:
        """Reload the paused queues."""
        self._paused = frozenset(hold.name for hold in await self.paused())
        self.all_open = not self._paused
        if self._also_refresh is not None:
            await self._also_refresh()

    async def paused(self) -> list[QueueHold]:
        """Return the paused queues, by name."""
        found = (await self._engine.store.find(Query(kind=QUEUE.name, states=(PAUSED,), limit=MOST))).records
        return sorted(map(hold_of, found), key=lambda each: each.name)

    async def pause(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> QueueHold:
        """Pause claims from a queue until it is resumed; running jobs continue."""
        return await self._move(pause, name, reason, actor, request_id)

    async def resume(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> QueueHold:
        """Resume a queue."""
        return await self._move(resume, name, reason, actor, request_id)

    async def _move(
        self, event: Event, name: str, reason: str, actor: str, request_id: str | None
    ) -> QueueHold:
        _check(name)
        idempotency_key = self._engine.key_for(request_id, f"{event.name} a queue", (name, reason))
        key = Key(QUEUE.name, name)

        def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
            queue = _QUEUES.upsert(found[0], name, QueueBody(reason=reason, by=actor), now)
            if refused := queue.send(event):
                if refused.kind is Refusal.IGNORED:
                    return Decision(None)
                raise refused.error()
            request = idempotency_key.answered(b"null") if idempotency_key else None
            change = queue.change(actor=actor, reason=reason)
            return Decision(None, Commit(changes=(change,), request=request))

        async def do() -> QueueHold:
            await self._engine.apply_once(idempotency_key, [key], decide)
            await self.look()
            (record,) = await self._engine.store.load([key])
            return QueueHold(name=name, state=OPEN) if record is None else hold_of(record)

        return await self._engine.answer_once(idempotency_key, QueueHold, do)

    # Views

    async def list(self, *, among: Iterable[str] | None = None) -> list[QueueView]:
        """Return queues with unfinished jobs among the newest, and paused ones."""
        holds = {hold.name: hold for hold in await self.paused()}
        named = sorted(among if among is not None else {*await self._names(), *holds})
        views = [await self._view(name, holds.get(name)) for name in named]
        return [each for each in views if each.pending or each.running or each.capped or each.name in holds]

    async def _names(self) -> dict[str, None]:
        names: dict[str, None] = {}
        for one in (job.RUNNING, job.PENDING):
            cursor = ""
            for _ in range(PAGES):
                query = Query(kind=JOB.name, states=(one,), cursor=cursor, limit=1_000)
                page = await self._engine.store.find(query)
                names |= dict.fromkeys(record.queue or "" for record in page.records)
                if not (cursor := page.cursor):
                    break
        return names

    async def _view(self, name: str, hold: QueueHold | None) -> QueueView:
        def query(state: JobState, limit: int = 100) -> Query:
            return Query(
                kind=JOB.name,
                states=(state,),
                queue=name,
                newest_first=False,
                limit=limit,
                within=LOOKED_AT,
            )

        store = self._engine.store
        pending = await store.count(query(job.PENDING), cap=MAX_COUNT, within=LOOKED_AT)
        running = await store.count(query(job.RUNNING), cap=MAX_COUNT, within=LOOKED_AT)
        oldest = (await store.find(query(job.PENDING, limit=1))).records
        return QueueView(
            name=name,
            pending=pending.number,
            running=running.number,
            capped=pending.capped or running.capped,
            oldest_created_at=oldest[0].created_at if oldest else None,
            **hold_fields(hold),
        )


async def look_for_pause(store: Store, waiting: Record) -> Blocker | None:
    """Return the pause of a waiting job's queue.

    It is None if the queue is not paused, or the job does not wait.
    """
    if waiting.ready_at is None or waiting.queue is None:
        return None
    (record,) = await store.load([Key(QUEUE.name, waiting.queue)])
    if record is None or record.state != PAUSED:
        return None
    hold = hold_of(record)
    by, why = (f" by {hold.by}" if hold.by else ""), (f": {hold.reason}" if hold.reason else "")
    return Blocker(f"The queue {hold.name} was paused{by}{why}.", f"interlock queue resume {hold.name}")


def hold_fields(hold: QueueHold | None) -> dict[str, Any]:
    """Return the fields about the pause in the view of a queue."""
    if hold is None:
        return {"state": OPEN}
    return {"state": hold.state, "reason": hold.reason, "paused_at": hold.at, "paused_by": hold.by}


def hold_of(record: Record) -> QueueHold:
    """Return whether a queue is paused, since when and why."""
    body = _QUEUES.body_of(record)
    return QueueHold(name=record.id, state=record.state, reason=body.reason, by=body.by, at=record.updated_at)


def _check(name: str) -> None:
    if not (0 < len(name) <= MAX_ID and name.isprintable()):
        raise InvalidJob(
            f"The name of a queue has 1 to {MAX_ID} printable characters.",
            todo="See the names: interlock queue list",
            facts={"queue": name[:MAX_ID]},
        )
