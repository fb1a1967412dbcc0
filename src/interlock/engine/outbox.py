"""Effects that must survive a crash: messages that are committed with the change that causes them.

A message is a record like any other, written in the same commit as its change, so there is no change without
its message and no message without its change. A courier takes it with a deadline; after the deadline another
one takes it. So a message is delivered at least once, never silently dropped, and given up, visibly, after
`max_tries`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from interlock.backoff import nth_pause_s
from interlock.engine.aggregate import RecordKind
from interlock.engine.committer import Committer
from interlock.engine.loops import gather_all
from interlock.engine.recovery import Sleeper, commit_with_recovery
from interlock.engine.step_templates import StepTemplates
from interlock.machine import (
    Deadline,
    Event,
    Machine,
    command,
    consequence,
    end,
    ignore,
    on,
    state,
    timer,
)
from interlock.machine.cascade import EventRules
from interlock.store.contract import Store
from interlock.store.records import Change, Claim, Commit, Committed, Record


class MessageState(StrEnum):
    """The states of a message."""

    WAITING = "waiting"
    SENDING = "sending"
    SENT = "sent"
    DEAD = "dead"
    DROPPED = "dropped"


WAITING, SENDING = MessageState.WAITING, MessageState.SENDING
SENT, DEAD, DROPPED = MessageState.SENT, MessageState.DEAD, MessageState.DROPPED

take: Event = command("take", "A courier delivers it.", by="courier")
delivered: Event = command("delivered", "It has arrived.", by="courier")
failed: Event = command("failed", "It could not be delivered.", by="courier")
gave_up: Event = command("gave_up", "It could not be delivered for the last time.", by="courier")
courier_lost: Event = timer("courier_lost", "The courier has not reported in time.", by="clock")
drop: Event = consequence("drop", "It is no longer wanted.", by="operator")

PATIENCE = Deadline(courier_lost, "delivery_s", 30.0)

# fmt: off
MESSAGE = Machine[MessageState, None](
    "message",
    "A message to an outside system, committed with the change that causes it.",
    initial=WAITING,
    spine=(WAITING, SENDING, SENT),
    stop=(drop,),
    states=(
        state(WAITING, "Ready to be delivered, or waiting for its next try.", turn="courier"),
        state(SENDING, "A courier delivers it.", turn="courier", within=PATIENCE),
        end(SENT, "Delivered."),
        end(DEAD, "Dead letter: given up after its last try, and kept for inspection."),
        end(DROPPED, "No longer wanted."),
    ),
    rows=(
        on(take, WAITING, SENDING, owner="courier", why="One courier at a time."),
        on(delivered, SENDING, SENT, owner="courier", why="The receiver has it."),
        on(failed, SENDING, WAITING, owner="courier", why="It is retried after a pause."),
        on(gave_up, SENDING, DEAD, owner="courier", why="No try is left."),
        on(courier_lost, SENDING, WAITING, owner="courier", why="It may have arrived; it is sent again."),
        on(drop, (WAITING, SENDING), DROPPED, owner="operator", why="An operator has dropped it."),
        ignore(courier_lost, (WAITING, SENT, DEAD, DROPPED), why="no courier is delivering it"),
        ignore(drop, (SENT, DEAD, DROPPED), why="it is over"),
    ),
)
# fmt: on

TopicHandler: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Delivers one payload, or raises."""

DeliverRecord: TypeAlias = Callable[[Record], Awaitable[bool]]
"""Delivers one message, or raises; returns whether the commit of its effect has recorded that (`sent`)."""


class OutboxMessage(msgspec.Struct, frozen=True):
    """The body of a message."""

    payload: msgspec.Raw
    tries: int = 0
    last_error: str = ""


P = TypeVar("P")


def message_in(body: bytes, kind: type[P]) -> P:
    """Return the payload in the body of a message."""
    return msgspec.json.decode(_DECODER.decode(body).payload, type=kind)


