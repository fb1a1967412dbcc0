"""Queues: what waits in each, which workers take it, and pausing one."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from interlock.errors import InvalidJob, RequestIdReused
from interlock.server.messages import QueueList, Reason, RequestId
from interlock.server.routes import Call, Confined, Handler, Route
from interlock.systems.access.principals import Role
from interlock.wire.jobs import QueueHold


class QueueRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The queue to pause or resume, and why."""

    queue: Annotated[str, Meta(min_length=1, max_length=64)]
    reason: Reason = ""
    request_id: RequestId | None = None


async def list_queues(call: Call) -> QueueList:
    """The queues that can be seen."""
    return QueueList(queues=await call.parts.queue_board.take(frozenset(call.principal.queues)))


def tell(verb: str) -> Handler:
    """Return a handler that pauses or resumes a queue."""

    async def handle(call: Call) -> QueueHold:
        asked: QueueRequest = call.body
        call.principal.need_queues([asked.queue])
        act = getattr(call.parts.runtime.queues, verb)
        held: QueueHold = await act(
            asked.queue, reason=asked.reason, actor=call.actor, request_id=call.request_id
        )
        call.parts.queue_board.forget()
        return held

    return handle


def _tell(verb: str, summary: str) -> Route:
    return Route(
        method="POST",
        path=f"/api/queues/{verb}",
        name=f"{verb}Queue",
        summary=summary,
        handler=tell(verb),
        role=Role.OPERATOR,
        confined=Confined.NAMES,
        bodies=(QueueRequest,),
        repeatable=True,
        answer=QueueHold,
        errors=(InvalidJob, RequestIdReused),
        example={"queue": "mail", "reason": "the mail server is away", "request_id": f"{verb}-17"},
    )


ROUTES = (
    Route(
        method="GET",
        path="/api/queues",
        name="listQueues",
        summary="List queues: jobs that wait and run, workers, the last hour, and whether each is paused.",
        handler=list_queues,
        role=Role.VIEWER,
        confined=Confined.HIDES,
        answer=QueueList,
    ),
    _tell("pause", "Give out no job of a queue until it is resumed; jobs that run go on."),
    _tell("resume", "Give out the jobs of a queue again."),
)
