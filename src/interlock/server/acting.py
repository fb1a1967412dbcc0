"""Doing something with many records that a filter means, once.

Each record is dealt with by itself, so one that refuses does not stop the others. Under a request id
each of them is done once: when the server dies half-way, the same request goes on where it stopped,
and once it is through, its answer is what a repeat gets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from interlock.engine.applying import Asked, Decision, failed
from interlock.errors import InterlockError, StoreUnavailable
from interlock.server.declaring import Call
from interlock.server.messages import ActionAnswer, Done, Undone
from interlock.store.records import Answer, Commit, Record, Repeated, Request, RequestReused


async def act_once(
    call: Call, endpoint: str, asked: Any, do: Callable[[], Awaitable[ActionAnswer]]
) -> ActionAnswer:
    """Do it, unless it was done before under this request id; only looking is never remembered."""
    if (before := await _answered_before(call, endpoint, asked)) is not None:
        return before
    answer = await do()
    return answer if answer.dry_run else await _recorded(call, endpoint, asked, answer)


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
    return hashlib.sha256(f"{request_id} {record_id}".encode()).hexdigest()[:32]


async def _outcome(record_id: str, one: Callable[[str], Awaitable[Done]]) -> Done | Undone:
    try:
        return await one(record_id)
    except StoreUnavailable:
        raise
    except InterlockError as error:
        return Undone(id=record_id, code=error.code, error=error.sentence)


async def _answered_before(call: Call, endpoint: str, asked: Any) -> ActionAnswer | None:
    if call.request_id is None:
        return None
    request = Asked(call.request_id, endpoint, _fingerprint(endpoint, asked))
    match await call.parts.household.engine.recall(request):
        case Repeated(recorded=recorded):
            return msgspec.json.decode(recorded.answer.body, type=ActionAnswer)
        case RequestReused() as reused:
            raise failed(reused)
    return None


async def _recorded(call: Call, endpoint: str, asked: Any, answer: ActionAnswer) -> ActionAnswer:
    if call.request_id is None:
        return answer
    request = Request(
        id=call.request_id,
        endpoint=endpoint,
        fingerprint=_fingerprint(endpoint, asked),
        answer=Answer(body=msgspec.json.encode(answer)),
    )

    def decide(_: Sequence[Record | None], __: datetime) -> Decision[ActionAnswer]:
        return Decision(answer, Commit(request=request))

    applied = await call.parts.household.engine.apply([], decide)
    if isinstance(applied, Repeated):
        return msgspec.json.decode(applied.recorded.answer.body, type=ActionAnswer)
    return applied.answer


def _fingerprint(endpoint: str, asked: Any) -> str:
    content = msgspec.structs.replace(asked, request_id=None)
    return hashlib.sha256(msgspec.json.encode((endpoint, content))).hexdigest()[:32]
