"""Doing something with many records that a filter means, once.

Each record is dealt with by itself, so one that refuses does not stop the others. Under a request id
each of them is done once: when the server dies half-way, the same request goes on where it stopped,
and once it is through, its answer is what a repeat gets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from interlock.api.messages import ActionAnswer, Done, Undone
from interlock.engine.unit_of_work import OwnRequestId, said_of
from interlock.errors import InterlockError, StoreUnavailable
from interlock.server.routes import Call


async def act_once(
    call: Call, endpoint: str, asked: Any, do: Callable[[], Awaitable[ActionAnswer]]
) -> ActionAnswer:
    """Do it, unless it was done before under this request id; only looking is never remembered."""
    if asked.dry_run:
        return await do()
    engine = call.parts.runtime.engine
    request = engine.asked(call.request_id, endpoint, msgspec.structs.replace(asked, request_id=None))
    return await engine.answer_once(request, ActionAnswer, do, whole=True)


async def with_each(ids: Iterable[str], one: Callable[[str], Awaitable[Done]]) -> list[Done | Undone]:
    """Do it with each of them; what refuses says why."""
    return [await _outcome(record_id, one) for record_id in ids]


def answer_of(action: str, outcomes: Sequence[Done | Undone], *, more: bool) -> ActionAnswer:
    """What has become of all of them."""
    return ActionAnswer(
        action=action,
        dry_run=False,
        done=tuple(outcome for outcome in outcomes if isinstance(outcome, Done)),
        refused=tuple(outcome for outcome in outcomes if isinstance(outcome, Undone)),
        more=more,
    )


def part_of(request_id: str | None, record_id: str) -> str | None:
    """The id under which one record is dealt with."""
    if request_id is None:
        return None
    part = hashlib.sha256(f"{request_id} {record_id}".encode()).hexdigest()[:32]
    return OwnRequestId(part, said_of(request_id))


async def _outcome(record_id: str, one: Callable[[str], Awaitable[Done]]) -> Done | Undone:
    try:
        return await one(record_id)
    except StoreUnavailable:
        raise
    except InterlockError as error:
        return Undone(id=record_id, code=error.code, error=error.sentence)
