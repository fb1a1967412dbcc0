"""Steps of records that differ in nothing that decides: the table decides once for each state and event.

For records that are written with many others, such as the messages of jobs. The changes are those that
`RecordKind.new` and `RecordKind.step` make, which is tested; a kind whose data decide about anything is
refused.

    _STEPS = StepTemplates(_MESSAGES)
    change = _STEPS.step(record, delivered, now, actor="courier")

Why: decision 0610.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from interlock.engine.aggregate import RecordKind
from interlock.machine import Event
from interlock.store.records import Change, Note, Record

_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
_NO_DATA = msgspec.Raw(b"null")
_MOST = 4_096


class _Template(msgspec.Struct, frozen=True, gc=False):
    """The common part of the changes of all records in a state by an event."""

    change: Change
    timer: str | None
    """The setting of the timer that runs then; "" if none does, None if the same one as before does."""
    may_claim: bool


class StepTemplates:
    """The changes of a kind of record whose data decide nothing."""

    def __init__(
        self,
        kind: RecordKind[Any],
        templates: dict[tuple[str, Event | None, str], _Template] | None = None,
    ) -> None:
        if kind.columns is not None or kind.due_in or any(r.when or r.then for r in kind.machine.table.rows):
            raise ValueError(f"What becomes of a {kind.name} depends on its data.")
        self._kind = kind
        self._templates: dict[tuple[str, Event | None, str], _Template] = (
            {} if templates is None else templates
        )

    def lasting(self, **durations: float) -> StepTemplates:
        """Return the same with other durations of the timers."""
        return StepTemplates(self._kind.lasting(**durations), self._templates)

    def new(
        self,
        record_id: str,
        body: bytes,
        now: datetime,
        *,
        event: Event | None = None,
        commit_id: str = "",
        queue: str | None = None,
        ready_at: datetime | None = None,
    ) -> Change:
        """Return the change that creates a record, perhaps with an event."""
        template = self._template("", event, "")
        return replace(
            template.change,
            id=record_id,
            body=body,
            queue=queue,
            ready_at=ready_at if template.may_claim else None,
            deadline_at=self._expiry(template, None, now),
            note=_with_context(template.change.note, commit_id),
        )

    def step(
        self,
        record: Record,
        event: Event,
        now: datetime,
        body: bytes | None = None,
        *,
        commit_id: str = "",
        actor: str = "",
        reason: str = "",
        ready_at: datetime | None = None,
    ) -> Change:
        """Return the change of a record by one event; raise the table's refusal."""
        template = self._template(record.state, event, actor)
        return replace(
            template.change,
            id=record.id,
            expected=record.version,
            expected_at=record.updated_at,
            body=record.body if body is None else body,
            parent=record.parent,
            queue=record.queue,
            labels=record.labels,
            priority=record.priority,
            ready_at=ready_at if template.may_claim else None,
            deadline_at=self._expiry(template, record.deadline_at, now),
            note=_with_context(template.change.note, commit_id, reason),
        )

    def _expiry(self, template: _Template, running: datetime | None, now: datetime) -> datetime | None:
        if template.timer is None:
            return running
        return now + timedelta(seconds=self._kind.durations[template.timer]) if template.timer else None

    def _template(self, state: str, event: Event | None, actor: str) -> _Template:
        known = self._templates.get((state, event, actor))
        if known is None:
            known = self._decided(state, event, actor)
            if len(self._templates) < _MOST:
                self._templates[state, event, actor] = known
        return known

    def _decided(self, state: str, event: Event | None, actor: str) -> _Template:
        """Let the table decide; "" is the state of records to be created."""
        kind, timer = self._kind, None
        if state:
            record = Record(
                kind=kind.name,
                id="",
                state=state,
                version=1,
                body=b"",
                created_at=_ANY_TIME,
                updated_at=_ANY_TIME,
            )
            entity = kind.of(record, _ANY_TIME, _NO_DATA)
        else:
            entity = kind.new("", _NO_DATA, _ANY_TIME)
            within = kind.machine.table.entry(entity.state).within
            timer = "" if within is None else within.setting
        if event is not None:
            entity.must(event)
        for _, effects in entity.taken:
            timer = timer if effects.arms is None else effects.arms
        return _Template(entity.change(actor=actor), timer, kind.may_claim(entity.state))


def _with_context(note: Note | None, commit_id: str, reason: str = "") -> Note | None:
    if note is None or not (commit_id or reason):
        return note
    return replace(note, request_id=commit_id, reason=reason)
