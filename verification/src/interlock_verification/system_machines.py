"""Claims about the machines of the systems: batches, waits, limits, dead letters, messages, tokens and more.

Like those in `single_machines` they restate the tables, as the oracle for mutants. These tables have no
guards, except the one of a wait.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from interlock.engine.outbox import MESSAGE
from interlock.machine import STAY
from interlock.machine.couplings import AnyMachine
from interlock.systems.access.authentication import SESSION
from interlock.systems.access.tokens import TOKEN
from interlock.systems.orchestrator.batches import BATCH
from interlock.systems.orchestrator.dead_letters import DEAD_LETTER
from interlock.systems.orchestrator.gates import GATE, TICKET
from interlock.systems.orchestrator.limits import LIMIT
from interlock.systems.orchestrator.queues import QUEUE
from interlock.systems.orchestrator.uniqueness import UNIQUE_KEY
from interlock.systems.orchestrator.wait_records import (
    APPROVED,
    CANCELED,
    CREATED,
    JOB_WAIT,
    KEPT,
    OPEN,
    RECEIVED,
    REJECTED,
    TIMED_OUT,
    WAITING,
    approve,
    ask,
    cancel,
    reject,
    send,
    time_out,
)
from interlock.systems.quarantine import STANDING
from interlock.systems.runs.caches import CACHE
from interlock.systems.runs.reports.report import REPORT
from interlock.testing.lifecycles import Answer, Lifecycle, must

STAYS = "stays"


def _plain(machine: AnyMachine, *claims: tuple[str, str, str, str]) -> Lifecycle:
    """Return claims about a table without guards.

    Each is a sentence, an event, its states, and where it leads.
    """
    events = {event.name: event for event in machine.events}
    states = {str(name): name for name in machine.states}
    answers = [
        Answer(
            sentence,
            must(
                events[event],
                tuple(states[name] for name in sources.split()),
                STAY if target == STAYS else states[target],
            ),
        )
        for sentence, event, sources, target in claims
    ]
    return Lifecycle(answers=tuple(answers))


class WaitQuestion(msgspec.Struct, frozen=True):
    """The part of a wait that its guards look at; the whole body has JSON, which cannot be compared."""

    question: str | None = None


def _waits_for_a_person(wait: WaitQuestion, _: object) -> bool:
    return wait.question is not None


def _waits_for_a_signal(wait: WaitQuestion, _: object) -> bool:
    return wait.question is None


WAIT_ALONE = Lifecycle(
    data=WaitQuestion(),
    starts=(WaitQuestion(question="Deploy?"),),
    answers=(
        Answer("a handler that comes first waits", must(ask, (CREATED,), WAITING)),
        Answer("a signal that comes first is kept", must(send, (CREATED,), KEPT)),
        Answer("a kept signal is received", must(ask, (KEPT,), RECEIVED)),
        Answer(
            "a signal ends the wait for a signal, and no other",
            must(send, (WAITING,), RECEIVED, when=_waits_for_a_signal),
        ),
        Answer(
            "a person approves a wait for a person, and nothing else",
            must(approve, (WAITING,), APPROVED, when=_waits_for_a_person),
        ),
        Answer(
            "a person rejects a wait for a person, and nothing else",
            must(reject, (WAITING,), REJECTED, when=_waits_for_a_person),
        ),
        Answer("a wait ends at its timeout", must(time_out, (WAITING,), TIMED_OUT)),
        Answer("it ends with its job", must(cancel, OPEN, CANCELED)),
    ),
)

_CLAIMED: tuple[tuple[AnyMachine, Lifecycle], ...] = (
    (JOB_WAIT, WAIT_ALONE),
    (
        BATCH,
        _plain(
            BATCH,
            ("jobs are added while it is open", "add", "OPEN", STAYS),
            ("it is closed once", "close", "OPEN", "RUNNING"),
            ("parts are counted until its end", "count", "OPEN RUNNING STOPPING", STAYS),
            ("it ends with its last job", "finish", "RUNNING", "ENDED"),
            ("after a cancel it is canceled", "finish", "STOPPING", "CANCELED"),
            ("it is canceled as a whole", "cancel", "OPEN RUNNING", "STOPPING"),
        ),
    ),
    (
        DEAD_LETTER,
        _plain(
            DEAD_LETTER,
            ("it is retried once", "retry", "open", "retried"),
            ("it is discarded once", "discard", "open", "discarded"),
        ),
    ),
    (
        QUEUE,
        _plain(
            QUEUE,
            ("it is paused on request", "pause", "open", "paused"),
            ("it is resumed on request", "resume", "paused", "open"),
        ),
    ),
    (
        UNIQUE_KEY,
        _plain(
            UNIQUE_KEY,
            ("a free key is taken", "take", "free", "held"),
            ("a key is freed", "free", "held", "free"),
        ),
    ),
    (
        LIMIT,
        _plain(
            LIMIT,
            ("it is changed", "put", "set", STAYS),
            ("a deleted one is set again", "put", "deleted", "set"),
            ("it is deleted", "delete", "set", "deleted"),
        ),
    ),
    (
        GATE,
        _plain(
            GATE,
            ("slots are taken while none waits", "admit", "free full", "held"),
            ("it is full when jobs wait", "fill", "free held", "full"),
            ("it is free when nothing is left", "clear", "held full", "free"),
            ("its holders are checked after a while", "review", "full", STAYS),
        ),
    ),
    (
        TICKET,
        _plain(
            TICKET,
            ("its time comes", "come", "later", "waiting"),
            ("it is served in line", "serve", "waiting", "served"),
            ("it is dropped", "drop", "later waiting", "dropped"),
        ),
    ),
    (
        MESSAGE,
        _plain(
            MESSAGE,
            ("one courier delivers it", "take", "waiting", "sending"),
            ("it arrives", "delivered", "sending", "sent"),
            ("a failed delivery is tried again", "failed", "sending", "waiting"),
            ("it is given up after the last try", "gave_up", "sending", "dead"),
            ("a lost courier is replaced", "courier_lost", "sending", "waiting"),
            ("it is dropped", "drop", "waiting sending", "dropped"),
        ),
    ),
    (
        STANDING,
        _plain(
            STANDING,
            ("losses are counted", "lost", "watched", STAYS),
            ("a loss is forgiven", "forgiven", "watched quarantined", STAYS),
            ("too many losses quarantine a worker", "too_often", "watched", "quarantined"),
            ("an operator lifts it", "lift", "watched quarantined", "cleared"),
            ("a quarantine ends by itself", "served", "quarantined", "cleared"),
            ("old losses are forgotten", "forget", "watched", "cleared"),
        ),
    ),
    (
        CACHE,
        _plain(
            CACHE,
            ("it is kept when it is complete", "save", "saving", "kept"),
            ("it is used", "used", "kept", STAYS),
            ("an unused one expires", "expire", "kept", "expired"),
            ("it makes room for newer ones", "evict", "kept", "evicted"),
            ("an operator removes it", "remove", "saving kept", "removed"),
        ),
    ),
    (
        REPORT,
        _plain(
            REPORT,
            ("one sender delivers it", "take", "waiting", "sending"),
            ("a status arrives", "told", "sending", "told"),
            ("a status may be missed", "missed", "sending", "told"),
            ("the outcome arrives", "told_outcome", "sending", "done"),
            ("a failed delivery is tried again", "failed", "sending", "waiting"),
            ("a refused one is given up", "refused", "sending", "given_up"),
            ("a lost sender is replaced", "sender_lost", "sending", "waiting"),
            ("it is given up after a long time", "give_up", "waiting", "given_up"),
            ("a later status is sent", "news", "told", "waiting"),
            ("a later status replaces one that waits", "news", "waiting sending", STAYS),
            ("it is dropped", "drop", "waiting sending told", "dropped"),
        ),
    ),
    (
        TOKEN,
        _plain(
            TOKEN,
            ("its secret is replaced", "rotate", "active", "rotating"),
            ("its secret is replaced again", "rotate", "rotating", STAYS),
            ("its secret is replaced at once", "rotate_at_once", "active", STAYS),
            ("the old secret ends at once", "rotate_at_once", "rotating", "active"),
            ("the old secret ends after a while", "retire", "rotating", "active"),
            ("it is revoked", "revoke", "active rotating", "revoked"),
            ("it expires", "expire", "active rotating", "expired"),
        ),
    ),
    (
        SESSION,
        _plain(
            SESSION,
            ("a browser signs out", "sign_out", "open", "ended"),
            ("an admin ends it", "revoke", "open", "ended"),
            ("it expires", "expire", "open", "expired"),
        ),
    ),
)

SYSTEM_MACHINES: Mapping[str, AnyMachine] = {machine.name: machine for machine, _ in _CLAIMED}
SYSTEM_CLAIMS: Mapping[str, Lifecycle] = {machine.name: claims for machine, claims in _CLAIMED}