_MESSAGES = RecordKind(MESSAGE, OutboxMessage, claimed_in=(WAITING,), events=EventRules(sent=(drop,)))
_STEPS = StepTemplates(_MESSAGES)
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(OutboxMessage)


class DeliveryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Retry settings of messages."""

    delivery_s: float = PATIENCE.seconds
    max_tries: int = 10
    first_pause_s: float = 1.0
    longest_pause_s: float = 300.0

    def pause_after(self, tries: int) -> timedelta:
        """Return the pause before the next try."""
        return timedelta(seconds=nth_pause_s(tries, self.first_pause_s, self.longest_pause_s))


def outgoing(
    name: str,
    topic: str,
    payload: bytes,
    now: datetime,
    *,
    commit_id: str = "",
    taken_until: datetime | None = None,
) -> Change:
    """Return a message to commit with its cause. `payload` is JSON.

    A caller that delivers it at once takes it in the same commit, until a time; after that others do.
    """
    body = _ENCODER.encode(OutboxMessage(msgspec.Raw(payload)))
    if taken_until is None:
        return _STEPS.new(name, body, now, commit_id=commit_id, queue=topic, ready_at=now)
    taken = _taken_for(taken_until - now)
    return taken.new(name, body, now, event=take, commit_id=commit_id, queue=topic)


def sent(record: Record, commit_id: str = "") -> Change:
    """Return the change of a delivered message, to commit with its effect."""
    now = record.updated_at  # no timer starts then, so a known time is good enough
    return _STEPS.step(record, delivered, now, commit_id=commit_id, actor="courier")


def returned(record: Record, now: datetime, commit_id: str = "") -> Change:
    """Return the change that lets another courier take the message at once."""
    why = "its courier has ended"
    return _STEPS.step(record, failed, now, commit_id=commit_id, actor="courier", reason=why, ready_at=now)


async def deliver(
    store: Store,
    committer: Committer,
    handlers: Mapping[str, TopicHandler],
    policy: DeliveryPolicy,
    *,
    limit: int = 50,
    sleep: Sleeper = asyncio.sleep,
) -> int:
    """Take ready messages, pass each to its handler, and record the result.

    The topic of a message decides which handler gets it. Messages are handled concurrently: a slow one does
    not delay the others.
    """
    receivers = {topic: partial(_by_payload, handler) for topic, handler in handlers.items()}
    return await deliver_records(store, committer, receivers, policy, limit=limit, sleep=sleep)


async def _by_payload(handler: TopicHandler, record: Record) -> bool:
    await handler(bytes(_DECODER.decode(record.body).payload))
    return False


async def deliver_records(
    store: Store,
    committer: Committer,
    receivers: Mapping[str, DeliverRecord],
    policy: DeliveryPolicy,
    *,
    limit: int = 50,
    sleep: Sleeper = asyncio.sleep,
) -> int:
    """Deliver messages like `deliver`, to receivers that may commit.

    They may commit the delivery together with its effect.
    """
    mine = await take_all(store, tuple(receivers), timedelta(seconds=policy.delivery_s), limit=limit)
    await deliver_taken(store, committer, mine, receivers, policy, sleep=sleep)
    return len(mine)


async def deliver_taken(
    store: Store,
    committer: Committer,
    taken: Sequence[Record],
    receivers: Mapping[str, DeliverRecord],
    policy: DeliveryPolicy,
    *,
    sleep: Sleeper = asyncio.sleep,
) -> None:
    """Deliver messages that were taken before, as `deliver_records` does."""

    async def hand_over(record: Record) -> None:
        change = await _handed_over(store, record, receivers[record.queue or ""], policy)
        if change is not None:
            await commit_with_recovery(store, committer, Commit(changes=(change,)), sleep=sleep)

    await gather_all(hand_over(record) for record in taken)


async def take_all(store: Store, topics: Sequence[str], patience: timedelta, *, limit: int) -> list[Record]:
    """Take ready messages until `patience` has passed.

    After that others may take them.
    """
    (taken,) = (await take_groups(store, [TopicGroup(tuple(topics), patience, limit)])).taken
    return taken


class TopicGroup(msgspec.Struct, frozen=True):
    """Topics whose messages are handled together."""

    topics: tuple[str, ...]
    patience: timedelta
    """Time until others may take the messages."""
    limit: int
    """Maximum number of messages to take at a time."""


class TakenGroups(msgspec.Struct, frozen=True):
    """Messages that were taken, by group."""

    taken: list[list[Record]]
    is_full: bool
    """Whether more messages may be ready, of any group: those of one could have hidden the others."""


async def take_groups(store: Store, groups: Sequence[TopicGroup], *, limit: int | None = None) -> TakenGroups:
    """Take ready messages of several groups by one claim.

    Take at most `limit` in all; by default, as many as the largest group may have.
    """
    numbers = {topic: number for number, group in enumerate(groups) for topic in group.topics}
    steps = [_taken_for(group.patience) for group in groups]
    most = max([group.limit for group in groups]) if limit is None else limit
    chosen: list[Record] = []
    seen = 0

    def send(records: Sequence[Record], now: datetime) -> list[Commit]:
        nonlocal seen
        seen = len(records)
        left = [group.limit for group in groups]
        chosen.clear()
        commits = []
        for record in records:
            number = numbers[record.queue or ""]
            if left[number]:
                left[number] -= 1
                chosen.append(record)
                change = steps[number].step(record, take, now, actor="courier")
                commits.append(Commit(changes=(change,)))
        return commits

    outcomes = await store.claim(Claim(kind=MESSAGE.name, queues=tuple(numbers), limit=most), send)
    taken: list[list[Record]] = [[] for _ in groups]
    for record, outcome in zip(chosen, outcomes, strict=True):
        if isinstance(outcome, Committed):
            now_taken = replace(record, version=record.version + 1, state=SENDING, updated_at=outcome.at)
            taken[numbers[record.queue or ""]].append(now_taken)
    return TakenGroups(taken, seen == most)


async def recover(store: Store, *, limit: int = 500) -> int:
    """Return messages of lost couriers to the queue."""

    def requeued(records: Sequence[Record], now: datetime) -> list[Commit]:
        return [
            Commit(changes=(_STEPS.step(record, courier_lost, now, actor="courier", ready_at=now),))
            for record in records
        ]

    outcomes = await store.due([MESSAGE.name], limit, requeued)
    return sum(isinstance(outcome, Committed) for outcome in outcomes)


async def _handed_over(
    store: Store, record: Record, receive: DeliverRecord, policy: DeliveryPolicy
) -> Change | None:
    try:
        is_recorded = await receive(record)
    except Exception as error:  # noqa: BLE001 - any error of a handler is retried
        return undelivered(record, error, await store.now(), policy)
    return None if is_recorded else sent(record)


def undelivered(
    record: Record, error: Exception, now: datetime, policy: DeliveryPolicy, commit_id: str = ""
) -> Change:
    """Return the change of an undelivered message: a retry, or the end."""
    kept = _DECODER.decode(record.body)
    tries = kept.tries + 1
    why = f"{type(error).__name__}: {error}"[:500]
    again = _ENCODER.encode(OutboxMessage(kept.payload, tries, why))
    is_over = tries >= policy.max_tries
    return _STEPS.step(
        record,
        gave_up if is_over else failed,
        now,
        again,
        commit_id=commit_id,
        actor="courier",
        reason=why,
        ready_at=None if is_over else now + policy.pause_after(tries),
    )


def _taken_for(patience: timedelta) -> StepTemplates:
    """Return the steps of messages that others may take after this time."""
    return _STEPS.lasting(delivery_s=patience.total_seconds())
