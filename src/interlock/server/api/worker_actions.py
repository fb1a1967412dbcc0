"""Doing something with every worker that a filter means."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from interlock.errors import RequestIdReused
from interlock.server.bulk import act_once, answer_of, part_of, with_each
from interlock.server.messages import ActionAnswer, Done, Limit, Reason, RequestId
from interlock.server.routes import Call, Route
from interlock.systems.access.principals import Role
from interlock.systems.supervisor.search import found_workers, meant
from interlock.wire.filter_words import BadFilter
from interlock.wire.worker_filters import read_worker_filter

ENDPOINT = "worker actions"


class WorkerActionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Do something with every worker that a filter means."""

    filter: Annotated[str, Meta(max_length=2_000, description="Which workers: `state:running label:gpu`.")]
    action: Literal["pause", "resume", "terminate", "drain"]
    dry_run: Annotated[bool, Meta(description="Only say which workers it would be.")] = False
    give_back: Annotated[
        bool, Meta(description="Pause only: give back what they have, instead of finishing it.")
    ] = False
    limit: Limit = 100
    reason: Reason = ""
    request_id: RequestId | None = None


async def act(call: Call) -> ActionAnswer:
    """Find them, do it with each, and say what came of it."""
    return await act_once(call, ENDPOINT, call.body, partial(_act, call))


async def _act(call: Call) -> ActionAnswer:
    asked: WorkerActionRequest = call.body
    workers = call.parts.runtime.workers
    wanted = meant(read_worker_filter(asked.filter), asked.action)
    now = await call.parts.runtime.engine.clock.now()
    found = await found_workers(workers, wanted, now, limit=asked.limit)
    if asked.dry_run:
        done = tuple(Done(id=view.id, state=view.state) for view in found.views)
        return ActionAnswer(action=asked.action, dry_run=True, done=done, more=found.more)
    more = {"give_back": asked.give_back} if asked.action == "pause" else {}

    async def one(worker_id: str) -> Done:
        after = await getattr(workers, asked.action)(
            worker_id,
            reason=asked.reason,
            actor=call.actor,
            request_id=part_of(call.request_id, worker_id),
            **more,
        )
        return Done(id=worker_id, state=after.state)

    outcomes = await with_each([view.id for view in found.views], one)
    return answer_of(asked.action, outcomes, more=found.more)


ROUTES = (
    Route(
        method="POST",
        path="/api/supervisor/workers/actions",
        name="actOnWorkers",
        summary="Hold, resume or end every worker that a filter means; with dry_run only say which.",
        handler=act,
        role=Role.OPERATOR,
        everything=True,
        bodies=(WorkerActionRequest,),
        repeatable=True,
        answer=ActionAnswer,
        errors=(BadFilter, RequestIdReused),
        example={"filter": "label:gpu workspace:ci", "action": "pause", "dry_run": True, "reason": "deploy"},
    ),
)
