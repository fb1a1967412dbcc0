"""The records that are moved: a small machine, a body of about 300 bytes, and deciders.

Everything that is written goes through the machine, as in a system: `decide` says what the step is,
and the step is what the journal says.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

import msgspec

from interlock.machine import STAY, Event, Machine, Moved, command, end, on, state
from interlock.store.catalogue import catalogue_of
from interlock.store.records import Change, Commit, JournalledRefusal, Note, Record, StepLine

KIND = "errand"
QUEUE = "default"
ACTOR = "worker-7f3a"
LEASE = timedelta(seconds=30)
BATCH = 100
FILLED_AT_ONCE = 1_000


class Errand(StrEnum):
    """Where an errand stands."""

    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


SUBMIT = command("submit", "Somebody wants it run.", by="user")
CLAIM = command("claim", "A worker takes it.", by="worker")
RENEW = command("renew", "The worker is still at it.", by="worker")
COMPLETE = command("complete", "The worker has done it.", by="worker")
FAIL = command("fail", "It cannot be done, or nobody wants it any more.", by="worker")

MACHINE: Machine[Errand, None] = Machine(
    KIND,
    "An errand of the bench.",
    initial=Errand.READY,
    states=[
        state(Errand.READY, "It waits for a worker.", turn="worker"),
        state(Errand.RUNNING, "A worker is at it.", turn="worker"),
        end(Errand.DONE, "It was done."),
        end(Errand.FAILED, "It was given up."),
    ],
    rows=[
        on(CLAIM, Errand.READY, Errand.RUNNING, owner="worker", why="One worker at a time."),
        on(RENEW, Errand.RUNNING, STAY, owner="worker", why="It takes longer."),
        on(COMPLETE, Errand.RUNNING, Errand.DONE, owner="worker", why="It is done."),
        on(FAIL, (Errand.READY, Errand.RUNNING), Errand.FAILED, owner="worker", why="It is given up."),
    ],
    stop=(FAIL,),
)
CATALOGUE = catalogue_of([MACHINE])

BODY = msgspec.json.encode(
    {
        "task": "mail.send",
        "arguments": {
            "to": "somebody@example.org",
            "subject": "Your order has been shipped",
            "template": "orders/shipped.en.html",
            "order": 90_417_733,
            "items": [{"sku": "A-4711", "count": 2}, {"sku": "B-0815", "count": 1}],
        },
        "attempt": 1,
        "limits": {"tries": 5, "timeout_s": 60.0},
        "submitted_by": "shop-backend-3",
    }
)


def with_result(body: bytes) -> bytes:
    """What the body is once the errand is done: both contenders write it so."""
    return body[:-1] + b',"result":{"status":"sent","id":"20261115.4711@mx3"}}'


def submitted(name: str, ready_at: datetime) -> Commit:
    """A new errand."""
    note = Note(steps=(StepLine(KIND, "", SUBMIT.name, "", Errand.READY, "user"),), actor="shop-backend-3")
    change = Change(
        kind=KIND,
        id=name,
        expected=0,
        state=Errand.READY,
        body=BODY,
        queue=QUEUE,
        ready_at=ready_at,
        note=note,
    )
    return Commit(changes=(change,))


def claimed(records: Sequence[Record], now: datetime) -> list[Commit]:
    """Each of these goes to this worker, for as long as the lease."""
    until, steps = now + LEASE, _Steps(CLAIM)
    return [
        Commit(
            changes=(
                _moved(record, record.version, record.updated_at, steps[record.state], record.body, until),
            )
        )
        for record in records
    ]


def completed(records: Sequence[Record], at: datetime, until: datetime) -> list[Commit]:
    """What was claimed in these versions, at that time, is done, unless its lease has run out."""
    step = _Steps(COMPLETE)[Errand.RUNNING]
    return [
        Commit(
            changes=(_moved(record, record.version + 1, at, step, with_result(record.body), None),),
            not_after=until,
        )
        for record in records
    ]


def renewed(name: str, version: int, until: datetime) -> Commit:
    """The errand is still being done."""
    note = _Steps(RENEW)[Errand.RUNNING][1]
    change = Change(
        kind=KIND,
        id=name,
        expected=version,
        state=Errand.RUNNING,
        body=BODY,
        queue=QUEUE,
        deadline_at=until,
        note=note,
    )
    return Commit(changes=(change,))


def refused(names: Sequence[str]) -> Commit:
    """Nothing but lines in the journal: how a history is made long quickly."""
    note = Note(actor=ACTOR, refusal="The lease had run out 3 s before the completion arrived.")
    return Commit(refusals=tuple(JournalledRefusal(kind=KIND, id=name, note=note) for name in names))


_Step: TypeAlias = tuple[Errand, Note]
"""Where it leads, and what the journal says of it."""


def _moved(
    record: Record, version: int, at: datetime, step: _Step, body: bytes, until: datetime | None
) -> Change:
    target, note = step
    return Change(
        kind=KIND,
        id=record.id,
        expected=version,
        expected_at=at,
        state=target,
        body=body,
        parent=record.parent,
        queue=record.queue,
        labels=record.labels,
        priority=record.priority,
        deadline_at=until,
        note=note,
    )


class _Steps(dict[str, _Step]):
    """What the machine says to an event, by state: those that stand alike take the same step, as jobs do."""

    def __init__(self, event: Event) -> None:
        self._event = event

    def __missing__(self, state: str) -> _Step:
        decision = MACHINE.decide(Errand(state), None, self._event)
        if not isinstance(decision, Moved):
            raise decision.error()
        steps = tuple(
            [
                StepLine(step.machine, "", step.event, step.source, step.target, step.owner, step.moves)
                for step in decision.steps
            ]
        )
        self[state] = decision.state, Note(steps=steps, actor=ACTOR)
        return self[state]
