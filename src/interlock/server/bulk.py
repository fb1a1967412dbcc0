"""Bulk actions: apply an action to all records that match a filter, once.

Each record is changed in its own commit, so a refusal does not stop the others. A request id makes the
action idempotent: if the server dies half-way, the same request continues where it stopped, and after its
end a repeat receives the stored answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from interlock.api.messages import ActionAnswer, Done, Undone
from interlock.engine.unit_of_work import OwnRequestId, id_as_sent
from interlock.errors import InterlockError, StoreUnavailable
from interlock.server.routes import Call


async def act_once(
    call: Call, endpoint: str, body: Any, do: Callable[[], Awaitable[ActionAnswer]]
) -> ActionAnswer:
    """Apply the action, or return the stored answer of its request id.

    A dry run is not stored.
    """
    if body.dry_run:
        return await do()
    engine = call.parts.runtime.engine
    request = engine.key_for(call.request_id, endpoint, msgspec.structs.replace(body, request_id=None))
    return await engine.answer_once(request, ActionAnswer, do, whole=True)


async def with_each(ids: Iterable[str], one: Callable[[str], Awaitable[Done]]) -> list[Done | Undone]:
    """Apply the action to each record.

    A refusal becomes a result with its reason.
    """
    return [await _outcome(record_id, one) for record_id in ids]


def answer_of(action: str, outcomes: Sequence[Done | Undone], *, more: bool) -> ActionAnswer:
    """Return the results of all records."""
    return ActionAnswer(
        action=action,
        dry_run=False,
        done=tuple(outcome for outcome in outcomes if isinstance(outcome, Done)),
        refused=tuple(outcome for outcome in outcomes if isinstance(outcome, Undone)),
        more=more,
    )


def part_of(request_id: str | None, record_id: str) -> str | None:
    """Return the idempotency key of the action on one record."""
    if request_id is None:
        return None
    part = hashlib.sha256(f"{request_id} {record_id}".encode()).hexdigest()[:32]
    return OwnRequestId(part, id_as_sent(request_id))


async def _outcome(record_id: str, one: Callable[[str], Awaitable[Done]]) -> Done | Undone:
    try:
        return await one(record_id)
    except StoreUnavailable:
        raise
    except InterlockError as error:
        return Undone(id=record_id, code=error.code, error=error.sentence)
