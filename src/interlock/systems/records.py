"""`RecordService`: records of kinds that users have declared.

Create one, send it events, read it. The table of the kind decides about an event, in one commit with the
state, the data, the timer and the journal. An expired timer fires before the next event is decided, so a
deadline holds whether or not a sweep has run.

Why: decision 0373.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from interlock.engine.aggregate import postponed
from interlock.engine.loader import every_entry
from interlock.engine.unit_of_work import Decision, Engine
from interlock.errors import RecordExists, UnknownKind, UnknownRecord, VersionChanged
from interlock.store.catalogue import Catalogue, kind_of
from interlock.store.records import (
    Change,
    Commit,
    Committed,
    Entry,
    Key,
    Note,
    Query,
    Record,
    Repeated,
    record_after,
)
from interlock.store.validation import MAX_PAGE
from interlock.systems.kinds import DeclaredKind, label
from interlock.systems.orchestrator.ids import JobIds
from interlock.wire.records import KindView, RecordExplanation, StoredRecord

TRY_AGAIN_S = 600.0
"""Delay after a failed timer: its kind has a bug that its author has to fix."""
_WHY = 500


class RecordService:
    """The records of users' kinds in a store."""

    def __init__(
        self,
        engine: Engine,
        kinds: Iterable[DeclaredKind[Any]] = (),
        *,
        below: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        self._engine = engine
        self._ids = JobIds(below, prefix="r_")
        self._kinds = {kind.name: kind for kind in kinds}
        self.catalogue: Catalogue = {name: kind_of(kind.machine) for name, kind in self._kinds.items()}
        """The kinds for the store's catalogue."""

    async def learn(self, kind: DeclaredKind[Any]) -> None:
        """Add a kind; its table is loaded into the store."""
        known = self._kinds.get(kind.name)
        if known is kind:
            return
        table = {kind.name: kind_of(kind.machine)}
        if known is None or self.catalogue[kind.name] != table[kind.name]:
            await self._engine.store.learn(table)
        self._kinds[kind.name] = kind
        self.catalogue = {**self.catalogue, **table}

    def kind(self, name: str) -> DeclaredKind[Any]:
        """Return a kind by its name."""
        try:
            return self._kinds[name]
        except KeyError:
            raise UnknownKind(name[:64], tuple(self._kinds)) from None

    async def kinds(self) -> list[KindView]:
        """Return the kinds, by name."""
        return [kind.view() for _, kind in sorted(self._kinds.items())]

    # Changes

    async def create(
        self, kind: str, data: object, *, record_id: str = "", actor: str = "", request_id: str | None = None
    ) -> StoredRecord:
        """Create a record in the initial state; its timer runs from now on."""
        declared = self.kind(kind)
        made = declared.made(data)
        idempotency_key = self._engine.key_for(
            request_id, f"create {kind} {record_id}", msgspec.to_builtins(made)
        )
        keys = [Key(kind, record_id)] if record_id else []

        def decide(present: Sequence[Record | None], now: datetime) -> Decision[Change]:
            if any(present):
                raise RecordExists(
                    f"There is a {kind} {record_id} already.",
                    todo="Choose another id, or leave it out.",
                    facts={"kind": kind, "id": record_id},
                )
            change = declared.new(record_id or self._ids.draw(now), made, now).change(
                actor=actor, reason="created"
            )
            request = idempotency_key.answered(msgspec.json.encode(change.id)) if idempotency_key else None
            return Decision(change, Commit(changes=(change,), request=request))

        async def do() -> StoredRecord:
            applied = await self._engine.apply_once(idempotency_key, keys, decide)
            if isinstance(applied, Repeated):
                return await self.get(kind, msgspec.json.decode(applied.recorded.answer.body, type=str))
            return view_of(declared, record_after(applied.answer, None, applied.at))

        return await self._engine.answer_once(idempotency_key, StoredRecord, do)

    async def send(
        self,
        kind: str,
        record_id: str,
        event: str,
        data: object = None,
        *,
        expected: int | None = None,
        reason: str = "",
        actor: str = "",
        request_id: str | None = None,
    ) -> StoredRecord:
        """Send an event to a record; refuse if it is not in the expected version."""
        declared = self.kind(kind)
        name = declared.sendable(event).name
        content = (msgspec.to_builtins(data), expected, reason)
        idempotency_key = self._engine.key_for(request_id, f"send {name} to {kind} {record_id}", content)

        def decide(present: Sequence[Record | None], now: datetime) -> Decision[StoredRecord]:
            record = present[0]
            if record is None:
                raise unknown(kind, record_id)
            if expected is not None and record.version != expected:
                raise _version_changed(record, expected)
            entity = declared.stored(record, now)
            entity.fire_due()
            entity.must(declared.event(name, data, now))
            change = entity.change(actor=actor, reason=reason, note=True)
            request = idempotency_key.answered(b"null") if idempotency_key else None
            after = view_of(declared, record_after(change, record, now))
            return Decision(after, Commit(changes=(change,), request=request))

        async def do() -> StoredRecord:
            applied = await self._engine.apply_once(idempotency_key, [Key(kind, record_id)], decide)
            if isinstance(applied, Repeated):
                return await self.get(kind, record_id)
            return msgspec.structs.replace(applied.answer, updated_at=applied.at)

        return await self._engine.answer_once(idempotency_key, StoredRecord, do)

    # Views

    async def get(self, kind: str, record_id: str) -> StoredRecord:
        """Return the record."""
        return view_of(self.kind(kind), await self._load(kind, record_id))

    async def find(
        self,
        kind: str,
        *,
        states: Sequence[str] = (),
        where: Mapping[str, object] | None = None,
        queue: str = "",
        parent: str = "",
        limit: int = 100,
        cursor: str = "",
    ) -> tuple[list[StoredRecord], str]:
        """Return a page of records, newest first, and the cursor of the next one."""
        declared = self.kind(kind)
        declared.check_filter(where or {})
        query = Query(
            kind=kind,
            states=tuple(str(declared.machine.state(name)) for name in states),
            labels=tuple(label(name, value) for name, value in (where or {}).items()),
            queue=queue or None,
            parent=parent or None,
            limit=min(limit, MAX_PAGE),
            cursor=cursor,
        )
        page = await self._engine.store.find(query)
        return [view_of(declared, record) for record in page.records], page.cursor

    async def history(self, kind: str, record_id: str) -> list[Entry]:
        """Return the history of a record, oldest first."""
        record = await self._load(kind, record_id)
        return [entry async for entry in every_entry(self._engine.store, record.key)]

    async def explain(self, kind: str, record_id: str) -> RecordExplanation:
        """Return why a record waits, the role that acts next, and its timer.

        The timer is given by the time at which it fires.
        """
        return explain(self.kind(kind), await self._load(kind, record_id))

    def subscribe(self, kind: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at news of a kind; return a function that stops this."""
        self.kind(kind)
        return self._engine.store.subscribe(wake)

    # Sweeping

    async def sweep(self, *, limit: int = 500) -> int:
        """Fire expired timers of all these kinds.

        Return the number of changed records.
        """
        if not self._kinds:
            return 0
        outcomes = await self._engine.due(tuple(self._kinds), limit, self._fired)
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    def _fired(self, records: Sequence[Record], now: datetime) -> list[Commit]:
        return [Commit(changes=(self._after_timer(record, now),)) for record in records]

    def _after_timer(self, record: Record, now: datetime) -> Change:
        try:
            entity = self._kinds[record.kind].stored(record, now)
            entity.fire_due()
            change: Change = entity.change(actor="clock", note=True)
        except Exception as error:  # noqa: BLE001 - a fault in one kind must not stop the timers of others
            return _not_fired(record, now, error)
        return change

    async def _load(self, kind: str, record_id: str) -> Record:
        self.kind(kind)
        (found,) = await self._engine.load([Key(kind, record_id)])
        if found is None:
            raise unknown(kind, record_id)
        return found


def view_of(kind: DeclaredKind[Any], record: Record) -> StoredRecord:
    """Return a record for display."""
    return StoredRecord(
        kind=record.kind,
        id=record.id,
        state=str(record.state),
        version=record.version,
        data=msgspec.Raw(record.body),
        created_at=record.created_at,
        updated_at=record.updated_at,
        parent=record.parent or "",
        queue=record.queue or "",
        labels=record.labels,
        deadline_at=record.deadline_at,
        accepts=kind.accepts(record.state),
        ended=record.state in kind.machine.terminal,
    )


def explain(kind: DeclaredKind[Any], record: Record) -> RecordExplanation:
    """Return the explanation of a record's state, from its table."""
    entry = kind.machine.table.entry(kind.machine.state(record.state))
    within = entry.within if record.deadline_at is not None else None
    return RecordExplanation(
        kind=kind.name,
        id=record.id,
        state=record.state,
        sentence=entry.doc,
        turn=entry.turn or "",
        deadline_at=record.deadline_at,
        deadline_event=within.event.name if within is not None else "",
        accepts=tuple(map(kind.event_view, kind.accepts(record.state))),
    )


def unknown(kind: str, record_id: str) -> UnknownRecord:
    """Return the error for an id that no record of a kind has."""
    return UnknownRecord(
        f"There is no {kind} {record_id[:64]}.",
        todo=f"Look for it with `interlock record list {kind}`; ended records are pruned after a while.",
        facts={"kind": kind, "id": record_id[:64]},
    )


def _not_fired(record: Record, now: datetime, error: Exception) -> Change:
    """Return an unchanged record whose timer is retried later.

    The journal has the reason.
    """
    why = f"The timer failed: {type(error).__name__}: {error}"
    return postponed(record, now + timedelta(seconds=TRY_AGAIN_S), Note(actor="clock", reason=why[:_WHY]))


def _version_changed(record: Record, expected: int) -> VersionChanged:
    return VersionChanged(
        f"The {record.kind} {record.id} is {record.state} in version {record.version}, "
        f"not in version {expected}.",
        todo="Read it again, and decide anew.",
        facts={
            "kind": record.kind,
            "id": record.id,
            "state": record.state,
            "version": record.version,
            "expected": expected,
        },
    )
