"""Routes of queues: their jobs and workers, pause and resume."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from interlock.api import jobs as api
from interlock.server.routes import Call, handles
from interlock.wire.jobs import QueueHold


@handles(api.LIST_QUEUES)
async def list_queues(call: Call) -> api.QueueList:
    """Return the queues that the principal may see."""
    return api.QueueList(queues=await call.parts.queue_board.take(frozenset(call.principal.queues)))


def hold_handler(verb: str) -> Callable[[Call], Awaitable[QueueHold]]:
    """Return a handler that pauses or resumes a queue."""

    async def handle(call: Call) -> QueueHold:
        body: api.QueueRequest = call.body
        call.principal.need_queues([body.queue])
        act = getattr(call.parts.runtime.queues, verb)
        held: QueueHold = await act(
            body.queue, reason=body.reason, actor=call.actor, request_id=call.request_id
        )
        call.parts.queue_board.forget()
        return held

    return handle


handles(api.PAUSE_QUEUE)(hold_handler("pause"))
handles(api.RESUME_QUEUE)(hold_handler("resume"))
